package repository

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// maxPolled is the largest number of examined files of one model.
const maxPolled = 4096

// Changes finds the models whose folders have changed between two looks, for one goroutine at a time.
type Changes struct {
	Repository *Repository
	taken      map[string]string // the last reported stamp of each model
	last       map[string]string // of the look before
}

// Look returns the models with new or changed folders, and the models with removed folders. Look reports a changing
// folder only after two looks at the same state, so that files are not read while being written, and a removed folder
// only after two looks without the folder. An error means that the folders could not be listed, and says nothing
// about the models.
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

// Take returns all present models, and treats the models as reported.
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

// stampOf returns a text that changes with the files of a folder.
func stampOf(dir string) string {
	if to, err := filepath.EvalSymlinks(dir); err == nil { // the walk does not follow a link
		dir = to
	}
	var text strings.Builder
	n := 0
	// unreadable files are not in the stamp
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
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
