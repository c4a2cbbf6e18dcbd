package guard

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestKilledOverlay: a folder of a container's image has another time of birth after its first change.
func TestKilledOverlay(t *testing.T) {
	p := newPlace(t, killedFiles)
	dir := t.TempDir()
	for _, name := range []string{"upper", "work", "all"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	at := filepath.Join(dir, "all")
	err := syscall.Mount("overlay", at, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work",
		filepath.Dir(p.root), dir, dir))
	if err != nil {
		t.Skipf("no overlay can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(at, 0); err != nil {
			t.Error(err)
		}
	})
	p.root = filepath.Join(at, "app")
	p.killed()
	p.settles()
}

// TestKilledWithoutBirth: without times of birth, a new folder with the inode of the removed one does not get the
// state of the removed one.
func TestKilledWithoutBirth(t *testing.T) {
	t.Cleanup(func() { birth = born })
	birth = func(string) int64 { return 0 }
	p := newPlace(t, killedFiles)
	p.killed()
	p.settles()
	p.killed()
	old, err := identify(p.root)
	if err != nil || old.Handle == "" {
		t.Skipf("the file system of temporary files keeps no generations of inodes: %+v %v", old, err)
	}
	if err := os.RemoveAll(p.root); err != nil {
		t.Fatal(err)
	}
	p.write(".git/config", "new clone")
	now, err := identify(p.root)
	if err != nil || now.Handle == old.Handle {
		t.Fatalf("the handle of a new folder is %q %v", now.Handle, err)
	}
	state := p.left(stateEnding)[0]
	text, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, fmt.Appendf(nil, `"inode":%d`, old.Inode), fmt.Appendf(nil, `"inode":%d`, now.Inode), 1)
	if err := os.WriteFile(state, text, 0o600); err != nil { // file systems wait before they give an inode again
		t.Fatal(err)
	}
	if notes, err := Settle(p.root); err != nil || len(notes) != 1 {
		t.Errorf("%q %v", notes, err)
	}
	p.holds(map[string]string{".git/config": "new clone"})
	if err := p.run("true"); err != nil {
		t.Error(err)
	}
	p.left(keptEnding)
}
