package repository

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// maxPolled is the largest number of files of one model that are looked at.
const maxPolled = 4096

// Changes finds the models whose folders have changed from one look to the next. It is
// for one goroutine at a time.
type Changes struct {
	Repository *Repository
	taken      map[string]string // the stamp of each model that was reported
	last       map[string]string // of the look before
}

// Look returns the models whose folders are new or have changed, and those whose folders
// are gone. A folder that still changes is reported when two looks have found it the
// same, so that files which are being written are not read; one that is gone, when two
// looks have not found it. An error says that the folders could not be listed, which
// says nothing of the models.
func (c *Changes) Look() (changed, gone []string, err error) {
	names, err := c.Repository.Names()
	if err != nil {
		return nil, nil, err
	}
	now := map[string]string{}
	for _, name := range names {
		now[name] = stampOf(filepath.Join(c.Repository.Dir, name))
	}
	if c.taken == nil {
		c.taken = map[string]string{}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if stamp := now[name]; c.taken[name] != stamp && c.last[name] == stamp {
			c.taken[name] = stamp
			changed = append(changed, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.taken)) {
		_, there := now[name]
		if _, before := c.last[name]; !there && !before {
			delete(c.taken, name)
			gone = append(gone, name)
		}
	}
	c.last = now
	return changed, gone, nil
}

// Take returns the models that there are, as if they had been reported.
func (c *Changes) Take() ([]string, error) {
	names, err := c.Repository.Names()
	if err != nil {
		return nil, err
	}
	c.taken = map[string]string{}
	for _, name := range names {
		c.taken[name] = stampOf(filepath.Join(c.Repository.Dir, name))
	}
	c.last = maps.Clone(c.taken)
	return names, nil
}

// stampOf returns a text that differs when the files of a folder have changed.
func stampOf(dir string) string {
	if to, err := filepath.EvalSymlinks(dir); err == nil { // the walk does not follow a link
		dir = to
	}
	var text strings.Builder
	n := 0
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { // what cannot be read is not in the stamp
		if err != nil {
			return nil
		}
		if n++; n > maxPolled {
			return filepath.SkipAll
		}
		if st, err := d.Info(); err == nil {
			size := st.Size()
			if d.IsDir() {
				size = 0
			}
			fmt.Fprintf(&text, "%q %d %d %v\n", path, size, st.ModTime().UnixNano(), st.Mode())
		}
		return nil
	})
	return text.String()
}
