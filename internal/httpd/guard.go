package httpd

import (
	"io"
	"net"
	"runtime/debug"
	"time"

	"github.com/valyala/fasthttp"

	"millrace/internal/accept"
	"millrace/stream/coded"
)

// Bounds of a lingering close: the server reads and discards the client's remaining bytes.
const (
	lingerTime  = 2 * time.Second
	lingerBytes = 256 << 20
)

// handle wraps all routes, so that the rules apply to every route in any order of registration, and a handler's panic
// or unread body does not affect other requests.
func (s *Server) handle(c *fasthttp.RequestCtx) {
	conn := connOf(c.Conn())
	switch {
	case conn == nil:
	case s.cfg.Credentials:
		accept.MarkActive(conn.Conn)
	default:
		accept.MarkRequestSent(conn.Conn)
	}
	conn.setBusy(true)
	defer conn.setBusy(false)
	if conn != nil {
		s.slowDown(c, conn)
		defer s.answered(c, conn)
	}
	defer s.finishRequest(c)
	defer func() {
		if s.draining.Load() && !c.Hijacked() {
			c.SetConnectionClose()
		}
		if s.hsts != "" {
			c.Response.Header.Set(fasthttp.HeaderStrictTransportSecurity, s.hsts)
		}
	}()
	s.serveRequest(c, conn)
}

// serveRequest is handle without the steps after the reply. Its many returns are not in handle, where each return
// would make each defer dearer.
func (s *Server) serveRequest(c *fasthttp.RequestCtx, conn *conn) {
	if err := strict(&c.Request.Header); err != nil {
		s.refuse(c, err)
		c.SetConnectionClose()
		return
	}
	switch string(c.Method()) {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS":
	default:
		s.refuse(c, WithStatus(fasthttp.StatusMethodNotAllowed,
			coded.Errorf(coded.Unsupported, "", "the method %.32q is not served here", c.Method())))
		return
	}
	rules := s.rules.Load()
	if err := rules.check(c); err != nil {
		s.refuse(c, err)
		return
	}
	if n := c.Request.Header.ContentLength(); n > s.cfg.MaxBody && !s.isUpload(c) {
		s.refuse(c, tooLarge(&c.Request.Header, n, s.cfg.MaxBody))
		return
	}
	if rules.preflight(c) {
		return
	}
	switch {
	case conn.isPrograms():
		s.programs(c)
	case s.open != nil && !conn.isManagement():
		s.open(c)
	default:
		s.inner(c)
	}
	joinWrites(c)
}

// slowDown delays a request after repeatedly refused requests of its connection: a client that ignores Retry-After,
// or that tries keys, then costs little. Health routes always answer at once. The shutdown ends the wait.
func (s *Server) slowDown(c *fasthttp.RequestCtx, conn *conn) {
	wait := throttleDelay(conn.refused)
	if wait == 0 || s.rules.Load().isProbe(c) {
		return
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.stopping:
	}
}

// answered counts the reply to a request for slowDown. The connections of a proxy carry many clients, and are not
// slowed down. Health routes do not count, so that clients cannot use them to be served faster.
func (s *Server) answered(c *fasthttp.RequestCtx, conn *conn) {
	switch c.Response.StatusCode() {
	case fasthttp.StatusUnauthorized, fasthttp.StatusForbidden, fasthttp.StatusTooManyRequests:
		if s.cfg.Limit.Client(conn.RemoteAddr()).IsValid() {
			conn.refused++
		}
	default:
		if conn.refused > 0 && !s.rules.Load().isProbe(c) {
			conn.refused = 0
		}
	}
}

// Accepted records that the credentials of a request were accepted, see Config.Credentials: new connections no longer
// displace this connection.
func Accepted(c *fasthttp.RequestCtx) {
	if conn := connOf(c.Conn()); conn != nil {
		accept.MarkRequestSent(conn.Conn)
	}
}

// Busy protects the connection of a request without accepted credentials from displacement by new connections until
// done is called, for example while the credentials are checked. Only few connections may be busy at once.
func Busy(c *fasthttp.RequestCtx) (done func()) {
	if conn := connOf(c.Conn()); conn != nil {
		return accept.Busy(conn.Conn)
	}
	return func() {}
}

// joinWrites sends a reply larger than fasthttp's buffer with one system call.
func joinWrites(c *fasthttp.RequestCtx) {
	conn, plain := c.Conn().(*conn)
	if plain && c.Response.StatusCode() == fasthttp.StatusOK && !c.IsHead() && !c.Hijacked() &&
		!c.Response.IsBodyStream() && len(c.Response.Body()) > replyBuffer {
		conn.joinWrites()
	}
}

// refuse answers a request without calling a route.
func (s *Server) refuse(c *fasthttp.RequestCtx, err error) {
	setError(&c.Response, err)
	if s.cfg.Refused != nil {
		s.cfg.Refused(string(c.Method()), string(c.Path()), c.Response.StatusCode())
	}
}

// finishRequest writes an error reply after a panic, and makes sure that the unread part of a body is not read as the
// next request.
func (s *Server) finishRequest(c *fasthttp.RequestCtx) {
	if p := recover(); p != nil {
		s.panicked(c, p)
	}
	if c.RequestBodyStream() == nil || c.Hijacked() {
		return
	}
	n := c.Request.Header.ContentLength()
	if n >= 0 && n <= prefetch {
		return // the whole body was read from the connection
	}
	if c.Request.Header.ConnectionClose() {
		// The connection is closed right after the reply, and many clients read the reply
		// only after sending the whole body.
		_ = c.Conn().SetReadDeadline(time.Now().Add(lingerTime / 4))
		_, _ = io.CopyN(io.Discard, bodyOf(c), lingerBytes/16)
		return
	}
	// Closing with unread bytes resets the connection, and the client may lose the reply. So the server sends the
	// reply, closes its own direction, and reads and discards the rest for a while. The capital letter in the
	// header's value keeps fasthttp from closing the connection at once.
	c.Response.Header.Set("Connection", "Close")
	c.Hijack(s.linger)
}

// panicked answers a request whose handler has panicked.
func (s *Server) panicked(c *fasthttp.RequestCtx, p any) {
	s.cfg.Log.Error("a handler panicked",
		"method", string(c.Method()), "path", string(c.Path()), "panic", p, "stack", string(debug.Stack()))
	c.Response.Reset()
	c.Hijack(nil)
	setError(&c.Response, coded.Fault)
}

// linger closes a connection after its reply: first the server's direction, then the client's when the client has
// stopped sending.
func (s *Server) linger(conn net.Conn) {
	if u, ok := conn.(interface{ UnsafeConn() net.Conn }); ok {
		conn = unwrap(u.UnsafeConn())
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
