// Package rootfile reads and writes files in folders where other programs write at the same time. No link that such a
// program makes leads out of the folder, and no FIFO hangs a call. The package must not know the purpose of a file, and
// imports nothing of Millrace.
package rootfile

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// Write replaces a file in a folder where programs write, and follows no link that a program has made there. name
// is a path in dir.
func Write(dir, name string, text []byte) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if st, err := root.Lstat(name); err == nil && !st.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file: remove it", filepath.Join(dir, name))
	}
	return Replace(root, name, bytes.NewReader(text), 0o666)
}

// Replace makes a file of root new, or replaces the file in one step. No link is followed.
func Replace(root *os.Root, name string, from io.Reader, mode os.FileMode) error {
	part := name + "." + rand.Text()
	f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(part, name)
	}
	if err != nil {
		return errors.Join(err, root.RemoveAll(part))
	}
	return nil
}

// Read reads a regular file of at most most bytes in a folder where programs write. Links out of the folder are
// not followed.
func Read(dir, name string, most int64) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	f, err := Open(root, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s is larger than %d MiB", filepath.Join(dir, name), most>>20)
	}
	return text, err
}

// Open opens a regular file of root, which programs may change meanwhile. No link in the place of the file is
// followed.
func Open(root *os.Root, name string) (*os.File, error) {
	path := filepath.Join(root.Name(), name)
	st, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file: remove it", path)
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0) // a FIFO has no writer
	if err != nil {
		return nil, err
	}
	if now, err := f.Stat(); err != nil || !os.SameFile(st, now) {
		return nil, errors.Join(fmt.Errorf("%s has changed meanwhile: repeat the command", path), err, f.Close())
	}
	return f, nil
}
