package servertest

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"millrace/server"
)

// Running is a server that runs until the end of a test, unless the test calls Stop before.
type Running struct {
	*server.Server
	T    *testing.T
	Base string       // the URL of the HTTP address
	Stop func() error // ends the server, and returns the result of Run, at each call
}

// Start starts a server. The test fails when Run returns an error.
func Start(t *testing.T, cfg server.Config) *Running {
	t.Helper()
	s, stop := RunWith(t, cfg)
	r := &Running{Server: s, T: t, Base: s.URL("http"), Stop: sync.OnceValue(stop)}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// Reply is a reply, read to its end.
type Reply struct {
	*http.Response
	Text string // the body
}

func (r *Reply) String() string { return r.Status + " " + r.Text }

// Ask sends a request, and follows no redirects. Headers are "Name: value".
func (r *Running) Ask(method, path, body string, headers ...string) *Reply {
	r.T.Helper()
	req, err := http.NewRequest(method, r.Base+path, strings.NewReader(body))
	if err != nil {
		r.T.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "identity") // keeps net/http from asking for gzip
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		r.T.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.T.Fatal(err)
	}
	return &Reply{resp, string(text)}
}

// NoLeases waits until all memory is released: the memory of a reply is released just after the last byte was sent.
func (r *Running) NoLeases() {
	r.T.Helper()
	Until(r.T, func() bool { return r.Memory().Stats().Leases == 0 })
}
