package modelsource

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/modelurl"
)

// web is a server over TLS with files.
type web struct {
	*httptest.Server
	ca    string
	gets  atomic.Int64
	mu    sync.Mutex
	files map[string][]byte
	// serve answers in place of the files; nil = the files are served
	serve http.HandlerFunc
}

func newWeb(t *testing.T) *web {
	t.Helper()
	w := &web{files: map[string][]byte{}}
	w.Server = httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.gets.Add(1)
		w.mu.Lock()
		b, has := w.files[r.URL.Path]
		serve := w.serve
		w.mu.Unlock()
		switch {
		case serve != nil:
			serve(rw, r)
		case !has:
			http.NotFound(rw, r)
		default:
			http.ServeContent(rw, r, "", time.Time{}, bytes.NewReader(b))
		}
	}))
	w.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(w.Close)
	w.ca = filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw})
	if err := os.WriteFile(w.ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

// put serves a file, and returns its address.
func (w *web) put(name string, b []byte) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files["/"+name] = b
	return w.URL + "/" + name + "#sha256=" + sumText(b)
}

func (w *web) answer(serve http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serve = serve
}

func sumText(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func open(t *testing.T, o Options) *Cache {
	t.Helper()
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "cache")
	}
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func parse(t *testing.T, c *Cache, address string) modelurl.URL {
	t.Helper()
	u, err := c.Parse(address)
	if err != nil {
		t.Fatalf("%s: %v", address, err)
	}
	return u
}

// text returns the content of the file that an address names, fetched by c.
func text(t *testing.T, c *Cache, address string) (string, *Source) {
	t.Helper()
	s, err := c.Get(t.Context(), parse(t, c, address))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Release)
	local, _, err := s.Place("model")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(local)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), s
}

// refuses checks the error of an address.
func refuses(t *testing.T, c *Cache, address string, want ...string) {
	t.Helper()
	u, err := c.Parse(address)
	if err == nil {
		var s *Source
		if s, err = c.Get(t.Context(), u); err == nil {
			_, _, err = s.Place("model")
			s.Release()
		}
	}
	for _, part := range want {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, want %q", address, err, part)
		}
	}
}

// A file is fetched once, and served from the cache without the server, also to another process.
func TestHTTP(t *testing.T) {
	w := newWeb(t)
	address := w.put("model.onnx", []byte("weights"))
	o := Options{Dir: filepath.Join(t.TempDir(), "cache"), CA: w.ca}
	c := open(t, o)
	got, s := text(t, c, address)
	if got != "weights" || s.Stale != nil || c.Counts() != (Counts{Fetched: 1}) {
		t.Errorf("%q %v %+v", got, s.Stale, c.Counts())
	}
	w.Close()
	o.Offline = true
	for _, c := range []*Cache{c, open(t, o)} {
		if got, _ := text(t, c, address); got != "weights" || w.gets.Load() != 1 {
			t.Errorf("%q after %d requests", got, w.gets.Load())
		}
	}
}

// A wrong digest, a missing file, a large file and a silent server are errors that say what to do, and leave nothing in
// the cache.
func TestHTTPErrors(t *testing.T) {
	w := newWeb(t)
	c := open(t, Options{CA: w.ca, MaxSize: 1000})
	right := w.put("model.onnx", []byte("weights"))
	refuses(t, c, strings.Split(right, "=")[0]+"="+sumText([]byte("others")),
		"has the SHA-256 "+sumText([]byte("weights")), "compare the digest")
	refuses(t, c, w.URL+"/absent.onnx#sha256="+sumText(nil), "has no such file")
	refuses(t, c, w.put("large.onnx", make([]byte, 1001)), "model_sources.max_size allows more")
	large := make([]byte, 5000)
	w.put("large.onnx", large)
	w.answer(func(rw http.ResponseWriter, _ *http.Request) { // without a length
		rw.(http.Flusher).Flush()
		_, _ = rw.Write(large)
	})
	refuses(t, c, w.URL+"/large.onnx#sha256="+sumText(large), "model_sources.max_size allows more")
	w.answer(func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, "secret", http.StatusForbidden) })
	refuses(t, c, right, "403", "model_sources.tokens")
	release := make(chan struct{})
	defer close(release)
	w.answer(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	refuses(t, open(t, Options{CA: w.ca, Idle: 50 * time.Millisecond}), right, "the server is silent")
	refuses(t, open(t, Options{CA: w.ca, Timeout: 50 * time.Millisecond}), right, "model_sources.timeout allows more")
	refuses(t, open(t, Options{}), right, "certificate")
	refuses(t, open(t, Options{Offline: true}), right, "is not in the cache", "model_sources.offline")
	if left, _, err := c.entries(); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// An interrupted fetch goes on where it ended; when the part was of another file, the fetch starts again.
func TestHTTPResumes(t *testing.T) {
	w := newWeb(t)
	data := bytes.Repeat([]byte("0123456789"), 100_000)
	address := w.put("model.onnx", data)
	o := Options{Dir: filepath.Join(t.TempDir(), "cache"), CA: w.ca}
	c := open(t, o)
	w.answer(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Length", fmt.Sprint(len(data)))
		_, _ = rw.Write(data[:600_000])
		panic(http.ErrAbortHandler)
	})
	refuses(t, c, address, "the connection ended before the source was complete")
	var from []string
	w.answer(func(rw http.ResponseWriter, r *http.Request) {
		from = append(from, r.Header.Get("Range"))
		http.ServeContent(rw, r, "", time.Time{}, bytes.NewReader(data))
	})
	if got, _ := text(t, c, address); got != string(data) || len(from) != 1 || !strings.HasPrefix(from[0], "bytes=") {
		t.Errorf("%d bytes after requests for %q", len(got), from)
	}
	other := w.put("other.onnx", data[1:])
	u := parse(t, c, other)
	part := filepath.Join(o.Dir, partialDir, keyOf(u, httpOrigin{c}))
	if err := errors.Join(os.MkdirAll(part, 0o700), os.WriteFile(filepath.Join(part, "part"), data[:1000],
		0o600)); err != nil {
		t.Fatal(err)
	}
	w.answer(nil)
	if got, _ := text(t, c, other); got != string(data[1:]) {
		t.Errorf("%d bytes", len(got))
	}
}

// A redirect to a private address that the operator did not name is refused, unless the setting allows it. The token is
// sent to the named host only.
func TestHTTPRedirect(t *testing.T) {
	w, other := newWeb(t), newWeb(t)
	var tokens []string
	address := other.put("model.onnx", []byte("weights"))
	other.answer(func(rw http.ResponseWriter, r *http.Request) {
		tokens = append(tokens, r.Header.Get("Authorization"))
		_, _ = rw.Write([]byte("weights"))
	})
	w.answer(func(rw http.ResponseWriter, r *http.Request) {
		tokens = append(tokens, r.Header.Get("Authorization"))
		http.Redirect(rw, r, other.URL+"/model.onnx", http.StatusFound)
	})
	named := strings.Replace(address, other.URL, w.URL, 1)
	of, err := url.Parse(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{CA: w.ca, Tokens: []Token{{Host: of.Host, Secret: "abc"}}}
	refuses(t, open(t, o), named, "is a private address", "model_sources.allow_private")
	if len(tokens) != 1 || tokens[0] != "Bearer abc" {
		t.Errorf("the tokens sent are %q", tokens)
	}
	o.Private = true // both servers have the certificate of httptest
	if got, _ := text(t, open(t, o), named); got != "weights" || len(tokens) != 3 || tokens[2] != "" {
		t.Errorf("%q with the tokens %q", got, tokens)
	}
}

func zipOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, content := range files {
		f, err := z.Create(name)
		if err == nil {
			_, err = io.WriteString(f, content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func tarOf(t *testing.T, compress bool, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	var to io.WriteCloser = struct {
		io.Writer
		io.Closer
	}{&b, io.NopCloser(nil)}
	if compress {
		to = gzip.NewWriter(&b)
	}
	r := tar.NewWriter(to)
	for _, h := range entries {
		content := h.Uname // carries the content
		h.Uname, h.Mode = "", 0o644
		if h.Typeflag == 0 || h.Typeflag == tar.TypeReg {
			h.Typeflag, h.Size = tar.TypeReg, int64(len(content))
		}
		err := r.WriteHeader(&h)
		if err == nil && h.Size > 0 {
			_, err = io.WriteString(r, content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(r.Close(), to.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Archives are unpacked, and archives whose paths or links lead out are refused.
func TestArchives(t *testing.T) {
	w := newWeb(t)
	c := open(t, Options{CA: w.ca, MaxSize: 100_000})
	good := []tar.Header{{Name: "./digits/", Typeflag: tar.TypeDir}, {Name: "./digits/1/model.onnx", Uname: "weights"}}
	for name, b := range map[string][]byte{
		"m.zip":    zipOf(t, map[string]string{"digits/1/model.onnx": "weights", "x": "y"}),
		"m.tar.gz": tarOf(t, true, good...),
		"m.tar":    tarOf(t, false, good...),
	} {
		address := w.put(name, b)
		if got, _ := text(t, c, address+"/digits/1/model.onnx"); got != "weights" {
			t.Errorf("%s: %q", name, got)
		}
		refuses(t, c, address+"/digits/1/modle.onnx", "has no digits/1/modle.onnx: the folder has model.onnx")
	}
	for name, c2 := range map[string]struct {
		b    []byte
		want string
	}{
		"a.tar":    {tarOf(t, false, tar.Header{Name: "../x", Uname: "x"}), "leads out"},
		"b.tar":    {tarOf(t, false, tar.Header{Name: "/x", Uname: "x"}), "leads out"},
		"c.tar":    {tarOf(t, false, tar.Header{Name: "x", Typeflag: tar.TypeSymlink, Linkname: "/etc"}), "neither a file"},
		"d.tar":    {tarOf(t, false, tar.Header{Name: "x", Typeflag: tar.TypeFifo}), "neither a file"},
		"e.tgz":    {tarOf(t, true, tar.Header{Name: "x", Uname: strings.Repeat("x", 100_001)}), "max_size"},
		"f.tar.gz": {[]byte("no archive"), "the archive"},
		"g.zip":    {zipOf(t, map[string]string{"../x": "x"}), "../x"},
		"h.zip":    {[]byte("no archive"), "the archive"},
		"i.tar":    {tarOf(t, false), "is empty"},
	} {
		refuses(t, c, w.put(name, c2.b), c2.want)
	}
	if found, err := filepath.Glob(filepath.Join(c.Dir(), partialDir, "*", "..", "x")); err != nil || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
}

// File fetches a file with its digest, also an archive.
func TestFile(t *testing.T) {
	w := newWeb(t)
	c := open(t, Options{CA: w.ca})
	b := zipOf(t, map[string]string{"a": "b"})
	address := w.put("m.zip", b)
	base, digest, _ := strings.Cut(address, "#sha256=")
	local, err := c.File(t.Context(), base, digest)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(local); err != nil || !bytes.Equal(got, b) || filepath.Base(local) != "m.zip" {
		t.Errorf("%s: %d bytes, %v", local, len(got), err)
	}
	if got, _ := text(t, c, address+"/a"); got != "b" { // the same address in another form
		t.Errorf("%q", got)
	}
	if _, err := c.File(t.Context(), "s3://bucket/x", digest); err == nil {
		t.Error("s3:// is read as https://")
	}
	if _, err := c.File(t.Context(), base, digest[1:]); err == nil || !strings.Contains(err.Error(), "digest") {
		t.Errorf("%v", err)
	}
}

// The same content under another name is the file of that name.
func TestNames(t *testing.T) {
	w := newWeb(t)
	c := open(t, Options{CA: w.ca})
	b := []byte("weights")
	for _, name := range []string{"model.onnx", "service.py", "again/service.py"} {
		s, err := c.Get(t.Context(), parse(t, c, w.put(name, b)))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Release()
		if local, _, err := s.Place("x"); err != nil || filepath.Base(local) != filepath.Base(name) {
			t.Errorf("%s is %s, %v", name, local, err)
		}
	}
	if n := w.gets.Load(); n != 2 {
		t.Errorf("%d requests for two names", n)
	}
	for _, name := range []string{"a.whl", "b.whl"} {
		base, digest, _ := strings.Cut(w.put(name, b), "#sha256=")
		if local, err := c.File(t.Context(), base, digest); err != nil || filepath.Base(local) != name {
			t.Errorf("%s is %s, %v", name, local, err)
		}
	}
}
