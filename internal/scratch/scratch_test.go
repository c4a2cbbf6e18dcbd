package scratch

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/internal/filelock"
)

const runsHolder = "TEST_BINARY_HOLDS_FOLDERS"

// TestMain runs the tests or, as another process, makes a folder of each kind, says where, starts a child, and waits
// for input.
func TestMain(m *testing.M) {
	if os.Getenv(runsHolder) == "" {
		os.Exit(m.Run())
	}
	out := bufio.NewWriter(os.Stdout)
	for _, kind := range []Kind{Child, Model, Cache, Image} {
		f, err := Make(kind)
		if err != nil {
			panic(err)
		}
		if err := os.WriteFile(filepath.Join(f.Path, "file"), []byte("text"), 0o600); err != nil {
			panic(err)
		}
		_, _ = out.WriteString(f.Path + "\n")
		defer func() { _ = f.Remove() }()
	}
	reader := exec.Command("sh", "-c", "read line") // no inherited descriptor keeps the folders locked
	reader.Stdin = os.Stdin
	if err := reader.Start(); err != nil {
		panic(err)
	}
	_, _ = out.WriteString("\n")
	_ = out.Flush()
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// holder starts a process that holds a folder of each kind.
func holder(t *testing.T) (c *exec.Cmd, folders []string) {
	t.Helper()
	c = exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), runsHolder+"=1")
	in, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stdin = in
	t.Cleanup(func() { _, _ = hold.Close(), in.Close() }) // then the child ends
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && strings.HasPrefix(lines.Text(), os.TempDir()) {
		folders = append(folders, lines.Text())
	}
	if len(folders) != 4 {
		t.Fatalf("%q", folders)
	}
	slices.Sort(folders)
	return c, folders
}

func sweep(t *testing.T) []string {
	t.Helper()
	removed, err := Sweep(t.Context())
	if err != nil {
		t.Error(err)
	}
	slices.Sort(removed)
	return removed
}

// Folders stay while their process lives, and are removed after it was killed, even if its child lives.
func TestSweepAfterKill(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	c, folders := holder(t)
	mine, err := Make(Child)
	if err != nil {
		t.Fatal(err)
	}
	if removed := sweep(t); removed != nil {
		t.Errorf("removed %q, which are held", removed)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	if removed := sweep(t); !slices.Equal(removed, folders) {
		t.Errorf("removed %q, want %q", removed, folders)
	}
	for _, f := range folders {
		if _, err := os.Lstat(f); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", f, err)
		}
	}
	if _, err := os.Stat(mine.Path); err != nil {
		t.Error(err)
	}
	if err := mine.Remove(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

// Folders not made by Make stay, and so do the targets of symbolic links.
func TestSweepLeaves(t *testing.T) {
	temp, elsewhere := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	file := filepath.Join(elsewhere, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const name = "millrace-child-1.tmp"
	for what, plant := range map[string]func(at string) error{
		name:                     func(at string) error { return os.Symlink(elsewhere, at) },
		"millrace-child-2.tmp":   func(at string) error { return os.Mkdir(at, 0o755) }, // readable by others
		"millrace-child-3.tmp":   func(at string) error { return os.WriteFile(at, nil, 0o600) },
		"millrace-child-x.tmp":   func(at string) error { return os.Mkdir(at, 0o700) },
		"millrace-child-4":       func(at string) error { return os.Mkdir(at, 0o700) },
		"millrace-bench-5.tmp":   func(at string) error { return os.Mkdir(at, 0o700) },
		"millrace-model-6.tmp.d": func(at string) error { return os.Mkdir(at, 0o700) },
		"millrace-model-7.tmp": func(at string) error {
			if os.Getuid() != 0 {
				return nil // needs root
			}
			return errors.Join(os.Mkdir(at, 0o700), os.Chown(at, 65534, 65534))
		},
	} {
		if err := plant(filepath.Join(temp, what)); err != nil {
			t.Fatal(err)
		}
	}
	before, err := os.ReadDir(temp)
	if err != nil {
		t.Fatal(err)
	}
	if removed := sweep(t); removed != nil {
		t.Errorf("removed %q", removed)
	}
	if after, err := os.ReadDir(temp); err != nil || len(after) != len(before) {
		t.Errorf("%v, want %v (%v)", after, before, err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}

	// A link within a folder is removed, and not followed.
	ours := filepath.Join(temp, "millrace-child-8.tmp")
	if err := errors.Join(os.MkdirAll(filepath.Join(ours, "deep", "deeper"), 0o700),
		os.Symlink(elsewhere, filepath.Join(ours, "link")),
		os.Symlink(elsewhere, filepath.Join(ours, "deep", "link"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(ours, 0o700); err != nil {
		t.Fatal(err)
	}
	if removed := sweep(t); !slices.Equal(removed, []string{ours}) {
		t.Errorf("removed %q", removed)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// Concurrent sweeps take no folder returned by Make.
func TestSweepDuringMake(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	done, swept := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-done:
				swept <- nil
				return
			default:
			}
			if _, err := Sweep(t.Context()); err != nil {
				<-done
				swept <- err
				return
			}
		}
	}()
	made := 0
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); made++ {
		f, err := Make(Model)
		if err != nil {
			t.Error(err)
			break
		}
		if err := os.WriteFile(filepath.Join(f.Path, "file"), nil, 0o600); err != nil {
			t.Error(err)
			break
		}
		if err := f.Remove(); err != nil {
			t.Error(err)
			break
		}
	}
	close(done)
	if err := <-swept; err != nil {
		t.Error(err)
	}
	t.Logf("%d folders", made)
}

// A folder taken by Sweep before Make has locked the folder is not used.
func TestTaken(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for name, take := range map[string]func(path string){
		"removed": func(string) { sweep(t) },
		"locked": func(path string) {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
			if err := filelock.TryLock(f); err != nil {
				t.Fatal(err)
			}
		},
	} {
		path := filepath.Join(os.TempDir(), "millrace-child-1.tmp")
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		lock, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		take(path)
		if err := confirm(lock, path); !errors.Is(err, errTaken) {
			t.Errorf("%s: %v", name, err)
		}
		_ = lock.Close()
		_ = os.Remove(path)
	}
}
