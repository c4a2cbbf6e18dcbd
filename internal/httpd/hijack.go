package httpd

import (
	"net"
	"time"

	"github.com/gofiber/fiber/v2"
)

// Hijack takes the request's connection away from the HTTP server. No response
// is written. Once the handler has returned, h is called with the bare
// connection, without deadlines, and with what the server had read beyond the
// request. From then on the connection belongs to h: its Close closes, and
// nobody else does.
//
// h runs on a goroutine of the HTTP server that holds the request's memory
// until h returns, and that nothing recovers: h hands the connection to a
// goroutine of its own and returns at once. h is not called when the
// connection has failed in the meantime, so it reserves what it needs itself.
//
// It panics when the server would close the connection behind h's back
// (KeepHijackedConns is off), which is a mistake in this package.
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
		h(conn, drain(wrapped, conn))
	})
}

// drain returns what the server's reader holds. With a deadline in the past a
// read gives what is buffered and then fails, without taking anything from the
// connection.
func drain(wrapped, conn net.Conn) []byte {
	if conn.SetReadDeadline(time.Unix(1, 0)) != nil {
		return nil // closed: the first read tells
	}
	var buffered []byte
	room := make([]byte, 512)
	for {
		n, err := wrapped.Read(room)
		buffered = append(buffered, room[:n]...)
		if err != nil {
			break
		}
	}
	_ = conn.SetReadDeadline(time.Time{})
	return buffered
}
