// Package testneeds names the programs and Python modules used by tests. A test with such a need fails, on every
// machine, when scripts/deps.sh does not install the program or module for the target that runs the test: `make test`
// for tests under -short, `make check` for others. Otherwise the test would pass on machines that happen to have the
// program, and fail on new machines. WriteProgram writes programs made by tests themselves.
package testneeds

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Interpreter is the Python for which apt installs modules.
const Interpreter = "/usr/bin/python3"

// present are programs that need no package: programs of Debian's essential packages, and tools named by the README.
var present = []string{"bash", "dpkg-query", "env", "ldd", "prlimit", "setpriv", "setsid", "sh", "sleep", "tar",
	"taskset", "true", "unshare", "go", "gcc", "make", "node", "npm"}

// Program returns the path of a program. The test fails when the program is not installed, or when deps.sh does not
// install the program for the target of the test.
func Program(t testing.TB, name string) string {
	t.Helper()
	if err := checkNeed("cmd", name, testing.Short()); err != nil {
		t.Fatal(err)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		path, err = exec.LookPath(filepath.Join("/usr/sbin", name)) // not in the PATH of ordinary users
	}
	if err != nil {
		t.Fatalf("%v: scripts/deps.sh %s installs it", err, target(testing.Short()))
	}
	return path
}

// Python returns the interpreter with the modules. The test fails as with Program.
func Python(t testing.TB, modules ...string) string {
	t.Helper()
	for _, name := range modules {
		if err := checkNeed("py", name, testing.Short()); err != nil {
			t.Fatal(err)
		}
	}
	Program(t, "python3")
	if missing, err := missingModules(strings.Join(modules, " ")); err != nil || missing != "" {
		t.Fatalf("%s lacks %s, which scripts/deps.sh %s installs: %v", Interpreter, missing, target(testing.Short()),
			err)
	}
	return Interpreter
}

// WriteProgram writes a script or another program to be run by a test. os.WriteFile is not enough: a process started
// meanwhile by another goroutine inherits the open file until its exec, and the kernel runs no program that a process
// has open for writing (ETXTBSY). No process of this test starts while WriteProgram has the file open.
func WriteProgram(t testing.TB, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, []byte(text), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
}

var moduleResults sync.Map // by modules: results of lacks

// missingModules returns the modules, separated by spaces, missing from the interpreter.
func missingModules(modules string) (missing string, err error) {
	if known, ok := moduleResults.Load(modules); ok {
		return known.(string), nil
	}
	out, err := exec.Command(Interpreter, "-c", `import sys, importlib.util as u
print(*[m for m in sys.argv[1].split() if u.find_spec(m) is None])`, modules).Output()
	if err != nil {
		return modules, err
	}
	missing = strings.TrimSpace(string(out))
	moduleResults.Store(modules, missing)
	return missing, nil
}

// target returns the set of deps.sh for the command that runs tests with or without -short.
func target(short bool) string {
	if short {
		return "test"
	}
	return "check"
}

// checkNeed returns an error when the set of the target does not have a need, such as ffmpeg of the kind cmd.
func checkNeed(kind, name string, short bool) error {
	if kind == "cmd" && slices.Contains(present, name) {
		return nil
	}
	set := target(short)
	needs, err := sets()
	switch {
	case err != nil:
		return err
	case !needs[set][kind+":"+name]:
		return fmt.Errorf("%s is not in the set %s of scripts/deps.sh, so that new machines lack it: add "+
			"%s:%s=PACKAGE there", name, set, kind, name)
	}
	return nil
}

// sets returns the needs of the sets test and check, such as cmd:ffmpeg.
var sets = sync.OnceValues(func() (map[string]map[string]bool, error) {
	all := map[string]map[string]bool{}
	for _, set := range []string{"test", "check"} {
		out, err := exec.Command("sh", filepath.Join(Root(), "scripts", "deps.sh"), "--list", set).Output()
		if err != nil {
			return nil, fmt.Errorf("scripts/deps.sh --list %s: %w", set, err)
		}
		all[set] = maps.Collect(func(yield func(string, bool) bool) {
			for need := range strings.FieldsSeq(string(out)) {
				name, _, _ := strings.Cut(need, "=")
				if !yield(name, true) {
					return
				}
			}
		})
	}
	return all, nil
})

// Root returns the folder of the repository. Builds with -trimpath do not say where a file is: then Root is found
// from the folder of the test.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	dir := filepath.Dir(file)
	if !filepath.IsAbs(dir) {
		dir, _ = os.Getwd()
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "scripts", "deps.sh")); err == nil {
			break
		}
	}
	return dir
}
