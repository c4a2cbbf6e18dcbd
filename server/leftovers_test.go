//go:build linux

package server_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"millrace/internal/child"
)

// TestKilledServerLeavesNoFolders: a server that was killed leaves the temporary folder of a program, and the next server that
// starts removes it.
func TestKilledServerLeavesNoFolders(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	if err := child.SandboxError(); err != nil {
		t.Skip(err)
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	folders := func() []string {
		found, err := filepath.Glob(filepath.Join(temp, "millrace-child-*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	const base = "http: 127.0.0.1:0\ngrpc: off\nmodels:\n  - {name: find, source: motion}\nconfine: {programs: require}\n"
	dir := t.TempDir()
	p := serve(t, dir, base+"streams:\n  - {name: exec, source: \"exec:sleep 300\", model: find}\n")
	await(t, "a folder of the program", func() bool { return len(folders()) > 0 })
	p.kill()
	left := folders()
	if len(left) != 1 {
		t.Fatalf("left %q, want the folder of the program", left)
	}
	p = serveAgain(t, dir, base)
	await(t, "the end of "+left[0], func() bool {
		_, err := os.Lstat(left[0])
		return os.IsNotExist(err)
	})
	p.kill()
}

// await waits until something is there.
func await(t *testing.T, what string, there func() bool) {
	t.Helper()
	for limit := time.Now().Add(killPatience); !there(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("waited for %s for %v", what, killPatience)
		}
	}
}
