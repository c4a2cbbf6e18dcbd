package conn

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/records"
	"millrace/internal/wire"
	"millrace/stream"
)

// Writer sends messages. Only the writer goroutine, and the sources it calls, use Writer.
type Writer struct {
	socket  *socket
	buffers *writeBuffers // borrowed while entries are written, else nil
	broken  atomic.Bool   // no further message can be sent
}

// Consecutive small messages are collected, and leave in one system call.
const (
	maxSmall     = 4 << 10  // most bytes of a collected message
	maxCollected = 16 << 10 // most bytes of all collected messages
	maxHeader    = 10       // bytes of a frame's header
)

// writeBuffers is the writer's memory during writes.
type writeBuffers struct {
	encoder   Encoder
	collected []byte // unwritten frames
	parts     [2][]byte
	frames    net.Buffers // of parts
}

// Encoder returns an encoder for a message, valid during the write of an entry.
func (w *Writer) Encoder() *Encoder { return &w.buffers.encoder }

// Sends reports whether messages are still sent. If not, encoding is unnecessary.
func (w *Writer) Sends() bool { return !w.broken.Load() }

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

// send writes one message, or collects the message for flush. A time-out or a disconnected client ends the
// connection.
func (w *Writer) send(kind int, msg []byte) {
	t := w.buffers
	defer t.encoder.written()
	if w.broken.Load() {
		return
	}
	if len(t.collected)+maxHeader+len(msg) > maxCollected && len(msg) <= maxSmall {
		w.flush()
	}
	t.collected = appendHeader(t.collected, kind, len(msg))
	if len(msg) <= maxSmall {
		t.collected = append(t.collected, msg...)
		return
	}
	w.write(msg)
}

// flush writes the collected messages.
func (w *Writer) flush() {
	if w.pending() {
		w.write(nil)
	}
}

// pending reports whether messages are collected.
func (w *Writer) pending() bool { return len(w.buffers.collected) > 0 }

// write writes the collected messages, and then the rest of the last message.
func (w *Writer) write(rest []byte) {
	t := w.buffers
	if n := min(records.Max-len(t.collected), len(rest)); n > 0 && w.socket.link.corker != nil {
		// otherwise the header would be a record of its own
		t.collected, rest = append(t.collected, rest[:n]...), rest[n:]
	}
	t.parts = [...][]byte{t.collected, rest}
	t.frames = t.parts[:]
	if len(rest) == 0 {
		t.frames = t.parts[:1]
	}
	err := w.socket.link.send(&t.frames, w.socket.opts.WriteWait)
	t.parts = [2][]byte{}
	t.collected = t.collected[:0]
	if err != nil {
		w.failed(err)
	}
}

// borrow takes the writer's buffers for a write; giveBack writes the collected messages and returns the buffers.
func (w *Writer) borrow() {
	w.buffers = w.socket.writeBuffers.Get().(*writeBuffers)
	w.buffers.encoder.use(w.socket.link.memory, w.socket.opts.Turns)
}

func (w *Writer) giveBack() {
	if !w.broken.Load() {
		w.flush()
	}
	t := w.buffers
	w.buffers, t.collected = nil, t.collected[:0]
	t.encoder.written()
	t.encoder.use(nil, nil)
	if t.encoder.reusable() {
		w.socket.writeBuffers.Put(t)
	}
}

// failed ends the connection after an error of writing.
func (w *Writer) failed(err error) {
	why := EndGone
	if timedOut(err) && !w.socket.form.Resumable {
		why = EndSlow
	}
	w.socket.End(Ending{Reason: why})
	w.broken.Store(true)
}

// ping sends a ping, and ends a connection without messages for too long.
func (w *Writer) ping() {
	c := w.socket
	if idle := c.opts.Idle; idle > 0 && !c.busy.Load() &&
		time.Since(c.started)-time.Duration(c.lastMessage.Load()) > idle {
		c.End(Ending{EndIdle, wire.CloseIdle, stream.Errorf(stream.Timeout, "", "no message came for %v", idle)})
		return
	}
	if err := c.link.control(websocket.PingMessage, nil, c.opts.WriteWait); err != nil &&
		err != websocket.ErrCloseSent {
		w.failed(err)
	}
}

// writeEnding sends the client the reason for the connection's end.
func (w *Writer) writeEnding() {
	e := &w.socket.ending
	if e.Code == 0 {
		return
	}
	if e.Err != nil {
		w.borrow()
		w.Text(w.socket.form.Error(e.Err, true))
		w.giveBack()
	}
	_ = w.socket.link.control(websocket.CloseMessage, websocket.FormatCloseMessage(int(e.Code), string(e.Reason)),
		w.socket.opts.WriteWait)
}
