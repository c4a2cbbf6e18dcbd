package python_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"millrace/python"
)

// interpreter is Debian's Python, which has the packages of scripts/deps.sh.
const interpreter = "/usr/bin/python3"

// TestPackage runs the tests of the package, which are in Python: the modules beside each other,
// and without those that need a server.
func TestPackage(t *testing.T) {
	t.Parallel()
	modules, err := filepath.Glob("tests/test_*.py")
	if err != nil || len(modules) < 8 {
		t.Fatalf("%v, %v", modules, err)
	}
	for _, module := range modules {
		name := strings.TrimSuffix(filepath.Base(module), ".py")
		if needsServer(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runTests(t, "", nil, "tests."+name)
		})
	}
}

// runTests runs tests with Debian's Python, where modules cannot be imported. Short, the tests leave
// out those that repeat others in a variant. With all modules none may be skipped.
func runTests(t *testing.T, without string, env []string, names ...string) {
	t.Helper()
	cmd := exec.Command(interpreter, append([]string{"-B", "-c", withoutModules, without}, names...)...)
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
