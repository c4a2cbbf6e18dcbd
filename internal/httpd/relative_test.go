package httpd_test

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"millrace/internal/httpd"
)

// A reference leads from the path of a request to another path of the same server, even below a prefix removed by a
// proxy, and never to another host.
func TestRelative(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"/", "/console/", "./console/"},
		{"/console", "/console/", "./console/"},
		{"/login?a=/b/c", "/", "./"},
		{"/apps/svc/docs", "/docs/?program=svc", "../../docs/?program=svc"},
		{"/v2/streams", "/v2/streams/a:b", "../v2/streams/a:b"},
		{"/v2/streams/", "/v2/streams/a", "../../v2/streams/a"},
		{"//x", "/y", "../y"},
		{"/a%2Fb/c", "/y", "../y"},
		{"/x", "//evil.example/", "./evil.example/"},
		{"/x", `/\evil.example/`, `./\evil.example/`},
		{"/x", "javascript:alert(1)", "./javascript:alert(1)"},
	} {
		app := fiber.New()
		app.Get("/*", func(r *fiber.Ctx) error { return httpd.Redirect(r, c.to, fiber.StatusFound) })
		r, err := app.Test(httptest.NewRequest("GET", "http://host.example"+c.from, nil))
		if err != nil {
			t.Fatal(err)
		}
		got := r.Header.Get("Location")
		if r.StatusCode != fiber.StatusFound || got != c.want {
			t.Errorf("from %s to %s: %d %q, want %q", c.from, c.to, r.StatusCode, got, c.want)
		}
		for _, prefix := range []string{"", "/ai", "/a/b"} {
			base, err := url.Parse("https://host.example" + prefix + c.from)
			if err != nil {
				t.Fatal(err)
			}
			at, err := base.Parse(got)
			if err != nil || at.Host != "host.example" || at.Scheme != "https" ||
				!strings.HasPrefix(at.Path, prefix+"/") {
				t.Errorf("from %s%s: %q leads to %v (%v)", prefix, c.from, got, at, err)
			}
		}
	}
}
