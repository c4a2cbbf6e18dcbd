package load

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/oip"
	"millrace/internal/wire"
	"millrace/stream"
)

// WebSocket is a target in plain mode: each stream has its own connection.
type WebSocket struct {
	URL    string // ws://host:port/v2/models/NAME/stream?options
	Header http.Header
	TLS    *tls.Config // nil = by the system's certificate authorities
}

var _ Target = WebSocket{}

const dialTimeout = 10 * time.Second

// Open implements Target.
func (t WebSocket) Open(ctx context.Context, _ int, ended func(Ending)) (Conn, error) {
	d := websocket.Dialer{HandshakeTimeout: dialTimeout, ReadBufferSize: 16 << 10, WriteBufferSize: 1 << 10,
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: t.TLS}
	ws, resp, err := d.DialContext(ctx, t.URL, t.Header)
	if err != nil {
		if resp != nil {
			text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
			return nil, refused(resp.Status, text)
		}
		return nil, err
	}
	c := &wsConn{ws: ws, ended: ended, done: make(chan struct{})}
	go c.read() // ends with the connection; Close waits for read
	return c, nil
}

// refused returns the error in a server's answer to a handshake.
func refused(status string, text []byte) error {
	var m struct {
		Error string      `json:"error"`
		Code  stream.Code `json:"code"`
	}
	if json.Unmarshal(text, &m) == nil && m.Error != "" {
		return stream.Errorf(m.Code, "", "%s", m.Error)
	}
	return fmt.Errorf("the server answered %s: %.200s", status, text)
}

type wsConn struct {
	ws     *websocket.Conn
	ended  func(Ending)
	closed atomic.Bool
	done   chan struct{}

	// Used by the reader only, and reused.
	text    wire.Plain
	reply   oip.InferResponse
	scratch []byte
}

// Send implements Conn. The server numbers the frames from 0, too.
func (c *wsConn) Send(_ uint64, f *Frame) error {
	m, err := f.message()
	if err != nil {
		return err
	}
	return c.ws.WritePreparedMessage(m)
}

// Close implements Conn.
func (c *wsConn) Close() error {
	c.closed.Store(true)
	by := time.Now().Add(time.Second)
	// Best effort: a server without a timely reply is disconnected.
	_ = c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), by)
	_ = c.ws.SetReadDeadline(by)
	<-c.done
	return nil
}

func (c *wsConn) read() {
	defer close(c.done)
	defer c.ws.Close()
	var msg []byte
	for {
		kind, r, err := c.ws.NextReader()
		if err == nil {
			msg, err = readAll(r, msg[:0])
		}
		var e Ending
		ofFrame := false
		if err == nil {
			e, ofFrame, err = c.ending(kind, msg)
		}
		closed := c.closed.Load()
		switch {
		case err != nil:
			if !closed {
				c.ended(Ending{Lost: err})
			}
			return
		case ofFrame && !closed:
			c.ended(e)
		}
	}
}

// ending reads one message. ofFrame is false for a message not about a frame; an error that ends the stream is
// returned as err.
func (c *wsConn) ending(kind int, msg []byte) (e Ending, ofFrame bool, err error) {
	if kind == websocket.BinaryMessage {
		var m wire.Result
		if err := wire.ParseResult(msg, &m, &c.reply, c.memory); err != nil {
			return Ending{}, false, err
		}
		return Ending{Seq: m.Seq, Outcome: stream.Answered, Partial: m.Partial, Batch: m.Batch}, true, nil
	}
	m := &c.text
	if err := wire.ParsePlain(msg, m); err != nil {
		return Ending{}, false, err
	}
	if m.Seq == nil {
		if m.Error != nil {
			err = stream.Errorf(stream.Code(m.Error.Code), "", "the server ended the stream: %s", m.Error.Message)
		}
		return Ending{}, false, err
	}
	e = Ending{Seq: *m.Seq, Outcome: stream.Answered, Partial: m.Partial, Batch: m.Batch}
	switch {
	case m.Dropped != "":
		e.Outcome, e.Reason = stream.Dropped, stream.Reason(m.Dropped)
	case m.Error != nil:
		e.Outcome, e.Err = stream.Failed, stream.Errorf(stream.Code(m.Error.Code), "", "%s", m.Error.Message)
	}
	return e, true, nil
}

// memory returns scratch memory for tensors, which are not used.
func (c *wsConn) memory(n int) []byte {
	if len(c.scratch) < n {
		c.scratch = make([]byte, n)
	}
	return c.scratch[:n]
}

// maxReply bounds the size of a reply, in bytes.
const maxReply = 1 << 30

var errLongReply = errors.New("a reply is longer than 1 GiB")

// readAll reads r to its end into b.
func readAll(r io.Reader, b []byte) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			if len(b) >= maxReply {
				return b, errLongReply
			}
			b = append(b, make([]byte, max(len(b), 4<<10))...)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}
