package build

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxKept is the largest file of .git that is put back.
const maxKept = 1 << 20

// guarded runs code of an application that may write in the folder root, but not in .git there: its configuration and
// its hooks name programs, which the next call of git would run with the rights of the user.
func guarded(root string, run func() error) error {
	before, err := gitFiles(root)
	if err != nil {
		return err
	}
	failed := run()
	after, err := gitFiles(root)
	if err != nil {
		return errors.Join(failed, err)
	}
	var changed []string
	for name, text := range after {
		if old, had := before[name]; !had {
			changed = append(changed, name)
			err = errors.Join(err, os.RemoveAll(filepath.Join(root, name)))
		} else if !bytes.Equal(old, text) {
			changed = append(changed, name)
			err = errors.Join(err, putBack(filepath.Join(root, name), old))
		}
	}
	for name, old := range before {
		if _, has := after[name]; !has {
			changed = append(changed, name)
			err = errors.Join(err, putBack(filepath.Join(root, name), old))
		}
	}
	if len(changed) > 0 {
		slices.Sort(changed)
		err = errors.Join(fmt.Errorf("code of the application has changed %s, which was put back: do not run this "+
			"application", strings.Join(changed, ", ")), err)
	}
	return errors.Join(failed, err)
}

func putBack(path string, text []byte) error {
	st, err := os.Lstat(path)
	if err == nil && !st.Mode().IsRegular() {
		err = os.RemoveAll(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o666)
}

// gitFiles returns the small files of .git, without the objects.
func gitFiles(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(filepath.Join(root, ".git"), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == "objects" {
				return fs.SkipDir
			}
			return nil
		}
		st, err := d.Info()
		switch {
		case err != nil:
			return err
		case st.Size() > maxKept:
			files[name] = nil
			return nil
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			files[name] = []byte("link to " + to)
			return err
		case !d.Type().IsRegular():
			files[name] = nil
			return nil
		}
		files[name], err = os.ReadFile(path)
		return err
	})
	return files, err
}
