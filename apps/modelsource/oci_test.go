package modelsource

import (
	"archive/tar"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"millrace/internal/secret"
)

func transportWith(t *testing.T, ca string) *http.Transport {
	t.Helper()
	text, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// startRegistry starts the registry of go-containerregistry over TLS, for the user ann with a password. blobs counts
// the layers that were read.
func startRegistry(t *testing.T) (host, ca string, blobs *atomic.Int64) {
	t.Helper()
	real := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	blobs = new(atomic.Int64)
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "ann" || !secret.Equal(password, "secret") {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"no"}]}`, http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			blobs.Add(1)
		}
		real.ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(s.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(s.URL, "https://"), ca, blobs
}

// titled is a layer as ORAS writes it.
func titled(content, title, media string, more ...string) mutate.Addendum {
	a := mutate.Addendum{Layer: static.NewLayer([]byte(content), types.MediaType(media)),
		MediaType: types.MediaType(media), Annotations: map[string]string{}}
	if title != "" {
		a.Annotations[titleAnnotation] = title
	}
	for i := 0; i+1 < len(more); i += 2 {
		a.Annotations[more[i]] = more[i+1]
	}
	return a
}

// Artifacts as ORAS writes them and tar layers are fetched by tag and digest; a moved tag is seen; wrong artifacts are
// refused.
func TestOCI(t *testing.T) {
	host, ca, blobs := startRegistry(t)
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	t.Setenv("REGISTRY_AUTH_FILE", "")
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	push := func(tag string, layers ...mutate.Addendum) string {
		t.Helper()
		img, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layers...)
		if err != nil {
			t.Fatal(err)
		}
		return write(t, host, ca, tag, img)
	}
	const plain, onnx = "application/vnd.oci.image.layer.v1.tar", "application/vnd.onnx"
	first := push("m:v1", titled("one", "digits/1/model.onnx", onnx), titled("x: y", "digits/config.yaml", onnx))
	push("t:v1", titled(string(tarOf(t, true, tar.Header{Name: "a/1/model.onnx", Uname: "tar"})), "", plain+"+gzip"))
	push("f:v1", titled(string(tarOf(t, true, tar.Header{Name: "f/x", Uname: "folder"})), "f", plain+"+gzip",
		unpackAnnotation, "true"))
	o := Options{Dir: filepath.Join(t.TempDir(), "cache"), CA: ca, Tokens: []Token{{User: "ann", Host: host,
		Secret: "secret"}}}
	c := open(t, o)
	base := "oci://" + host
	got, s := text(t, c, base+"/m:v1#digits/1/model.onnx")
	if got != "one" || s.Revision != first {
		t.Errorf("%q of %s, want %s", got, s.Revision, first)
	}
	for address, want := range map[string]string{"/t:v1#a/1/model.onnx": "tar", "/f:v1#f/x": "folder",
		"/m@" + first + "#digits/config.yaml": "x: y"} {
		if got, _ := text(t, c, base+address); got != want {
			t.Errorf("%s: %q", address, got)
		}
	}
	before := blobs.Load()
	text(t, c, base+"/m:v1#digits/1/model.onnx")
	if n := blobs.Load(); n != before {
		t.Errorf("%d layers were read for an equal tag", n-before)
	}
	second := push("m:v1", titled("two", "digits/1/model.onnx", onnx))
	if got, s := text(t, c, base+"/m:v1#digits/1/model.onnx"); got != "two" || s.Revision != second {
		t.Errorf("%q of %s, want %s", got, s.Revision, second)
	}
	push("x:out", titled("x", "../x", onnx))
	push("x:none", titled("x", "", onnx))
	push("x:tarout", titled(string(tarOf(t, false, tar.Header{Name: "../x", Uname: "x"})), "", plain))
	push("x:link", titled(string(tarOf(t, false, tar.Header{Name: "x", Typeflag: tar.TypeSymlink, Linkname: "/"})), "",
		plain))
	push("x:large", titled(strings.Repeat("x", 5000), "x", onnx))
	small := o
	small.Dir, small.MaxSize = filepath.Join(t.TempDir(), "cache"), 4000
	c = open(t, small)
	for tag, want := range map[string]string{"out": "leads out of the artifact", "none": "no title", "tarout": "leads out",
		"link": "neither a file", "large": "model_sources.max_size", "absent": "has no"} {
		refuses(t, c, base+"/x:"+tag+"#x", want)
	}
	for want, change := range map[string]func(*Options){
		"model_sources.tokens": func(o *Options) { o.Tokens = nil },
		"model_sources.ca":     func(o *Options) { o.CA = "" },
	} {
		with := o
		with.Dir = filepath.Join(t.TempDir(), "cache")
		change(&with)
		refuses(t, open(t, with), base+"/m:v1#digits/1/model.onnx", want)
	}
}

// write pushes an image, and returns the digest.
func write(t *testing.T, host, ca, tag string, img v1.Image) string {
	t.Helper()
	ref, err := name.ParseReference(host + "/" + tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img, remote.WithTransport(transportWith(t, ca)),
		remote.WithAuth(annsPassword{})); err != nil {
		t.Fatal(err)
	}
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// A layer whose content is not of its digest is refused.
func TestOCIDamagedLayer(t *testing.T) {
	real := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			rec := httptest.NewRecorder()
			real.ServeHTTP(rec, r)
			_, _ = w.Write(bytes.Replace(rec.Body.Bytes(), []byte("weights"), []byte("Weights"), 1))
			return
		}
		real.ServeHTTP(w, r)
	}))
	defer s.Close()
	img, err := mutate.Append(empty.Image, titled("weights", "model.onnx", "application/vnd.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	host := strings.TrimPrefix(s.URL, "http://")
	ref, err := name.ParseReference(host + "/m:v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	refuses(t, open(t, Options{}), "oci://"+host+"/m:v1#model.onnx", "sha256")
}

// annsPassword authenticates the user ann.
type annsPassword struct{}

// Authorization implements authn.Authenticator.
func (annsPassword) Authorization() (*authn.AuthConfig, error) {
	return &authn.AuthConfig{Username: "ann", Password: "secret"}, nil
}
