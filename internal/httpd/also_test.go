package httpd

import (
	"context"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v2"
)

// TestAlso: the routes are served at a second address, until the shutdown.
func TestAlso(t *testing.T) {
	s, err := New(Config{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	s.App.Get("/", func(c *fiber.Ctx) error { return c.SendString("here") })
	first, err := s.Listen()
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.ListenAlso("127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	if r, err := http.Get("http://" + second.String() + "/"); err != nil {
		t.Fatal(err)
	} else if r.Body.Close(); r.StatusCode != http.StatusOK {
		t.Errorf("before Serve: %s", r.Status)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	for _, addr := range []string{first.String(), second.String()} {
		r, err := http.Get("http://" + addr + "/")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			t.Errorf("%s answers %s", addr, r.Status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	for _, addr := range []string{first.String(), second.String()} {
		if r, err := http.Get("http://" + addr + "/"); err == nil {
			r.Body.Close()
			t.Errorf("%s is still served", addr)
		}
	}
	if _, err := s.ListenAlso("127.0.0.1:0"); err == nil {
		t.Error("listens after the shutdown")
	}
}
