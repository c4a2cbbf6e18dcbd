package conn

import (
	"sync/atomic"
	"time"
)

// maxSpare is the most entries of queue memory that a connection keeps between bursts.
const maxSpare = 64

// writeLoop is the writer goroutine.
type writeLoop struct {
	Writer
	outbox  *Outbox       // source of messages
	started bool          // for the reader
	done    chan struct{} // closed when the goroutine has ended
	cut     chan struct{} // closed to end the loop and leave the queued messages
	next    atomic.Pointer[handover]
}

// handover is the outbox with which the writer continues.
type handover struct {
	to    *Outbox
	first func(*Writer)
	done  chan struct{}
}

// start starts the goroutine, or ends the connection when starting fails.
func (l *writeLoop) start() bool {
	if l.started = l.socket.Run("writer", l.run, l.socket.Fault); !l.started {
		l.socket.End(Draining())
	}
	return l.started
}

// continueWith makes the goroutine continue with the outbox to once its present outbox from is empty; the goroutine
// calls first before the switch. continueWith returns false when the goroutine has ended.
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

// stop ends the goroutine and leaves the queued messages.
func (l *writeLoop) stop() {
	close(l.cut)
	if l.started {
		<-l.done
	}
}

// finish makes the goroutine write the queued messages and end.
func (l *writeLoop) finish() {
	if l.started {
		l.outbox.finish()
		<-l.done
	}
}

// run is the writer goroutine, until the outbox is closed, or finished and empty.
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
			spare = resetEntries(batch)
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

// resetEntries returns the memory of a batch for later entries, or nil after a large burst.
func resetEntries(batch []Entry) []Entry {
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

// writeAll writes a batch of entries, and disposes of each even after a panic.
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
			l.flush() // collected messages do not wait for the encoding of a large message
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
