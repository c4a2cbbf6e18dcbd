// Package testbuild is for tests that build a program of this module, or one that they run with.
package testbuild

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"millrace/internal/testneeds"
)

// Peer returns the path of a program of scripts/peer.sh, which is built if that was not done
// before: some minutes. It skips the test under -short.
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

// Tags returns the build tags of the running test, separated by commas. A program that is
// built with them uses what was compiled for tests; with others, most packages would be
// compiled again. The tag invariants is left out: only tests with the race detector have it,
// and nothing of those is used.
func Tags() string {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "-tags" {
			return strings.Join(slices.DeleteFunc(strings.Split(s.Value, ","), func(tag string) bool { return tag == "invariants" }), ",")
		}
	}
	return ""
}
