package httpd

import (
	"io"
	"net"
	"runtime/debug"
	"time"

	"github.com/valyala/fasthttp"

	"millrace/stream/coded"
)

// Bounds of a lingering close: the time for which, and the bytes up to which, what a
// client still sends is read and discarded.
const (
	lingerTime  = 2 * time.Second
	lingerBytes = 256 << 20
)

// handle stands around every route, whatever is registered: no order of routes
// gets around the rules, and no handler's panic or unread body reaches another
// request.
func (s *Server) handle(c *fasthttp.RequestCtx) {
	conn := c.Conn()
	s.setBusy(conn, true)
	defer s.setBusy(conn, false)
	defer s.finishRequest(c)
	defer func() {
		if s.draining.Load() && !c.Hijacked() {
			c.SetConnectionClose()
		}
	}()
	switch string(c.Method()) {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS":
	default:
		write(c, WithStatus(fasthttp.StatusMethodNotAllowed, coded.Errorf(coded.Unsupported, "", "the method %.32q is not served here", c.Method())))
		return
	}
	if err := s.rules.check(c); err != nil {
		write(c, err)
		return
	}
	if n := c.Request.Header.ContentLength(); n > s.cfg.MaxBody {
		write(c, tooLarge(n, s.cfg.MaxBody))
		return
	}
	if s.rules.preflight(c) {
		return
	}
	s.inner(c)
}

// finishRequest turns a panic into an error reply, and deals with a body that was not
// read: what is left of it must not be taken for the next request.
func (s *Server) finishRequest(c *fasthttp.RequestCtx) {
	if p := recover(); p != nil {
		s.cfg.Log.Error("a handler panicked", "method", string(c.Method()), "path", string(c.Path()), "panic", p, "stack", string(debug.Stack()))
		c.Response.Reset()
		c.Hijack(nil)
		write(c, serverFault)
	}
	if c.RequestBodyStream() == nil || c.Hijacked() {
		return
	}
	n := c.Request.Header.ContentLength()
	if n >= 0 && n <= prefetch {
		return // all of it was read from the connection already
	}
	if c.Request.Header.ConnectionClose() {
		// The connection closes right after the reply; the client reads the reply
		// only when it got rid of its body.
		_ = c.Conn().SetReadDeadline(time.Now().Add(lingerTime / 4))
		_, _ = io.CopyN(io.Discard, c.RequestBodyStream(), lingerBytes/16)
		return
	}
	// Closing with unread bytes resets the connection, and the client may lose
	// the reply. So the reply goes out, our side is closed, and the rest is
	// discarded for a while. Written with a capital, the header's value reaches
	// the client without making fasthttp close the connection at once.
	c.Response.Header.Set("Connection", "Close")
	c.Hijack(s.linger)
}

// linger closes a connection after its reply has been written: first its own
// direction, and the other one when the client has stopped sending.
func (s *Server) linger(conn net.Conn) {
	if u, ok := conn.(interface{ UnsafeConn() net.Conn }); ok {
		conn = u.UnsafeConn()
	}
	defer conn.Close()
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	s.lingering.Add(1)
	s.mu.Unlock()
	defer s.lingering.Done()
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, conn, lingerBytes)
}
