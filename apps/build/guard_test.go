package build

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"millrace/apps"
	"millrace/apps/source"
)

// holds compares files of the application; "" = none.
func (p *place) holds(want map[string]string) {
	p.t.Helper()
	for name, want := range want {
		st, err := os.Lstat(p.path(name))
		if want == "" {
			if err == nil {
				p.t.Errorf("%s is there: %v", name, st.Mode())
			}
			continue
		}
		if text, err := os.ReadFile(p.path(name)); err != nil || string(text) != want || !st.Mode().IsRegular() {
			p.t.Errorf("%s: %q %v, want %q", name, text, err, want)
		}
	}
}

// TestSetupLeavesGit: git trusts the programs named in .git, and in each .git below.
func TestSetupLeavesGit(t *testing.T) {
	p := newPlace(t, nil)
	files := map[string]string{".git/config": "[core]\n", ".git/HEAD": "ref", ".git/hooks/old": "old",
		".git/modules/objects/config": "module", ".git/modules/objects/HEAD": "ref",
		"sub/.git/config": "sub", "linked/.git": "gitdir: ../real\n", "real/config": "real"}
	for name, text := range files {
		p.write(name, text)
	}
	deep := `python3 -c "
import os, sys
os.chdir(sys.argv[1])
for i in range(40): os.mkdir('d' * 200); os.chdir('d' * 200)
os.mkdir('.git')" `
	for line, changed := range map[string]string{
		"echo evil >.git/config; >.git/hooks/new; rm .git/hooks/old": ".git/config, .git/hooks/new, .git/hooks/old",
		"rm -r .git; ln -s / .git":                                   ".git, .git/HEAD, .git/config",
		"rm .git/config; mkfifo .git/config":                         ".git/config",
		"chmod 755 .git/hooks/old":                                   ".git/hooks/old",
		"echo evil >.git/modules/objects/config":                     ".git/modules/objects/config",
		deep + ".git/hooks; echo evil >.git/config":                  ".git/config, .git/hooks/dddd",
		deep + ".; echo evil >.git/config":                           ".git/config, dddd",
		"mkdir .git/x; chmod 0 .git/x .git; mkdir -p n/.git":         ".git, .git/x, n/.git",
		"echo evil >sub/.git/config":                                 "sub/.git/config",
		"rm -r sub; ln -s /tmp sub":                                  "sub, sub/.git, sub/.git/config",
		"mkdir -p new/a/.git/hooks; ln -s / n.git":                   "new/a/.git",
		"echo evil >real/config":                                     "real/config",
		"mkdir -p a/.repo/.millrace":                                 "a/.repo/.millrace",
	} {
		p.write(".git/objects/a", "a")
		p.setup(line)
		p.refuses("code of the application has changed " + changed)
		p.holds(files)
		p.holds(map[string]string{".git/hooks/new": "", ".git/x": "", "n/.git": "", "new/a/.git": "",
			".git/hooks/" + strings.Repeat("d", 200): "", "a/.repo/.millrace": ""})
	}
	p.setup("true")
	p.build()
	if _, err := os.Stat(filepath.Join(p.o.Dir, ".repo/.millrace/app.env", stateFile)); err == nil {
		t.Error("the saved state is left")
	}
}

// TestSetupLargeGit: large files are compared, and what cannot be put back is refused before programs run.
func TestSetupLargeGit(t *testing.T) {
	old, oldEntries := maxKept, maxEntries
	t.Cleanup(func() { maxKept, maxEntries = old, oldEntries })
	maxKept = 100
	p := newPlace(t, map[string]string{".git/index": strings.Repeat("i", 200), ".git/HEAD": "ref"})
	p.setup("printf x | dd of=.git/index conv=notrunc; touch ran")
	p.refuses(".git/index is damaged, and too large to be put back")
	p.setup("rm .git/index")
	p.refuses(".git/index is damaged, and too large to be put back")
	p.write("ran", "")
	p.write(".git/config", strings.Repeat("c", 200))
	p.setup("echo ran >ran")
	p.refuses(".git/config is larger than")
	maxKept, maxEntries = old, 2
	p.refuses(p.path(".git")+" has more than 2 files", "pack its references")
	maxEntries = oldEntries
	if err := syscall.Mkfifo(p.path(".git/fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.refuses(p.path(".git/fifo") + " is not a regular file")
	if text, _ := os.ReadFile(p.path("ran")); len(text) > 0 {
		t.Error("a program ran")
	}
}

// TestSetupKilled: the build after a killed build puts back what programs have changed, but not commits of the user,
// and nothing in a new clone.
func TestSetupKilled(t *testing.T) {
	p := newPlace(t, map[string]string{".git/config": "[core]\n", ".git/refs/heads/main": "1\n"})
	base := filepath.Join(p.o.Dir, ".repo/.millrace/app.env")
	killed := func() {
		var ended sync.WaitGroup
		ended.Go(func() {
			_ = guarded(p.app.Root, base, func() error {
				for name, text := range map[string]string{".git/config": "evil", "new/.git/config": "evil",
					".git/hooks/x": "evil", ".git/refs/heads/main": "2\n", ".git/refs/heads/new": "2\n"} {
					p.write(name, text)
				}
				runtime.Goexit() // nothing below runs, as after SIGKILL
				return nil
			})
		})
		ended.Wait()
	}
	p.build()
	killed()
	p.refuses("an earlier build was killed: code of the application has changed .git/config, .git/hooks, new/.git, which")
	p.holds(map[string]string{".git/config": "[core]\n", ".git/hooks": "", "new/.git": "",
		".git/refs/heads/main": "2\n", ".git/refs/heads/new": "2\n"})
	p.build()
	killed()
	old := p.app.Root + ".old"
	if err := os.Rename(p.app.Root, old); err != nil {
		t.Fatal(err)
	}
	p.write("millrace.yaml", "")
	p.write(".git/config", "new clone")
	p.build()
	p.holds(map[string]string{".git/config": "new clone"})
}

// TestFolderAroundControl: no program writes in the folder of environments, and no link leads there.
func TestFolderAroundControl(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	p := newPlace(t, nil)
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
