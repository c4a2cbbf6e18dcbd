// Package newfile writes files atomically: a file appears completely, or not at all. The package must not know the
// contents of a file, and imports nothing of Millrace.
package newfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Write makes a file from the output of write. An existing file is replaced once the new file is complete; a path
// that is not a regular file, such as a device or a folder, is refused.
func Write(file string, write func(io.Writer) error) error {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file: choose another name", file)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".part-*"+filepath.Ext(file))
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", file, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // does nothing after the rename
	b := bufio.NewWriter(f)
	err = errors.Join(write(b), b.Flush(), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", file, err)
	}
	return nil
}
