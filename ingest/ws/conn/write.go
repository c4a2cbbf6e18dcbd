package conn

import (
	"sync/atomic"
	"time"

	"millrace/ingest/ws/encode"
)

// maxSpare bounds the queue memory, in entries, that a connection keeps between bursts.
const maxSpare = 64

// writeLoop is the writer goroutine's.
type writeLoop struct {
	Writer
	outbox  *Outbox       // what it writes from
	started bool          // the reader's
	done    chan struct{} // the goroutine has ended
	cut     chan struct{} // it is to end, whatever waits
	next    atomic.Pointer[handover]
}

// handover is an outbox that the writer is to go on with.
type handover struct {
	to    *Outbox
	first func(*Writer)
	done  chan struct{}
}

// start starts the goroutine, or ends the connection.
func (l *writeLoop) start() bool {
	if l.started = l.socket.Run("writer", l.run, l.socket.Fault); !l.started {
		l.socket.End(Draining())
	}
	return l.started
}

// goOn has the goroutine go on with another outbox, once nothing waits in from, which is its own; before anything else it calls
// first. It reports false when the goroutine has ended.
func (l *writeLoop) goOn(from, to *Outbox, first func(*Writer)) bool {
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

// finish has the goroutine write what waits, and ends it.
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
		if len(batch) > 0 {
			l.writeAll(batch)
			clear(batch)
			if cap(batch) <= maxSpare {
				spare = batch[:0]
			}
		}
		if last {
			l.sayEnding()
			return
		}
		if h := l.next.Load(); h != nil && len(batch) == 0 {
			l.next.Store(nil)
			l.outbox = h.to // the reader waits meanwhile
			h.first(&l.Writer)
			close(h.done)
			continue
		}
		if len(batch) > 0 {
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
	pool := &l.socket.encoders
	enc := pool.Get().(*encode.Encoder)
	l.encoder = enc
	done := 0
	defer func() {
		l.encoder = nil
		for ; done < len(batch); done++ {
			l.outbox.dispose(&batch[done])
		}
		if enc.Reusable() {
			pool.Put(enc)
		}
	}()
	for done < len(batch) {
		e := &batch[done]
		if e.Source != nil {
			e.Source.Write(&l.Writer, e.Result)
		} else {
			l.Text(e.Text)
		}
		done++
		l.outbox.dispose(e)
	}
}
