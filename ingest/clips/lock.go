package clips

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"millrace/internal/filelock"
)

// lockName is the file whose lock the Store of a folder holds. A lock of the folder itself would need a local file
// system: on NFS a lock needs a file that is open for writing.
const lockName = "lock"

// folderLock is the lock of a folder that may be removed and made again.
type folderLock struct {
	log *slog.Logger

	mu     sync.Mutex
	file   *os.File // nil = none
	warned bool
	closed bool
}

var errClosed = errors.New("the server is shutting down, and another may use the folder of clips")

// hold locks the folder, unless the folder is locked. On a file system without locks the folder is used all the same.
func (l *folderLock) hold(folder string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	name := filepath.Join(folder, lockName)
	if l.file != nil {
		own, err := l.file.Stat()
		if err != nil {
			return err
		}
		if now, err := os.Lstat(name); err == nil && os.SameFile(own, now) {
			return nil
		}
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	err = filelock.TryLock(f)
	if errors.Is(err, filelock.ErrLocked) {
		_ = f.Close()
		return fmt.Errorf("another process uses the folder of clips %s: end that process, or name another folder",
			folder)
	}
	if err != nil && !l.warned {
		l.warned = true
		l.log.Warn("the folder of clips cannot be locked: give each server its own folder", "folder", folder,
			"error", err)
	}
	if l.file != nil {
		_ = filelock.Close(l.file)
	}
	l.file = f
	return nil
}

func (l *folderLock) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.file != nil {
		_ = filelock.Close(l.file)
		l.file = nil
	}
}
