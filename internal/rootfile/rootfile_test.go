package rootfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestFilesOfPrograms: links and FIFOs that programs leave in their folders change and hang nothing.
func TestFilesOfPrograms(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(outside, []byte("victim"), 0o600); err != nil {
		t.Fatal(err)
	}
	names := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(os.Symlink(outside, names("link")), syscall.Mkfifo(names("fifo"), 0o600),
		os.Mkdir(names("folder"), 0o700), os.Symlink(filepath.Dir(outside), names("up")),
		os.WriteFile(names("large"), make([]byte, 1<<10+1), 0o600), os.Symlink(outside, names("file.new")))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "fifo", "folder", "up/victim"} {
		if text, err := Read(dir, name, 1<<10); err == nil {
			t.Errorf("%s was read: %q", name, text)
		}
		if err := Write(dir, name, []byte("evil")); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	if _, err := Read(dir, "large", 1<<10); err == nil || !strings.Contains(err.Error(), "is larger than") {
		t.Errorf("a large file: %v", err)
	}
	for _, text := range []string{"one", "two"} {
		if err := Write(dir, "file", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(dir, "file", 1<<10); err != nil || string(got) != text {
			t.Errorf("%q %v", got, err)
		}
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "victim" {
		t.Errorf("the file outside is %q, %v", text, err)
	}
}
