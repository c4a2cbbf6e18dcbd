package httpd

import (
	"bufio"
	"bytes"
	"net/http"
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

// Whatever head is accepted, another parser reads it in the same way: the same method, host and
// length of the body.
func FuzzStrict(f *testing.F) {
	for _, lines := range []string{
		"Host: a", "Host: a\nContent-Length: 5", "Host: a\nTransfer-Encoding: chunked", "Host: a\nContent-Length: 5\nTransfer-Encoding: chunked",
		"Host: a\n b", "Host: a\rContent-Length: 5", "Host : a", "Host: a\nHost: b", "Host: a\nContent-Length: 05", "host:a\nX:\t\x0b",
	} {
		f.Add([]byte("POST / HTTP/1.1\r\n" + strings.ReplaceAll(lines, "\n", "\r\n") + "\r\n\r\n"))
		f.Add([]byte("GET /a HTTP/1.0\n" + lines + "\n\n"))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var h fasthttp.RequestHeader
		r := bufio.NewReader(bytes.NewReader(text))
		if h.Read(r) != nil || strict(&h) != nil {
			return
		}
		other := bufio.NewReader(bytes.NewReader(text))
		req, err := http.ReadRequest(other)
		if err != nil {
			return // it is stricter in what it takes for names and targets
		}
		if req.Method != string(h.Method()) || h.IsHTTP11() != (req.Proto == "HTTP/1.1") {
			t.Errorf("%q: %s %s, elsewhere %s %s", text, h.Method(), h.Protocol(), req.Method, req.Proto)
		}
		if own := string(h.Host()); req.URL.Host == "" && own != req.Host {
			t.Errorf("%q: host %q, elsewhere %q", text, own, req.Host)
		}
		chunked := len(req.TransferEncoding) > 0
		switch n := h.ContentLength(); {
		case chunked != (n == -1):
			t.Errorf("%q: length %d, elsewhere chunked %v", text, n, chunked)
		case !chunked && int64(max(n, 0)) != req.ContentLength:
			t.Errorf("%q: length %d, elsewhere %d", text, n, req.ContentLength)
		case r.Buffered() != other.Buffered():
			t.Errorf("%q: the body begins %d bytes before the end, elsewhere %d", text, r.Buffered(), other.Buffered())
		}
	})
}
