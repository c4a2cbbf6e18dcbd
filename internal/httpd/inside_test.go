package httpd

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v2"
)

// kept is a value of a request that counts how often it is closed.
type kept struct{ closed int }

func (k *kept) Close() error { k.closed++; return nil }

var _ io.Closer = (*kept)(nil)

// TestHandle: a request of the server itself gets the reply of the handler, a status 500 after a panic of the handler,
// and release closes what the handler keeps until the reply is written; also while Serve begins.
func TestHandle(t *testing.T) {
	s, err := New(Config{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	var k kept
	s.App.Get("/kept", func(c *fiber.Ctx) error { c.Locals("kept", &k); return c.SendString("here") })
	s.App.Get("/panic", func(c *fiber.Ctx) error { c.Locals("kept", &k); panic("a fault of the handler") })
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }() // at any moment of the requests below
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	for i, want := range []struct {
		path   string
		status int
	}{{"/kept", http.StatusOK}, {"/panic", http.StatusInternalServerError}} {
		reply, release := s.Handle(t.Context(), InternalRequest{Method: http.MethodGet, Path: want.path})
		if reply.StatusCode() != want.status || k.closed != i {
			t.Errorf("%s: status %d, closed %d times before release", want.path, reply.StatusCode(), k.closed)
		}
		if release(); k.closed != i+1 {
			t.Errorf("%s: closed %d times after release", want.path, k.closed)
		}
	}
}
