package source

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/internal/gittest"
	"millrace/internal/testneeds"
)

// fetch fetches an address into a new folder.
func fetch(t *testing.T, text string, o Options) (dir string, result *Result, err error) {
	t.Helper()
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "clone")
	result, err = Fetch(context.Background(), s, dir, o)
	return dir, result, err
}

func mustFetch(t *testing.T, text string, o Options) (dir string, result *Result) {
	t.Helper()
	dir, result, err := fetch(t, text, o)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return dir, result
}

// refuses expects an error with all the texts.
func refuses(t *testing.T, text string, o Options, want ...string) {
	t.Helper()
	_, result, err := fetch(t, text, o)
	if err == nil {
		t.Errorf("%s: %+v, want an error with %q", text, result, want)
		return
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v, want %q", text, err, w)
		}
	}
}

func fileIs(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s: %q %v, want %q", path, got, err, want)
	}
}

// history makes a repository with two commits on main, the branch a/b, the tags v1 and annotated v2, and a branch and
// a tag with the name both. It returns the first two commits.
func history(t *testing.T) (r *gittest.Repository, first, second string) {
	r = gittest.New(t)
	first = r.Commit(map[string]string{"a.txt": "1", "dir/b.txt": "b"})
	r.Git("tag", "v1")
	r.Git("tag", "both")
	second = r.Commit(map[string]string{"a.txt": "2"})
	r.Git("tag", "-a", "v2", "-m", "x")
	r.Git("branch", "both")
	r.Git("checkout", "-q", "-b", "a/b")
	r.Commit(map[string]string{"a.txt": "3"})
	r.Git("checkout", "-q", "main")
	return r, first, second
}

// references fetches each kind of reference from a server or folder. shortened: also commits by their first digits.
func testReferences(t *testing.T, address string, first, second string, shortened bool, o Options) {
	for ref, want := range map[string]string{
		"": "2", "@main": "2", "@a/b": "3", "@v1": "1", "@v2": "2", "@refs/heads/both": "2", "@refs/tags/both": "1",
		"@" + first: "1", "@" + second: "2", "@" + second[:8]: "2",
	} {
		dir, result := mustFetch(t, address+ref, o)
		fileIs(t, filepath.Join(dir, "a.txt"), want)
		fileIs(t, filepath.Join(dir, "dir", "b.txt"), "b")
		if want == "1" && result.Commit != first || result.Files != 2 || result.Bytes != 2 {
			t.Errorf("%s: %+v", ref, result)
		}
	}
	refuses(t, address+"@both", o, "a branch and a tag with the name both", "@refs/heads/both", "@refs/tags/both")
	refuses(t, address+"@mian", o, "no branch and no tag mian", "main")
	refuses(t, address+"@refs/heads/v1", o, "has no refs/heads/v1")
	refuses(t, address+"@"+strings.Repeat("0", 39)+"1", o, "has no commit 0000")
	if shortened {
		dir, _ := mustFetch(t, address+"@"+first[:10], o)
		fileIs(t, filepath.Join(dir, "a.txt"), "1")
	}
}

// TestFetchLocal fetches a bare repository, and one with a work tree, by file://.
func TestFetchLocal(t *testing.T) {
	r, first, second := history(t)
	testReferences(t, "file://"+r.Bare(), first, second, true, Options{})
	dir, _ := mustFetch(t, "file://"+r.Dir, Options{})
	fileIs(t, filepath.Join(dir, "a.txt"), "2")
	refuses(t, "file://"+filepath.Join(r.Dir, "none"), Options{}, "is not a Git repository", "compare the path")
	refuses(t, "file://"+gittest.New(t).Dir, Options{}, "the repository is empty")
	// the git program can read and check the clone
	clone := gittest.At(t, dir)
	clone.Git("fsck", "--strict")
	if out := clone.Git("status", "--porcelain", "--branch"); !strings.HasPrefix(out, "## main") ||
		strings.Contains(out, "\n") {
		t.Errorf("git status: %q", out)
	}
	if out := clone.Git("log", "--oneline"); strings.Contains(out, "\n") {
		t.Errorf("the history was fetched: %q", out)
	}
}

// TestChanges finds each kind of change, and nothing in a new clone.
func TestChanges(t *testing.T) {
	r := gittest.New(t)
	r.Commit(map[string]string{"a.txt": "1", "b.txt": "1", "run.sh": "#!/bin/sh\n", ".gitignore": "*.log\n"})
	dir, _ := mustFetch(t, "file://"+r.Dir, Options{})
	d, err := Changes(dir, nil)
	if err != nil || len(d.Changed)+len(d.New) > 0 {
		t.Fatalf("a new clone: %+v %v", d, err)
	}
	for name, text := range map[string]string{"a.txt": "2", "new.txt": "", "x.log": "", "p/__pycache__/a.pyc": ""} {
		path := filepath.Join(dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "b.txt")); err != nil {
		t.Fatal(err)
	}
	d, err = Changes(dir, nil)
	if err != nil || !slices.Equal(d.Changed, []string{"a.txt", "b.txt"}) || !slices.Equal(d.New, []string{"new.txt"}) {
		t.Errorf("%+v %v", d, err)
	}
}

// TestFetchRefusesPaths: links and names that lead out of the folder are refused before a file is written.
func TestFetchRefusesPaths(t *testing.T) {
	link := func(name, to string) func(*gittest.Repository) {
		return func(r *gittest.Repository) {
			path := filepath.Join(r.Dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Symlink(to, path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	// raw adds an entry that the git program would not add to its index
	raw := func(mode, name string) func(*gittest.Repository) {
		return func(r *gittest.Repository) {
			blob := r.Git("hash-object", "-w", "a.txt")
			sub := r.Git("rev-parse", "HEAD^{tree}")
			of := blob
			kind := "blob"
			if mode == "040000" {
				of, kind = sub, "tree"
			}
			c := exec.Command(testneeds.Program(t, "git"), "mktree", "--missing")
			c.Dir = r.Dir
			c.Stdin = strings.NewReader(fmt.Sprintf("%s %s %s\t%s\n", mode, kind, of, name))
			tree, err := c.Output()
			if err != nil {
				t.Fatal(err)
			}
			r.Git("update-ref", "refs/heads/main", r.Git("commit-tree", "-m", "x", strings.TrimSpace(string(tree))))
		}
	}
	for name, c := range map[string]struct {
		make func(*gittest.Repository)
		want string
	}{
		"absolute": {link("l", "/etc/passwd"),
			`the symbolic link "l" leads out of the repository, to "/etc/passwd"`},
		"above":      {link("d/l", "../../x"), `the symbolic link "d/l" leads out`},
		"into .git":  {link("l", ".git/config"), "leads out"},
		"inside":     {link("d/l", "../a.txt"), ""},
		"to nothing": {link("d/l", "./none"), ""},
		"round":      {link("l", "l"), "through more than"},
		"by a folder": {func(r *gittest.Repository) { link("d/e/l", "../..")(r); link("m", "d/e/l/../x")(r) },
			`"m" leads out`},
		"dots":      {raw("100644", ".."), `the path "/.."`},
		"git":       {raw("040000", ".GIT"), "is a name of the folder .git"},
		"git short": {raw("040000", "GIT~1"), "is a name of the folder .git"},
		"modules":   {raw("120000", ".gitmodules"), ".gitmodules is a symbolic link"},
	} {
		t.Run(name, func(t *testing.T) {
			r := gittest.New(t)
			r.Commit(map[string]string{"a.txt": "1"})
			if c.make(r); r.Git("status", "--porcelain") != "" && !strings.HasPrefix(name, "git") && name != "dots" &&
				name != "modules" {
				r.Commit(nil)
			}
			dir, _, err := fetch(t, "file://"+r.Dir, Options{})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if _, err := os.Stat(filepath.Join(dir, "a.txt")); c.want != "" && err == nil {
				t.Error("a file was written")
			}
		})
	}
}

// TestFetchLimits: the size, the time and the caller end a fetch.
func TestFetchLimits(t *testing.T) {
	r := gittest.New(t)
	r.Commit(map[string]string{"zeros": strings.Repeat("0", 1<<20)}) // about 1 kB in a pack
	url := "file://" + r.Dir
	refuses(t, url, Options{MaxSize: 100 << 10}, "the repository is too large: its files have more bytes than 100KiB",
		"--max-size")
	refuses(t, url, Options{MaxSize: 200}, "the server sends more bytes than 200B", "--max-size")
	refuses(t, url, Options{Timeout: time.Nanosecond}, "has taken longer than 1ns", "--timeout")
	s, err := Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(context.Background())
	o := Options{Progress: func(string, int64) { cancel(stopped) }}
	if _, err := Fetch(ctx, s, filepath.Join(t.TempDir(), "x"), o); !errors.Is(err, stopped) {
		t.Errorf("a fetch that the caller ended: %v", err)
	}
}

// TestFetchLFS names the files whose content is elsewhere.
func TestFetchLFS(t *testing.T) {
	r := gittest.New(t)
	r.Commit(map[string]string{"m/model.onnx": "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
		"a.txt": "version https://example.org, which is longer than the text\n"})
	_, result := mustFetch(t, "file://"+r.Dir, Options{})
	if !slices.Equal(result.LFS, []string{"m/model.onnx"}) || len(result.Notes()) != 1 ||
		!strings.Contains(result.Notes()[0], "m/model.onnx") {
		t.Errorf("%q %q", result.LFS, result.Notes())
	}
}

// TestFetchSubmodules fetches submodules of submodules, by absolute and relative addresses.
func TestFetchSubmodules(t *testing.T) {
	inner, middle, outer := gittest.New(t), gittest.New(t), gittest.New(t)
	first := inner.Commit(map[string]string{"i.txt": "1"})
	add := func(to *gittest.Repository, url, name string) {
		to.Git("-c", "protocol.file.allow=always", "submodule", "add", "-q", "--", url, name)
		to.Commit(nil)
	}
	add(middle, inner.Dir, "in")
	inner.Commit(map[string]string{"i.txt": "2"}) // the submodule stays at the first commit
	add(outer, "file://"+middle.Dir, "sub/mid")
	dir, result := mustFetch(t, "file://"+outer.Dir, Options{})
	fileIs(t, filepath.Join(dir, "sub", "mid", "in", "i.txt"), "1")
	if len(result.Submodules) != 2 || result.Submodules[1].Path != "sub/mid/in" ||
		result.Submodules[1].Commit != first {
		t.Errorf("%+v", result.Submodules)
	}
	gittest.At(t, dir).Git("submodule", "status", "--recursive")
	d, err := Changes(dir, result.Submodules)
	if err != nil || len(d.Changed)+len(d.New) > 0 {
		t.Errorf("a new clone: %+v %v", d, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sub", "mid", "in", "i.txt"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if d, err = Changes(dir, result.Submodules); err != nil || !slices.Contains(d.Changed, "sub/mid/in/i.txt") {
		t.Errorf("a changed submodule: %+v %v", d, err)
	}
	for url, want := range map[string]string{
		"../app.git": "https://h.example/a/app.git", "./x.git": "https://h.example/a/up.git/x.git",
		"../../../x.git": "leads above", "../../x@y": "has an @", "https://o.example/x": "https://o.example/x",
		"git@o.example:x.git": "git@o.example:x.git", "/srv/x": "not an address", "-x": "not an address",
	} {
		s, err := moduleSource(mustParse(t, "https://h.example/a/up.git"), url)
		if err == nil && s.Address() != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v %v, want %s", url, s, err, want)
		}
	}
	if s, err := moduleSource(mustParse(t, "git@h.example:a/up.git"), "../x.git"); err != nil ||
		s.Address() != "git@h.example:a/x.git" {
		t.Errorf("beside an address of ssh: %v %v", s, err)
	}
}

func mustParse(t *testing.T, text string) Source {
	t.Helper()
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestFetchBomb: a small pack with a huge file costs little memory.
func TestFetchBomb(t *testing.T) {
	const size = 200 << 20
	r := gittest.New(t)
	r.Commit(map[string]string{"a": ""})
	if err := os.Truncate(filepath.Join(r.Dir, "a"), size); err != nil {
		t.Fatal(err)
	}
	r.Commit(nil)
	at := serveHTTP(t, filepath.Dir(r.Dir), "").URL + "/app"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	refuses(t, at, Options{MaxSize: 1 << 20}, "too large", "1MiB", "--max-size")
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > size/4 {
		t.Errorf("a file of %d bytes took %d bytes of memory", size, used)
	}
}

// TestCheckPackDelta: the size of a file that is a difference to another is known before the difference is applied.
func TestCheckPackDelta(t *testing.T) {
	packed := func(data []byte) []byte {
		var b bytes.Buffer
		w := zlib.NewWriter(&b)
		_, err := w.Write(data)
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for size, want := range map[uint64]bool{100: true, 1000: true, 1001: false, 1 << 40: false, 1 << 63: false} {
		delta := binary.AppendUvarint([]byte{1}, size)
		pack := slices.Concat([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x02\x31"), packed([]byte("x")),
			[]byte{0x70 | byte(len(delta))}, make([]byte, 20), packed(delta), make([]byte, 20))
		err := checkPack(t.Context(), bytes.NewReader(pack), 1000)
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "too large") {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}
