package httpd

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
	"github.com/valyala/fasthttp"

	"millrace/stream/coded"
)

// Handshake copies and checks the headers of a WebSocket upgrade, while the reply can still
// be an HTTP error. The caller must check the Origin with OriginAllowed.
func Handshake(c *fiber.Ctx) (*http.Request, error) {
	h := http.Header{}
	for _, name := range [...]string{"Connection", "Upgrade", "Sec-Websocket-Version", "Sec-Websocket-Key",
		"Sec-Websocket-Protocol"} {
		for _, v := range c.Request().Header.PeekAll(name) {
			h.Add(name, string(v))
		}
	}
	r := &http.Request{Method: http.MethodGet, Header: h}
	key, err := base64.StdEncoding.DecodeString(h.Get("Sec-Websocket-Key"))
	fault := ""
	switch {
	case c.Method() != fiber.MethodGet || !websocket.IsWebSocketUpgrade(r):
		fault = "this is not a WebSocket handshake: connect with a WebSocket client"
	case h.Get("Sec-Websocket-Version") != "13":
		fault = "the WebSocket version must be 13"
	case err != nil || len(key) != 16:
		fault = "the Sec-WebSocket-Key must be 16 bytes in base64"
	case c.Request().Header.ContentLength() > 0, c.Request().Header.ContentLength() == -1: // in chunks
		fault = "a WebSocket handshake must not have a body"
	default:
		c.Status(fiber.StatusSwitchingProtocols) // for metrics and logs: Upgrade writes the reply
		return r, nil
	}
	c.Set("Upgrade", "websocket")
	c.Set("Connection", "Upgrade")
	c.Set("Sec-WebSocket-Version", "13")
	return nil, WithStatus(fasthttp.StatusUpgradeRequired, coded.Errorf(coded.InvalidArgument, "", "%s", fault))
}

// The settings of all upgrades.
const (
	handshakeTime = 10 * time.Second // the time limit for writing the answer
	writeBuffer   = 4 << 10          // bytes, from a pool, in use while a message is written
)

// NewUpgrader returns an upgrader for Upgrade. Connections have a read buffer of readBuffer bytes, and use one of the
// subprotocols if offered by the client. The upgrader allows every Host and Origin: both are checked before the
// takeover of a connection.
func NewUpgrader(readBuffer int, subprotocols ...string) *websocket.Upgrader {
	return &websocket.Upgrader{
		HandshakeTimeout: handshakeTime, ReadBufferSize: readBuffer, WriteBufferSize: writeBuffer,
		WriteBufferPool: &sync.Pool{},
		Subprotocols:    subprotocols, CheckOrigin: func(*http.Request) bool { return true },
	}
}

// Upgrade answers a handshake on a connection taken over with Hijack; buffered is from Hijack too. u is made by
// NewUpgrader. If Upgrade fails, Upgrade closes the connection.
func Upgrade(u *websocket.Upgrader, conn net.Conn, buffered []byte, r *http.Request) (*websocket.Conn, error) {
	ws, err := u.Upgrade(&hijacked{conn: conn, buffered: buffered, header: http.Header{}}, r, nil)
	if err != nil {
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		_ = conn.Close()
	}
	return ws, err
}

// hijacked passes the connection to the Upgrader, and discards the Upgrader's HTTP errors: Upgrade writes the errors.
type hijacked struct {
	conn     net.Conn
	buffered []byte
	header   http.Header
}

func (h *hijacked) Header() http.Header         { return h.header }
func (h *hijacked) WriteHeader(int)             {}
func (h *hijacked) Write(p []byte) (int, error) { return len(p), nil }

// Hijack implements http.Hijacker. The Upgrader refuses a client that has sent bytes after its handshake.
func (h *hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	r := bufio.NewReaderSize(bytes.NewReader(h.buffered), 16)
	if _, err := r.Peek(1); err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	return h.conn, bufio.NewReadWriter(r, bufio.NewWriterSize(io.Discard, 16)), nil
}

var (
	_ http.ResponseWriter = (*hijacked)(nil)
	_ http.Hijacker       = (*hijacked)(nil)
)
