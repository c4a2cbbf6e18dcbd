package ws

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gorilla/websocket"

	"millrace/internal/wire"
)

const (
	readBuffer    = 4 << 10
	writeBuffer   = 4 << 10
	handshakeTime = 10 * time.Second
)

// newUpgrader makes the upgrader of all sessions. Host and Origin were checked
// by httpd, before the connection was taken over. Write buffers are lent for
// one message at a time.
func newUpgrader() websocket.Upgrader {
	return websocket.Upgrader{
		HandshakeTimeout: handshakeTime,
		ReadBufferSize:   readBuffer,
		WriteBufferSize:  writeBuffer,
		WriteBufferPool:  &sync.Pool{},
		Subprotocols:     []string{wire.Subprotocol},
		CheckOrigin:      func(*http.Request) bool { return true },
	}
}

// handshake copies what the upgrade needs of the request, and checks it while
// the answer can still be an HTTP error.
func handshake(c *fiber.Ctx) (*http.Request, error) {
	h := http.Header{}
	for _, name := range [...]string{"Connection", "Upgrade", "Sec-Websocket-Version", "Sec-Websocket-Key", "Sec-Websocket-Protocol"} {
		for _, v := range c.Request().Header.PeekAll(name) {
			h.Add(name, string(v))
		}
	}
	r := &http.Request{Method: http.MethodGet, Header: h}
	key, err := base64.StdEncoding.DecodeString(h.Get("Sec-Websocket-Key"))
	switch {
	case c.Method() != fiber.MethodGet || !websocket.IsWebSocketUpgrade(r):
		return nil, errors.New("this address speaks WebSocket: connect with a WebSocket client")
	case h.Get("Sec-Websocket-Version") != "13":
		return nil, errors.New("the WebSocket version has to be 13")
	case err != nil || len(key) != 16:
		return nil, errors.New("the Sec-WebSocket-Key has to be 16 bytes in base64")
	case c.Request().Header.ContentLength() > 0:
		return nil, errors.New("a WebSocket handshake has no body")
	}
	return r, nil
}

// hijacked gives gorilla's Upgrader the connection that was taken over. What it
// would write as an HTTP error is written as a plain one.
type hijacked struct {
	conn     net.Conn
	buffered []byte
	header   http.Header
	status   int
}

func (h *hijacked) Header() http.Header { return h.header }

func (h *hijacked) WriteHeader(status int) { h.status = status }

func (h *hijacked) Write(p []byte) (int, error) { return len(p), nil }

// Hijack implements http.Hijacker. The upgrader refuses a client that sent more
// than its handshake.
func (h *hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	r := bufio.NewReaderSize(bytes.NewReader(h.buffered), 16)
	_, _ = r.Peek(1)
	return h.conn, bufio.NewReadWriter(r, bufio.NewWriterSize(io.Discard, 16)), nil
}

var (
	_ http.ResponseWriter = (*hijacked)(nil)
	_ http.Hijacker       = (*hijacked)(nil)
)

// upgrade answers the handshake. When it fails the connection is closed.
func (s *session) upgrade(r *http.Request, buffered []byte) error {
	w := &hijacked{conn: s.conn, buffered: buffered, header: http.Header{}}
	ws, err := s.a.upgrader.Upgrade(w, r, nil)
	if err != nil {
		refuse(s.conn, "400 Bad Request")
		return err
	}
	s.ws = ws
	return nil
}

// refuse ends a connection that is no session yet.
func refuse(conn net.Conn, status string) {
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(conn, "HTTP/1.1 "+status+"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	_ = conn.Close()
}
