package python_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"millrace/internal/testneeds"
	"millrace/python"
)

// interpreter is Debian's Python, which has the packages of scripts/deps.sh.
const interpreter = testneeds.Interpreter

// modules are the modules that the package's tests import.
var modules = []string{"ensurepip", "numpy", "websockets", "pydantic", "PIL", "msgpack"}

// TestPackage runs the tests of the package, which are in Python: the modules beside each other,
// and without those that need a server.
func TestPackage(t *testing.T) {
	t.Parallel()
	modules, err := filepath.Glob("tests/test_*.py")
	if err != nil || len(modules) < 8 {
		t.Fatalf("%v, %v", modules, err)
	}
	for _, module := range modules {
		name := "tests." + strings.TrimSuffix(filepath.Base(module), ".py")
		if name == examples || slices.Contains(needServer, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runTests(t, "", nil, name)
		})
	}
}

// runTests runs tests with Debian's Python, where modules cannot be imported. Short, the tests leave
// out those that repeat others in a variant. With all modules none may be skipped.
func runTests(t *testing.T, without string, env []string, names ...string) {
	t.Helper()
	cmd := exec.Command(testneeds.Python(t, modules...), append([]string{"-B", "-c", withoutModules, without},
		names...)...)
	cmd.Env = append(os.Environ(), env...)
	if testing.Short() {
		cmd.Env = append(cmd.Env, "TEST_SHORT=1")
	}
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	case !strings.Contains(string(out), "\nRan ") || strings.Contains(string(out), "Ran 0 tests"):
		t.Errorf("no test ran:\n%s", out)
	case without == "" && strings.Contains(string(out), "(skipped="):
		t.Errorf("tests were skipped: `scripts/deps.sh test` installs what they need\n%s", out)
	}
}

// withoutModules runs unittest where modules cannot be imported.
const withoutModules = `
import sys, unittest
for name in filter(None, sys.argv.pop(1).split(",")):
    sys.modules[name] = None
unittest.main(module=None, argv=["tests", "--verbose"] + sys.argv[1:])
`

// TestPlanted: files that somebody has put where the package would be unpacked, among the temporary files of all
// users, are not run.
func TestPlanted(t *testing.T) {
	temp := t.TempDir()
	dir, err := python.Unpack(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(temp, fmt.Sprintf("millrace-%d", os.Getuid()))
	for _, at := range []string{open, filepath.Join(open, "millrace")} {
		planted := filepath.Join(at, filepath.Base(dir), filepath.FromSlash(python.Child))
		if err := os.MkdirAll(filepath.Dir(planted), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(planted, []byte("raise SystemExit('planted')"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(open, 0o777), os.Chmod(temp, 0o777|os.ModeSticky)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", temp)
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	got, err := python.Unpack("")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.FromSlash(python.Child))
	if err != nil {
		t.Fatal(err)
	}
	if have, err := os.ReadFile(filepath.Join(got, filepath.FromSlash(python.Child))); err != nil ||
		string(have) != string(want) {
		t.Errorf("%s has not the file of the package: %v %.40q", got, err, have)
	}
}

// TestUnpack unpacks the package several times at once: each caller gets the same complete
// folder, and nothing else is left.
func TestUnpack(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	got := make([]string, 8)
	for i := range got {
		wg.Go(func() {
			var err error
			if got[i], err = python.Unpack(dir); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, g := range got {
		if g != got[0] {
			t.Errorf("unpacked into %s and %s", g, got[0])
		}
	}
	want, err := os.ReadFile(filepath.FromSlash(python.Child))
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile(filepath.Join(got[0], filepath.FromSlash(python.Child)))
	if err != nil || string(have) != string(want) {
		t.Errorf("%s: %v", python.Child, err)
	}
	if all, _ := os.ReadDir(dir); len(all) != 1 {
		t.Errorf("the folder holds %v", all)
	}
	if _, err := python.Unpack(filepath.Join(got[0], filepath.FromSlash(python.Child))); err == nil {
		t.Error("a file as the folder was not refused")
	}
}
