// Package scratch makes temporary folders that are removed although the process that made them was killed.
//
// It owns the names of the folders, their locks, and the removal of the folders that no process holds. It must not know what
// is kept in them. It imports nothing of Millrace.
//
// A process holds the lock (flock) of each of its folders until it ends, however it ends. Sweep removes a folder only when it
// has the lock. The lock is that of the folder itself, which systemd-tmpfiles heeds, too: it removes no old files of a folder
// in use. The descriptor of the lock is closed in child processes.
package scratch

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Kind says what a folder is for. It is a part of the folder's name.
type Kind string

// The kinds of folders. Sweep removes folders of these kinds only.
const (
	Child Kind = "child" // temporary files of a child process
	Model Kind = "model" // files of a model that a request has sent
	Cache Kind = "cache" // files that this process makes and runs
)

// ending marks a folder whose lock is held while the folder is in use.
const ending = ".tmp"

// attempts is how many folders Make makes before it gives up. Sweep of another process may remove a folder before it is locked.
const attempts = 10

// Folder is a folder that only this user can read. It is in the folder for temporary files (TMPDIR, /tmp).
type Folder struct {
	Path string
	lock *os.File
}

// Make makes a folder and locks it. It may be called concurrently.
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
	return nil, fmt.Errorf("%d folders in %s were removed by another process as soon as they were made", attempts, os.TempDir())
}

// errTaken says that another process removes the folder.
var errTaken = errors.New("another process removes the folder")

// hold locks a new folder. On a file system without locks the folder is used without, and no process removes it.
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

// confirm locks an open folder, and returns errTaken when another process has removed it, or is about to.
func confirm(lock *os.File, path string) error {
	err := tryLock(lock)
	if err == nil && !same(lock, path) || errors.Is(err, syscall.EWOULDBLOCK) {
		return errTaken
	}
	return nil
}

// same reports whether path still names the open folder.
func same(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	return err == nil && os.SameFile(open, named)
}

// tryLock locks a folder without waiting. The error is EWOULDBLOCK when another process, or this one, holds the lock.
func tryLock(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var locked error
	if err := conn.Control(func(fd uintptr) { locked = unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB) }); err != nil {
		return err
	}
	return locked
}

// Remove removes the folder with all in it, and then releases the lock.
func (f *Folder) Remove() error {
	return errors.Join(os.RemoveAll(f.Path), f.lock.Close())
}
