package modelsource

import (
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

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/minio/minio-go/v7"

	"millrace/internal/gittest"
)

// The last state is served when the server cannot be reached or cannot answer. A refusal is an error.
func TestReach(t *testing.T) {
	r := gittest.New(t)
	r.Commit(map[string]string{"m.onnx": "weights"})
	git := gittest.HTTP(t, filepath.Dir(r.Dir), "")
	var status atomic.Int64
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if code := int(status.Load()); code != 0 {
			http.Error(w, "no", code)
			return
		}
		git.ServeHTTP(w, req)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer s.Close()
	o := Options{Dir: filepath.Join(t.TempDir(), "cache"), CA: filepath.Join(t.TempDir(), "ca.pem")}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(o.CA, text, 0o600); err != nil {
		t.Fatal(err)
	}
	address := "git+" + s.URL + "/app#m.onnx"
	c := open(t, o)
	get := func(c *Cache, what string, stale bool) {
		t.Helper()
		found, err := c.Get(t.Context(), parse(t, c, address))
		if err == nil {
			found.Release()
			if (found.Stale != nil) != stale {
				t.Errorf("%s: %v", what, found.Stale)
			}
		} else if stale {
			t.Errorf("%s: %v", what, err)
		}
		if what != "present" && err == nil && !stale {
			t.Errorf("%s is no error", what)
		}
	}
	get(c, "present", false)
	for code, stale := range map[int]bool{401: false, 403: false, 404: false, 410: false, 429: true, 500: true,
		503: true} {
		status.Store(int64(code))
		get(c, http.StatusText(code), stale)
	}
	status.Store(0)
	byHead := address
	address = strings.Replace(address, "#", "@main#", 1)
	get(c, "present", false)
	r.Git("branch", "-m", "other")
	get(c, "no branch", false)
	address = byHead
	get(c, "present", false)
	other := o
	other.CA = ""
	get(open(t, other), "a refused certificate", false)
	s.Close()
	get(c, "no server", true)
}

// Registries and S3 servers that cannot answer now are not reached. Their refusals are answers.
func TestIsUnreached(t *testing.T) {
	ref, err := name.ParseReference("r.example.org/m:v1")
	if err != nil {
		t.Fatal(err)
	}
	for code, want := range map[int]bool{400: false, 401: false, 403: false, 404: false, 408: true, 429: true,
		502: true} {
		errs := []error{ociOrigin{}.failed(t.Context(), ref, &transport.Error{StatusCode: code}),
			(&s3Origin{}).failed(t.Context(), "models", minio.ErrorResponse{StatusCode: code})}
		for _, err := range errs {
			if isUnreached(err) != want {
				t.Errorf("%d: %v is unreached: %v", code, err, !want)
			}
		}
	}
	w, to := newWeb(t), newWeb(t)
	address := w.put("m.onnx", nil)
	w.answer(func(rw http.ResponseWriter, req *http.Request) { http.Redirect(rw, req, to.URL, http.StatusFound) })
	c := open(t, Options{CA: w.ca})
	if _, err := c.Get(t.Context(), parse(t, c, address)); err == nil || isUnreached(err) ||
		!strings.Contains(err.Error(), "allow_private") {
		t.Errorf("a refused private address: %v", err)
	}
}
