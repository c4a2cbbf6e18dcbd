package cachedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Inside a folder writable by all, a folder of another user, a folder writable by others, and a link are refused.
func TestPrivate(t *testing.T) {
	const ours = "millrace-1"
	for name, c := range map[string]struct {
		shared fs.FileMode // of the folder writable by all
		plant  func(t *testing.T, at, elsewhere string)
		path   string
		want   error
	}{
		"missing":               {0o777 | fs.ModeSticky, nil, ours + "/a/b", nil},
		"there already":         {0o777 | fs.ModeSticky, mkdir(0o700), ours + "/a", nil},
		"others can read":       {0o777 | fs.ModeSticky, mkdir(0o755), ours, nil},
		"others can write":      {0o777 | fs.ModeSticky, mkdir(0o777), ours, errShared},
		"others write, further": {0o777 | fs.ModeSticky, mkdir(0o777 | fs.ModeSticky), ours + "/a", errShared},
		"a group can write":     {0o777 | fs.ModeSticky, mkdir(0o770), ours + "/a", errShared},
		"a link":                {0o777 | fs.ModeSticky, link, ours + "/a", errShared},
		"a file":                {0o777 | fs.ModeSticky, file, ours, errShared},
		"of another user":       {0o777 | fs.ModeSticky, ofNobody, ours + "/a", errShared},
		"no sticky bit":         {0o777, nil, ours, errShared},
		"the folder itself":     {0o777 | fs.ModeSticky, nil, ".", errShared},
		"a link of our own":     {0o700, link, ours + "/a", nil},
		"a file in our own":     {0o700, file, ours + "/a", fs.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			dir, elsewhere := t.TempDir(), t.TempDir()
			if c.plant != nil {
				c.plant(t, filepath.Join(dir, ours), elsewhere)
			}
			if err := os.Chmod(dir, c.shared); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, c.path)
			switch err := private(path); {
			case c.want == fs.ErrInvalid:
				if err == nil || errors.Is(err, errShared) {
					t.Errorf("%v, want an error", err)
				}
			case err != c.want:
				t.Errorf("%v, want %v", err, c.want)
			case err == nil:
				if st, err := os.Stat(path); err != nil || !st.IsDir() {
					t.Errorf("%v, want a folder", err)
				}
			}
			if made, _ := os.ReadDir(elsewhere); c.want == errShared && len(made) > 0 {
				t.Errorf("%v was made where the link leads", made)
			}
		})
	}
}

func mkdir(mode fs.FileMode) func(*testing.T, string, string) {
	return func(t *testing.T, at, _ string) {
		if err := errors.Join(os.Mkdir(at, 0o700), os.Chmod(at, mode)); err != nil {
			t.Fatal(err)
		}
	}
}

func link(t *testing.T, at, elsewhere string) {
	if err := os.Symlink(elsewhere, at); err != nil {
		t.Fatal(err)
	}
}

func file(t *testing.T, at, _ string) {
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func ofNobody(t *testing.T, at, elsewhere string) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	mkdir(0o700)(t, at, elsewhere)
	if err := os.Chown(at, 65534, 65534); err != nil {
		t.Fatal(err)
	}
}

// Dir returns the user's folder; if another user has taken the name, Dir returns a folder of the process, the same at
// each call.
func TestDir(t *testing.T) {
	fresh = sync.OnceValues(makeFresh) // as in a new process
	temp := t.TempDir()
	if err := os.Chmod(temp, 0o777|fs.ModeSticky); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", temp)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(temp, "cache"))
	if dir, err := Dir(); err != nil || dir != filepath.Join(temp, "cache", "millrace") {
		t.Errorf("%s %v", dir, err)
	}
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	first, err := Dir()
	if st, bad := os.Lstat(first); err != nil || bad != nil || filepath.Dir(first) != temp ||
		st.Mode() != fs.ModeDir|0o700 {
		t.Fatalf("%s %v %v", first, err, bad)
	}
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	link(t, first, t.TempDir())
	second, err := Dir()
	if st, bad := os.Lstat(second); err != nil || bad != nil || second == first || filepath.Dir(second) != temp ||
		st.Mode() != fs.ModeDir|0o700 {
		t.Errorf("%s %v %v", second, err, bad)
	}
	if third, err := Dir(); err != nil || third != second {
		t.Errorf("%s %v, want %s", third, err, second)
	}
}
