package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"millrace/stream"
)

// WebSocket is the target at a plain-mode stream of a server: each stream is a
// connection of its own.
type WebSocket struct {
	URL    string // ws://host:port/v2/models/NAME/stream?options
	Header http.Header
}

var _ Target = WebSocket{}

const dialTimeout = 10 * time.Second

// Open implements Target.
func (t WebSocket) Open(ctx context.Context, _ int, ended func(Ending)) (Conn, error) {
	d := websocket.Dialer{HandshakeTimeout: dialTimeout, ReadBufferSize: 16 << 10, WriteBufferSize: 1 << 10, Proxy: http.ProxyFromEnvironment}
	ws, resp, err := d.DialContext(ctx, t.URL, t.Header)
	if err != nil {
		if resp != nil {
			text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
			return nil, fmt.Errorf("%w: %s: %s", err, resp.Status, text)
		}
		return nil, err
	}
	c := &wsConn{ws: ws, ended: ended, done: make(chan struct{})}
	go c.read() // ends with the connection; Close waits for it
	return c, nil
}

type wsConn struct {
	ws     *websocket.Conn
	ended  func(Ending)
	closed atomic.Bool
	done   chan struct{}
}

// Send implements Conn. The server numbers frames as they come, from 0 as well.
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
	// Best effort: whoever does not answer in time is cut off.
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
		if err == nil {
			err = c.take(kind, msg)
		}
		if err != nil {
			if !c.closed.Load() {
				c.ended(Ending{Lost: err})
			}
			return
		}
	}
}

// take reads one reply.
func (c *wsConn) take(kind int, msg []byte) error {
	if kind == websocket.BinaryMessage {
		e, err := parseBinary(msg)
		if err == nil && !c.closed.Load() {
			c.ended(e)
		}
		return err
	}
	e, ok, err := parseText(msg)
	switch {
	case err != nil:
		return err
	case ok:
		if !c.closed.Load() {
			c.ended(e)
		}
	case e.Outcome == stream.Failed:
		return fmt.Errorf("the server says: %s", msg)
	}
	return nil // a word that belongs to no frame
}

// maxReply bounds what is kept of a reply.
const maxReply = 1 << 30

var errLongReply = errors.New("a reply is longer than 1 GiB")

// readAll reads r to its end, into b.
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
