package conn

import (
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	readBuffer    = 4 << 10
	writeBuffer   = 4 << 10
	handshakeTime = 10 * time.Second
)

// newUpgrader makes the upgrader of all connections. Host and Origin were checked
// by httpd, before the connection was taken over. Write buffers are lent for
// one message at a time.
func newUpgrader(subprotocols []string) websocket.Upgrader {
	return websocket.Upgrader{
		HandshakeTimeout: handshakeTime,
		ReadBufferSize:   readBuffer,
		WriteBufferSize:  writeBuffer,
		WriteBufferPool:  &sync.Pool{},
		Subprotocols:     subprotocols,
		CheckOrigin:      func(*http.Request) bool { return true },
	}
}

// refuse ends a connection that is not upgraded yet.
func refuse(conn net.Conn, status string) {
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(conn, "HTTP/1.1 "+status+"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	_ = conn.Close()
}
