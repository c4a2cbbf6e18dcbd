// Package cachedir finds the folder for files that the program makes once and reads, or runs, later.
//
// It owns the check that nobody else can change what is in that folder. It must not know what is kept there.
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

// Dir returns a folder that is there: millrace in the user's cache folder or, when the user has none, millrace-UID in the folder for temporary
// files. Where a part of its path is in a folder in which every user may write, that part must be this user's own folder, no
// symbolic link, and not writable for others, since they could have made it first with files of theirs. Otherwise the folder is a new one
// among the temporary files, the same for the life of the process. It may be called concurrently.
func Dir() (string, error) {
	var dir string
	if cache, err := os.UserCacheDir(); err == nil {
		dir = filepath.Join(cache, "millrace")
	} else if dir, err = filepath.Abs(filepath.Join(os.TempDir(), fmt.Sprintf("millrace-%d", os.Getuid()))); err != nil {
		return "", err
	}
	switch err := private(dir); {
	case err == nil:
		return dir, nil
	case !errors.Is(err, errShared):
		return "", err
	}
	folder, err := fresh()
	if err != nil {
		return "", err
	}
	return folder.Path, nil
}

// fresh makes a folder that only this user can read, once, and keeps it: the folder is locked until the process ends, and then
// removed by the next server that starts.
var fresh = sync.OnceValues(makeFresh)

func makeFresh() (*scratch.Folder, error) { return scratch.Make(scratch.Cache) }

// errShared says that other users can change a folder.
var errShared = errors.New("other users can change the folder")

// maxLinks is how many symbolic links a path may have.
const maxLinks = 40

// private makes what is missing of an absolute path, and returns errShared if others can change where it leads. It goes from the root
// down, and follows no link, and makes nothing, that others may have put there.
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
		if owner, ok := st.Sys().(*syscall.Stat_t); shared && (!ok || !st.IsDir() || int(owner.Uid) != os.Getuid() || st.Mode().Perm()&0o022 != 0) {
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
	if shared { // and so is what is in it
		return errShared
	}
	return nil
}

// open reports whether every user may write in a folder. The error is errShared where they may also replace what is there.
func open(st fs.FileInfo) (bool, error) {
	if st.Mode().Perm()&0o002 == 0 {
		return false, nil
	}
	if st.Mode()&fs.ModeSticky == 0 {
		return true, errShared
	}
	return true, nil
}
