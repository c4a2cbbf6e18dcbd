package server

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/config"
	"millrace/stream"
	"millrace/workers"
)

// TestWatchedFiles: look returns a change of the program's files once the change has settled.
func TestWatchedFiles(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), text)
	}
	put("service.py", "1")
	put("sub/module.py", "1")
	put("settings.yaml", "1")
	w := newWatched(filepath.Join(dir, "service.py") + ":Class")
	for _, c := range []struct{ name, text, want string }{
		{"service.py", "22", "service.py"}, {"sub/module.py", "22", "sub/module.py"}, {"new.py", "2", "new.py"},
		{"settings.yaml", "22", "settings.yaml"},
		{"data.bin", "2", ""}, {".git/x.py", "2", ""}, {"__pycache__/x.py", "2", ""}, {"sub/data.json", "2", ""},
	} {
		put(c.name, c.text)
		if first, _ := w.look(); first != nil {
			t.Errorf("%s: %q before it has settled", c.name, first)
		}
		got, _ := w.look()
		if c.want == "" && got != nil || c.want != "" && !slices.Equal(got, []string{filepath.Join(dir, c.want)}) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if again, _ := w.look(); again != nil {
			t.Errorf("%s: %q again", c.name, again)
		}
	}
	put("service.py", "") // programs empty a file before writing the file
	for range 3 {
		if got, _ := w.look(); got != nil || !w.empty[filepath.Join(dir, "service.py")] {
			t.Errorf("emptied: %q, and empty are %v", got, w.empty)
		}
	}
	put("service.py", "333")
	w.look()
	if got, _ := w.look(); !slices.Equal(got, []string{filepath.Join(dir, "service.py")}) || len(w.empty) > 0 {
		t.Errorf("written: %q", got)
	}
	if err := os.Remove(filepath.Join(dir, "new.py")); err != nil {
		t.Fatal(err)
	}
	w.look()
	if got, _ := w.look(); !slices.Equal(got, []string{filepath.Join(dir, "new.py")}) {
		t.Errorf("removed: %q", got)
	}
	if _, over := filesOf(w.source); over {
		t.Error("a small folder is too large")
	}
	// The watch sees changes during the load; a settings file that changes at each load is ignored.
	for i, want := range []string{"settings.yaml", ""} {
		put("settings.yaml", strings.Repeat("3", 3+i))
		if own := w.wasLoaded(); want == "" != (own != nil) {
			t.Errorf("load %d: %q are not watched any more", i, own)
		}
		w.look()
		if got, _ := w.look(); want == "" && got != nil ||
			want != "" && !slices.Equal(got, []string{filepath.Join(dir, want)}) {
			t.Errorf("changed in load %d: %q", i, got)
		}
	}
	for i := range 2 {
		put("service.py", strings.Repeat("3", 3+i))
		w.wasLoaded()
		w.look()
		if got, _ := w.look(); !slices.Equal(got, []string{filepath.Join(dir, "service.py")}) {
			t.Errorf("the source, changed in load %d: %q", i, got)
		}
	}
	put("a/b/c/d/e/f/g/h/near.py", "")
	put("a/b/c/d/e/f/g/h/i/far.py", "")
	if files, over := filesOf(w.source); over || len(files) != 4 {
		t.Errorf("%d deep: %v, %v", maxDepth, files, over)
	}
	for i := range maxVisited { // for example a data set
		put(fmt.Sprintf("a/%d.bin", i), "")
	}
	for name, w := range map[string]*watchedProgram{"it grows": w, "it begins so": newWatched(w.source)} {
		w.look()
		w.look()
		put("service.py", name)
		w.look()
		if got, _ := w.look(); !slices.Equal(got, []string{filepath.Join(dir, "service.py")}) || !w.fixed {
			t.Errorf("with too much in the folder, and %s: %q, %v", name, got, w.fixed)
		}
		put("sub/module.py", name)
		w.look()
		if got, _ := w.look(); len(got) > 1 || len(got) == 1 && got[0] != filepath.Join(dir, "sub/module.py") {
			t.Errorf("with too much in the folder, and %s: %q", name, got)
		}
		put(name+".py", "")
		w.look()
		if got, _ := w.look(); got != nil {
			t.Errorf("a new file was found, and %s", name)
		}
	}
}

// TestFilesThatProgramsWrite: a settings file written by the running program neither hides a change of the source nor
// causes endless reloads, and is logged once. A settings file edited by a person stays watched.
func TestFilesThatProgramsWrite(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	n := 0
	put := func(name string) { n++; write(t, at(name), strings.Repeat("x", n)) }
	for what, c := range map[string]struct {
		do    func(look int)
		loads int // at most
		own   string
	}{
		"at each look": {func(int) { put("own.json") }, 0, "own.json"},
		"at every second look": {func(i int) {
			if i%2 == 0 {
				put("own.json")
			}
		}, maxSettingsReloads, "own.json"},
		"at every fifth look": {func(i int) {
			if i%5 == 0 {
				put("own.json")
			}
		}, maxSettingsReloads, "own.json"},
		"a new one at each look": {func(i int) {
			put(fmt.Sprintf("new%d.json", i))
			_ = os.Remove(at(fmt.Sprintf("new%d.json", i-1)))
		}, maxSettingsReloads, "new"},
		"a new one at the fifth look": {func(i int) {
			if i%5 == 0 {
				put(fmt.Sprintf("new%d.json", i))
				_ = os.Remove(at(fmt.Sprintf("new%d.json", i-15)))
			}
		}, 2 * maxSettingsReloads, "new"}, // of these as many behind the change of the source
		"by hand": {func(i int) {
			if i%(aloneLooks+5) == 0 {
				put("own.json")
			}
		}, 3, ""},
	} {
		t.Run(what, func(t *testing.T) {
			put("service.py")
			put("own.json")
			w := newWatched(at("service.py") + ":Class")
			loads, code, own := 0, 0, []string{}
			for i := range 100 {
				c.do(i)
				if i == 55 {
					put("service.py")
				}
				changed, ignored := w.look()
				own = append(own, ignored...)
				if slices.Contains(changed, at("service.py")) {
					code = i
				} else if changed != nil {
					loads++
				}
				if changed != nil {
					w.wasLoaded()
				}
			}
			if code != 56 {
				t.Errorf("the change of the source is seen at look %d", code)
			}
			if told := slices.IndexFunc(own, func(file string) bool {
				return strings.HasPrefix(file, at(c.own))
			}); loads > c.loads || (c.own != "") != (len(own) > 0) || c.own != "" && told < 0 ||
				c.own == "own.json" && len(own) != 1 {
				t.Errorf("loaded %d times for settings, want at most %d; %q are not watched any more", loads, c.loads,
					own)
			}
			if what == "by hand" && loads != 3 {
				t.Errorf("loaded %d times", loads)
			}
			if len(w.ignored) > 4 {
				t.Errorf("%d files are remembered", len(w.ignored))
			}
		})
	}
}

// TestSourcesOfPrograms: programs of kind process are watched too; their file is the source, the command or an
// argument.
func TestSourcesOfPrograms(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "child.py")
	write(t, file, "")
	for _, c := range []struct {
		source string
		params stream.Params
		want   string
	}{
		{file, nil, file},
		{"process", stream.Params{"command": file, "args": `["x"]`}, file},
		{"process", stream.Params{"command": "python3", "args": `["-u", "` + file + `"]`}, file},
		{"process", stream.Params{"command": "python3", "args": `["-u", "child.py"]`, "dir": dir}, file},
		{"process", stream.Params{"command": "python3", "args": `["-m", "child"]`}, ""},
	} {
		if got := sourceOf(workers.Config{Name: "m", Source: c.source,
			Params: c.params}.WithDefaults()); got != c.want {
			t.Errorf("%s %v: %q, want %q", c.source, c.params, got, c.want)
		}
	}
}

// TestWatchFromTheStart: changes during the first load cause a reload, and a program with daemons is not watched.
func TestWatchFromTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "svc.staged")
	write(t, file, "a\n"+`{"stages": [{"name": "a", "stage": "slow"}]}`)
	with := filepath.Join(t.TempDir(), "with.staged")
	write(t, with, "daemons\nnull")
	unknown := filepath.Join(t.TempDir(), "log")
	s, err := New(Config{
		HTTP: "127.0.0.1:0", GRPC: Off, Programs: config.Programs{Watch: true}, Log: config.Log{File: unknown},
		Models: []workers.Config{{Name: "with", Source: with}, {Name: "svc", Source: file}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stagedSlow <- struct{}{}
	write(t, file, "a\n"+`{"stages": [{"name": "a", "stage": "changed"}]}`)
	write(t, with, "daemons changed\nnull")
	stagedSlow <- struct{}{}
	<-s.Ready()
	for got := ""; got != "200 OK changed"; time.Sleep(10 * time.Millisecond) {
		got = post(t, s, "/apps/svc/a")
	}
	if g, err := s.models.Group("with", ""); err != nil || len(g.Model().App.Routes) != 1 {
		t.Errorf("a program with daemons was loaded again: %v", err)
	}
	text, err := os.ReadFile(unknown)
	if err != nil || !strings.Contains(string(text), `a second load would start the daemons twice`) ||
		!strings.Contains(string(text), `clock`) {
		t.Errorf("the log: %s %v", text, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// TestWatchAfterReload: programs added or given another file by a Reload become watched, and removed programs are no
// longer watched.
func TestWatchAfterReload(t *testing.T) {
	file := func(route string) string {
		path := filepath.Join(t.TempDir(), "svc.staged")
		write(t, path, "a\n"+fmt.Sprintf(`{"stages": [{"name": "a", "stage": %q}]}`, route))
		return path
	}
	one, other, added, gone := file("one"), file("other"), file("added"), file("gone")
	cfg := Config{
		HTTP: "127.0.0.1:0", GRPC: Off, Programs: config.Programs{Watch: true}, Log: config.Log{Level: "error"},
		Models: []workers.Config{{Name: "svc", Source: one}, {Name: "gone", Source: gone}},
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-s.Ready()
	cfg.Models = []workers.Config{{Name: "svc", Source: other}, {Name: "added", Source: added}}
	if err := s.Reload(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	for path, name := range map[string]string{other: "svc", added: "added"} {
		write(t, path, "a\n"+`{"stages": [{"name": "a", "stage": "changed"}]}`)
		eventually(t, func() bool { return post(t, s, "/apps/"+name+"/a") == "200 OK changed" })
	}
	if now := s.watched.now(); len(now) != 2 || now["gone"] != nil || now["svc"].source != other {
		t.Errorf("%v are watched", now)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}
