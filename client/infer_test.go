package client

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"millrace/stream"
)

// A server listening at all addresses is called at the loopback address.
func TestAddresses(t *testing.T) {
	for addr, want := range map[string]string{
		":8000": "http://127.0.0.1:8000", "0.0.0.0:8000": "http://127.0.0.1:8000",
		"[::]:8000": "http://127.0.0.1:8000", "[::1]:8000": "http://[::1]:8000",
		"host:1": "http://host:1", "https://host/prefix": "https://host/prefix", "http://": "", "ftp://host": "",
		"host:1?x": "", "host:1#x": "", "": "",
	} {
		c, err := New(addr)
		if err != nil && want != "" || err == nil && c.Addr() != want {
			t.Errorf("%s: %v, want %q", addr, err, want)
		}
		if err == nil {
			c.Close()
		}
	}
}

// A certificate is verified by the caller's configuration.
func TestTLS(t *testing.T) {
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"name":"millrace"}`)
	}))
	h.Config.ErrorLog = log.New(io.Discard, "", 0)
	h.StartTLS()
	defer h.Close()
	trusting := h.Client().Transport.(*http.Transport).TLSClientConfig
	for _, config := range []*tls.Config{nil, trusting} {
		c, err := NewTLS(h.URL, config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = c.Server(t.Context()); (err == nil) != (config != nil) {
			t.Errorf("trusting %v: %v", config != nil, err)
		}
		c.Close()
	}
}

// A body is read whole, up to the bound, with or without a known length.
func TestBodies(t *testing.T) {
	for _, c := range []struct {
		told int64
		body string
		want string
		err  bool
	}{
		{10, "0123456789", "0123456789", false}, {-1, "0123456789", "0123456789", false}, {0, "", "", false},
		{-1, "", "", false},
		{-1, "0123456789x", "", true}, {11, "0123456789x", "", true},
		{10, "012", "", true}, {0, "of the next reply", "", false},
	} {
		got, err := readBody(&http.Response{ContentLength: c.told,
			Body: io.NopCloser(bytes.NewReader([]byte(c.body)))}, 10)
		if (err != nil) != c.err || err == nil && string(got) != c.want {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
	fault := errors.New("x")
	if _, err := readBody(&http.Response{ContentLength: -1, Body: io.NopCloser(failing{fault})}, 10); !errors.Is(err,
		fault) {
		t.Errorf("%v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// Options of a request are in the URL, the header and the body.
func TestRequests(t *testing.T) {
	var got *http.Request
	var body []byte
	answer := `{"model_name":"m","outputs":[]}`
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	defer h.Close()
	c, err := New(h.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	picture := []byte("a picture")
	for _, r := range []struct {
		req  Request
		uri  string
		body string // "": not compared
	}{
		{Request{Picture: picture}, "/v2/models/m/infer?outputs=binary", "a picture"},
		{Request{Picture: picture, JSON: true}, "/v2/models/m/infer", "a picture"},
		{Request{Picture: picture, Deadline: 1250 * time.Microsecond},
			"/v2/models/m/infer?deadline_ms=1.25&outputs=binary", "a picture"},
		{Request{Version: "2"}, "/v2/models/m/versions/2/infer", ""},
	} {
		if _, err := c.Infer(t.Context(), "m", r.req); err != nil || got.URL.RequestURI() != r.uri ||
			r.body != "" && string(body) != r.body {
			t.Errorf("%+v: %s %q, %v", r.req, got.URL.RequestURI(), body, err)
		}
	}
	for _, with := range []Request{
		{Inputs: []stream.Tensor{{Name: "x"}}}, {Params: stream.Params{"a": "b"}}, {Outputs: []string{"x"}}, {ID: "x"},
	} {
		with.Picture = picture
		if _, err := c.Infer(t.Context(), "m", with); stream.CodeOf(err) != stream.InvalidArgument {
			t.Errorf("%+v: %v", with, err)
		}
	}
	answer = `{"endpoint":"m"}`
	for _, p := range []struct {
		params stream.Params
		body   string
	}{
		{nil, ""}, {stream.Params{}, ""}, {stream.Params{"instances": int64(2)}, `{"parameters":{"instances":2}}`},
	} {
		if loaded, err := c.Load(t.Context(), "m", p.params); err != nil || loaded != (Loaded{Endpoint: "m"}) ||
			string(body) != p.body {
			t.Errorf("%v: %v, %q, %v", p.params, loaded, body, err)
		}
	}
	for text, code := range map[string]stream.Code{`{"ticket":"abc"}`: "", `{}`: stream.Internal} {
		answer = text
		if ticket, err := c.Ticket(t.Context()); stream.CodeOf(err) != code || (ticket == "abc") != (err == nil) {
			t.Errorf("%s: %q, %v", text, ticket, err)
		}
	}
}

// The header of a reply has the length of the JSON, and the time of each step.
func TestAnswers(t *testing.T) {
	const body = `{"model_name":"m","outputs":[]}`
	for length, ok := range map[string]bool{"": true, "31": true, "32": false, "-1": false, "x": false} {
		a, err := answer([]byte(body), http.Header{http.CanonicalHeaderKey(headerLength): {length}})
		if (err == nil) != ok || ok && a.Model != "m" || !ok && stream.CodeOf(err) != stream.Internal {
			t.Errorf("%q: %v", length, err)
		}
	}
	if _, err := answer([]byte("x"), http.Header{http.CanonicalHeaderKey(headerLength): {"0"}}); err == nil {
		t.Error("nothing is taken for an answer")
	}
	want := Timing{Queue: time.Millisecond, Prepare: 2500 * time.Microsecond, Run: 4 * time.Millisecond,
		Total: 8500 * time.Microsecond}
	if got := serverTiming("queue;dur=1, prepare;dur=2.5, nonsense, run;dur=x, other;dur=1,run;dur=4"); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
