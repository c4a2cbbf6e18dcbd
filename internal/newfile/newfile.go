// Package newfile writes files that are there completely, or not at all. It must not know what is in a file. It imports nothing
// of Millrace.
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

// Write makes a file of what write writes. A file that exists is replaced once the new one is complete; what is not a regular
// file, such as a device or a folder, is refused.
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
	defer func() { _ = os.Remove(f.Name()) }() // no such file after the rename
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
