package tasks

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// syncFolder makes the names in a folder durable.
func syncFolder(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// syncFolders makes the names in a folder and in all folders below durable. Folders may be removed meanwhile.
func syncFolders(name string) error {
	return filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = syncFolder(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

// makeFolder makes a folder and the missing folders above, whose names are durable then.
func makeFolder(name string) error {
	err := os.Mkdir(name, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeFolder(filepath.Dir(name)); err != nil {
			return err
		}
		err = os.Mkdir(name, 0o700)
	}
	switch {
	case err == nil:
		return syncFolder(filepath.Dir(name))
	case errors.Is(err, fs.ErrExist):
		return nil
	}
	return err
}

// writeFile writes a file that survives a power failure as a whole, or not at all.
func writeFile(name string, b []byte) error {
	next := name + ".new"
	f, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(next))
	}
	if err := os.Rename(next, name); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(name))
}
