// Package testbuild builds programs for tests: programs of this module, and programs used by tests.
package testbuild

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"millrace/internal/testneeds"
)

// Peer returns the path of a program of scripts/peer.sh, and builds the program first if missing, in some minutes.
// Under -short the test is skipped.
func Peer(t testing.TB, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skipf("%s is built and run without -short only", name)
	}
	cmd := exec.Command(filepath.Join(testneeds.Root(), "scripts", "peer.sh"), name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(fmt.Errorf("scripts/peer.sh %s: %w", name, err))
	}
	return strings.TrimSpace(string(out))
}

// UV returns the path of uv, which installs Python packages. The registry of npm, from which Peer takes uv, has uv for
// x86-64 alone.
func UV(t testing.TB) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the registry of npm has no uv for " + runtime.GOARCH)
	}
	return Peer(t, "uv")
}

// Tags returns the build tags of the running test, separated by commas. A program built with these tags uses the
// packages compiled for tests; with other tags, most packages would be compiled again. The tag invariants is left
// out: only tests with the race detector have this tag, and their compiled packages are not used.
func Tags() string {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "-tags" {
			return strings.Join(slices.DeleteFunc(strings.Split(s.Value, ","), func(tag string) bool {
				return tag == "invariants"
			}), ",")
		}
	}
	return ""
}
