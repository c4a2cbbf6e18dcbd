package conn

import (
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"millrace/ingest/ws/encode"
	"millrace/internal/wire"
	"millrace/stream"
)

// Writer sends messages. It is for the writer goroutine, which hands it to the sources of entries.
type Writer struct {
	socket  *socket
	encoder *encode.Encoder // lent while entries are written
	broken  atomic.Bool     // nothing more can be sent
}

// Encoder returns an encoder to build a message with, which is valid while an entry is written.
func (w *Writer) Encoder() *encode.Encoder { return w.encoder }

// Sends says whether messages still go out. Where not, there is no need to build them.
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

// send writes one message. When the client does not take it in time, or is not there any more, the connection ends.
func (w *Writer) send(kind int, msg []byte) {
	if w.broken.Load() {
		return
	}
	_ = w.socket.ws.SetWriteDeadline(time.Now().Add(w.socket.opts.WriteWait))
	if err := w.socket.ws.WriteMessage(kind, msg); err != nil {
		w.failed(err)
	}
}

// failed ends the connection for an error of writing.
func (w *Writer) failed(err error) {
	why := EndGone
	if timedOut(err) && !w.socket.form.Resumable {
		why = EndSlow
	}
	w.socket.End(Ending{Why: why})
	w.broken.Store(true)
}

// ping asks whether the client is there, and ends a connection on which nothing came for too long.
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

// sayEnding tells the client why the connection ends.
func (w *Writer) sayEnding() {
	e := &w.socket.ending
	if e.Code == 0 || !w.Sends() {
		return
	}
	if e.Err != nil {
		w.Text(w.socket.form.Error(e.Err, true))
	}
	until := time.Now().Add(w.socket.opts.WriteWait)
	_ = w.socket.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(int(e.Code), string(e.Why)), until)
}
