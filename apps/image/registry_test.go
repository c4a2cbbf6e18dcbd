package image

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"millrace/internal/ociimage"
)

// startRegistry starts the registry of go-containerregistry over TLS, with the password of a user, and returns the
// registry's host, a file with the certificate, and a count of the bodies sent to the registry.
func startRegistry(t *testing.T) (host, ca string, bodies *atomic.Int64) {
	t.Helper()
	real := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	bodies = new(atomic.Int64)
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		switch {
		case user == "reader" && password == "secret" && r.Method != http.MethodGet && r.Method != http.MethodHead:
			http.Error(w, `{"errors":[{"code":"DENIED","message":"no"}]}`, http.StatusForbidden)
		case user != "ann" && user != "reader" || password != "secret":
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"no"}]}`, http.StatusUnauthorized)
		case strings.Contains(r.URL.Path, "/absent/"):
			http.Error(w, `{"errors":[{"code":"NAME_UNKNOWN","message":"no"}]}`, http.StatusNotFound)
		default:
			if r.ContentLength != 0 && r.Method != http.MethodGet && r.Method != http.MethodHead {
				bodies.Add(1)
			}
			real.ServeHTTP(w, r)
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(s.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	put(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	return strings.TrimPrefix(s.URL, "https://"), ca, bodies
}

// small returns an image of small random layers, as a layout.
func small(t *testing.T) *Image {
	t.Helper()
	made, err := random.Image(5000, 3)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "layout")
	if err := ociimage.WriteLayout(dir, made, "localhost/small:v1"); err != nil {
		t.Fatal(err)
	}
	img, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// An image is published to go-containerregistry's own registry over TLS with a password, from a variable and from
// docker's config.json, and can be pulled; published again, no layer is sent.
func TestPublish(t *testing.T) {
	host, ca, bodies := startRegistry(t)
	img := small(t)
	t.Setenv("PASSWORD_OF_ANN", "secret")
	var last Progress
	o := RegistryOptions{User: "ann", PasswordVariable: "PASSWORD_OF_ANN", CA: ca,
		Progress: func(p Progress) { last = p }}
	at, err := Publish(t.Context(), img, host+"/team/small:v1", o)
	if err != nil || at != host+"/team/small@"+img.Digest {
		t.Fatalf("%s, %v", at, err)
	}
	if last.Done != last.Total || last.Total < 15000 || last.Step != "publish" {
		t.Errorf("the last progress is %+v", last)
	}
	ref, options, err := o.remote(t.Context(), at, false)
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Image(ref, options...)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := pulled.Layers()
	if err != nil || len(layers) != 3 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	for _, l := range layers {
		r, err := l.Compressed()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r); err != nil { // checks the digest
			t.Error(err)
		}
		r.Close()
	}
	before := bodies.Load()
	folder := t.TempDir()
	put(t, filepath.Join(folder, "config.json"), `{"auths": {"`+host+`": {"auth": "YW5uOnNlY3JldA=="}}}`)
	t.Setenv("DOCKER_CONFIG", folder)
	if _, err := Publish(t.Context(), img, host+"/team/small:v2", RegistryOptions{CA: ca}); err != nil {
		t.Error(err)
	}
	if sent := bodies.Load() - before; sent != 1 {
		t.Errorf("%d bodies were sent for a second tag, want the manifest only", sent)
	}
}

// Errors name the option, and none has the password.
func TestPublishErrors(t *testing.T) {
	host, ca, _ := startRegistry(t)
	img := small(t)
	t.Setenv("GOOD", "secret")
	t.Setenv("WRONG", "not-the-password")
	t.Setenv("EMPTY", "")
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	t.Setenv("REGISTRY_AUTH_FILE", "")
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	noCA := filepath.Join(t.TempDir(), "no.pem")
	put(t, noCA, "nothing")
	good := host + "/team/small:v1"
	for _, c := range []struct {
		reference string
		o         RegistryOptions
		want      string
	}{
		{good, RegistryOptions{User: "ann", PasswordVariable: "WRONG", CA: ca},
			"--registry-user: " + host + " refuses the user of --registry-user: check user and password (WRONG)"},
		{good, RegistryOptions{CA: ca}, "refuses the user of docker login or podman login, or none"},
		{good, RegistryOptions{User: "reader", PasswordVariable: "GOOD", CA: ca}, "does not allow"},
		{good, RegistryOptions{User: "ann", PasswordVariable: "GOOD"}, "--registry-ca: the certificate of " + host +
			" is of an unknown authority"},
		{host + "/absent/small:v1", RegistryOptions{User: "ann", PasswordVariable: "GOOD", CA: ca},
			"--image: " + host + " has no repository"},
		{good, RegistryOptions{User: "ann", PasswordVariable: "EMPTY", CA: ca}, "EMPTY is empty or not set"},
		{good, RegistryOptions{User: "ann", CA: ca}, "--registry-password: name the environment variable"},
		{good, RegistryOptions{PasswordVariable: "GOOD", CA: ca}, "--registry-user: the password GOOD is without a user"},
		{good, RegistryOptions{CA: noCA}, "no certificate in PEM"},
		{good, RegistryOptions{CA: noCA + ".none"}, "--registry-ca"},
		{"small", RegistryOptions{}, `--image: "small" is no reference`},
		{"team/small:v1", RegistryOptions{}, "name registry, repository and tag"},
		{host + "/team/small", RegistryOptions{}, "name registry, repository and tag"},
		{host + "/Team/small:v1", RegistryOptions{}, "is no reference"},
		{host + "/team/small@" + img.Digest, RegistryOptions{}, "is no reference"},
	} {
		_, err := Publish(t.Context(), img, c.reference, c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "not-the-password") {
			t.Errorf("%s %+v: %v, want %q", c.reference, c.o, err, c.want)
		}
	}
}

// Without TLS an image is published to a loopback address only, unless the option allows other addresses.
func TestPlainHTTP(t *testing.T) {
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer s.Close()
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	if _, err := Publish(t.Context(), small(t), strings.TrimPrefix(s.URL, "http://")+"/small:v1",
		RegistryOptions{}); err != nil {
		t.Error(err)
	}
	sent := 0
	next := roundTripper(func(*http.Request) (*http.Response, error) {
		sent++
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})
	for url, want := range map[string]int{"http://10.0.0.1/v2/": 0, "http://registry.example.com/v2/": 0,
		"http://localhost.example.com/v2/": 0, "https://10.0.0.1/v2/": 1, "http://127.0.0.1:5000/v2/": 1,
		"http://[::1]:5000/v2/": 1, "http://localhost:5000/v2/": 1} {
		for _, plain := range []bool{false, true} {
			sent = 0
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := (guard{next, plain}).RoundTrip(r); err == nil {
				resp.Body.Close()
			}
			if plain {
				want = 1
			}
			if sent != want {
				t.Errorf("%s, allowed %v: %d requests were sent, want %d", url, plain, sent, want)
			}
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// rawManifest is a manifest as a registry has it.
type rawManifest []byte

// RawManifest implements remote.Taggable.
func (m rawManifest) RawManifest() ([]byte, error) { return m, nil }

// MediaType is that of an image.
func (rawManifest) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// A base image is refused before its layers are downloaded when its manifest names too many bytes, or a negative
// number of bytes.
func TestBaseTooLarge(t *testing.T) {
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	host := strings.TrimPrefix(s.URL, "http://")
	for want, sizes := range map[string][]int64{
		"more than 16 GiB": {8 << 30, 8<<30 + 1, 1}, "names -1 bytes": {5, -1, maxDownload},
	} {
		digest := "sha256:" + strings.Repeat("0", 64)
		m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}
		for i, size := range append([]int64{2}, sizes...) {
			hash, err := v1.NewHash(digest)
			if err != nil {
				t.Fatal(err)
			}
			d := v1.Descriptor{MediaType: types.OCILayer, Size: size, Digest: hash}
			if i == 0 {
				d.MediaType, m.Config = types.OCIConfigJSON, d
			} else {
				m.Layers = append(m.Layers, d)
			}
		}
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := name.ParseReference(host + "/large:v1")
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Put(ref, rawManifest(text)); err != nil {
			t.Fatal(err)
		}
		b, err := OpenBase(t.Context(), host+"/large:v1", RegistryOptions{})
		if err == nil {
			_ = b.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes: %v, want %q", sizes, err, want)
		}
	}
}
