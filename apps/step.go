package apps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"millrace/apps/source"
	"millrace/internal/filelock"
)

// Use marks a clone as in use until release is called, so that no Init replaces the clone. dir is that of Options.
// A clone that Init has replaced since is refused: the application names another commit.
func (a *App) Use(dir string) (release func(), err error) {
	if !a.Cloned() {
		return func() {}, nil
	}
	c, err := cloneOf(dir, a.Source)
	if err != nil {
		return nil, err
	}
	lock, err := c.lock(filelock.TryShare)
	if err != nil {
		return nil, err
	}
	release = func() { _ = filelock.Close(lock) }
	if m, err := c.mark(); err != nil || m == nil || m.Commit != a.Commit || m.Repository != a.Source.Address() {
		release()
		return nil, errors.Join(fmt.Errorf("another call of init has replaced %s meanwhile: repeat the command",
			c.root), err)
	}
	return release, nil
}

// Step runs a step that writes files, such as build. The clone is in use meanwhile, see Use. New files that the step
// leaves in the clone are not local changes for the next Init.
func (a *App) Step(dir string, run func() error) error {
	release, err := a.Use(dir)
	if err != nil {
		return err
	}
	defer release()
	if !a.Cloned() {
		return run()
	}
	before, _, err := a.created()
	if err != nil {
		return err
	}
	failed := run()
	return errors.Join(failed, a.note(before))
}

// created returns the new files in the clone, and its mark.
func (a *App) created() ([]string, *mark, error) {
	m, err := readMark(a.Root)
	if err != nil {
		return nil, nil, err
	}
	if m == nil {
		return nil, nil, fmt.Errorf("%s was not made by init: add the command init", a.Root)
	}
	diff, err := source.Changes(a.Root, m.Submodules)
	if err != nil {
		return nil, nil, err
	}
	return m.withoutMade(a.Root, diff.New), m, nil
}

// note adds new files that were not there before to the files made by steps.
func (a *App) note(before []string) error {
	after, m, err := a.created()
	if err != nil {
		return err
	}
	for _, name := range after {
		st, err := os.Lstat(filepath.Join(a.Root, filepath.FromSlash(name)))
		if err != nil || slices.Contains(before, name) {
			continue
		}
		if m.Made == nil {
			m.Made = map[string]time.Time{}
		}
		m.Made[name] = st.ModTime()
	}
	return m.write(a.Root)
}

// withoutMade removes the files that steps made and nobody has changed since.
func (m *mark) withoutMade(root string, files []string) []string {
	return slices.DeleteFunc(files, func(name string) bool {
		at, made := m.Made[name]
		if !made {
			return false
		}
		st, err := os.Lstat(filepath.Join(root, filepath.FromSlash(name)))
		return err == nil && st.ModTime().Equal(at)
	})
}
