package httpd

import (
	"net"
	"time"

	"github.com/gofiber/fiber/v2"
)

// Hijack takes over the request's connection from the HTTP server. No response is written. When the handler has
// returned, h is called with the connection, without deadlines, and with the bytes already read after the request.
// From then on h owns the connection and must close the connection.
//
// h runs on a goroutine of the HTTP server, without recovery from panics; the server keeps the request's memory until
// h returns. So h must pass the connection to another goroutine and return at once. h is not called if the connection
// has failed in the meantime, so resources for the connection must be acquired in h.
//
// Hijack panics if the server would close the connection after h (KeepHijackedConns is off), which is a mistake in
// this package.
func Hijack(c *fiber.Ctx, h func(conn net.Conn, buffered []byte)) {
	if !c.App().Server().KeepHijackedConns {
		panic("httpd: KeepHijackedConns is off, so the server would close the hijacked connection")
	}
	ctx := c.Context()
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(wrapped net.Conn) {
		conn := wrapped
		if w, ok := wrapped.(interface{ UnsafeConn() net.Conn }); ok {
			conn = w.UnsafeConn()
		}
		if below := connOf(conn); below != nil { // the connection below TLS
			below.small.Store(neverSmall)
		}
		buffered := readBuffered(wrapped, conn)
		h(unwrap(conn), buffered)
	})
}

// readBuffered returns the bytes in the server's reader. With a deadline in the past, a
// read returns the buffered bytes and then fails, without reading from the connection.
func readBuffered(wrapped, conn net.Conn) []byte {
	if conn.SetReadDeadline(time.Unix(1, 0)) != nil {
		return nil // closed: h gets the error with its first read
	}
	var buffered []byte
	buf := make([]byte, 512)
	for {
		n, err := wrapped.Read(buf)
		buffered = append(buffered, buf[:n]...)
		if err != nil {
			break
		}
	}
	_ = conn.SetReadDeadline(time.Time{})
	return buffered
}
