package httpd

import (
	"context"
	"io"
	"net"
	"os"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// InternalRequest is a request that the server makes to its own routes.
type InternalRequest struct {
	Method, Path string
	Header       map[string]string
	Body         io.Reader // nil = no body
	Size         int64     // bytes of Body
}

// Handle answers a request of the server itself, without a connection: the rules for hosts and origins, and the
// bounds of clients, do not apply, and IsInternal is true. The request ends with ctx. The reply's body is valid until
// release is called. Handle may be called before Serve, once all routes are registered.
func (s *Server) Handle(ctx context.Context, r InternalRequest) (reply *fasthttp.Response, release func()) {
	s.finishRoutes()
	at := newConn(noConn{})
	at.at = inside
	at.ctx, at.cancel = context.WithCancelCause(ctx)
	c := &fasthttp.RequestCtx{}
	c.Init2(at, nil, false)
	h := &c.Request.Header
	h.SetMethod(r.Method)
	h.SetRequestURI(r.Path)
	h.SetHost("localhost")
	for k, v := range r.Header {
		h.Set(k, v)
	}
	if r.Body != nil {
		c.Request.SetBodyStream(r.Body, int(r.Size))
		h.SetContentLength(int(r.Size))
	}
	reply, release = &c.Response, func() { // also after a panic of the handler
		at.cancel(nil)
		_ = c.Response.CloseBodyStream()
		c.ResetUserValues() // closes what the handler keeps until the reply is written
	}
	defer s.finishInside(c)
	s.inner(c)
	return reply, release
}

// finishInside writes an error reply after a panic of a handler.
func (s *Server) finishInside(c *fasthttp.RequestCtx) {
	if p := recover(); p != nil {
		s.panicked(c, p)
	}
}

// IsInternal reports whether the server itself has made a request.
func IsInternal(c *fiber.Ctx) bool { return connOf(c.Context().Conn()).isInside() }

// isInside reports whether the requests of the connection are of the server itself. c may be nil.
func (c *conn) isInside() bool { return c != nil && c.at == inside }

// noConn is the connection of a request without a connection.
type noConn struct{}

// noConnAddr is the address of both ends of nowhere.
var noConnAddr = &net.UnixAddr{Name: "inside", Net: "unix"}

func (noConn) Read([]byte) (int, error)         { return 0, io.EOF }
func (noConn) Write([]byte) (int, error)        { return 0, os.ErrClosed }
func (noConn) Close() error                     { return nil }
func (noConn) LocalAddr() net.Addr              { return noConnAddr }
func (noConn) RemoteAddr() net.Addr             { return noConnAddr }
func (noConn) SetDeadline(time.Time) error      { return nil }
func (noConn) SetReadDeadline(time.Time) error  { return nil }
func (noConn) SetWriteDeadline(time.Time) error { return nil }
