package guard

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
)

// TestClosed: folders of other users that cannot be read are named.
func TestClosed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs another user")
	}
	p := newPlace(t, map[string]string{"closed/file": "x", ".git/HEAD": "ref"})
	const user, other = 65533, 65534
	err := filepath.WalkDir(p.root, func(path string, d fs.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, user, user))
	})
	if err := errors.Join(err, os.Chown(p.path("closed"), other, other)); err != nil {
		t.Fatal(err)
	}
	for path := filepath.Dir(p.root); path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := &saved{Root: p.root, Entries: map[string]entry{}}
	var ended sync.WaitGroup
	ended.Go(func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETFSUID, user, 0, 0); errno != 0 {
			t.Error(errno)
		}
		if err := s.save(); err != nil {
			t.Error(err)
		}
	})
	ended.Wait()
	if want := p.root + " has folders of other users, which cannot be read: changes of a .git there are not seen: " +
		"closed"; s.closedNote() != want {
		t.Errorf("%s; want %s", s.closedNote(), want)
	}
}
