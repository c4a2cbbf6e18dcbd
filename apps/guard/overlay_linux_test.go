package guard

import (
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
