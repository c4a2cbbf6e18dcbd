package source

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5"
)

// Diff is how a clone differs from its commit.
type Diff struct {
	Changed []string // changed and missing files
	New     []string // files that the repository neither has nor ignores, without Python's compiled files
	Head    string   // the commit that is checked out
}

// Changes compares the clone dir with its commit.
func Changes(dir string, modules []Submodule) (*Diff, error) {
	repo, err := git.PlainOpen(dir)
	if err != nil {
		return nil, err
	}
	at, err := repo.Head()
	if err != nil {
		return nil, err
	}
	tree, err := repo.Worktree()
	if err != nil {
		return nil, err
	}
	status, err := tree.Status()
	if err != nil {
		return nil, fmt.Errorf("%s: its changes cannot be found: %w", dir, err)
	}
	d := &Diff{Head: at.Hash().String()}
	for name, s := range status {
		switch {
		case isCompiled(name) || s.Worktree == git.Unmodified && s.Staging == git.Unmodified:
		case s.Worktree == git.Untracked:
			d.New = append(d.New, name)
		default:
			d.Changed = append(d.Changed, name)
		}
	}
	for _, m := range modules {
		if !filepath.IsLocal(m.Path) || slices.Contains(d.Changed, m.Path) {
			continue
		}
		inside, err := Changes(filepath.Join(dir, filepath.FromSlash(m.Path)), nil)
		if err != nil || inside.Head != m.Commit {
			d.Changed = append(d.Changed, m.Path)
			continue
		}
		for _, name := range inside.Changed {
			d.Changed = append(d.Changed, path.Join(m.Path, name))
		}
		for _, name := range inside.New {
			d.New = append(d.New, path.Join(m.Path, name))
		}
	}
	slices.Sort(d.Changed)
	slices.Sort(d.New)
	return d, nil
}

// isCompiled reports whether a file is written by Python for itself.
func isCompiled(name string) bool {
	return strings.HasSuffix(name, ".pyc") || slices.Contains(strings.Split(name, "/"), "__pycache__")
}
