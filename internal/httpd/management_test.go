package httpd_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"millrace/internal/httpd"
)

// Reserved routes are served at the management address, and elsewhere answered as routes that do not exist, by
// handlers for missing routes, too; the other routes are served at both.
func TestReserve(t *testing.T) {
	for _, middleware := range []bool{false, true} {
		register := func(reserved bool) func(*httpd.Server) {
			return func(s *httpd.Server) {
				if middleware {
					s.App.Use(func(c *fiber.Ctx) error { // like a program at the root
						var none *fiber.Error
						if err := c.Next(); !errors.As(err, &none) || none.Code != fiber.StatusNotFound {
							return err
						}
						return c.SendString("program " + c.Path())
					})
				}
				where := func(c *fiber.Ctx) error {
					return c.SendString(fmt.Sprint(c.Method(), " ", c.Params("name"), " ", httpd.ToManagement(c)))
				}
				s.App.Get("/things/:name", where)
				if reserved {
					s.App.Delete("/things/:name", where)
					s.App.Post("/things/:name/load", where)
				}
			}
		}
		dir, err := os.MkdirTemp("", "millrace")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "s")
		s := serve(t, httpd.Config{Management: "unix:" + path, SocketMode: 0o600}, func(s *httpd.Server) {
			register(true)(s)
			s.Reserve(func(method, path string) bool { return method == "DELETE" || strings.HasSuffix(path, "/load") })
			if _, err := s.ListenManagement(); err != nil {
				t.Fatal(err)
			}
		})
		without := serve(t, httpd.Config{}, register(false))
		ask := func(network, addr, request string) string {
			t.Helper()
			c, err := net.Dial(network, addr)
			if err != nil {
				t.Fatal(err)
			}
			p := newPeer(t, c)
			p.send(request + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
			a := p.receive()
			return fmt.Sprint(a.StatusCode, " ", a.Header.Get("Allow"), " ", a.body)
		}
		for _, request := range []string{
			"GET /things/a", "DELETE /things/a", "PUT /things/a", "POST /things/a/load", "GET /things/a/load",
			"OPTIONS /things/a/load", "POST /none",
		} {
			if got, want := ask("tcp", s.addr, request), ask("tcp", without.addr, request); got != want {
				t.Errorf("%s: %s, and where the route does not exist %s", request, got, want)
			}
		}
		for request, want := range map[string]string{
			"GET /things/a": "200  GET a true", "DELETE /things/a": "200  DELETE a true",
			"POST /things/a/load": "200  POST a true", "GET /things/a/load": "405 POST",
		} {
			if got := ask("unix", path, request); !strings.HasPrefix(got, want) {
				t.Errorf("%s at the management address: %s, want %s", request, got, want)
			}
		}
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is left: %v", err)
		}
	}
}
