package guard

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"millrace/internal/cachedir"
	"millrace/internal/child"
	"millrace/internal/filelock"
)

// newPrefix begins the names of files that write has not completed.
const newPrefix = ".new-"

// newAge is the age of an uncompleted file whose writer is dead: write takes seconds.
const newAge = time.Hour

// Endings of the files of saved states: for programs that run or were killed, and for a folder that was not found
// when the user was told about the file.
const (
	stateEnding = ".state"
	keptEnding  = ".kept"
)

// identity tells whether a folder is the one of a saved state, also after a move. A folder that takes the place of
// another one has another time of birth or handle, even if the file system gives the inode again. Programs of an
// application cannot replace the application's folder.
type identity struct {
	Root   string `json:"root"` // absolute, without links
	Inode  uint64 `json:"inode"`
	Born   int64  `json:"born"`             // in nanoseconds since 1970; 0 = the file system does not say
	Handle string `json:"handle,omitempty"` // without Born, see handle
}

var birth = born // replaced in tests: a file system may keep no times of birth

// identify returns the identity of the folder at a path; a folder that is missing has no inode.
func identify(root string) (identity, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return identity{}, err
	}
	if real, err := filepath.EvalSymlinks(root); err == nil {
		root = real
	} else if above, err := filepath.EvalSymlinks(filepath.Dir(root)); err == nil {
		root = filepath.Join(above, filepath.Base(root))
	}
	of := identity{Root: root}
	st, err := os.Lstat(root)
	if errors.Is(err, fs.ErrNotExist) {
		return of, nil
	}
	if err != nil {
		return of, err
	}
	if raw, ok := st.Sys().(*syscall.Stat_t); ok {
		of.Inode, of.Born = raw.Ino, birth(root)
		if of.Born == 0 {
			of.Handle = handle(root)
		}
	}
	return of, nil
}

// is reports whether two identities are of the same folder.
func (i identity) is(other identity) bool {
	return i.Inode != 0 && i.Inode == other.Inode && i.Born == other.Born &&
		(i.Born != 0 || i.Root == other.Root && i.Handle == other.Handle)
}

// keeper keeps the saved state of a folder on the disk, in the user's cache folder: whatever the working directory of
// the next call is, and wherever the folder was moved.
type keeper struct {
	of   identity
	stem string // path of the file, without the ending
}

// folder returns the folder of all saved states.
func folder() (string, error) {
	cache, err := cachedir.Lasting()
	if err != nil {
		return "", fmt.Errorf("the state of .git folders has no place that lasts: %w: set XDG_CACHE_HOME to a folder "+
			"that only this user can change", err)
	}
	if cache, err = filepath.EvalSymlinks(cache); err != nil {
		return "", err
	}
	return filepath.Join(cache, "guard"), nil
}

func newKeeper(root string) (*keeper, error) {
	if st, err := os.Stat(root); err == nil {
		_ = os.Chmod(root, st.Mode()) // overlayfs copies a folder at its first change, and so gives a new time of birth
	}
	of, err := identify(root)
	if err != nil {
		return nil, err
	}
	in, err := folder()
	if err != nil {
		return nil, err
	}
	if name, err := filepath.Rel(of.Root, in); err == nil && filepath.IsLocal(name) {
		return nil, fmt.Errorf("the application's folder %s holds the folder %s, where programs of the application "+
			"must not write: name a folder below, or set XDG_CACHE_HOME to another folder", root, in)
	}
	if err := os.MkdirAll(in, 0o700); err != nil {
		return nil, err
	}
	k := &keeper{of, filepath.Join(in, fmt.Sprintf("%d-%d", of.Inode, of.Born))}
	if of.Born == 0 {
		k.stem += fmt.Sprintf("-%x", sha256.Sum256([]byte(of.Root+"\x00"+of.Handle)))
	}
	return k, nil
}

func (k *keeper) file() string { return k.stem + stateEnding }

// lock locks the state of the folder. Errors: ErrRunning.
func (k *keeper) lock() (release func(), err error) {
	name := k.stem + ".lock"
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := filelock.TryLock(f); err != nil {
			_ = filelock.Close(f)
			if errors.Is(err, filelock.ErrLocked) {
				err = ErrRunning
			}
			return nil, err
		}
		mine, err := f.Stat()
		if now, gone := os.Lstat(name); err == nil && gone == nil && os.SameFile(mine, now) {
			return func() {
				_ = os.Remove(name)
				_ = filelock.Close(f)
			}, nil
		}
		_ = filelock.Close(f) // the holder before has removed the file
	}
}

// write keeps a state on the disk: a line with the identity, and the state. A state that is there is kept.
func (k *keeper) write(s *saved) error {
	for _, ending := range []string{stateEnding, keptEnding} {
		if _, err := os.Lstat(k.stem + ending); !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(fmt.Errorf("%s, of a killed build, was not put back: repeat the command",
				k.stem+ending), err)
		}
	}
	head, err := json.Marshal(k.of)
	if err != nil {
		return err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(k.stem), newPrefix+"*") // readable only by this user, as .git may be
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(bytes.Join([][]byte{head, text}, []byte("\n")))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), k.file())
	}
	if err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(k.stem))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// read reads a state, or without all only the identity.
func read(file string, all bool) (of identity, s *saved, err error) {
	f, err := os.Open(file)
	if err != nil {
		return of, nil, err
	}
	defer func() { _ = f.Close() }()
	r := bufio.NewReader(f)
	line, err := r.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &of)
	}
	if err == nil && all {
		var text []byte
		if text, err = io.ReadAll(r); err == nil {
			err = json.Unmarshal(text, &s)
		}
	}
	if err != nil {
		err = fmt.Errorf("%s, the saved state of .git folders, cannot be read: %w: compare the .git folders of the "+
			"application by hand, and remove the file", file, err)
	}
	return of, s, err
}

// Settle ends the programs that a killed call of Run has left, and puts back what they have changed in .git folders
// of the folder root. A saved state of a folder that is no longer at its place stays: notes tell the user about the
// file, once, and Settle puts the state back when root is that folder. Settle also removes states that a killed call of
// Run has not completed. Errors: ErrRunning.
func Settle(root string) (notes []string, err error) {
	in, err := folder()
	if err != nil {
		return nil, nil // Run needs the folder, too
	}
	entries, err := os.ReadDir(in)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	here, err := identify(root)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		st, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), newPrefix) && time.Since(st.ModTime()) > newAge {
			_ = os.Remove(filepath.Join(in, e.Name())) // else the next call tries again
		}
		ending := filepath.Ext(e.Name())
		if ending != stateEnding && ending != keptEnding {
			continue
		}
		file := filepath.Join(in, e.Name())
		of, _, err := read(file, false)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another call has put the state back meanwhile
		}
		if err != nil {
			notes = append(notes, err.Error())
			continue
		}
		k := &keeper{of, strings.TrimSuffix(file, ending)}
		switch {
		case of.is(here):
			if err := k.recover(file, here.Root); err != nil {
				return notes, err
			}
		case ending == stateEnding:
			if note, err := k.keep(file); err == nil && note != "" {
				notes = append(notes, note)
			} // else the next call tries again
		}
	}
	return notes, nil
}

// recover puts a state back, in a folder that may have moved to root.
func (k *keeper) recover(file, root string) error {
	release, err := k.lock()
	if err != nil {
		return err
	}
	defer release()
	_, s, err := read(file, true)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		_, err = child.KillOrphans(context.Background())
	}
	if err != nil {
		return err
	}
	s.Root = root
	return s.restore(file, true)
}

// keep returns a note about a state whose folder is no longer at its place, and keeps the state; "" = the folder is.
func (k *keeper) keep(file string) (string, error) {
	if now, err := identify(k.of.Root); err != nil || k.of.is(now) {
		return "", err
	}
	release, err := k.lock()
	if err != nil {
		return "", err
	}
	defer release()
	if err := os.Rename(file, k.stem+keptEnding); err != nil {
		return "", err
	}
	return fmt.Sprintf("programs of a killed build may have changed .git folders of %s, which is no longer the folder "+
		"that the build used. If you moved the folder, call millrace app with its new path before you use git there: "+
		"millrace then puts the .git folders back. Their saved state is %s: remove the file if you deleted the folder",
		k.of.Root, k.stem+keptEnding), nil
}
