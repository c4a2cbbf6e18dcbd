package conn

import (
	"sync/atomic"
	"time"
)

// maxSpare is the largest queue memory, in entries, that a connection keeps between
// bursts.
const maxSpare = 64

// writeLoop is the writer goroutine.
type writeLoop struct {
	Writer
	outbox  *Outbox       // from which it takes messages
	started bool          // for the reader
	done    chan struct{} // closed when the goroutine has ended
	cut     chan struct{} // closed when it is to end and leave what waits
	next    atomic.Pointer[handover]
}

// handover is an outbox with which the writer is to continue.
type handover struct {
	to    *Outbox
	first func(*Writer)
	done  chan struct{}
}

// start starts the goroutine, or ends the connection when that is not possible.
func (l *writeLoop) start() bool {
	if l.started = l.socket.Run("writer", l.run, l.socket.Fault); !l.started {
		l.socket.End(Draining())
	}
	return l.started
}

// continueWith makes the goroutine continue with another outbox, once from, which is
// its own, is empty; before anything else it calls first. It returns false when the
// goroutine has ended.
func (l *writeLoop) continueWith(from, to *Outbox, first func(*Writer)) bool {
	h := &handover{to, first, make(chan struct{})}
	l.next.Store(h)
	from.signal()
	select {
	case <-h.done:
		return true
	case <-l.done:
		return false
	}
}

// stop ends the goroutine and leaves what waits.
func (l *writeLoop) stop() {
	close(l.cut)
	if l.started {
		<-l.done
	}
}

// finish makes the goroutine write what waits, and ends it.
func (l *writeLoop) finish() {
	if l.started {
		l.outbox.finish()
		<-l.done
	}
}

// run is the writer goroutine. It ends when the outbox is finished and empty, or closed.
func (l *writeLoop) run() {
	defer close(l.done)
	every := l.socket.opts.PingEvery
	ping := time.NewTimer(every)
	defer ping.Stop()
	var spare []Entry
	for {
		if l.isCut() {
			return
		}
		batch, last := l.outbox.take(spare)
		spare = nil
		if batch != nil {
			l.writeAll(batch)
			spare = emptied(batch)
		}
		if last {
			l.writeEnding()
			return
		}
		if h := l.next.Load(); h != nil && batch == nil {
			l.next.Store(nil)
			l.outbox = h.to // the reader waits until then
			l.borrow()
			h.first(&l.Writer)
			l.giveBack()
			close(h.done)
			continue
		}
		if batch != nil {
			select {
			case <-ping.C:
				l.ping()
				ping.Reset(every)
			default:
			}
			continue
		}
		select {
		case <-l.outbox.wake:
		case <-l.cut:
		case <-ping.C:
			l.ping()
			ping.Reset(every)
		}
	}
}

// emptied returns the memory of a batch for later entries, or nil when a burst has made
// it large.
func emptied(batch []Entry) []Entry {
	clear(batch)
	if cap(batch) > maxSpare {
		return nil
	}
	return batch[:0]
}

func (l *writeLoop) isCut() bool {
	select {
	case <-l.cut:
		return true
	default:
		return false
	}
}

// writeAll writes a batch of entries, and disposes of each, even when it panics.
func (l *writeLoop) writeAll(batch []Entry) {
	l.borrow()
	disposed := 0
	dispose := func(n int) {
		for ; disposed < n; disposed++ {
			l.outbox.dispose(&batch[disposed])
		}
	}
	defer func() {
		l.giveBack()
		dispose(len(batch))
	}()
	for i := range batch {
		e := &batch[i]
		if e.size > maxSmall {
			l.flush() // what is collected does not wait until a large message is encoded
			dispose(i)
		}
		if e.Source != nil {
			e.Source.Write(&l.Writer, e.Result)
		} else {
			l.Text(e.Text)
		}
		if !l.pending() {
			dispose(i + 1)
		}
	}
}
