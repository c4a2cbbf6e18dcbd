package httpd_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/internal/httpd"
	"millrace/stream/coded"
)

const host = "Host: localhost\r\n"

func TestErrorsAreJSON(t *testing.T) {
	s := serve(t, httpd.Config{}, func(s *httpd.Server) {
		echo(s)
		s.App.Get("/panic", func(*fiber.Ctx) error { panic("at the disco") })
		s.App.Get("/plain", func(*fiber.Ctx) error { return errors.New("a secret of the inside") })
		s.App.Get("/own/:status", func(c *fiber.Ctx) error {
			status, err := c.ParamsInt("status")
			return errors.Join(err, fiber.NewError(status, "by a library"))
		})
		s.App.Get("/coded", func(*fiber.Ctx) error {
			return fmt.Errorf("here: %w", coded.Errorf(coded.Overloaded, "", "later"))
		})
	})
	for request, want := range map[string]struct {
		status int
		code   string
	}{
		"GET /nothing HTTP/1.1\nHost: localhost\n\n":  {404, "not_found"},
		"GET /echo HTTP/1.1\nHost: localhost\n\n":     {405, "unsupported"},
		"DELETE /hello HTTP/1.1\nHost: localhost\n\n": {405, "unsupported"},
		"BREW /hello HTTP/1.1\nHost: localhost\n\n":   {405, "unsupported"},
		"TRACE /hello HTTP/1.1\nHost: localhost\n\n":  {405, "unsupported"},
		"GET /panic HTTP/1.1\nHost: localhost\n\n":    {500, "internal"},
		"GET /plain HTTP/1.1\nHost: localhost\n\n":    {500, "internal"},
		"GET /coded HTTP/1.1\nHost: localhost\n\n":    {503, "overloaded"},
		"GET /own/500 HTTP/1.1\nHost: localhost\n\n":  {500, "internal"},
		"GET /own/501 HTTP/1.1\nHost: localhost\n\n":  {501, "internal"},
		"GET /own/499 HTTP/1.1\nHost: localhost\n\n":  {499, "invalid_argument"},
		"nonsense\n\n": {400, "invalid_argument"},
		"POST /echo HTTP/1.1\nHost: localhost\nContent-Length: x\n\n":                      {400, "invalid_argument"},
		"GET /hello HTTP/1.1\nHost: localhost\nX: " + strings.Repeat("x", 17_000) + "\n\n": {431, "too_large"},
	} {
		a := s.ask(t, request)
		if a.StatusCode != want.status || a.Code != want.code {
			t.Errorf("%.40q: %d %s, want %v", request, a.StatusCode, a.body, want)
		}
		if strings.Contains(a.body, "secret") || strings.Contains(a.body, "disco") {
			t.Errorf("%.40q tells %s", request, a.body)
		}
	}
	if a := s.ask(t, "GET /coded HTTP/1.1\nHost: localhost\n\n"); a.Header.Get("Retry-After") != "1" {
		t.Errorf("no Retry-After: %v", a.Header)
	}
	if a := s.ask(t, "GET /echo HTTP/1.1\nHost: localhost\n\n"); a.Header.Get("Allow") != "POST" {
		t.Errorf("Allow: %v", a.Header)
	}
}

// keptRecords keeps all records, like a logger that suppresses repeated records.
type keptRecords struct {
	slog.Handler
	kept chan slog.Record
}

func (k keptRecords) Handle(_ context.Context, r slog.Record) error {
	k.kept <- r
	return nil
}

// A log record stays unchanged when later requests come over the connection.
func TestLoggedRequestIsKept(t *testing.T) {
	kept := make(chan slog.Record, 1)
	s := serve(t, httpd.Config{Log: slog.New(keptRecords{slog.NewTextHandler(io.Discard, nil), kept})},
		func(s *httpd.Server) {
			s.App.Post("/first", func(*fiber.Ctx) error { return errors.New("broken") })
			s.App.Get("/second", func(*fiber.Ctx) error { return nil })
		})
	p := s.dial(t)
	defer p.Close()
	p.send("POST /first HTTP/1.1\r\n" + host + "Content-Length: 0\r\n\r\nGET /second HTTP/1.1\r\n" + host + "\r\n")
	if first, second := p.receive(), p.receive(); first.StatusCode != 500 || second.StatusCode != 200 {
		t.Fatalf("status %d, then %d", first.StatusCode, second.StatusCode)
	}
	got := map[string]string{}
	record := <-kept
	record.Attrs(func(a slog.Attr) bool {
		got[a.Key] = a.Value.String()
		return true
	})
	if got["method"] != "POST" || got["path"] != "/first" {
		t.Errorf("the record has become %v", got)
	}
}

func TestReadBody(t *testing.T) {
	const max = 100_000
	s := serve(t, httpd.Config{MaxBody: max}, func(s *httpd.Server) {
		echo(s)
		s.App.Post("/refuse", func(c *fiber.Ctx) error {
			_, err := s.ReadBody(c, 0, func(int, int) ([]byte, error) {
				return nil, coded.Errorf(coded.Overloaded, "", "no memory")
			})
			return err
		})
		s.App.Post("/ignore", func(c *fiber.Ctx) error { return c.SendString("ignored") })
		s.AllowUploads("/upload")
		s.App.Post("/upload", func(c *fiber.Ctx) error {
			var body bytes.Buffer
			if _, err := s.Upload(c, 2*max, "setting", &body); err != nil {
				return err
			}
			return c.Send(body.Bytes())
		})
	})
	text := strings.Repeat("0123456789", max/10)
	sized := func(path string, n int) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s", path, host, n, text[:n])
	}
	chunked := func(path string, n int) string {
		var b strings.Builder
		b.WriteString("POST " + path + " HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n")
		all := text + text
		for n > 0 {
			m := min(n, 7001)
			fmt.Fprintf(&b, "%x\r\n%s\r\n", m, all[:m])
			all, n = all[m:], n-m
		}
		b.WriteString("0\r\n\r\n")
		return b.String()
	}
	// All requests on one connection: the unread part of a request must not be taken for the next request.
	p := s.dial(t)
	for _, n := range []int{0, 1, 8191, 8192, 8193, 65_536, 70_000, max - 1, max} {
		for name, request := range map[string]string{"sized": sized("/echo", n), "chunked": chunked("/echo", n),
			"sized upload": sized("/upload", n), "chunked upload": chunked("/upload", n)} {
			go io.WriteString(p, request)
			if a := p.receive(); a.StatusCode != 200 || a.body != text[:n] || a.Close {
				t.Fatalf("%s, %d bytes: %d with %d bytes", name, n, a.StatusCode, len(a.body))
			}
		}
	}
	for _, n := range []int{0, 1, 8192} {
		p.send(sized("/ignore", n) + sized("/refuse", 0))
		if a := p.receive(); a.body != "ignored" {
			t.Fatalf("%d bytes ignored: %s", n, a.body)
		}
		if a := p.receive(); a.StatusCode != 200 {
			t.Fatalf("after %d bytes ignored: %s", n, a.body)
		}
	}
	for name, c := range map[string]struct {
		request string
		status  int
		names   string
	}{
		"announced too large": {"POST /echo HTTP/1.1\r\n" + host + "Content-Length: 100001\r\n\r\n" + text, 413,
			"max_body"},
		"chunked too large": {chunked("/echo", max+1), 413, "max_body"},
		"announced huge": {"POST /echo HTTP/1.1\r\n" + host + "Content-Length: 99999999999\r\n\r\n" + text, 413,
			"max_body"},
		"no memory":          {sized("/refuse", max), 503, "no memory"},
		"no memory, chunked": {chunked("/refuse", max), 503, "no memory"},
		"ignored":            {sized("/ignore", max), 200, ""},
		"ignored, chunked":   {chunked("/ignore", max), 200, ""},
		"no such route":      {sized("/nothing", max), 404, "routes of programs below /apps/NAME/"},
		"asked to close": {strings.Replace(sized("/nothing", max), host, host+"Connection: close\r\n", 1), 404,
			""},
		"broken chunk": {"POST /echo HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", 400,
			"body"},
	} {
		p := s.dial(t)
		go io.WriteString(p, c.request)
		a := p.receive()
		if a.StatusCode != c.status || !strings.Contains(a.Error, c.names) {
			t.Errorf("%s: %d %s, want %d with %q", name, a.StatusCode, a.body, c.status, c.names)
		}
		if !a.Close {
			t.Errorf("%s: the reply does not say that the connection closes: %v", name, a.Header)
		}
		if rest, err := io.ReadAll(p.r); err != nil || len(rest) > 0 {
			t.Errorf("%s: after the reply %q, %v", name, rest, err)
		}
	}
}

func TestShortBody(t *testing.T) {
	s := serve(t, httpd.Config{}, echo)
	for _, sent := range []int{0, 100, 8192, 9000} {
		p := s.dial(t)
		p.send("POST /echo HTTP/1.1\r\n" + host + "Content-Length: 10000\r\n\r\n" + strings.Repeat("x", sent))
		if err := p.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if a := p.receive(); a.StatusCode != 400 || a.Code != "invalid_argument" {
			t.Errorf("%d bytes of 10000: %d %s", sent, a.StatusCode, a.body)
		}
	}
}

// Half a request gets an answer, and its connection is closed.
func TestHalfRequest(t *testing.T) {
	s := serve(t, httpd.Config{HeaderTimeout: 50 * time.Millisecond}, echo)
	for _, half := range []string{"GET /hel", "GET /hello HTTP/1.1\r\nHost: loc", "POST /echo HTTP/1.1\r\n" + host +
		"Content-Length: 50\r\n\r\nhalf"} {
		p := s.dial(t)
		p.send(half)
		if a := p.receive(); a.StatusCode != 408 || a.Code != "timeout" {
			t.Errorf("%q: %d %s", half, a.StatusCode, a.body)
		}
		if _, err := p.r.ReadByte(); err != io.EOF {
			t.Errorf("%q: the connection stays: %v", half, err)
		}
	}
}

// Serve listens by itself if needed, and returns the error; Close without a Listen has nothing to close.
func TestServeListens(t *testing.T) {
	s, err := httpd.New(httpd.Config{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := errors.Join(s.Close(), s.Serve(ended), s.Close()); err != nil {
		t.Error(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if s, err = httpd.New(httpd.Config{Addr: taken.Addr().String()}); err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(ended); err == nil || !strings.Contains(err.Error(), "is in use") {
		t.Errorf("an address that is taken: %v", err)
	}
}

// The shutdown waits only for running handlers.
func TestDrain(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	s := serve(t, httpd.Config{}, func(s *httpd.Server) {
		echo(s)
		s.App.Get("/slow", func(c *fiber.Ctx) error {
			close(begun)
			<-finish
			return c.SendString("done")
		})
	})
	silent, half, kept, slow := s.dial(t), s.dial(t), s.dial(t), s.dial(t)
	half.send("GET /hel")
	kept.send("GET /hello HTTP/1.1\r\n" + host + "\r\n")
	kept.receive()
	slow.send("GET /slow HTTP/1.1\r\n" + host + "\r\n")
	<-begun
	stopped := make(chan error, 1)
	go func() { stopped <- s.stop() }()
	// These end although the slow handler still runs.
	for _, p := range []*peer{silent, half, kept} {
		if _, err := io.ReadAll(p.r); err != nil {
			t.Errorf("not closed in order: %v", err)
		}
	}
	if c, err := net.Dial("tcp", s.addr); err == nil {
		c.Close()
		t.Error("a connection was accepted after the end")
	}
	close(finish)
	if a := slow.receive(); a.body != "done" {
		t.Errorf("the slow handler's reply: %q", a.body)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestDrainIsBounded(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	s, err := httpd.New(httpd.Config{Addr: "127.0.0.1:0", DrainTimeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	running := serveNoCleanup(t, s, func() {
		s.App.Get("/stuck", func(*fiber.Ctx) error { close(begun); <-finish; return nil })
	})
	p := running.dial(t)
	p.send("GET /stuck HTTP/1.1\r\n" + host + "\r\n")
	<-begun
	if err := running.stop(); err == nil || !strings.HasPrefix(err.Error(), "1 connections") {
		t.Errorf("left behind without a word: %v", err)
	}
	if _, err := p.r.ReadByte(); err == nil {
		t.Error("the connection still stands")
	}
	close(finish)
}

// Every code has the status of the table, and replies with temporary errors say when to try again.
func TestStatusOfEachCode(t *testing.T) {
	s := serve(t, httpd.Config{}, func(s *httpd.Server) {
		s.App.Get("/:code", func(c *fiber.Ctx) error {
			return coded.Errorf(coded.Code(c.Params("code")), "part", "is refused")
		})
	})
	want := map[coded.Code]int{
		coded.InvalidArgument: 400, coded.Unsupported: 400, coded.Unauthenticated: 401, coded.PermissionDenied: 403,
		coded.NotFound: 404,
		coded.Conflict: 409, coded.TooLarge: 413, coded.FlowControl: 429, coded.Overloaded: 503, coded.Canceled: 499,
		coded.Internal:    500,
		coded.Unavailable: 503, coded.Unloaded: 503, coded.Draining: 503, coded.Timeout: 504,
	}
	for _, code := range coded.Codes {
		res, err := http.Get("http://" + s.addr + "/" + string(code))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != want[code] {
			t.Errorf("%s is answered with %d, want %d", code, res.StatusCode, want[code])
		}
		if got := res.Header.Get("Retry-After") != ""; got != code.Retryable() {
			t.Errorf("%s has Retry-After: %v", code, got)
		}
		if text := `{"error":"part: is refused","code":"` + string(code) + `"}`; string(body) != text {
			t.Errorf("%s is told as %s, want %s", code, body, text)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestRepliesAroundTheBuffer reads replies whose header and body end near a multiple of the server's buffer, to
// single and pipelined requests.
func TestRepliesAroundTheBuffer(t *testing.T) {
	s := serve(t, httpd.Config{}, echo)
	sizes := []int{1, 100, 8192, 8193, 30 << 10, 100 << 10}
	for n := 3800; n < 4200; n += 3 {
		sizes = append(sizes, n)
	}
	for _, together := range []int{1, 3} {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		r := bufio.NewReader(c)
		for _, n := range sizes {
			body := strings.Repeat(string(rune('a'+n%26)), n)
			one := fmt.Sprintf("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", n, body)
			go func() { _, _ = io.WriteString(c, strings.Repeat(one, together)) }()
			for range together {
				reply, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatalf("%d bytes: %v", n, err)
				}
				got, err := io.ReadAll(reply.Body)
				if err != nil || string(got) != body {
					t.Fatalf("%d bytes: got %d, %v", n, len(got), err)
				}
			}
		}
	}
}
