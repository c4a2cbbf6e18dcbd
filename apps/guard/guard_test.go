package guard

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"millrace/apps/program"
)

const control = ".repo/.millrace"

// place is a folder with an application.
type place struct {
	t    *testing.T
	root string
}

func newPlace(t *testing.T, files map[string]string) *place {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	p := &place{t, filepath.Join(t.TempDir(), "app")}
	for name, text := range files {
		p.write(name, text)
	}
	return p
}

func (p *place) path(name string) string { return filepath.Join(p.root, name) }

func (p *place) write(name, text string) {
	p.t.Helper()
	err := errors.Join(os.MkdirAll(filepath.Dir(p.path(name)), 0o700), os.WriteFile(p.path(name), []byte(text), 0o600))
	if err != nil {
		p.t.Fatal(err)
	}
}

// run runs a command of the application.
func (p *place) run(line string) error {
	return Run(p.root, control, nil, func() error {
		c := &program.Program{Args: []string{"sh", "-c", line}, Dir: p.root, Read: program.Installation("python3"),
			Write: []string{p.root}, Limit: time.Minute}
		_, err := c.Run(p.t.Context())
		return err
	})
}

func (p *place) refuses(line string, want ...string) {
	p.t.Helper()
	err := p.run(line)
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			p.t.Errorf("%s: %v, want %q", line, err, w)
		}
	}
}

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
	p := newPlace(t, map[string]string{})
	files := map[string]string{".git/config": "[core]\n", ".git/HEAD": "ref", ".git/hooks/old": "old",
		".git/modules/objects/config": "module", ".git/modules/objects/HEAD": "ref",
		"sub/.git/config": "sub", "linked/.git": "gitdir: ../real\n", "real/config": "real"}
	for name, text := range files {
		p.write(name, text)
	}
	// A program that makes such folders, which cannot be read, ends with the next look at the disk.
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
		"echo evil >.git/config; " + deep + ".git/hooks":             ".git/config, .git/hooks/dddd",
		"echo evil >.git/config; " + deep + ".":                      ".git/config, dddd",
		"mkdir .git/x; chmod 0 .git/x .git; mkdir -p n/.git":         ".git, .git/x, n/.git",
		"echo evil >sub/.git/config":                                 "sub/.git/config",
		"rm -r sub; ln -s /tmp sub":                                  "sub, sub/.git, sub/.git/config",
		"mkdir -p new/a/.git/hooks; ln -s / n.git":                   "new/a/.git",
		"echo evil >real/config":                                     "real/config",
		"mkdir -p a/.repo/.millrace":                                 "a/.repo/.millrace",
	} {
		p.write(".git/objects/a", "a")
		p.refuses(line, "code of the application has changed "+changed)
		p.holds(files)
		p.holds(map[string]string{".git/hooks/new": "", ".git/x": "", "n/.git": "", "new/a/.git": "",
			".git/hooks/" + strings.Repeat("d", 200): "", "a/.repo/.millrace": ""})
	}
	if err := p.run("true"); err != nil {
		t.Error(err)
	}
	p.left()
}

// TestSetupLargeGit: large files are compared, and what cannot be put back is refused before programs run.
func TestSetupLargeGit(t *testing.T) {
	old, oldEntries := maxKept, maxEntries
	t.Cleanup(func() { maxKept, maxEntries = old, oldEntries })
	maxKept = 100
	p := newPlace(t, map[string]string{".git/index": strings.Repeat("i", 200), ".git/HEAD": "ref"})
	p.refuses("printf x | dd of=.git/index conv=notrunc; touch ran", ".git/index is damaged, and too large to be put back")
	p.refuses("rm .git/index", ".git/index is damaged, and too large to be put back")
	p.write("ran", "")
	p.write(".git/config", strings.Repeat("c", 200))
	const ran = "echo ran >ran"
	p.refuses(ran, ".git/config is larger than")
	maxKept, maxEntries = old, 2
	p.refuses(ran, p.path(".git")+" has more than 2 files", "pack its references")
	maxEntries = oldEntries
	if err := syscall.Mkfifo(p.path(".git/fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.refuses(ran, p.path(".git/fifo")+" is not a regular file")
	if text, _ := os.ReadFile(p.path("ran")); len(text) > 0 {
		t.Error("a program ran")
	}
}

// left compares the endings of the files that are left of saved states.
func (p *place) left(want ...string) (files []string) {
	p.t.Helper()
	files, err := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "millrace/guard/*"))
	var got []string
	for _, file := range files {
		got = append(got, filepath.Ext(file))
	}
	if err != nil || !slices.Equal(got, want) {
		p.t.Errorf("%q is left, want %q; %v", files, want, err)
	}
	return files
}

// killed runs a program that changes .git, and ends as after SIGKILL.
func (p *place) killed() {
	var ended sync.WaitGroup
	ended.Go(func() {
		_ = Run(p.root, control, nil, func() error {
			for name, text := range map[string]string{".git/config": "evil", "new/.git/config": "evil",
				".git/hooks/x": "evil", ".git/refs/heads/main": "2\n", ".git/refs/heads/new": "2\n"} {
				p.write(name, text)
			}
			if _, err := Settle(p.root); !errors.Is(err, ErrRunning) {
				p.t.Errorf("while programs run: %v", err)
			}
			if err := p.run("true"); !errors.Is(err, ErrRunning) {
				p.t.Errorf("while programs run, others run: %v", err)
			}
			runtime.Goexit() // nothing below runs, but the lock is released, as after SIGKILL
			return nil
		})
	})
	ended.Wait()
}

// settles expects that Settle puts the .git folders back.
func (p *place) settles() {
	p.t.Helper()
	const want = "code of the application has changed .git/config, .git/hooks, new/.git, which"
	if notes, err := Settle(p.root); err == nil || !strings.Contains(err.Error(), want) || len(notes) > 0 {
		p.t.Errorf("%v %q, want %q", err, notes, want)
	}
	p.holds(map[string]string{".git/config": "[core]\n", ".git/hooks": "", "new/.git": "",
		".git/refs/heads/main": "2\n", ".git/refs/heads/new": "2\n"})
	if notes, err := Settle(p.root); err != nil || len(notes) > 0 {
		p.t.Error(notes, err)
	}
	p.left()
}

// TestKilledWhileWriting: Settle removes a state that a killed call has not completed, since the state may hold what
// is secret in .git, and keeps one that another call may be writing.
func TestKilledWhileWriting(t *testing.T) {
	p := newPlace(t, killedFiles)
	dir := filepath.Join(os.Getenv("XDG_CACHE_HOME"), "millrace/guard")
	fresh, old := filepath.Join(dir, newPrefix+"1"), filepath.Join(dir, newPrefix+"2")
	ago := time.Now().Add(-2 * newAge)
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(fresh, nil, 0o600), os.WriteFile(old, nil, 0o600),
		os.Chtimes(old, ago, ago)); err != nil {
		t.Fatal(err)
	}
	if notes, err := Settle(p.root); err != nil || len(notes) > 0 {
		t.Error(notes, err)
	}
	names, err := filepath.Glob(filepath.Join(dir, newPrefix+"*"))
	if err != nil || !slices.Equal(names, []string{fresh}) {
		t.Errorf("%q is left, want %s alone; %v", names, fresh, err)
	}
}

var killedFiles = map[string]string{".git/config": "[core]\n", ".git/refs/heads/main": "1\n"}

// TestKilled: after a killed process, Settle puts back what programs have changed, but not commits of the user. Settle
// and Run exclude each other, and no second Run replaces the saved state.
func TestKilled(t *testing.T) {
	p := newPlace(t, killedFiles)
	p.killed()
	if err := p.run("true"); err == nil || !strings.Contains(err.Error(), "was not put back: repeat the command") {
		t.Errorf("a run in place of Settle: %v", err)
	}
	p.settles()
}

// TestKilledAndMoved: a folder gets its .git folders back at another place, and by way of a link. What took the place
// of the folder stays as it is, and a note names the saved state, once.
func TestKilledAndMoved(t *testing.T) {
	p := newPlace(t, killedFiles)
	p.killed()
	old := p.root
	p.root = filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Rename(old, old+"-moved"), os.Symlink(old+"-moved", p.root)); err != nil {
		t.Fatal(err)
	}
	p.settles()

	p = newPlace(t, killedFiles)
	p.killed()
	if err := os.Rename(p.root, p.root+"-moved"); err != nil {
		t.Fatal(err)
	}
	p.write(".git/config", "new clone")
	for i, want := range []int{1, 0} {
		notes, err := Settle(p.root)
		files := p.left(keptEnding)
		if err != nil || len(notes) != want || i == 0 && !strings.Contains(notes[0], files[0]) {
			t.Errorf("call %d: %q %v", i, notes, err)
		}
	}
	p.holds(map[string]string{".git/config": "new clone"})
	p.root += "-moved"
	p.settles()
}
