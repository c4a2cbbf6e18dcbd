package web_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"millrace/internal/httpd"
	"millrace/web"
)

// TestMain checks for leaks. fasthttp keeps a clock for its Date header, and for each server a sweeper that ends up
// to ten seconds after the server.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// serve starts a listener with the console; the result sends a request to the listener.
func serve(t *testing.T, o web.Options) func(path string, header ...string) (*http.Response, string) {
	t.Helper()
	h, err := httpd.New(httpd.Config{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	web.Mount(h, o)
	addr, err := h.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Serve(ctx) }()
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return func(path string, header ...string) (*http.Response, string) {
		t.Helper()
		q, err := http.NewRequest(http.MethodGet, "http://"+addr.String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			q.Header.Set(header[i], header[i+1])
		}
		r, err := transport.RoundTrip(q)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Body.Close() }()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r, string(body)
	}
}

func TestAssets(t *testing.T) {
	get := serve(t, web.Options{Clip: []byte("0123456789")})
	for path, want := range map[string]string{
		"/console/":                 "text/html; charset=utf-8",
		"/console/index.html":       "text/html; charset=utf-8",
		"/console/main.js":          "text/javascript; charset=utf-8",
		"/console/main.css":         "text/css; charset=utf-8",
		"/console/client/index.js":  "text/javascript; charset=utf-8",
		"/console/client/worker.js": "text/javascript; charset=utf-8",
		"/console/icon.svg":         "image/svg+xml",
		"/console/LICENSES.txt":     "text/plain; charset=utf-8",
		"/console/clip.mp4":         "video/mp4",
		"/console/console.json":     "application/json",
	} {
		r, body := get(path)
		h := r.Header
		if r.StatusCode != http.StatusOK || body == "" || h.Get("Content-Type") != want {
			t.Errorf("%s: %s, %s, %d bytes; want %s", path, r.Status, h.Get("Content-Type"), len(body), want)
		}
		if h.Get("Cache-Control") != "no-cache" || h.Get("X-Content-Type-Options") != "nosniff" ||
			!strings.Contains(h.Get("Content-Security-Policy"), "script-src 'self';") {
			t.Errorf("%s: %v", path, h)
		}
		if r, body := get(path, "If-None-Match", h.Get("ETag")); r.StatusCode != http.StatusNotModified || body != "" {
			t.Errorf("%s with its tag %s: %s, %q", path, h.Get("ETag"), r.Status, body)
		}
		if r, _ := get(path, "If-None-Match", `"another"`); r.StatusCode != http.StatusOK {
			t.Errorf("%s with another tag: %s", path, r.Status)
		}
	}
	for _, path := range []string{"/", "/console"} {
		if r, _ := get(path); r.StatusCode != http.StatusFound || r.Header.Get("Location") != "./console/" {
			t.Errorf("%s: %s to %q", path, r.Status, r.Header.Get("Location"))
		}
	}
	for _, path := range []string{"/console/none.js", "/console/dist/main.js", "/console/client", "/console/client/",
		"/console/../web.go", "/console/%2e%2e/web.go"} {
		if r, body := get(path); r.StatusCode != http.StatusNotFound ||
			!strings.Contains(body, `"code":"not_found"`) || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %s %s", path, r.Status, body)
		}
	}
}

// Browsers request parts of a video for seeking.
func TestParts(t *testing.T) {
	get := serve(t, web.Options{Clip: []byte("0123456789")})
	for _, c := range []struct {
		header string
		status int
		body   string
		where  string
	}{
		{"", 200, "0123456789", ""},
		{"bytes=0-", 200, "0123456789", ""},
		{"bytes=2-4", 206, "234", "bytes 2-4/10"},
		{"bytes=7-", 206, "789", "bytes 7-9/10"},
		{"bytes=-2", 206, "89", "bytes 8-9/10"},
		{"bytes=10-", 416, "", "bytes */10"},
	} {
		r, body := get("/console/clip.mp4", "Range", c.header)
		if r.StatusCode != c.status || body != c.body || r.Header.Get("Content-Range") != c.where ||
			r.Header.Get("Accept-Ranges") != "bytes" {
			t.Errorf("%q: %s, %q, %q; want %+v", c.header, r.Status, body, r.Header.Get("Content-Range"), c)
		}
	}
}

func TestNoClip(t *testing.T) {
	get := serve(t, web.Options{})
	if r, body := get("/console/clip.mp4"); r.StatusCode != http.StatusNotFound ||
		!strings.Contains(body, "not_found") {
		t.Errorf("the clip: %s %s", r.Status, body)
	}
	if _, body := get("/console/console.json"); body != `{"clip":false,"login":false,"passwords":false,"manage":true}` {
		t.Errorf("what there is: %s", body)
	}
}

// The page loads nothing from elsewhere and has no inline script or style.
func TestPolicy(t *testing.T) {
	get := serve(t, web.Options{})
	_, page := get("/console/")
	for _, bad := range []string{"http:", "https:", "//", "<style", " style=", " onclick=", "<script>"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
}

// The console with all its scripts and styles is small enough for a phone, and the page of the OpenAPI document is as
// large as its viewer.
func TestSize(t *testing.T) {
	const most, mostDocs = 250_000, 500_000 // bytes, gzipped
	var size, docs int
	err := filepath.WalkDir("dist", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) == ".txt" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write(data); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		if filepath.Base(filepath.Dir(path)) == "docs" {
			docs += b.Len()
		} else {
			size += b.Len()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d and %d bytes, gzipped", size, docs)
	if size == 0 || size > most || docs == 0 || docs > mostDocs {
		t.Errorf("%d and %d bytes, gzipped: at most %d and %d", size, docs, most, mostDocs)
	}
}

// The page of the OpenAPI document has its files, and a policy that forbids other files.
func TestDocs(t *testing.T) {
	get := serve(t, web.Options{})
	if r, _ := get("/docs"); r.StatusCode != http.StatusFound || r.Header.Get("Location") != "./docs/" {
		t.Errorf("%d to %q", r.StatusCode, r.Header.Get("Location"))
	}
	r, page := get("/docs/")
	policy := r.Header.Get("Content-Security-Policy")
	if r.StatusCode != http.StatusOK || !strings.Contains(policy, "script-src 'self'; style-src 'self'") ||
		strings.Contains(policy, "unsafe") {
		t.Errorf("%d, %q", r.StatusCode, policy)
	}
	for _, file := range []string{"swagger-ui.js", "swagger-ui.css", "docs.js", "docs.css"} {
		if r, _ := get("/docs/" + file); r.StatusCode != http.StatusOK || !strings.Contains(page, `"`+file+`"`) {
			t.Errorf("%s: %d", file, r.StatusCode)
		}
	}
	for _, path := range []string{"/docs/nosuch", "/docs/main.js", "/console/docs/index.html"} {
		if r, _ := get(path); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
	if _, licences := get("/console/LICENSES.txt"); !strings.Contains(licences, "swagger-ui-dist 5.35.0 (Apache-2.0)") {
		t.Error("the viewer's licence is missing")
	}
}
