package scratch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"millrace/internal/filelock"

	"golang.org/x/sys/unix"
)

// Bounds of one Sweep.
const (
	maxTime    = time.Minute
	maxNames   = 100_000 // in the folder for temporary files
	maxFolders = 10_000  // removed folders
	batch      = 256     // names read at once
)

var names = regexp.MustCompile(`^millrace-(child|model|cache|image)-[0-9]+\` + ending + `$`)

// Sweep removes folders of Make that no living process holds, and returns their paths. Entries of another user,
// entries that are no folders, and folders readable by others stay. Sweep follows no symbolic link, and ends with
// ctx, after a minute, or at a limit of names and folders: the next Sweep continues. The error names folders that
// could not be removed.
func Sweep(ctx context.Context) (removed []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	temp := os.TempDir()
	root, err := os.OpenRoot(temp)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	all, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = all.Close() }()
	var failed error
	for seen := 0; seen < maxNames && ctx.Err() == nil; seen += batch {
		found, err := all.Readdirnames(batch)
		for _, name := range found {
			if !names.MatchString(name) {
				continue
			}
			switch gone, err := remove(ctx, root, name); {
			case err != nil && failed == nil && ctx.Err() == nil:
				failed = fmt.Errorf("%s: %w", filepath.Join(temp, name), err)
			case gone:
				removed = append(removed, filepath.Join(temp, name))
			}
			if len(removed) == maxFolders {
				return removed, failed
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				failed = errors.Join(failed, err)
			}
			break
		}
	}
	return removed, failed
}

// remove removes a folder in root if the lock is available at once. gone is false for a folder that stays.
func remove(ctx context.Context, root *os.Root, name string) (gone bool, err error) {
	info, err := root.Lstat(name)
	if err != nil || !isPrivateFolder(info) {
		return false, nil // removed meanwhile, or something else
	}
	lock, err := root.OpenFile(name, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false, ignoreMissing(err)
	}
	defer func() { _ = filelock.Close(lock) }()
	if open, err := lock.Stat(); err != nil || !os.SameFile(info, open) {
		return false, err
	}
	if filelock.TryLock(lock) != nil {
		return false, nil // held, or the file system has no locks
	}
	dir, err := root.OpenRoot(name)
	if err != nil {
		return false, ignoreMissing(err)
	}
	defer func() { _ = dir.Close() }()
	if now, err := dir.Stat("."); err != nil || !os.SameFile(info, now) {
		return false, err
	}
	if err := empty(ctx, dir); err != nil {
		return false, err
	}
	if err := root.Remove(name); err != nil {
		return false, ignoreMissing(err)
	}
	return true, nil
}

// isPrivateFolder reports whether info is a folder of this user, accessible to this user only.
func isPrivateFolder(info fs.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(owner.Uid) == os.Geteuid() && info.Mode() == fs.ModeDir|0o700
}

// empty removes all in a folder.
func empty(ctx context.Context, dir *os.Root) error {
	all, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = all.Close() }()
	for {
		found, err := all.Readdirnames(batch)
		for _, name := range found {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := dir.RemoveAll(name); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
