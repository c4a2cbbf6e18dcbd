package httpd_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"millrace/internal/httpd"
)

func TestHost(t *testing.T) {
	s := serve(t, httpd.Config{Hosts: []string{"Mill.example"}}, echo)
	_, port, _ := strings.Cut(s.addr, ":")
	own, _ := os.Hostname()
	for host, want := range map[string]int{
		"localhost": 200, "localhost:" + port: 200, "LocalHost:1": 200, "127.0.0.1": 200, "127.0.0.1:" + port: 200,
		"[::1]": 200, "[::1]:8000": 200, own: 200, "mill.example": 200, "MILL.example:80": 200,
		"evil.example": 403, "evil.example:" + port: 403, "localhost.evil.example": 403, "mill.example.evil": 403,
		"": 403, "[": 403, "[::1": 403, "[::1]evil": 403, "192.0.2.1": 403, "localhost@evil.example": 403,
	} {
		a := s.ask(t, fmt.Sprintf("GET /hello HTTP/1.1\nHost: %s\n\n", host))
		if a.StatusCode != want {
			t.Errorf("Host %q: %d %s, want %d", host, a.StatusCode, a.body, want)
		}
		if want == 403 && (!strings.Contains(a.Error, "hosts") || a.Code != "permission_denied") {
			t.Errorf("Host %q: %s does not name the setting", host, a.body)
		}
	}
	for line, want := range map[string]int{
		"GET http://evil.example/hello HTTP/1.1\nHost: localhost\n\n":    403,
		"GET http://localhost/hello HTTP/1.1\nHost: evil.example\n\n":    403,
		"GET http://localhost/hello HTTP/1.1\nHost: localhost\n\n":       200,
		"GET //evil.example/hello HTTP/1.1\nHost: localhost\n\n":         404,
		"GET /hello HTTP/1.0\n\n":                                        403,
		"GET /nothing HTTP/1.1\nHost: evil.example\n\n":                  403,
		"POST /echo HTTP/1.1\nHost: evil.example\nContent-Length: 0\n\n": 403,
	} {
		if a := s.ask(t, line); a.StatusCode != want {
			t.Errorf("%q: %d %s, want %d", line, a.StatusCode, a.body, want)
		}
	}
}

// A connection remembers the host that was allowed last, for the same rules alone.
func TestHostRemembered(t *testing.T) {
	s := serve(t, httpd.Config{Hosts: []string{"mill.example"}}, echo)
	p := s.dial(t)
	check := func(host string, want int) {
		t.Helper()
		p.send(fmt.Sprintf("GET /hello HTTP/1.1\r\nHost: %s\r\n\r\n", host))
		if a := p.receive(); a.StatusCode != want {
			t.Errorf("Host %q: %d %s, want %d", host, a.StatusCode, a.body, want)
		}
	}
	long := strings.Repeat("0", 300) // of the port, too long to be remembered
	for host, want := range map[string]int{"evil.example:80": 403, "mill.example:800": 200, "mill.example:8": 200,
		"mill.example:" + long: 200, "evil.example:" + long: 403} {
		check("mill.example:80", 200)
		check("mill.example:80", 200)
		check(host, want)
	}
	check("mill.example:80", 200)
	rules, err := s.NewRules([]string{"other.example"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Use(rules)
	check("mill.example:80", 403)
	check("other.example:80", 200)
}

func TestHostAny(t *testing.T) {
	s := serve(t, httpd.Config{Hosts: []string{"*"}}, echo)
	if a := s.ask(t, "GET /hello HTTP/1.1\nHost: evil.example\n\n"); a.StatusCode != 200 {
		t.Error(a.Status)
	}
}

// A suffix covers all names of a cluster.
func TestHostSuffix(t *testing.T) {
	s := serve(t, httpd.Config{Hosts: []string{"*.Models.svc", "*.models.svc.cluster.local"}}, echo)
	for host, want := range map[string]int{
		"digits.models.svc:8000": 200, "Digits.MODELS.svc": 200, "a.b.models.svc": 200,
		"digits.models.svc.cluster.local:8000": 200, "localhost": 200,
		"models.svc": 403, ".models.svc": 403, "evilmodels.svc": 403, "digits.models.svc.evil": 403,
		"digits.other.svc:8000": 403, "digits.models.svc@evil.example": 403,
	} {
		if a := s.ask(t, fmt.Sprintf("GET /hello HTTP/1.1\nHost: %s\n\n", host)); a.StatusCode != want {
			t.Errorf("Host %q: %d %s, want %d", host, a.StatusCode, a.body, want)
		}
	}
}

// A page that came unencrypted has another origin than a server with TLS, or behind a proxy that reports TLS; clients
// that are no proxies cannot claim encryption.
func TestOriginUnencrypted(t *testing.T) {
	other := httptest.NewTLSServer(nil) // only for its certificate
	defer other.Close()
	for _, c := range []struct {
		name      string
		tls       bool
		proxy     bool
		forwarded string
		http      int
		https     int
	}{
		{"neither", false, true, "", 200, 200},
		{"TLS", true, true, "", 403, 200},
		{"a proxy with TLS", false, true, "https", 403, 200},
		{"a proxy without", true, true, "http", 200, 200},
		{"not a proxy", true, false, "http", 403, 200},
		{"not a proxy either", false, false, "https", 200, 200},
	} {
		cfg := httpd.Config{Proxy: func(net.Addr) bool { return c.proxy }, Origins: []string{"http://listed.example"}}
		if c.tls {
			cfg.TLS = &tls.Config{Certificates: other.TLS.Certificates}
		}
		s := serve(t, cfg, echo)
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		defer client.CloseIdleConnections()
		ask := func(origin string) int {
			scheme := "http://"
			if c.tls {
				scheme = "https://"
			}
			req, err := http.NewRequest("POST", scheme+s.addr+"/echo", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = "localhost"
			req.Header.Set("Origin", origin)
			if c.forwarded != "" {
				req.Header.Set("X-Forwarded-Proto", c.forwarded)
			}
			r, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			return r.StatusCode
		}
		for origin, want := range map[string]int{"http://localhost": c.http, "https://localhost": c.https,
			"http://listed.example": 200} {
			if got := ask(origin); got != want {
				t.Errorf("%s: Origin %s: %d, want %d", c.name, origin, got, want)
			}
		}
	}
}

// Health routes answer for any Host, and nothing else does.
func TestHostOfProbe(t *testing.T) {
	s := serve(t, httpd.Config{Probe: func(path string) bool { return path == "/hello" || path == "/echo" }}, echo)
	for line, want := range map[string]int{
		"GET /hello HTTP/1.1\nHost: 10.1.2.3:8000\n\n":                              200,
		"GET http://evil.example/hello HTTP/1.1\nHost: evil.example\n\n":            200,
		"GET /hello HTTP/1.0\n\n":                                                   200,
		"GET /hello/other HTTP/1.1\nHost: evil.example\n\n":                         403,
		"GET /x/../other HTTP/1.1\nHost: evil.example\n\n":                          403,
		"POST /echo HTTP/1.1\nHost: evil.example\nContent-Length: 0\n\n":            403,
		"OPTIONS /hello HTTP/1.1\nHost: evil.example\nOrigin: http://evil.test\n\n": 403,
	} {
		if a := s.ask(t, line); a.StatusCode != want {
			t.Errorf("%q: %d %s, want %d", line, a.StatusCode, a.body, want)
		}
	}
}

// A server bound to every address is asked by the address of this machine.
func TestHostOfWildcard(t *testing.T) {
	s := serve(t, httpd.Config{Addr: "0.0.0.0:0"}, echo)
	_, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	s.addr = "127.0.0.2:" + port
	for host, want := range map[string]int{"127.0.0.2:" + port: 200, "127.0.0.3": 403, "evil.example": 403} {
		if a := s.ask(t, "GET /hello HTTP/1.1\nHost: "+host+"\n\n"); a.StatusCode != want {
			t.Errorf("Host %q: %d, want %d", host, a.StatusCode, want)
		}
	}
}

func TestOrigin(t *testing.T) {
	s := serve(t, httpd.Config{Origins: []string{"https://App.example:8443/"}}, func(s *httpd.Server) {
		s.App.All("/any", func(c *fiber.Ctx) error {
			return c.SendString(fmt.Sprint(s.OriginAllowed(c)))
		})
	})
	for _, c := range []struct {
		header string
		want   bool
	}{
		{"", true},
		{"Origin: http://localhost:8000\n", true},
		{"Origin: http://LOCALHOST:8000\n", true},
		{"Origin: https://app.example:8443\n", true},
		{"Origin: https://app.example:8443\nSec-Fetch-Site: cross-site\n", true},
		{"Sec-Fetch-Site: same-origin\n", true},
		{"Origin: https://app.example\n", false},
		{"Origin: http://localhost:3000\n", false},
		{"Origin: http://localhost\n", false},
		{"Origin: http://evil.example\n", false},
		{"Origin: null\n", false},
		{"Origin: localhost:8000\n", false},
		{"Origin: file://localhost:8000\n", false},
		{"Sec-Fetch-Site: cross-site\n", false},
		{"Origin: http://localhost:8000\nSec-Fetch-Site: cross-site\n", false},
		{"Origin: null\nSec-Fetch-Site: same-origin\n", false},
	} {
		for _, m := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			a := s.ask(t, m+" /any HTTP/1.1\nHost: localhost:8000\nContent-Length: 0\n"+c.header+"\n")
			if (a.StatusCode == 200) != c.want {
				t.Errorf("%s with %q: %d %s", m, c.header, a.StatusCode, a.body)
			}
			if !c.want && (a.StatusCode != 403 || !strings.Contains(a.Error, "origins")) {
				t.Errorf("%s with %q: %s does not name the setting", m, c.header, a.body)
			}
		}
		a := s.ask(t, "GET /any HTTP/1.1\nHost: localhost:8000\n"+c.header+"\n")
		if a.StatusCode != 200 || a.body != fmt.Sprint(c.want) {
			t.Errorf("GET with %q: %d, OriginAllowed %s", c.header, a.StatusCode, a.body)
		}
	}
	a := s.ask(t, "OPTIONS /any HTTP/1.1\nHost: localhost\nOrigin: "+
		"https://app.example:8443\nAccess-Control-Request-Method: POST\nAccess-Control-Request-Headers: "+
		"content-type\n\n")
	if a.StatusCode != 204 || a.Header.Get("Access-Control-Allow-Origin") != "https://app.example:8443" ||
		a.Header.Get("Access-Control-Allow-Headers") != "content-type" {
		t.Errorf("preflight: %d %v", a.StatusCode, a.Header)
	}
	// Only OPTIONS with this header is a preflight request; the route answers all other requests.
	for _, ask := range []string{"OPTIONS /any HTTP/1.1\n",
		"GET /any HTTP/1.1\nAccess-Control-Request-Method: POST\n"} {
		a := s.ask(t, ask+"Host: localhost\nOrigin: https://app.example:8443\n\n")
		if a.StatusCode != 200 || a.body != "true" ||
			a.Header.Get("Access-Control-Allow-Origin") != "https://app.example:8443" {
			t.Errorf("%q: %d %q %v", ask, a.StatusCode, a.body, a.Header)
		}
	}
	a = s.ask(t, "OPTIONS /any HTTP/1.1\nHost: localhost\nOrigin: "+
		"http://evil.example\nAccess-Control-Request-Method: POST\n\n")
	if a.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a foreign origin was let in: %v", a.Header)
	}
}

// A port implied by the scheme may be written or left out.
func TestOriginPorts(t *testing.T) {
	s := serve(t, httpd.Config{}, func(s *httpd.Server) {
		s.App.Get("/", func(c *fiber.Ctx) error { return c.SendString(fmt.Sprint(s.OriginAllowed(c))) })
	})
	for _, c := range []struct {
		origin, host string
		want         bool
	}{
		{"http://localhost:80", "localhost", true},
		{"http://localhost", "localhost:80", true},
		{"https://localhost:443", "localhost", true},
		{"https://localhost", "localhost:443", true},
		{"http://localhost:443", "localhost", false},
		{"https://localhost:80", "localhost", false},
	} {
		if a := s.ask(t, "GET / HTTP/1.1\nHost: "+c.host+"\nOrigin: "+c.origin+"\n\n"); a.body != fmt.Sprint(c.want) {
			t.Errorf("%s at %s: %s", c.origin, c.host, a.body)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	for name, cfg := range map[string]httpd.Config{
		"http:":    {Addr: "nowhere"},
		"hosts:":   {Addr: "127.0.0.1:0", Hosts: []string{"a/b"}},
		"origins:": {Addr: "127.0.0.1:0", Origins: []string{"example.com"}},
	} {
		if _, err := httpd.New(cfg); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%+v: %v does not begin with %q", cfg, err, name)
		}
	}
	for _, host := range []string{"", "*.", "*..a", "*a", "a.*", "*.*.a", "*.a:80", "*.a/b"} {
		if _, err := httpd.New(httpd.Config{Addr: "127.0.0.1:0", Hosts: []string{host}}); err == nil ||
			!strings.HasPrefix(err.Error(), "hosts:") {
			t.Errorf("hosts %q: %v", host, err)
		}
	}
}
