package conn

import (
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"millrace/ingest/ws/encode"
	"millrace/internal/wire"
	"millrace/stream"
)

// maxSpare bounds the queue memory, in entries, that a connection keeps between bursts.
const maxSpare = 64

// Writer is the writing side of a connection. Its exported methods are for Entry.Source, which the writer goroutine calls.
type Writer struct {
	conn    *Conn
	outbox  *Outbox         // what it writes from
	encoder *encode.Encoder // lent while entries are written
	started bool            // the reader's
	done    chan struct{}   // the writer goroutine has ended
	cut     chan struct{}   // it is to end, whatever waits
	broken  atomic.Bool     // nothing more can be sent
	next    atomic.Pointer[handover]
}

// handover is an outbox that the writer is to go on with.
type handover struct {
	to    *Outbox
	first func(*Writer)
	done  chan struct{}
}

// startWriter starts the writer goroutine, or ends the connection.
func (c *Conn) startWriter() bool {
	w := &c.writer
	if w.started = c.registry.Run("writer", w.run, c.Fault); !w.started {
		c.End(Draining())
	}
	return w.started
}

// SwitchOutbox has the writer go on with another outbox, once nothing waits in its own; before anything else it calls first.
// It waits for that, and reports false when the writer has ended. It is called by the reader.
func (c *Conn) SwitchOutbox(to *Outbox, first func(*Writer)) bool {
	h := &handover{to, first, make(chan struct{})}
	c.writer.next.Store(h)
	c.Outbox.signal()
	select {
	case <-h.done:
		c.Outbox = to
		return true
	case <-c.writer.done:
		return false
	}
}

// Push puts an entry into the outbox, and ends the connection when that is full. Where the outbox may be switched, it is for
// the reader.
func (c *Conn) Push(e Entry) {
	if !c.Outbox.Push(e) {
		c.End(Ending{Why: EndSlow})
	}
}

// run is the writer goroutine. It ends when the outbox is finished and empty, or closed.
func (w *Writer) run() {
	defer close(w.done)
	every := w.conn.registry.opts.PingEvery
	ping := time.NewTimer(every)
	defer ping.Stop()
	var spare []Entry
	for {
		if w.isCut() {
			return
		}
		batch, last := w.outbox.take(spare)
		spare = nil
		if len(batch) > 0 {
			w.writeAll(batch)
			clear(batch)
			if cap(batch) <= maxSpare {
				spare = batch[:0]
			}
		}
		if last {
			w.sayEnding()
			return
		}
		if h := w.next.Load(); h != nil && len(batch) == 0 {
			w.next.Store(nil)
			w.outbox = h.to // the reader waits meanwhile
			h.first(w)
			close(h.done)
			continue
		}
		if len(batch) > 0 {
			select {
			case <-ping.C:
				w.ping()
				ping.Reset(every)
			default:
			}
			continue
		}
		select {
		case <-w.outbox.wake:
		case <-w.cut:
		case <-ping.C:
			w.ping()
			ping.Reset(every)
		}
	}
}

func (w *Writer) isCut() bool {
	select {
	case <-w.cut:
		return true
	default:
		return false
	}
}

// writeAll writes a batch of entries, and disposes of each, even when it panics.
func (w *Writer) writeAll(batch []Entry) {
	pool := &w.conn.registry.encoders
	enc := pool.Get().(*encode.Encoder)
	w.encoder = enc
	done := 0
	defer func() {
		w.encoder = nil
		for ; done < len(batch); done++ {
			w.outbox.dispose(&batch[done])
		}
		if enc.Reusable() {
			pool.Put(enc)
		}
	}()
	for done < len(batch) {
		e := &batch[done]
		if e.Source != nil {
			e.Source.Write(w, e.Result)
		} else {
			w.Text(e.Text)
		}
		done++
		w.outbox.dispose(e)
	}
}

// Encoder returns an encoder to build a message with, which is valid while an entry is written.
func (w *Writer) Encoder() *encode.Encoder { return w.encoder }

// Sends says whether messages still go out. Where not, there is no need to build them.
func (w *Writer) Sends() bool { return !w.broken.Load() && !w.outbox.isClosed() }

// Text writes a text message.
func (w *Writer) Text(msg []byte) { w.send(websocket.TextMessage, msg) }

// Binary writes a binary message.
func (w *Writer) Binary(msg []byte) { w.send(websocket.BinaryMessage, msg) }

// Message writes a binary message or a text.
func (w *Writer) Message(msg []byte, isBinary bool) {
	kind := websocket.TextMessage
	if isBinary {
		kind = websocket.BinaryMessage
	}
	w.send(kind, msg)
}

// send writes one message. When the client does not take it in time, or is not there any more, the connection ends.
func (w *Writer) send(kind int, msg []byte) {
	if w.broken.Load() {
		return
	}
	_ = w.conn.ws.SetWriteDeadline(time.Now().Add(w.conn.registry.opts.WriteWait))
	if err := w.conn.ws.WriteMessage(kind, msg); err != nil {
		w.failed(err)
	}
}

// failed ends the connection for an error of writing.
func (w *Writer) failed(err error) {
	why := EndGone
	if timedOut(err) && !w.conn.form.Resumable {
		why = EndSlow
	}
	w.conn.End(Ending{Why: why})
	w.broken.Store(true)
}

// ping asks whether the client is there, and ends a connection on which nothing came for too long.
func (w *Writer) ping() {
	c := w.conn
	if idle := c.registry.opts.Idle; idle > 0 && !c.busy.Load() && time.Since(c.started)-time.Duration(c.lastMessage.Load()) > idle {
		c.End(Ending{EndIdle, wire.CloseIdle, stream.Errorf(stream.Timeout, "", "no message came for %v", idle)})
		return
	}
	if err := c.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(c.registry.opts.WriteWait)); err != nil && err != websocket.ErrCloseSent {
		w.failed(err)
	}
}

// sayEnding tells the client why the connection ends.
func (w *Writer) sayEnding() {
	e := &w.conn.ending
	if e.Code == 0 || !w.Sends() {
		return
	}
	if e.Err != nil {
		w.Text(w.conn.form.Error(e.Err, true))
	}
	until := time.Now().Add(w.conn.registry.opts.WriteWait)
	_ = w.conn.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(int(e.Code), string(e.Why)), until)
}
