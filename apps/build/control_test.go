package build

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"millrace/apps"
	"millrace/apps/guard"
	"millrace/apps/source"
)

// TestFolderAroundControl: no program writes in the folder of environments, and no link leads there.
func TestFolderAroundControl(t *testing.T) {
	p := newPlace(t, nil)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	if err := os.WriteFile(filepath.Join(p.o.Dir, "millrace.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	beside := p.app
	s, err := source.Parse(p.o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if p.app, err = apps.Open(s, apps.Options{Dir: p.o.Dir}); err != nil {
		t.Fatal(err)
	}
	p.setup("touch made")
	p.build()
	files, err := p.app.Files(p.o.Dir)
	if err != nil || !strings.HasPrefix(files, cache) {
		t.Errorf("%s %v", files, err)
	}
	if _, err := os.Lstat(filepath.Join(p.o.Dir, ".repo")); err == nil {
		t.Error("the control folder is in the application's folder")
	}
	p.setup("mkdir -p .repo/.millrace && ln -s / .repo/.millrace/app.env")
	p.refuses("code of the application has changed .repo/.millrace")
	control := filepath.Join(p.o.Dir, ".repo/.millrace")
	link := func(at string) {
		t.Helper()
		err := errors.Join(os.RemoveAll(at), os.MkdirAll(filepath.Dir(at), 0o700), os.Symlink(t.TempDir(), at))
		if err != nil {
			t.Fatal(err)
		}
	}
	link(control)
	p.refuses(control + " holds files about applications")
	p.app = beside
	p.setup("true")
	p.refuses(control + " is a link")
	link(filepath.Dir(control))
	p.refuses(filepath.Dir(control) + " is a link")
	if err := os.Remove(filepath.Dir(control)); err != nil {
		t.Fatal(err)
	}
	p.build()
	link(filepath.Join(control, "app.env/cache"))
	p.refuses(filepath.Join(control, "app.env/cache") + " is a link")
	link(filepath.Join(control, "app.env"))
	p.refuses(filepath.Join(control, "app.env") + " is no folder")
	t.Setenv("XDG_CACHE_HOME", filepath.Join(p.o.Dir, "cache"))
	if p.app, err = apps.Open(s, apps.Options{Dir: p.o.Dir}); err != nil {
		t.Fatal(err)
	}
	p.refuses("set XDG_CACHE_HOME to another folder")
}

// TestNotes: Build passes on what Settle tells the user once, also when Build then fails.
func TestNotes(t *testing.T) {
	p := newPlace(t, map[string]string{})
	other := filepath.Join(t.TempDir(), "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		_ = guard.Run(other, control, nil, func() error {
			runtime.Goexit() // as after SIGKILL
			return nil
		})
	})
	ended.Wait()
	if err := os.Rename(other, other+"-moved"); err != nil {
		t.Fatal(err)
	}
	var notes []string
	p.o.OnNote = func(note string) { notes = append(notes, note) }
	p.setup("false")
	p.refuses("false")
	if len(notes) != 1 || !strings.Contains(notes[0], "of "+other+", which is no longer the folder") {
		t.Errorf("%q", notes)
	}
}
