//go:build linux

package httpd_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/gofiber/fiber/v2"

	"millrace/internal/httpd"
)

// waiting serves the route /wait, which waits for the end of its context and reports the cause, and /quick, which
// does not wait.
func waiting(began chan struct{}, ended chan error) func(*httpd.Server) {
	return func(s *httpd.Server) {
		s.App.Get("/wait", func(c *fiber.Ctx) error {
			ctx := s.Context(c, context.Background())
			began <- struct{}{}
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return context.Cause(ctx)
		})
		s.App.Get("/quick", func(c *fiber.Ctx) error { return s.Context(c, context.Background()).Err() })
	}
}

// The context of a request ends when its client leaves, also after earlier requests of the connection; contexts of
// other connections go on.
func TestContextEndsWhenTheClientLeaves(t *testing.T) {
	began, ended := make(chan struct{}), make(chan error, 2)
	s := serve(t, httpd.Config{}, waiting(began, ended))
	stays, leaves := s.dial(t), s.dial(t)
	for _, p := range []*peer{stays, leaves} {
		p.send("GET /quick HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if a := p.receive(); a.StatusCode != 200 {
			t.Fatalf("%d %s", a.StatusCode, a.body)
		}
		p.send("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n")
		<-began
	}
	leaves.Close()
	if err := <-ended; !errors.Is(err, httpd.ErrClientGone) {
		t.Errorf("ended with %v", err)
	}
	select {
	case err := <-ended:
		t.Errorf("the other client's request ended with %v", err)
	default:
	}
	// A client that closes only its sending side still receives the reply.
	if err := stays.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, httpd.ErrClientGone) {
		t.Errorf("ended with %v", err)
	}
	if a := stays.receive(); a.StatusCode != httpd.StatusClientClosed || a.Code != "canceled" {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
}

func TestContextOverTLS(t *testing.T) {
	began, ended := make(chan struct{}), make(chan error, 1)
	other := httptest.NewTLSServer(nil) // only for its certificate
	other.Close()
	s := serve(t, httpd.Config{TLS: &tls.Config{Certificates: other.TLS.Certificates}}, waiting(began, ended))
	c, err := tls.Dial("tcp", s.addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-began
	c.Close()
	if err := <-ended; !errors.Is(err, httpd.ErrClientGone) {
		t.Errorf("ended with %v", err)
	}
}

// Many connections come and go, some with a waiting request, and each context ends.
func TestContextsOfManyConnections(t *testing.T) {
	began, ended := make(chan struct{}), make(chan error, 100)
	s := serve(t, httpd.Config{}, waiting(began, ended))
	for range 20 {
		r, err := http.Get("http://" + s.addr + "/quick")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		http.DefaultClient.CloseIdleConnections()
		p := s.dial(t)
		p.send("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n")
		<-began
		p.Close()
	}
	for range 20 {
		if err := <-ended; !errors.Is(err, httpd.ErrClientGone) {
			t.Errorf("ended with %v", err)
		}
	}
}

// The context of a request on a unix socket ends when the client leaves.
func TestContextOfASocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "millrace")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	began, ended := make(chan struct{}), make(chan error, 1)
	serve(t, httpd.Config{Management: "unix:" + dir + "/s", SocketMode: 0o600}, func(s *httpd.Server) {
		s.App.Get("/wait", func(c *fiber.Ctx) error {
			ctx := s.Context(c, context.Background())
			began <- struct{}{}
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return context.Cause(ctx)
		})
		if _, err := s.ListenManagement(); err != nil {
			t.Fatal(err)
		}
	})
	c, err := net.Dial("unix", dir+"/s")
	if err != nil {
		t.Fatal(err)
	}
	p := newPeer(t, c)
	p.send("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n")
	<-began
	_ = c.Close()
	if err := <-ended; !errors.Is(err, httpd.ErrClientGone) {
		t.Error(err)
	}
}
