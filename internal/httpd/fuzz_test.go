package httpd

import (
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

// However a Host or an Origin is written, one that does not name this server is
// refused.
func FuzzRules(f *testing.F) {
	r, err := newRules("127.0.0.1", []string{"mill.example"}, []string{"https://app.example"})
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{"localhost", "localhost:8000", "[::1]:1", "evil.example", "mill.example:evil.example", "[", "[::1", "a:b:c"} {
		f.Add(s, "http://"+s)
		f.Add(s, "https://app.example")
	}
	f.Fuzz(func(t *testing.T, host, origin string) {
		var c fasthttp.RequestCtx
		c.Request.Header.SetRequestURI("/")
		c.Request.Header.SetHost(host)
		c.Request.Header.Set("Origin", origin)
		sent := strings.ToLower(string(c.Request.Header.Host()))
		if r.hostAllowed(&c) {
			known := false
			for name := range r.hosts {
				known = known || sent == name || strings.HasPrefix(sent, name+":") || sent == "["+name+"]" || strings.HasPrefix(sent, "["+name+"]:")
			}
			if !known {
				t.Errorf("Host %q was allowed", host)
			}
		}
		if r.originAllowed(&c) {
			from := strings.ToLower(string(c.Request.Header.Peek("Origin")))
			_, at, _ := strings.Cut(from, "://")
			if from != "" && from != "https://app.example" && strings.TrimSuffix(strings.TrimSuffix(at, ":80"), ":443") != strings.TrimSuffix(strings.TrimSuffix(sent, ":80"), ":443") {
				t.Errorf("Origin %q was allowed at Host %q", origin, host)
			}
		}
	})
}
