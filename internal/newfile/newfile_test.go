package newfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file is replaced when the new file is complete; after an error only the old file exists.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.txt")
	text := func(s string, err error) func(io.Writer) error {
		return func(w io.Writer) error {
			_, _ = io.WriteString(w, s)
			return err
		}
	}
	for _, s := range []string{"one", "two"} {
		if err := Write(file, text(s, nil)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != s {
			t.Errorf("%q, %v, want %q", got, err, s)
		}
	}
	full := errors.New("the disk is full")
	if err := Write(file, text("three", full)); !errors.Is(err, full) || !strings.Contains(err.Error(), file) {
		t.Errorf("%v", err)
	}
	if got, _ := os.ReadFile(file); string(got) != "two" {
		t.Errorf("after an error the file is %q", got)
	}
	if err := Write(dir, text("", nil)); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("a folder: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%d files are left", len(left))
	}
}
