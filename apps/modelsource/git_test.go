package modelsource

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/gittest"
)

// A file of a repository is fetched over file:// and HTTP, and a moved branch is seen. A commit needs no connection
// once fetched. Without the server the last state is served, with the reason.
func TestGit(t *testing.T) {
	r := gittest.New(t)
	first := r.Commit(map[string]string{"a/model.onnx": "one", "README": "x"})
	r.Git("tag", "-a", "v1", "-m", "x")
	s := httptest.NewServer(gittest.HTTP(t, filepath.Dir(r.Dir), "secret"))
	defer s.Close()
	host := strings.TrimPrefix(s.URL, "http://")
	for _, base := range []string{"git+file://" + r.Dir, "git+" + s.URL + "/app"} {
		c := open(t, Options{GitToken: "none", GitHost: host, Tokens: []Token{{Host: "127.0.0.1", User: "me",
			Secret: "secret"}}})
		if !strings.HasPrefix(base, "git+file") {
			base = strings.Replace(base, "://", "://me@", 1)
		}
		got, src := text(t, c, base+"#a/model.onnx")
		if got != "one" || src.Revision != first {
			t.Errorf("%s: %q of %s", base, got, src.Revision)
		}
		if got, _ := text(t, c, base+"@v1#a/model.onnx"); got != "one" {
			t.Errorf("%s: %q", base, got)
		}
		if _, same := text(t, c, base+"@v1#README"); c.Counts() != (Counts{Fetched: 2, Current: 1}) ||
			same.Digest != src.Digest {
			t.Errorf("%s: %+v, digests %s %s", base, c.Counts(), src.Digest, same.Digest)
		}
		second := r.Commit(map[string]string{"a/model.onnx": "two"})
		if got, src := text(t, c, base+"#a/model.onnx"); got != "two" || src.Revision != second {
			t.Errorf("%s: %q of %s", base, got, src.Revision)
		}
		if got, src := text(t, c, base+"@main#a/model.onnx"); got != "two" || src.Revision != second {
			t.Errorf("%s: %q of %s", base, got, src.Revision)
		}
		refuses(t, c, base+"@mian#a/model.onnx", "no branch and no tag mian")
		refuses(t, c, base+"#b/model.onnx", "has no b/model.onnx")
		r.Git("reset", "-q", "--hard", first)
		if _, err := os.Stat(filepath.Join(src.dir, ".git")); err == nil {
			t.Error(".git is in the cache")
		}
	}
	base := strings.Replace("git+"+s.URL+"/app", "://", "://me@", 1)
	refuses(t, open(t, Options{GitToken: "secret", GitHost: "git.example.org:443"}), base+"#a/model.onnx",
		"name the variable with a token of the host in model_sources.tokens")
	c := open(t, Options{GitToken: "secret", GitHost: host})
	text(t, c, base+"#a/model.onnx")
	text(t, c, base+"@"+first+"#a/model.onnx")
	s.Close()
	got, stale := text(t, c, base+"#a/model.onnx")
	if got != "one" || stale.Stale == nil || !strings.Contains(stale.Stale.Error(), "refused") || c.Counts().Failed != 1 {
		t.Errorf("%q, %v, %+v", got, stale.Stale, c.Counts())
	}
	if got, fixed := text(t, c, base+"@"+first+"#a/model.onnx"); got != "one" || fixed.Stale != nil {
		t.Errorf("%q, %v", got, fixed.Stale)
	}
	refuses(t, c, base+"@other#a/model.onnx", "refused")
}

// Links inside a repository are followed, links that lead out are refused, and large repositories and pointers of Git
// LFS are refused, with the names of settings.
func TestGitTrees(t *testing.T) {
	r := gittest.New(t)
	r.Commit(map[string]string{"weights.bin": "weights", "m/x": "y"})
	for to, name := range map[string]string{"../weights.bin": "m/model.onnx", "m": "folder"} {
		if err := os.Symlink(to, filepath.Join(r.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	r.Commit(nil)
	base := "git+file://" + r.Dir
	c := open(t, Options{MaxSize: 50_000})
	got, s := text(t, c, base+"#m/model.onnx")
	st, err := os.Lstat(filepath.Join(s.dir, "m/model.onnx"))
	if got != "weights" || err != nil || !st.Mode().IsRegular() {
		t.Errorf("%q, %v", got, err)
	}
	refuses(t, c, base+"#folder/x", "has no folder/x")
	r.Commit(map[string]string{"l/model.onnx": "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n"})
	refuses(t, c, base+"#l/model.onnx", "Git LFS")
	r.Git("rm", "-q", "-r", "l")
	if err := os.Symlink("../../etc/passwd", filepath.Join(r.Dir, "m/out.onnx")); err != nil {
		t.Fatal(err)
	}
	r.Commit(nil)
	refuses(t, open(t, Options{}), base+"#m/out.onnx", "leads out of the repository")
	r.Git("rm", "-q", "m/out.onnx")
	r.Commit(map[string]string{"large": strings.Repeat("x", 60_000)})
	refuses(t, open(t, Options{MaxSize: 50_000}), base+"#m/model.onnx", "model_sources.max_size allows more")
}

// Update changes the folders of the models that differ, and leaves the others untouched.
func TestRepository(t *testing.T) {
	r := gittest.New(t)
	r.Commit(map[string]string{"models/a/1/model.onnx": "a1", "models/b/1/model.onnx": "b1", "models/.hidden/x": "x",
		"models/README": "x", "other/c/1/model.onnx": "c"})
	c := open(t, Options{})
	at, err := c.Repository(parse(t, c, "git+file://"+r.Dir+"#models"))
	if err != nil {
		t.Fatal(err)
	}
	files := func() (list []string) {
		t.Helper()
		if _, err := at.Update(t.Context()); err != nil {
			t.Fatal(err)
		}
		found, err := filepath.Glob(filepath.Join(at.Dir, "*", "1", "model.onnx"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range found {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, string(b))
		}
		return list
	}
	if got := strings.Join(files(), " "); got != "a1 b1" {
		t.Errorf("%s", got)
	}
	before, err := os.Stat(filepath.Join(at.Dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	r.Git("rm", "-q", "-r", "models/b")
	r.Commit(map[string]string{"models/d/1/model.onnx": "d1", "models/e/1/model.onnx": "e1"})
	if got := strings.Join(files(), " "); got != "a1 d1 e1" {
		t.Errorf("%s", got)
	}
	r.Commit(map[string]string{"models/d/1/model.onnx": "d2"})
	if got := strings.Join(files(), " "); got != "a1 d2 e1" {
		t.Errorf("%s", got)
	}
	if after, err := os.Stat(filepath.Join(at.Dir, "a")); err != nil || !os.SameFile(before, after) {
		t.Errorf("the folder of an unchanged model was made anew, %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(at.Dir)); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	none, err := c.Repository(parse(t, c, "git+file://"+r.Dir+"#models/a/1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := none.Update(t.Context()); err == nil || !strings.Contains(err.Error(), "has no folders of models: the "+
		"folder has model.onnx") {
		t.Errorf("%v", err)
	}
}

// A repository is fetched over SSH with the key of a file; a refused key is an error that names the setting.
func TestGitSSH(t *testing.T) {
	s := gittest.NewSSH(t)
	r := gittest.New(t)
	r.Commit(map[string]string{"m.onnx": "weights"})
	address := "git+" + s.URL(r.Bare()) + "#m.onnx"
	o := Options{SSHKey: filepath.Join(t.TempDir(), "id"), Hosts: []string{s.KnownHosts}}
	if err := os.WriteFile(o.SSHKey, s.Key, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := text(t, open(t, o), address); got != "weights" {
		t.Errorf("%q", got)
	}
	_, other, _ := gittest.NewKey(t)
	if err := os.WriteFile(o.SSHKey, other, 0o600); err != nil {
		t.Fatal(err)
	}
	refuses(t, open(t, o), address, "name another key by model_sources.ssh_key")
	o.SSHKey = ""
	refuses(t, open(t, o), address, "set model_sources.ssh_key")
}
