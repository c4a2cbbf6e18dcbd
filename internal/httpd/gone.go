package httpd

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/stream/coded"
)

// ErrClientGone is the cause of a context ended by Context.
var ErrClientGone error = coded.Errorf(coded.Canceled, "",
	"the client has disconnected, or has closed its sending side")

// goneGrace is how long requests continue after their client has closed its sending side: a client that closes this
// side after its last request may still get a quick answer.
const goneGrace = 20 * time.Millisecond

// Context returns a context for the request of c. The context ends with parent, or with ErrClientGone soon after the
// client has disconnected or has closed its sending side. All requests of a connection share a context, and must have
// the same parent.
//
// Context reads nothing from the connection: the kernel reports when the peer has closed (see watcher), on one
// subscription per connection. On systems other than Linux the context ends with parent only.
func (s *Server) Context(c *fiber.Ctx, parent context.Context) context.Context {
	w := connOf(c.Context().Conn())
	if w == nil {
		return parent
	}
	if w.ctx == nil {
		w.ctx, w.cancel = context.WithCancelCause(parent)
		w.watched = s.watcher.add(w, departed, w.clientClosed)
	}
	return w.ctx
}

// clientClosed is called when the client of the connection has closed its sending side.
func (c *conn) clientClosed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.leaving = time.AfterFunc(goneGrace, func() { c.cancel(ErrClientGone) })
	}
}

// forget ends the context of a closed or hijacked connection.
func (s *Server) forget(c *conn) {
	if c.ctx == nil {
		return
	}
	s.watcher.remove(c.watched)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.leaving != nil {
		c.leaving.Stop()
	}
	c.cancel(nil)
}
