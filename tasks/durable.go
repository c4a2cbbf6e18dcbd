package tasks

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"millrace/tasks/blob"
)

// syncFolders makes the names in a folder and in all folders below durable. Folders may be removed meanwhile.
func syncFolders(name string) error {
	return filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = blob.SyncFolder(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

// syncFiles makes a folder with all files and folders below durable. No process may change the folder meanwhile.
func syncFiles(name string) error {
	return filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return blob.SyncFolder(path) // syncs a file, too
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
		return blob.SyncFolder(filepath.Dir(name))
	case errors.Is(err, fs.ErrExist):
		return nil
	}
	return err
}

// writeFile writes a file that is there as a whole, or not at all; with sync, also after a power failure.
func writeFile(name string, b []byte, sync bool) error {
	next := name + ".new"
	f, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil && sync {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(next))
	}
	if err := os.Rename(next, name); err != nil || !sync {
		return err
	}
	return blob.SyncFolder(filepath.Dir(name))
}
