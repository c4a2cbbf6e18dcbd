package httpd

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"millrace/internal/accept"
	"millrace/stream/coded"
)

// pipes is a listener for connections made by the test.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return newConn(c), nil
}
func (p pipes) Close() error {
	defer func() { _ = recover() }() // the channel is closed
	close(p)
	return nil
}
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// clientPipe is the server's end of a pipe, with an address of the client.
type clientPipe struct {
	net.Conn
	from net.Addr
}

func (c clientPipe) RemoteAddr() net.Addr { return c.from }

// asker asks over one connection.
type asker struct {
	t *testing.T
	net.Conn
	answers *bufio.Reader
}

// ask asks n times, and returns how long the last answer took.
func (a *asker) ask(n int, path string, want int) (took time.Duration) {
	a.t.Helper()
	for range n {
		began := time.Now()
		if _, err := fmt.Fprintf(a, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path); err != nil {
			a.t.Fatal(err)
		}
		r, err := http.ReadResponse(a.answers, nil)
		if err != nil {
			a.t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		if took = time.Since(began); r.StatusCode != want {
			a.t.Fatalf("%s: %s", path, r.Status)
		}
	}
	return took
}

// A client refused many times in a row waits longer and longer for each answer, until an answer other than a refusal.
// Health routes, and connections of proxies, are answered at once. A wait does not hold up the shutdown.
func TestRefusedAgainAndAgain(t *testing.T) {
	new(fasthttp.ResponseHeader).Header() // starts fasthttp's endless clock outside the test's bubble
	refusals := []coded.Code{coded.Unauthenticated, coded.PermissionDenied, coded.FlowControl}
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Addr: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler), Probe: func(path string) bool {
			return strings.HasPrefix(path, "/health")
		},
			Limit: &accept.Limit{Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.9/32")}}})
		if err != nil {
			t.Fatal(err)
		}
		s.App.Get("/health", func(c *fiber.Ctx) error { return c.SendString("ok") })
		s.App.Get("/good", func(c *fiber.Ctx) error { return c.SendString("ok") })
		for _, code := range refusals {
			s.App.Get("/"+string(code), func(c *fiber.Ctx) error { return coded.Errorf(code, "", "refused") })
		}
		ln := make(pipes)
		s.ln = ln
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(ctx) }()
		dial := func(from string) *asker {
			near, far := net.Pipe()
			ln <- clientPipe{far, net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 1))}
			return &asker{t, near, bufio.NewReader(near)}
		}
		one, other, proxy := dial("192.0.2.1"), dial("192.0.2.1"), dial("192.0.2.9")
		wait := func(what string, got, want time.Duration) {
			t.Helper()
			if got != want {
				t.Errorf("%s was answered after %v, want %v", what, got, want)
			}
		}
		for _, code := range refusals {
			path, status := "/"+string(code), statuses[code]
			for n := range withoutWait + 1 {
				wait(fmt.Sprint("request ", n), one.ask(1, path, status), 0)
			}
			for ms := time.Millisecond; ms <= longestWait; ms *= 2 {
				wait("the next request", one.ask(1, path, status), ms)
			}
			wait("a request after many", one.ask(5, path, status), longestWait)
			wait("a request of another connection", other.ask(1, path, status), 0)
			wait("a request of a proxy", proxy.ask(50, path, status), 0)
			wait("a health route", one.ask(50, "/health", 200), 0)
			wait("a request after those for health", one.ask(1, path, status), longestWait)
			wait("the first good one", one.ask(1, "/good", 200), longestWait)
			wait("the next good one", one.ask(1, "/good", 200), 0)
			wait("refused once more", one.ask(withoutWait+1, path, status), 0)
			one.ask(1, "/good", 200)
		}
		one.ask(50, "/unauthenticated", 401)
		go func() { time.Sleep(longestWait / 4); stop() }()
		wait("a request during which the server ends", one.ask(1, "/unauthenticated", 401), longestWait/4)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for _, a := range []*asker{one, other, proxy} {
			_ = a.Close()
		}
		time.Sleep(time.Minute) // the goroutines of fasthttp's pools end
	})
}
