package blob

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"millrace/internal/testseed"
	"millrace/stream/coded"
)

func put(t *testing.T, f *Files, key, text string) Info {
	t.Helper()
	w, err := f.Create(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	info, err := w.Commit()
	if err != nil {
		t.Fatal(err)
	}
	w.Discard()
	return info
}

func openFiles(t *testing.T, dir string) *Files {
	t.Helper()
	f, err := OpenFiles(dir, FilesOptions{Sync: true})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// bytesBelow returns the bytes of all files below a folder.
func bytesBelow(t *testing.T, folder string) int64 {
	t.Helper()
	var n int64
	err := filepath.WalkDir(folder, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestFiles: a blob is there after Commit and after another start, has its digest, and is replaced and deleted.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	f := openFiles(t, dir)
	put(t, f, "7f/a/input", "old and long")
	info := put(t, f, "7f/a/input", "abc")
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // FIPS 180-2, appendix B.1
	if info != (Info{3, abc}) {
		t.Errorf("info %+v", info)
	}
	put(t, f, "7f/b/input", "1234")
	f = openFiles(t, dir)
	if n := bytesBelow(t, dir); n != 7 {
		t.Errorf("%d bytes are used, want 7", n)
	}
	r, err := f.Open(t.Context(), "7f/a/input")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if err := info.Check(r); err != nil || r.Size() != 3 {
		t.Errorf("%v, size %d", err, r.Size())
	}
	if _, err := r.Seek(2, io.SeekStart); err != nil {
		t.Error(err)
	}
	if b, _ := io.ReadAll(r); string(b) != "c" {
		t.Errorf("from offset 2: %q", b)
	}
	if err := info.Check(strings.NewReader("abd")); coded.CodeOf(err) != coded.Internal {
		t.Errorf("a damaged blob: %v", err)
	}
	for range 2 {
		if err := f.Delete(t.Context(), "7f/a"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Open(t.Context(), "7f/a/input"); coded.CodeOf(err) != coded.NotFound || bytesBelow(t, dir) != 4 {
		t.Errorf("after the deletion: %v, %d bytes", err, bytesBelow(t, dir))
	}
}

// TestDigest: large blobs in pieces of all sizes have the digest of their bytes.
func TestDigest(t *testing.T) {
	before := goleak.IgnoreCurrent()
	f, err := OpenFiles(t.TempDir(), FilesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(testseed.First(), 0))
	for _, size := range []int{largeBlob - 1, largeBlob, 3*largeBlob + 7} {
		want := make([]byte, size)
		for i := range want {
			want[i] = byte(r.Uint32())
		}
		w, err := f.Create(t.Context(), "7f/x/input")
		if err != nil {
			t.Fatal(err)
		}
		piece := make([]byte, 3*pieceSize)
		for rest := want; len(rest) > 0; {
			n := copy(piece, rest[:min(len(rest), 1+r.IntN(len(piece)))])
			if _, err := w.Write(piece[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if got, err := w.Commit(); err != nil || got.Check(bytes.NewReader(want)) != nil {
			t.Errorf("%d bytes: %+v, %v", size, got, err)
		}
	}
	w, err := f.Create(t.Context(), "7f/x/input")
	if err == nil {
		_, err = w.Write(make([]byte, 2*largeBlob))
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Discard()
	goleak.VerifyNone(t, before)
}

// TestFailedWrite: a large blob whose bytes the disk does not take is refused, also when the last bytes fail.
func TestFailedWrite(t *testing.T) {
	f := openFiles(t, t.TempDir())
	for _, size := range []int{largeBlob, 3*largeBlob + 1} {
		w, err := f.temporary(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.key = "7f/x/input"
		_ = w.file.Close()
		if w.file, err = os.Open(w.file.Name()); err != nil { // refuses writes
			t.Fatal(err)
		}
		if _, err = w.Write(make([]byte, size)); err == nil {
			_, err = w.Commit()
		}
		if !errors.Is(err, syscall.EBADF) {
			t.Errorf("%d bytes: %v", size, err)
		}
		w.Discard()
		if _, err := f.Open(t.Context(), w.key); coded.CodeOf(err) != coded.NotFound {
			t.Errorf("%d bytes are stored: %v", size, err)
		}
	}
}

// TestUnfinished: what is not committed is not there, and leaves no file.
func TestUnfinished(t *testing.T) {
	dir := t.TempDir()
	f := openFiles(t, dir)
	a, err := f.Create(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(a, "x")
	a.Discard()
	if _, err := a.Commit(); err == nil {
		t.Error("committed after Discard")
	}
	if _, err := f.Create(t.Context(), "b"); err != nil { // as a killed process leaves it
		t.Fatal(err)
	}
	f = openFiles(t, dir)
	for _, key := range []string{"a", "b"} {
		if _, err := f.Open(t.Context(), key); coded.CodeOf(err) != coded.NotFound {
			t.Errorf("%s: %v", key, err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, temporaryFolder)); err != nil || bytesBelow(t, dir) != 0 {
		t.Errorf("%d bytes are left, %v: %v", bytesBelow(t, dir), left, err)
	}
}

// TestFill: a blob that a program has written by its path has the size and the digest of the file.
func TestFill(t *testing.T) {
	dir := t.TempDir()
	f := openFiles(t, dir)
	inside, err := f.Create(t.Context(), "7f/a/result")
	if err != nil {
		t.Fatal(err)
	}
	outside, err := CreateFile(t.Context(), filepath.Join(t.TempDir(), "result"))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []Writer{inside, outside} {
		err := w.Fill(func(path string, room func() error) error {
			return errors.Join(room(), os.WriteFile(path, []byte("abc"), 0o600))
		})
		if err != nil {
			t.Fatal(err)
		}
		const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // FIPS 180-2, appendix B.1
		if info, err := w.Commit(); err != nil || info != (Info{3, abc}) {
			t.Errorf("%+v, %v", info, err)
		}
	}
	if w, err := f.Create(t.Context(), "7f/b/result"); err != nil {
		t.Error(err)
	} else if err := w.Fill(func(string, func() error) error { return syscall.ENOSPC }); !errors.Is(err, ErrFull) {
		t.Errorf("a full disk: %v", err)
	} else {
		w.Discard()
	}
	if n := bytesBelow(t, dir); n != 3 {
		t.Errorf("%d bytes are left", n)
	}
}

// TestKeys: keys that leave the folder, or name its own files, are refused.
func TestKeys(t *testing.T) {
	f := openFiles(t, t.TempDir())
	for _, key := range []string{"", ".", "..", "../a", "/a", "a/../../b", "a//b", ".writing/1", "a/.b", `a\b`,
		"a\x00"} {
		if _, err := f.Create(t.Context(), key); coded.CodeOf(err) != coded.InvalidArgument {
			t.Errorf("create %q: %v", key, err)
		}
		if _, err := f.Open(t.Context(), key); coded.CodeOf(err) != coded.InvalidArgument {
			t.Errorf("open %q: %v", key, err)
		}
		if err := f.Delete(t.Context(), key); coded.CodeOf(err) != coded.InvalidArgument {
			t.Errorf("delete %q: %v", key, err)
		}
	}
}

// TestFolders: the folders of two elements are listed with the sizes of their blobs, Put replaces a blob, and Put makes
// no folder.
func TestFolders(t *testing.T) {
	f := openFiles(t, t.TempDir())
	if list, err := f.Folders(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("an empty folder: %v, %v", list, err)
	}
	put(t, f, "7f/a/input", "abc")
	put(t, f, "7f/b/input", "1234")
	put(t, f, "top", "x")
	for _, text := range []string{"longer", "note"} {
		if err := f.Put(t.Context(), "7f/a/note", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Put(t.Context(), "7f/c/note", nil); coded.CodeOf(err) != coded.NotFound {
		t.Errorf("a note without a folder: %v", err)
	}
	list, err := f.Folders(t.Context())
	want := []Folder{{"7f/a", []Entry{{"input", 3}, {"note", 4}}}, {"7f/b", []Entry{{"input", 4}}}}
	if err != nil || !reflect.DeepEqual(list, want) {
		t.Errorf("got %v, %v, want %v", list, err, want)
	}
	if list[0].Size("note") != 4 || list[0].Size("missing") != 0 {
		t.Error("sizes")
	}
}
