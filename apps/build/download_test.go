package build

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"millrace/apps/modelsource"
)

// TestDownload puts files of addresses into an application: once, from the cache after that, and never in place of a
// file of somebody else.
func TestDownload(t *testing.T) {
	var gets atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		gets.Add(1)
		if r.URL.Path == "/missing" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte("content of " + r.URL.Path))
	}))
	defer server.Close()
	sum := func(text string) string {
		digest := sha256.Sum256([]byte(text))
		return hex.EncodeToString(digest[:])
	}
	p := newPlace(t, nil)
	p.o.Sources = modelsource.Options{Dir: t.TempDir(), Foreign: true, Private: true}
	files := func(texts ...string) {
		t.Helper()
		var err error
		if p.needs.Files, err = ParseFiles(texts); err != nil {
			t.Fatal(err)
		}
	}
	one := "models/one.onnx=" + server.URL + "/one#sha256=" + sum("content of /one")
	files(one)
	opens := func(want string) {
		t.Helper()
		_, release, err := Open(p.app, p.needs, p.o.Dir)
		release()
		if text := errorText(err); (want == "") != (err == nil) || !strings.Contains(text, want) {
			t.Errorf("Open: %q, want %q", text, want)
		}
	}
	opens("models/one.onnx of app is not downloaded: add the command build")
	p.o.Sources.Private = false
	p.refuses("files: models/one.onnx", "is a private address", "--allow-private allows it")
	p.o.Sources.Private = true
	if r := p.build(); !slices.Equal(r.Files, []string{"models/one.onnx"}) || gets.Load() != 1 {
		t.Errorf("the first build: %q, %d requests", r.Files, gets.Load())
	}
	opens("")
	if text, err := os.ReadFile(p.path("models/one.onnx")); string(text) != "content of /one" {
		t.Errorf("%q %v", text, err)
	}
	if r := p.build(); len(r.Files) != 0 || gets.Load() != 1 {
		t.Errorf("a further build: %q, %d requests", r.Files, gets.Load())
	}
	// A program of the application has changed the file: the next build neither takes nor replaces the file. The cache
	// is unchanged.
	p.write("models/one.onnx", "changed")
	p.refuses("models/one.onnx is there with the SHA-256 "+sum("changed"), "remove the file")
	if err := os.Remove(p.path("models/one.onnx")); err != nil {
		t.Fatal(err)
	}
	opens("is not downloaded")
	if p.build(); gets.Load() != 1 {
		t.Errorf("the cache was not used: %d requests", gets.Load())
	}
	// Another digest replaces the file of a build.
	files("models/one.onnx=" + server.URL + "/two#sha256=" + sum("content of /two"))
	opens("is not downloaded")
	if r := p.build(); len(r.Files) != 1 {
		t.Errorf("another digest: %q", r.Files)
	}
	files("other.onnx=" + server.URL + "/three#sha256=" + sum("something else"))
	p.refuses("files: other.onnx", "has the SHA-256 "+sum("content of /three"))
	files("other.onnx=" + server.URL + "/missing#sha256=" + sum("something else"))
	p.refuses("files: other.onnx", "has no such file (404)")
	p.o.Sources.MaxSize = 3
	files("other.onnx=" + server.URL + "/four#sha256=" + sum("content of /four"))
	p.refuses("files: other.onnx", "more than 3B", "--max-size allows more")
	p.o.Sources.MaxSize = 0
	// A build that cannot write a file knows the file before.
	long := strings.Repeat("x", 250) // and no room for the name of an unfinished file
	files(long + "=" + server.URL + "/one#sha256=" + sum("content of /one"))
	p.write(long, "content of /one")
	p.build()
	files(long + "=" + server.URL + "/two#sha256=" + sum("content of /two"))
	for range 2 {
		p.refuses("files: "+long, "file name too long")
	}
	// Links of the application lead nowhere else.
	outside := t.TempDir()
	if err := os.Symlink(outside, p.path("link")); err != nil {
		t.Fatal(err)
	}
	files("link/five=" + server.URL + "/five#sha256=" + sum("content of /five"))
	p.refuses("files: link/five", "escapes")
	if made, err := os.ReadDir(outside); len(made) > 0 || err != nil {
		t.Errorf("a file outside of the application: %v %v", made, err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestFilesRefused refuses wrong entries of files with the number of the entry.
func TestFilesRefused(t *testing.T) {
	digest := strings.Repeat("a", 64)
	good := "a/b=https://models.example.org/b#sha256=" + digest
	if _, err := ParseFiles([]string{good, "a/c=https://models.example.org/b?x=1#sha256=" + digest}); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"models/one":                                       "is not PATH=https://HOST/PATH#sha256=HEX",
		"../one=https://h/x#sha256=" + digest:              `"../one" must lead to a file in the folder`,
		"/one=https://h/x#sha256=" + digest:                "must lead to a file in the folder",
		"=https://h/x#sha256=" + digest:                    "must lead to a file in the folder",
		"a/../b=https://h/x#sha256=" + digest:              "must lead to a file in the folder",
		"sub/.git/config=https://h/x#sha256=" + digest:     "not in .git",
		"one=https://h/x":                                  "sha256",
		"one=http://h/x#sha256=" + digest:                  "write https://",
		"one=https://me:secret@h/x#sha256=" + digest:       "password",
		"one=git+https://h/x#one":                          "is not https://HOST/PATH#sha256=HEX",
		"one=https://h/x.zip#sha256=" + digest + "/inside": "is not https://HOST/PATH#sha256=HEX",
		"a/b/c=https://h/x#sha256=" + digest:               "a/b and a/b/c cannot both be files",
		"a=https://h/x#sha256=" + digest:                   "a/b and a cannot both be files",
	} {
		_, err := ParseFiles([]string{good, text})
		if got := errorText(err); !strings.HasPrefix(got, "files[1]: ") || !strings.Contains(got, want) ||
			strings.Contains(got, "secret") {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
