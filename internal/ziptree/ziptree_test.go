package ziptree

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var limits = Limits{Bytes: 1 << 20, Files: 20, Ratio: 100}

// entry is an entry of a test's archive.
type entry struct {
	name, text string
	mode       fs.FileMode
}

func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		if e.mode != 0 {
			h.SetMode(e.mode)
		}
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = io.WriteString(w, e.text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func extract(t testing.TB, b []byte, l Limits) (string, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "in")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return dir, Extract(t.Context(), root, bytes.NewReader(b), int64(len(b)), l)
}

// TestExtract: files and folders arrive with their contents, also without entries for their folders.
func TestExtract(t *testing.T) {
	dir, err := extract(t, archive(t, entry{name: "a/b/c.txt", text: "1"}, entry{name: "a/"}, entry{name: "d/"},
		entry{name: "e", text: ""}), limits)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "a/b/c.txt")); err != nil || string(b) != "1" {
		t.Errorf("%q %v", b, err)
	}
	if st, err := os.Stat(filepath.Join(dir, "d")); err != nil || !st.IsDir() {
		t.Error(err)
	}
}

// TestRefused: each rule refuses an archive, and nothing arrives outside of the folder.
func TestRefused(t *testing.T) {
	many := make([]entry, 21)
	for i := range many {
		many[i].name = fmt.Sprint(i)
	}
	for _, c := range []struct {
		name    string
		entries []entry
		want    string
		large   bool
	}{
		{"traversal", []entry{{name: "../x"}}, "no usable path", false},
		{"inner traversal", []entry{{name: "a/../../x"}}, "no usable path", false},
		{"absolute", []entry{{name: "/x"}}, "absolute", false},
		{"drive", []entry{{name: "c:/x"}}, "absolute", false},
		{"backslash", []entry{{name: `a\..\x`}}, "backslash", false},
		{"control", []entry{{name: "a\nb"}}, "control", false},
		{"not UTF-8", []entry{{name: "a\xff"}}, "UTF-8", false},
		{"link", []entry{{name: "a", text: "/etc", mode: fs.ModeSymlink | 0o777}}, "links and devices", false},
		{"device", []entry{{name: "a", mode: fs.ModeDevice | 0o666}}, "links and devices", false},
		{"pipe", []entry{{name: "a", mode: fs.ModeNamedPipe | 0o666}}, "links and devices", false},
		{"link as a folder", []entry{{name: "a/", mode: fs.ModeSymlink | 0o777}}, "links and devices", false},
		{"twice", []entry{{name: "a"}, {name: "a"}}, "twice", false},
		{"letter case", []entry{{name: "a/B"}, {name: "a/b"}}, "twice", false},
		{"letter case of folders", []entry{{name: "A/b"}, {name: "a/c"}}, "twice", false},
		{"a file as a folder", []entry{{name: "a"}, {name: "a/b"}}, "twice", false},
		{"a folder as a file", []entry{{name: "a/b"}, {name: "a"}}, "twice", false},
		{"deep", []entry{{name: strings.Repeat("a/", 40) + "b"}}, "deep", false},
		{"long", []entry{{name: strings.Repeat("a", 300)}}, "longer than 255", false},
		{"many", many, "at most 20", true},
		{"many folders", []entry{{name: "a/b/c/d/e/f/g/h/i/j/k"}, {name: "l/m/n/o/p/q/r/s/t/u"}}, "more than 20", true},
		{"bytes", []entry{{name: "a", text: strings.Repeat("x", 1<<20)}, {name: "b", text: "x"}}, "larger than", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, err := extract(t, archive(t, c.entries...), limits)
			var rule *Error
			if !errors.As(err, &rule) || !strings.Contains(err.Error(), c.want) || rule.Large != c.large {
				t.Errorf("%v, want %q", err, c.want)
			}
			if outside, _ := filepath.Glob(filepath.Join(dir, "..", "*")); len(outside) != 1 {
				t.Errorf("outside of the folder: %v", outside)
			}
		})
	}
	if _, err := extract(t, []byte("PK no zip"), limits); err == nil || !strings.Contains(err.Error(), "no zip") {
		t.Errorf("no zip: %v", err)
	}
}

// TestBombs: bytes beyond the ratio, sizes that lie, and a directory of a million entries are refused.
func TestBombs(t *testing.T) {
	text := strings.Repeat("\x00", 64<<20)
	_, err := extract(t, archive(t, entry{name: "a", text: text}), Limits{Bytes: 1 << 40, Files: 1, Ratio: 10})
	if err == nil || !strings.Contains(err.Error(), "10 times") {
		t.Errorf("ratio: %v", err)
	}
	b := archive(t, entry{name: "a", text: strings.Repeat("x", 100_000)})
	for i := range len(b) - 4 { // the size in the directory says 1
		if b[i] == 0xa0 && b[i+1] == 0x86 && b[i+2] == 1 && b[i+3] == 0 {
			b[i], b[i+1], b[i+2] = 1, 0, 0
		}
	}
	if _, err := extract(t, b, Limits{Bytes: 1000, Files: 1, Ratio: 100}); err == nil {
		t.Error("a size that lies is accepted")
	}
	var many bytes.Buffer
	z := zip.NewWriter(&many)
	for i := range 200_000 {
		if _, err := z.CreateHeader(&zip.FileHeader{Name: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := extract(t, many.Bytes(), limits); err == nil || !strings.Contains(err.Error(), "directory is larger") {
		t.Errorf("a large directory: %v", err)
	}
}

// TestPack: a packed folder has the same files after Extract. Links and pipes are refused, and so are files beyond
// the limits.
func TestPack(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if os.Mkdir(filepath.Join(dir, "a"), 0o755) != nil ||
		os.WriteFile(filepath.Join(dir, "a/b.txt"), []byte("text"), 0o600) != nil {
		t.Fatal("no files")
	}
	var b bytes.Buffer
	if err := Pack(t.Context(), &b, root, limits); err != nil {
		t.Fatal(err)
	}
	out, err := extract(t, b.Bytes(), limits)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(out, "a/b.txt")); err != nil || string(got) != "text" {
		t.Errorf("%q %v", got, err)
	}
	if err := Pack(t.Context(), io.Discard, root, Limits{Bytes: 3, Files: 20}); err == nil {
		t.Error("more bytes than allowed are packed")
	}
	if err := Pack(t.Context(), io.Discard, root, Limits{Bytes: 300, Files: 1}); err == nil {
		t.Error("more files than allowed are packed")
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "a/link")); err != nil {
		t.Fatal(err)
	}
	if err := Pack(t.Context(), io.Discard, root, limits); err == nil || !strings.Contains(err.Error(), "a/link") {
		t.Errorf("a link: %v", err)
	}
}

// FuzzExtract: no archive makes anything outside of the folder, or more bytes or files than allowed.
func FuzzExtract(f *testing.F) {
	f.Add(archive(f, entry{name: "a/b", text: "1"}, entry{name: "c/"}))
	f.Add(archive(f, entry{name: "../x"}, entry{name: "a", mode: fs.ModeSymlink | 0o777, text: "/etc"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		l := Limits{Bytes: 1 << 16, Files: 10, Ratio: 10}
		dir, err := extract(t, b, l)
		bytes, files := int64(0), 0
		walk := filepath.WalkDir(filepath.Dir(dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || path == dir || path == filepath.Dir(dir) {
				return err
			}
			if !strings.HasPrefix(path, dir+string(filepath.Separator)) {
				t.Errorf("%s is outside", path)
			}
			files++
			if st, err := d.Info(); err == nil && st.Mode().IsRegular() {
				bytes += st.Size()
			} else if !st.IsDir() {
				t.Errorf("%s is %v", path, st.Mode())
			}
			return nil
		})
		if walk != nil || bytes > l.Bytes || files > l.Files {
			t.Errorf("%d bytes, %d files, %v; Extract says %v", bytes, files, walk, err)
		}
	})
}
