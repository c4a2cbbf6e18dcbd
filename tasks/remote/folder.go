package remote

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"millrace/internal/filelock"
)

// folder holds the inputs and results of running tasks of one process. The process holds a lock of the folder, so that
// the next process on the host can remove the folders of processes that were killed.
type folder struct {
	path string
	lock *os.File
}

// folderPrefix begins the names of the folders of processes.
const folderPrefix = "consumer-"

// openFolder makes a folder below another folder, and removes folders there that no process holds.
func openFolder(below string) (*folder, error) {
	if err := os.MkdirAll(below, 0o700); err != nil {
		return nil, fmt.Errorf("the folder for inputs and results cannot be made: %w", err)
	}
	starting, err := os.Open(below) // its lock is held while a process makes or removes folders
	if err != nil {
		return nil, err
	}
	defer func() { _ = filelock.Close(starting) }()
	if err := filelock.Lock(starting); err != nil {
		return nil, err
	}
	removeUnused(below)
	path, err := os.MkdirTemp(below, folderPrefix)
	if err != nil {
		return nil, fmt.Errorf("the folder for inputs and results cannot be made: %w", err)
	}
	lock, err := lockFolder(path)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return &folder{path, lock}, nil
}

func lockFolder(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := filelock.TryLock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// removeUnused removes the folders of processes that have ended.
func removeUnused(below string) {
	entries, _ := os.ReadDir(below)
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), folderPrefix) {
			continue
		}
		path := filepath.Join(below, e.Name())
		lock, err := lockFolder(path)
		if err != nil {
			continue // of a process that runs
		}
		_ = os.RemoveAll(path)
		_ = filelock.Close(lock)
	}
}

// close removes the folder.
func (f *folder) close() error { return errors.Join(os.RemoveAll(f.path), filelock.Close(f.lock)) }
