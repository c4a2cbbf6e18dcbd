package conn

import (
	"sync"
	"sync/atomic"

	"millrace/stream"
)

// Entry is one outgoing message: an encoded text, or a message encoded by its source at the time of the write. Each
// entry is disposed of exactly once, written or not.
type Entry struct {
	Text   []byte
	Source Source         // nil: Text is the message
	Result *stream.Result // passed to Source; may be nil; the outbox releases the result
	size   int64
}

// Source encodes entries of the outbox at the time of the write.
type Source interface {
	// Write writes the message or messages of an entry; r is the entry's result. The writer goroutine calls Write.
	Write(w *Writer, r *stream.Result)
	// Released is called when an entry with a result has left the outbox, written or not.
	Released(partial bool)
}

// entryCost is the number of bytes that an entry counts beyond its text and tensors.
const entryCost = 256

func (e *Entry) measure() int64 {
	n := int64(entryCost + len(e.Text))
	if e.Result != nil {
		for i := range e.Result.Outputs {
			n += int64(len(e.Result.Outputs[i].Data))
		}
	}
	return n
}

// release releases the entry's memory.
func (e *Entry) release() {
	if e.Result == nil {
		return
	}
	partial := e.Result.Partial
	e.Result.Release()
	e.Source.Released(partial)
}

// Outbox is the bounded queue between the streams, which push with their locks held, and the writer. An empty outbox
// has no memory. A closed outbox discards present and later entries.
type Outbox struct {
	maxItems int64
	maxBytes int64
	total    *atomic.Int64 // bytes in all outboxes of the registry
	wake     chan struct{} // capacity 1

	mu     sync.Mutex
	queue  []Entry
	closed atomic.Bool // set under mu
	last   bool        // no further entry will be pushed

	items, bytes atomic.Int64 // queued, or taken and not yet written
}

func newOutbox(maxItems, maxBytes int64, total *atomic.Int64) *Outbox {
	return &Outbox{maxItems: maxItems, maxBytes: maxBytes, total: total, wake: make(chan struct{}, 1)}
}

// Push appends e. When the outbox is over a bound, Push disposes of e and returns false. Push never blocks.
func (b *Outbox) Push(e Entry) bool {
	e.size = e.measure()
	b.mu.Lock()
	items := b.items.Load()
	full := items >= b.maxItems || items > 0 && b.bytes.Load()+e.size > b.maxBytes
	if closed := b.closed.Load(); closed || full {
		b.mu.Unlock()
		e.release()
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

func (b *Outbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take returns all queued entries, or nil; spare becomes the memory of later entries. last says that no entry can
// follow.
func (b *Outbox) take(spare []Entry) (batch []Entry, last bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		return nil, b.last
	}
	batch, b.queue = b.queue, spare
	return batch, false
}

// dispose is called when a taken entry was written or cannot be written.
func (b *Outbox) dispose(e *Entry) {
	b.items.Add(-1)
	b.bytes.Add(-e.size)
	b.total.Add(-e.size)
	e.release()
}

// finish says that no entry follows.
func (b *Outbox) finish() {
	b.mu.Lock()
	b.last = true
	b.mu.Unlock()
	b.signal()
}

// Close discards all entries, now and from now on.
func (b *Outbox) Close() {
	b.mu.Lock()
	b.closed.Store(true)
	queue := b.queue
	b.queue = nil
	b.mu.Unlock()
	for i := range queue {
		b.dispose(&queue[i])
	}
	b.signal()
}
