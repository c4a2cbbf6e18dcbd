package httpd

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

// A Host or an Origin that does not name this server is refused, however written.
func FuzzRules(f *testing.F) {
	r, err := newRules("127.0.0.1", []string{"mill.example"}, []string{"https://app.example"})
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{"localhost", "localhost:8000", "[::1]:1", "evil.example", "mill.example:evil.example",
		"[", "[::1", "a:b:c"} {
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
				known = known || sent == name || strings.HasPrefix(sent, name+":") || sent == "["+name+"]" ||
					strings.HasPrefix(sent, "["+name+"]:")
			}
			if !known {
				t.Errorf("Host %q was allowed", host)
			}
		}
		if r.originAllowed(&c) {
			from := strings.ToLower(string(c.Request.Header.Peek("Origin")))
			_, at, _ := strings.Cut(from, "://")
			if from != "" && from != "https://app.example" && strings.TrimSuffix(strings.TrimSuffix(at, ":80"),
				":443") != strings.TrimSuffix(strings.TrimSuffix(sent, ":80"), ":443") {
				t.Errorf("Origin %q was allowed at Host %q", origin, host)
			}
		}
	})
}

// Another parser reads each accepted head in the same way: the same method, host and length of the body.
func FuzzStrict(f *testing.F) {
	for _, lines := range []string{
		"Host: a", "Host: a\nContent-Length: 5", "Host: a\nTransfer-Encoding: chunked",
		"Host: a\nContent-Length: 5\nTransfer-Encoding: chunked",
		"Host: a\n b", "Host: a\rContent-Length: 5", "Host : a", "Host: a\nHost: b", "Host: a\nContent-Length: 05",
		"host:a\nX:\t\x0b",
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
			return // the other parser is stricter about names and targets
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

// Whatever body in chunks is accepted, another parser reads the same, and finds the next request at the same place.
func FuzzChunks(f *testing.F) {
	for _, text := range []string{
		"0\r\n\r\n", "2\r\n{}\r\n0\r\n\r\nGET / HTTP/1.1\r\n", "00A\r\n0123456789\r\nb\r\n0123456789a\r\n000\r\n\r\n",
		"2;a\nb\r\n{}\r\n0\r\n\r\n",
		"0\nX: y\r\n\r\n", "0\r\nX: y\n\r\n", "2 \r\n{}\r\n0\r\n\r\n", "0x2\r\n{}\r\n0\r\n\r\n",
		"7fffffffffffffff\r\n", "1\r\n\n\r\n0\r\n\n",
	} {
		f.Add([]byte(text))
	}
	const head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
	f.Fuzz(func(t *testing.T, text []byte) {
		rest := bytes.NewReader(text)
		own, err := io.ReadAll(&chunks{head: new(fasthttp.RequestHeader), body: rest})
		if err != nil {
			return
		}
		r := bufio.NewReader(io.MultiReader(strings.NewReader(head), bytes.NewReader(text)))
		req, err := http.ReadRequest(r)
		if err != nil {
			t.Fatal(err)
		}
		other, err := io.ReadAll(req.Body)
		if err != nil || !bytes.Equal(own, other) {
			t.Errorf("%q: %q, elsewhere %q, %v", text, own, other, err)
		}
		if left, _ := io.ReadAll(r); len(left) != rest.Len() || len(req.Trailer) > 0 {
			t.Errorf("%q: the next request begins %d bytes before the end, elsewhere %d; trailers %v", text,
				rest.Len(), len(left), req.Trailer)
		}
	})
}
