// Package cachedir finds the folder for files that the program makes once and reads, or runs, later.
//
// The package owns the check that nobody else can change the contents of the folder. The package must not know the
// contents.
package cachedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"millrace/internal/scratch"
)

// Dir returns an existing folder: millrace in the user's cache folder or, without a cache folder, millrace-UID in the
// folder for temporary files. Inside a folder writable by every user, the next part of the path must be this user's
// own folder, no symbolic link, and not writable for others, since another user could have made that part first.
// Otherwise Dir makes a new folder for temporary files, the same for the life of the process. Dir may be called
// concurrently.
func Dir() (string, error) {
	dir, err := Lasting()
	if !errors.Is(err, errShared) {
		return dir, err
	}
	folder, err := fresh()
	if err != nil {
		return "", err
	}
	return folder.Path, nil
}

// Lasting is Dir for files that outlive the process. Where Dir would make a new folder, Lasting returns an error.
func Lasting() (string, error) {
	var dir string
	if cache, err := os.UserCacheDir(); err == nil {
		dir = filepath.Join(cache, "millrace")
	} else if dir, err = filepath.Abs(filepath.Join(os.TempDir(), fmt.Sprintf("millrace-%d", os.Getuid()))); err !=
		nil {
		return "", err
	}
	if err := private(dir); err != nil {
		return "", fmt.Errorf("%s: %w", dir, err)
	}
	return dir, nil
}

// fresh makes a folder readable only by this user, once, and keeps the folder: the folder is locked until the process
// ends, and then removed by the next server to start.
var fresh = sync.OnceValues(makeFresh)

func makeFresh() (*scratch.Folder, error) { return scratch.Make(scratch.Cache) }

var errShared = errors.New("other users can change the folder, or a folder above does not belong to this user")

// maxLinks is how many symbolic links a path may have.
const maxLinks = 40

// private makes the missing parts of an absolute path, and returns errShared if others can change the folder at the
// path. private goes from the root down, and inside folders writable by others follows no link and accepts no folder
// of another user.
func private(path string) error {
	at, shared, links := "/", false, 0
	if st, err := os.Lstat(at); err != nil {
		return err
	} else if shared, err = open(st); err != nil {
		return err
	}
	rest := strings.Split(filepath.Clean(path), "/")
	for len(rest) > 0 {
		part := rest[0]
		if rest = rest[1:]; part == "" {
			continue
		}
		next := filepath.Join(at, part)
		st, err := os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) {
			if err = os.Mkdir(next, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			st, err = os.Lstat(next)
		}
		if err != nil {
			return err
		}
		if link := st.Mode()&fs.ModeSymlink != 0; link && !shared {
			to, err := filepath.EvalSymlinks(next)
			if links++; err != nil || links > maxLinks {
				return errors.Join(err, syscall.ELOOP)
			}
			at, shared, rest = "/", false, append(strings.Split(to, "/"), rest...)
			continue
		}
		if owner, ok := st.Sys().(*syscall.Stat_t); shared && (!ok || !st.IsDir() || int(owner.Uid) != os.Getuid() ||
			st.Mode().Perm()&0o022 != 0) {
			return errShared
		}
		if !st.IsDir() {
			return &fs.PathError{Op: "open", Path: next, Err: syscall.ENOTDIR}
		}
		at = next
		if shared, err = open(st); err != nil {
			return err
		}
	}
	if shared { // files in the folder are then shared, too
		return errShared
	}
	return nil
}

// open reports whether every user may write in a folder. The error is errShared if every user may also replace the
// folder's contents.
func open(st fs.FileInfo) (bool, error) {
	if st.Mode().Perm()&0o002 == 0 {
		return false, nil
	}
	if st.Mode()&fs.ModeSticky == 0 {
		return true, errShared
	}
	return true, nil
}
