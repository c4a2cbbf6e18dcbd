// Package filelock locks open files and folders against other processes, and against other openings of the same file
// in the own process. The locks are those of flock(2).
package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ErrLocked means that another process, or another opening of the file, has a lock that excludes the wanted lock.
var ErrLocked error = unix.EWOULDBLOCK

// Lock waits for a lock of f that excludes all others.
func Lock(f *os.File) error { return flock(f, unix.LOCK_EX) }

// TryLock takes a lock of f that excludes all others. Errors: ErrLocked.
func TryLock(f *os.File) error { return flock(f, unix.LOCK_EX|unix.LOCK_NB) }

// TryShare takes a lock of f that excludes those of Lock and TryLock. Errors: ErrLocked.
func TryShare(f *os.File) error { return flock(f, unix.LOCK_SH|unix.LOCK_NB) }

// Close unlocks f, and closes f. Close of os.File alone does not unlock f while another goroutine starts a child
// process: until the program of the child begins, the child has a copy of the descriptor, and so the lock.
func Close(f *os.File) error { return errors.Join(flock(f, unix.LOCK_UN), f.Close()) }

func flock(f *os.File, how int) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var locked error
	err = conn.Control(func(fd uintptr) {
		for locked = unix.Flock(int(fd), how); locked == unix.EINTR; locked = unix.Flock(int(fd), how) {
		}
	})
	return errors.Join(err, locked)
}
