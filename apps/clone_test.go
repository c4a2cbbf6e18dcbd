package apps

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"millrace/apps/guard"
	"millrace/apps/source"
	"millrace/internal/gittest"
)

var other = Format{Name: "other", File: "other.yaml", Is: func(data []byte) bool {
	return strings.HasPrefix(string(data), "other:")
}}

// place is a working directory with an application in a repository.
type place struct {
	t    *testing.T
	repo *gittest.Repository
	o    Options
}

func newPlace(t *testing.T, files map[string]string) *place {
	t.Helper()
	p := &place{t, gittest.New(t), Options{Dir: t.TempDir(), Formats: []Format{other}}}
	p.repo.Commit(files)
	return p
}

func (p *place) source(more string) source.Source {
	p.t.Helper()
	return parse(p.t, "file://"+p.repo.Dir+more)
}

func parse(t *testing.T, text string) source.Source {
	t.Helper()
	s, err := source.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (p *place) init(more string) *App {
	p.t.Helper()
	a, _, err := Init(context.Background(), p.source(more), p.o)
	if err != nil {
		p.t.Fatal(err)
	}
	return a
}

func (p *place) refuses(more string, want ...string) error {
	p.t.Helper()
	a, _, err := Init(context.Background(), p.source(more), p.o)
	if err == nil {
		p.t.Fatalf("init: %+v, want an error with %q", a, want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			p.t.Errorf("init: %v, want %q", err, w)
		}
	}
	return err
}

func (p *place) path(name string) string { return filepath.Join(p.o.Dir, Folder, "app", name) }

func (p *place) write(name, text string) {
	p.t.Helper()
	err := errors.Join(os.MkdirAll(filepath.Dir(p.path(name)), 0o700), os.WriteFile(p.path(name), []byte(text), 0o600))
	if err != nil {
		p.t.Fatal(err)
	}
}

// TestFind finds the configuration file and its form.
func TestFind(t *testing.T) {
	p := newPlace(t, map[string]string{"other.yaml": "x", "millrace.yaml": "x", "a/b.yaml": "other: 1", "a/c.yaml": "",
		"a/millrace.yaml": ""})
	for more, want := range map[string]string{"": "other.yaml other", "|a/b.yaml": "a/b.yaml other",
		"|a/c.yaml": "a/c.yaml millrace", "|a/millrace.yaml": "a/millrace.yaml millrace"} {
		a := p.init(more)
		b, err := Open(p.source(more), p.o)
		if err != nil || !reflect.DeepEqual(a, b) || a.Name != "app" || len(a.Commit) != 40 {
			t.Errorf("%s: %+v, opened %+v %v", more, a, b, err)
		}
		if inside, _ := filepath.Rel(a.Root, a.File); inside+" "+a.Format != want || a.Root != p.path("") {
			t.Errorf("%s: %+v, want %s", more, a, want)
		}
	}
	p.refuses("|a", "a is not a file")
	p.refuses("|none.yaml", "has no file none.yaml", "behind the |")
	p.repo.Git("rm", "-q", "other.yaml", "millrace.yaml")
	p.repo.Commit(nil)
	p.refuses("", "has no other.yaml and no millrace.yaml at the top")
	if _, err := os.Stat(p.path("other.yaml")); err != nil {
		t.Errorf("the earlier clone is gone after an init that failed: %v", err)
	}
}

// TestInitIsFresh: init follows the repository, and removes nothing of anybody else.
func TestInitIsFresh(t *testing.T) {
	p := newPlace(t, map[string]string{"millrace.yaml": "1", "gone.txt": "1"})
	if _, err := Open(p.source(""), p.o); err == nil || !strings.Contains(err.Error(), "add the command init") {
		t.Errorf("open before init: %v", err)
	}
	p.init("")
	p.repo.Git("rm", "-q", "gone.txt")
	p.repo.Commit(map[string]string{"millrace.yaml": "2"})
	p.init("")
	if text, err := os.ReadFile(p.path("millrace.yaml")); err != nil || string(text) != "2" {
		t.Errorf("%q %v", text, err)
	}
	if _, err := os.Stat(p.path("gone.txt")); err == nil {
		t.Error("a file of the earlier commit is still there")
	}
	if _, err := Open(p.source("@main"), p.o); err == nil || !strings.Contains(err.Error(), "add the command init") {
		t.Errorf("open with another branch: %v", err)
	}
	// another repository with the same name
	q := newPlace(t, map[string]string{"millrace.yaml": "q"})
	q.o = p.o
	q.refuses("", "is a clone of another repository", "--discard")
	q.o.Discard = true
	q.init("")
	// a folder that init did not make
	if err := errors.Join(os.RemoveAll(p.path("")), os.MkdirAll(p.path(""), 0o700)); err != nil {
		t.Fatal(err)
	}
	p.write("mine.txt", "")
	q.refuses("", "was not made by init")
	if _, err := os.Stat(p.path("mine.txt")); err != nil {
		t.Error(err)
	}
}

// TestInitKeepsChanges names local changes and keeps them, but for new files of steps.
func TestInitKeepsChanges(t *testing.T) {
	p := newPlace(t, map[string]string{"millrace.yaml": "1"})
	a := p.init("")
	p.write("before.txt", "")
	err := a.Step(p.o.Dir, func() error {
		p.write("built/out.bin", "1")
		p.write("__pycache__/a.pyc", "1")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var changes *ChangesError
	p.write(".env", "A=b")
	_ = p.refuses("", "keeps: .env, before.txt. Commit and push them", "do not commit .env, since such files have passwords")
	if err := os.Remove(p.path(".env")); err != nil {
		t.Fatal(err)
	}
	err = p.refuses("", "has local changes, which init keeps: before.txt. ", "--discard")
	if !errors.As(err, &changes) || !slices.Equal(changes.Files, []string{"before.txt"}) {
		t.Errorf("%+v", changes)
	}
	if err := os.Remove(p.path("before.txt")); err != nil {
		t.Fatal(err)
	}
	p.init("")
	if _, err := os.Stat(p.path("built")); err == nil {
		t.Error("the file of the step is still there")
	}
	p.write("millrace.yaml", "2")
	p.refuses("", "keeps: millrace.yaml. ")
	gittest.At(t, p.path("")).Commit(nil)
	p.refuses("", "keeps: the commit ")
	p.o.Discard = true
	p.init("")
}

// TestInitAlone: no init replaces a clone in use, and what a killed init left is put right.
func TestInitAlone(t *testing.T) {
	p := newPlace(t, map[string]string{"millrace.yaml": "1"})
	a := p.init("")
	release, err := a.Use(p.o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	p.refuses("", "another process uses "+a.Root)
	release()
	// killed after the earlier clone was moved away, with a local change
	p.write("mine.txt", "")
	base := filepath.Join(p.o.Dir, Folder, Control, "app")
	if err := errors.Join(os.Rename(a.Root, base+".old"), os.MkdirAll(base+".new/x", 0o700)); err != nil {
		t.Fatal(err)
	}
	p.refuses("", "keeps: mine.txt. ")
	if err := os.Remove(p.path("mine.txt")); err != nil {
		t.Fatal(err)
	}
	// two at once: the first stands still in the middle
	asked, resume := make(chan struct{}), make(chan struct{})
	git := gittest.HTTP(t, filepath.Dir(p.repo.Dir), "")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost {
			close(asked)
			<-resume
		}
		git.ServeHTTP(w, req)
	}))
	defer s.Close()
	q := &place{t, p.repo, Options{Dir: t.TempDir()}}
	first := make(chan error)
	go func() {
		_, _, err := Init(context.Background(), parse(t, s.URL+"/app"), q.o)
		first <- err
	}()
	<-asked
	q.refuses("", "another process uses")
	close(resume)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(q.o.Dir, Folder, Control, "*")); len(left) != 1 {
		t.Errorf("left: %q", left)
	}
}

// TestFolder: a folder is used in place.
func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "my@app")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "millrace.yaml"), nil,
		0o600)); err != nil {
		t.Fatal(err)
	}
	a, result, err := Init(context.Background(), parse(t, dir), Options{})
	if err != nil || result != nil || a.Cloned() || a.Root != dir || a.Name != "my@app" {
		t.Errorf("%+v %+v %v", a, result, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("the folder was changed: %v", left)
	}
	for text, want := range map[string]string{
		dir + "@main": "file:///PATH@BRANCH", "/none": "compare the path", filepath.Join(dir,
			"millrace.yaml"): "write FOLDER|",
		dir + "|../x": "",
	} {
		s, err := source.Parse(text)
		if err == nil {
			_, err = Open(s, Options{})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := os.Symlink("/etc/hostname", filepath.Join(dir, "l.yaml")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(parse(t, dir+"|l.yaml"), Options{}); err == nil || !strings.Contains(err.Error(), "leads out "+
		"of") {
		t.Errorf("a link out of the folder: %v", err)
	}
}

// TestUseReplaced: an application of an earlier clone is not used, since its commit is another.
func TestUseReplaced(t *testing.T) {
	p := newPlace(t, map[string]string{"millrace.yaml": "models: []"})
	before := p.init("")
	p.repo.Commit(map[string]string{"new.txt": "1"})
	after := p.init("")
	if _, err := before.Use(p.o.Dir); err == nil || !strings.Contains(err.Error(), "repeat the command") {
		t.Errorf("%v", err)
	}
	release, err := after.Use(p.o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	release()
	p.init("") // the refused use holds no lock
}

// TestKilledBuild: no step reads a clone, nor a folder, before the .git folders are put back that programs of a killed
// build have changed. While programs run, no step reads the .git folders.
func TestKilledBuild(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	p := newPlace(t, map[string]string{"millrace.yaml": "models: []\n"})
	a := p.init("")
	clone := p.source("")
	folder := parse(t, p.repo.Dir)
	for name, s := range map[string]source.Source{"clone": clone, "folder": folder} {
		opened, err := Open(s, p.o)
		if err != nil {
			t.Fatal(err)
		}
		git := filepath.Join(opened.Root, ".git")
		config, err := os.ReadFile(filepath.Join(git, "config"))
		if err != nil {
			t.Fatal(err)
		}
		killed := func(programs func()) {
			var ended sync.WaitGroup
			ended.Go(func() {
				_ = guard.Run(opened.Root, filepath.Join(Folder, Control), nil, func() error {
					programs()
					runtime.Goexit() // as after SIGKILL
					return nil
				})
			})
			ended.Wait()
		}
		evil := func() {
			for _, name := range []string{"config", markFile} {
				if err := os.WriteFile(filepath.Join(git, name), []byte(`{"version": 1, "commit": "evil"}`), 0o600); err != nil {
					t.Error(err)
				}
			}
		}
		restored := func(step string, err error) {
			t.Helper()
			if !errors.Is(err, ErrKilled) || !strings.Contains(err.Error(), "has changed .git/config, .git/"+markFile) {
				t.Errorf("%s of the %s: %v", step, name, err)
			}
			if text, err := os.ReadFile(filepath.Join(git, "config")); err != nil || string(text) != string(config) {
				t.Errorf("%s of the %s: .git/config is %q %v", step, name, text, err)
			}
		}
		killed(evil)
		elsewhere := p.o
		if name == "folder" {
			elsewhere.Dir = t.TempDir()
		}
		_, err = Open(s, elsewhere)
		restored("open", err)
		if again, err := Open(s, p.o); err != nil || again.Commit != map[string]string{"clone": a.Commit}[name] {
			t.Errorf("the %s after the restoration: %+v %v", name, again, err)
		}
		killed(evil)
		_, _, err = Init(t.Context(), s, p.o)
		restored("init", err)
		if _, _, err := Init(t.Context(), s, p.o); err != nil {
			t.Errorf("init of the %s after the restoration: %v", name, err)
		}
		killed(func() {
			_, opens := Open(s, p.o)
			_, _, inits := Init(t.Context(), s, p.o)
			for _, err := range []error{opens, inits} {
				if err == nil || !strings.Contains(err.Error(), "a build of app are running") {
					t.Errorf("the %s while programs run: %v", name, err)
				}
			}
		})
	}
	// A folder that is not at its place: the note names the saved state.
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "millrace.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		_ = guard.Run(root, filepath.Join(Folder, Control), nil, func() error {
			runtime.Goexit()
			return nil
		})
	})
	ended.Wait()
	if err := os.Rename(root, root+"2"); err != nil {
		t.Fatal(err)
	}
	const want = "call millrace app with its new path"
	if _, err := Open(parse(t, root), p.o); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a moved folder: %v", err)
	}
}
