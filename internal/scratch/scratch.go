// Package scratch makes temporary folders that are removed even if their process was killed.
//
// The package owns the names of the folders, their locks, and the removal of folders not held by any process. The
// package must not know the contents of the folders, and imports nothing of Millrace.
//
// A process holds the lock (flock) of each of its folders until the process ends in any way. Sweep removes a folder
// only while holding the lock. The lock is on the folder itself; systemd-tmpfiles respects this lock, too, and
// removes no old files of a folder in use. The descriptor of the lock is closed in child processes.
package scratch

import (
	"errors"
	"fmt"
	"os"

	"millrace/internal/filelock"

	"golang.org/x/sys/unix"
)

// Kind is the use of a folder, and a part of the folder's name.
type Kind string

// The kinds of folders. Sweep removes folders of these kinds only.
const (
	Child Kind = "child" // temporary files of a child process
	Model Kind = "model" // files of a model sent by a request
	Cache Kind = "cache" // files made and run by this process
	Image Kind = "image" // files of a container image
)

// ending marks a folder whose lock is held while the folder is in use.
const ending = ".tmp"

// attempts is the number of folders that Make tries. Sweep of another process may remove a folder before the lock.
const attempts = 100

// Folder is a folder that only this user can read, in the folder for temporary files (TMPDIR, /tmp).
type Folder struct {
	Path string
	lock *os.File
}

// Make makes a folder and locks the folder. Make may be called concurrently.
func Make(kind Kind) (*Folder, error) {
	for range attempts {
		path, err := os.MkdirTemp("", "millrace-"+string(kind)+"-*"+ending)
		if err != nil {
			return nil, err
		}
		lock, err := hold(path)
		if err == nil {
			return &Folder{Path: path, lock: lock}, nil
		}
		if !errors.Is(err, errTaken) {
			_ = os.Remove(path)
			return nil, err
		}
	}
	return nil, fmt.Errorf("%d folders in %s were removed by another process as soon as they were made", attempts,
		os.TempDir())
}

// errTaken means that another process removes the folder.
var errTaken = errors.New("another process removes the folder")

// hold locks a new folder. On a file system without locks the folder is used without a lock, and no process removes
// it.
func hold(path string) (*os.File, error) {
	lock, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, errTaken
	case err != nil:
		return nil, err
	}
	if err := confirm(lock, path); err != nil {
		_ = lock.Close()
		return nil, err
	}
	return lock, nil
}

// confirm locks an open folder, and returns errTaken when another process has removed the folder, or is about to.
func confirm(lock *os.File, path string) error {
	err := filelock.TryLock(lock)
	if err == nil && !stillNames(lock, path) || errors.Is(err, filelock.ErrLocked) {
		return errTaken
	}
	return nil
}

// stillNames reports whether path still names the open folder.
func stillNames(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	return err == nil && os.SameFile(open, named)
}

// Remove removes the folder with its contents, and then releases the lock.
func (f *Folder) Remove() error {
	return errors.Join(os.RemoveAll(f.Path), filelock.Close(f.lock))
}
