package conn

import (
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"millrace/ingest/ws/encode"
	"millrace/internal/wire"
	"millrace/stream"
)

// Writer sends messages. Only the writer goroutine uses it, which passes it to the
// sources of entries.
type Writer struct {
	socket  *socket
	encoder *encode.Encoder // borrowed while entries are written
	broken  atomic.Bool     // no further message can be sent
}

// Encoder returns an encoder for a message. It is valid while an entry is written.
func (w *Writer) Encoder() *encode.Encoder { return w.encoder }

// Sends reports whether messages are still sent. If not, they need not be encoded.
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

// send writes one message. When the client does not read it in time, or has
// disconnected, the connection ends.
func (w *Writer) send(kind int, msg []byte) {
	if w.broken.Load() {
		return
	}
	_ = w.socket.ws.SetWriteDeadline(time.Now().Add(w.socket.opts.WriteWait))
	if err := w.socket.ws.WriteMessage(kind, msg); err != nil {
		w.failed(err)
	}
}

// failed ends the connection after an error of writing.
func (w *Writer) failed(err error) {
	why := EndGone
	if timedOut(err) && !w.socket.form.Resumable {
		why = EndSlow
	}
	w.socket.End(Ending{Why: why})
	w.broken.Store(true)
}

// ping sends a ping, and ends a connection on which no message came for too long.
func (w *Writer) ping() {
	c := w.socket
	if idle := c.opts.Idle; idle > 0 && !c.busy.Load() && time.Since(c.started)-time.Duration(c.lastMessage.Load()) > idle {
		c.End(Ending{EndIdle, wire.CloseIdle, stream.Errorf(stream.Timeout, "", "no message came for %v", idle)})
		return
	}
	if err := c.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(c.opts.WriteWait)); err != nil && err != websocket.ErrCloseSent {
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
		w.Text(w.socket.form.Error(e.Err, true))
	}
	until := time.Now().Add(w.socket.opts.WriteWait)
	_ = w.socket.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(int(e.Code), string(e.Why)), until)
}
