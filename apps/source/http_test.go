package source

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/internal/gittest"
)

func serveHTTP(t *testing.T, root, password string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(gittest.HTTP(t, root, password))
	t.Cleanup(s.Close)
	return s
}

// TestFetchHTTP fetches from git http-backend.
func TestFetchHTTP(t *testing.T) {
	r, first, second := history(t)
	bare := r.Bare()
	s := serveHTTP(t, filepath.Dir(bare), "")
	testReferences(t, s.URL+"/app.git", first, second, false, Options{})
	refuses(t, s.URL+"/none.git", Options{}, "has no such repository", "compare the path")
	// a commit that no reference names costs the history, or, where the server allows the question, one commit
	gittest.At(t, bare).Git("config", "uploadpack.allowReachableSHA1InWant", "true")
	dir, _ := mustFetch(t, s.URL+"/app.git@"+first, Options{})
	if out := gittest.At(t, dir).Git("log", "--oneline"); strings.Contains(out, "\n") {
		t.Errorf("the history was fetched: %q", out)
	}
	big := gittest.New(t)
	big.Commit(map[string]string{"a": strings.Repeat("x", 1<<20)})
	at := serveHTTP(t, filepath.Dir(big.Dir), "").URL + "/app"
	refuses(t, at, Options{MaxSize: 500}, "too large", "500B", "--max-size")
}

// TestFetchHTTPPassword: the token is sent to the host of the repository, and stands in no error and no file.
func TestFetchHTTPPassword(t *testing.T) {
	r := gittest.New(t)
	r.Commit(map[string]string{"a.txt": "1"})
	const secret = "not-in-any-text"
	s := serveHTTP(t, filepath.Dir(r.Bare()), secret)
	url := strings.Replace(s.URL, "http://", "http://me@", 1) + "/app.git"
	dir, _ := mustFetch(t, url, Options{Token: secret})
	out := gittest.At(t, dir).Git("config", "--list", "--show-origin")
	if strings.Contains(out, secret) || strings.Contains(out, "me@") {
		t.Errorf("the configuration has the token or the user: %s", out)
	}
	refuses(t, url, Options{}, "wants a password", EnvToken)
	_, _, err := fetch(t, url, Options{Token: "wrong-" + secret})
	if err == nil || !strings.Contains(err.Error(), "refuses the token") || strings.Contains(err.Error(), secret) ||
		strings.Contains(err.Error(), "me@") {
		t.Errorf("a wrong token: %v", err)
	}
}

// TestFetchElsewhere: a repository leads to files and private addresses only where allowed, by submodules and
// redirects; without encryption only on this machine.
func TestFetchElsewhere(t *testing.T) {
	inner := gittest.New(t)
	inner.Commit(map[string]string{"i.txt": "1"})
	git := gittest.HTTP(t, filepath.Dir(inner.Dir), "")
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != "" {
			t.Error("another host gets the token")
		}
		git.ServeHTTP(w, req)
	}))
	defer other.Close()
	for name, c := range map[string]struct{ url, want string }{
		"file":    {"file://" + inner.Dir, "names a file of this machine"},
		"private": {other.URL + "/app", "127.0.0.1 is a private address, to which the repository leads"},
	} {
		outer := gittest.New(t)
		outer.Git("-c", "protocol.file.allow=always", "submodule", "add", "-q", "--", inner.Dir, "sub")
		outer.Git("config", "--file", ".gitmodules", "submodule.sub.url", c.url)
		outer.Commit(nil)
		s := serveHTTP(t, filepath.Dir(outer.Dir), "")
		o := Options{AllowHTTP: true}
		refuses(t, s.URL+"/app", o, `the submodule "sub"`, c.want, "--allow-private")
		o.AllowPrivate, o.Token = true, "secret"
		dir, _ := mustFetch(t, s.URL+"/app", o)
		fileIs(t, filepath.Join(dir, "sub", "i.txt"), "1")
		t.Log(name)
	}
	redirect := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, other.URL+req.URL.RequestURI(), http.StatusFound)
	}))
	defer redirect.Close()
	refuses(t, redirect.URL+"/app", Options{}, "is a private address", "--allow-private")
	refuses(t, "http://git.example.org/app", Options{}, "http:// is not encrypted", "--allow-http")
}

// TestFetchHTTPText: what a server says reaches the terminal without control characters, and up to a limit.
func TestFetchHTTPText(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = fmt.Fprint(w, "\x1b[2J\nfalse", strings.Repeat("x", 1<<20))
	}))
	defer s.Close()
	_, _, err := fetch(t, s.URL+"/app", Options{})
	if err == nil || strings.ContainsAny(err.Error(), "\x1b\n") || len(err.Error()) > 2*maxRefusal {
		t.Errorf("%.300q", err)
	}
}

// TestFetchHTTPStalls: a server that stops in the middle is left after the time limit.
func TestFetchHTTPStalls(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		_, _ = fmt.Fprint(w, "001e# service=git-upload-pack\n0000")
		w.(http.Flusher).Flush()
		<-release
	}))
	defer s.Close()
	defer close(release)
	refuses(t, s.URL+"/app", Options{Timeout: 200 * time.Millisecond}, "has taken longer than 200ms", "--timeout")
}
