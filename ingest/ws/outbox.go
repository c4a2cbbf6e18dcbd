package ws

import (
	"sync"
	"sync/atomic"

	"millrace/stream"
)

// entry is one message to be written: a result, or a text that is coded
// already. It is done with (dispose) exactly once.
type entry struct {
	result  *stream.Result
	lane    *lane    // of result, in plain mode
	channel *channel // in millrace.v1: of result or closed, or else of drops that it has noted
	closed  stream.CloseReason
	text    []byte
	size    int64
}

// entryCost is what an entry counts beside its tensors.
const entryCost = 256

func (e *entry) measure() int64 {
	n := int64(entryCost + len(e.text))
	if e.result != nil {
		for i := range e.result.Outputs {
			n += int64(len(e.result.Outputs[i].Data))
		}
	}
	return n
}

// dispose gives back what the entry holds, written or not.
func (e *entry) dispose() {
	if e.result == nil {
		return
	}
	partial := e.result.Partial
	e.result.Release()
	if !partial && e.lane != nil {
		e.lane.written()
	}
}

// outbox is the bounded queue between the streams, which push under their
// locks, and the one writer. It holds no memory while it is empty.
//
// A closed outbox disposes of what it has and what still comes: nobody reads.
type outbox struct {
	maxItems int64
	maxBytes int64
	total    *atomic.Int64 // bytes in all outboxes of the adapter
	wake     chan struct{} // one slot

	mu     sync.Mutex
	queue  []entry
	closed atomic.Bool // set under mu
	last   bool        // nothing is pushed any more

	items, bytes atomic.Int64 // queued, or taken and not yet written
}

// push appends e. It reports false, having disposed of e, when the outbox is
// over a bound; it never blocks.
func (b *outbox) push(e entry) bool {
	e.size = e.measure()
	b.mu.Lock()
	items := b.items.Load()
	full := items >= b.maxItems || items > 0 && b.bytes.Load()+e.size > b.maxBytes
	if closed := b.closed.Load(); closed || full {
		b.mu.Unlock()
		e.dispose()
		return closed
	}
	b.items.Add(1)
	b.bytes.Add(e.size)
	b.total.Add(e.size)
	b.queue = append(b.queue, e)
	first := len(b.queue) == 1
	b.mu.Unlock()
	if first {
		b.signal()
	}
	return true
}

func (b *outbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take returns everything queued; spare is used for what comes next. last says
// that nothing more will come.
func (b *outbox) take(spare []entry) (batch []entry, last bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		return nil, b.last
	}
	batch, b.queue = b.queue, spare
	return batch, false
}

// left is called when an entry was written or cannot be.
func (b *outbox) left(e *entry) {
	b.items.Add(-1)
	b.bytes.Add(-e.size)
	b.total.Add(-e.size)
	e.dispose()
}

// finish says that nothing is pushed any more.
func (b *outbox) finish() {
	b.mu.Lock()
	b.last = true
	b.mu.Unlock()
	b.signal()
}

// close disposes of everything, now and from now on.
func (b *outbox) close() {
	b.mu.Lock()
	b.closed.Store(true)
	queue := b.queue
	b.queue = nil
	b.mu.Unlock()
	for i := range queue {
		b.left(&queue[i])
	}
	b.signal()
}

// dead says that the outbox was closed.
func (b *outbox) dead() bool { return b.closed.Load() }
