package httpd_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"go.uber.org/goleak"

	"millrace/internal/httpd"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"), // one goroutine per process
		// The goroutine checks every ten seconds whether its server has ended.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// served is a running server.
type served struct {
	*httpd.Server
	addr string
	stop func() error // ends Serve and returns its error
}

// serve starts a server with the routes added by register.
func serve(t *testing.T, cfg httpd.Config, register func(s *httpd.Server)) *served {
	t.Helper()
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	s, err := httpd.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	register(s)
	addr, err := s.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	var result error
	ended := false
	out := &served{Server: s, addr: addr.String()}
	out.stop = func() error {
		if !ended {
			ended = true
			cancel()
			result = <-done
		}
		return result
	}
	t.Cleanup(func() {
		if err := out.stop(); err != nil {
			t.Error(err)
		}
	})
	return out
}

// echo answers a body with itself.
func echo(s *httpd.Server) {
	s.App.Post("/echo", func(c *fiber.Ctx) error {
		body, err := s.ReadBody(c, 0, growing())
		if err != nil {
			return err
		}
		return c.Send(body)
	})
	s.App.Get("/hello", func(c *fiber.Ctx) error { return c.SendString("hello") })
}

// growing returns memory for one body.
func growing() httpd.ReceiveBuffer {
	var mem []byte
	return func(n, at int) ([]byte, error) {
		grown := make([]byte, n)
		copy(grown, mem[:at])
		mem = grown
		return mem, nil
	}
}

// peer is a connection that speaks HTTP by hand.
type peer struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func (s *served) dial(t *testing.T) *peer {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	return newPeer(t, c)
}

// newPeer closes the connection at the end of the test.
func newPeer(t *testing.T, c net.Conn) *peer {
	t.Cleanup(func() { c.Close() })
	// A guard against a hanging test; the deadline measures nothing.
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return &peer{t, c, bufio.NewReader(c)}
}

func (p *peer) send(s string) {
	p.t.Helper()
	if _, err := io.WriteString(p, s); err != nil {
		p.t.Fatal(err)
	}
}

// answer is a completely read reply.
type answer struct {
	*http.Response
	body  string
	Error string `json:"error"`
	Code  string `json:"code"`
}

func (p *peer) receive() *answer {
	p.t.Helper()
	r, err := http.ReadResponse(p.r, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	a := &answer{Response: r, body: string(b)}
	if r.StatusCode >= 400 {
		if err := json.Unmarshal(b, a); err != nil || a.Error == "" || a.Code == "" {
			p.t.Errorf("the error reply %d %q is not {error, code}", r.StatusCode, b)
		}
	}
	return a
}

func (s *served) ask(t *testing.T, text string) *answer {
	t.Helper()
	p := s.dial(t)
	p.send(strings.ReplaceAll(text, "\n", "\r\n"))
	a := p.receive()
	p.Close()
	return a
}

// serveNoCleanup is for tests that check the result of stop.
func serveNoCleanup(t *testing.T, s *httpd.Server, register func()) *served {
	t.Helper()
	register()
	addr, err := s.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	return &served{Server: s, addr: addr.String(), stop: func() error { cancel(); return <-done }}
}
