package httpd_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/gofiber/fiber/v2"

	"millrace/internal/httpd"
)

// TestHijack takes a connection over: the bytes after the request are returned, the server writes nothing, no
// deadline is left, the connection outlives the server, and Close closes the connection.
func TestHijack(t *testing.T) {
	s, err := httpd.New(httpd.Config{Addr: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	type taken struct {
		conn     net.Conn
		buffered string
	}
	got := make(chan taken, 1)
	s.App.Get("/take", func(c *fiber.Ctx) error {
		httpd.Hijack(c, func(conn net.Conn, buffered []byte) { got <- taken{conn, string(buffered)} })
		return nil
	})
	addr, err := s.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	for _, extra := range []string{"", "and more", strings.Repeat("x", 5000)} {
		client, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if _, err := io.WriteString(client, "GET /take HTTP/1.1\r\nHost: localhost\r\n\r\n"+extra); err != nil {
			t.Fatal(err)
		}
		h := <-got
		if _, ok := h.conn.(syscall.Conn); !ok { // fasthttp's type has no such method
			t.Errorf("%T is not the bare connection", h.conn)
		}
		if !strings.HasPrefix(extra, h.buffered) {
			t.Errorf("buffered %d bytes that were not sent so", len(h.buffered))
		}
		rest := make([]byte, len(extra)-len(h.buffered))
		if _, err := io.ReadFull(h.conn, rest); err != nil || h.buffered+string(rest) != extra {
			t.Errorf("%v, %d and %d bytes of %d", err, len(h.buffered), len(rest), len(extra))
		}
		_, _ = client.Write([]byte("!")) // a deadline left in the past would make the read fail
		if _, err := io.ReadFull(h.conn, make([]byte, 1)); err != nil {
			t.Errorf("a deadline was left: %v", err)
		}
		if _, err := h.conn.Write([]byte("bye")); err != nil {
			t.Error(err)
		}
		if err := h.conn.Close(); err != nil {
			t.Error(err)
		}
		if b, err := io.ReadAll(client); err != nil || string(b) != "bye" {
			t.Errorf("%v %q", err, b)
		}
	}
	// Another connection, untouched by the end of the server.
	client, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, _ = io.WriteString(client, "GET /take HTTP/1.1\r\nHost: localhost\r\n\r\n")
	h := <-got
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	_, _ = io.WriteString(h.conn, "HTTP/1.1 204 No Content\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(client), nil); err != nil ||
		resp.StatusCode != http.StatusNoContent {
		t.Errorf("%v %v", resp, err)
	}
	_ = h.conn.Close()
}
