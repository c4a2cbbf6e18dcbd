package source

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// local is a repository on this machine.
type local struct{ repo *git.Repository }

func openLocal(path string) (peer, error) {
	repo, err := git.PlainOpenWithOptions(path, &git.PlainOpenOptions{EnableDotGitCommonDir: true})
	if errors.Is(err, git.ErrRepositoryNotExists) {
		return nil, fmt.Errorf("%s is not a Git repository: compare the path, or name the folder without file:// to "+
			"use it in place", path)
	}
	if err != nil {
		return nil, err
	}
	// go-git's default keeps all files of a pack in memory
	if opened, ok := repo.Storer.(*filesystem.Storage); ok {
		store := filesystem.NewStorageWithOptions(opened.Filesystem(), cache.NewObjectLRUDefault(),
			filesystem.Options{LargeObjectThreshold: 1 << 20})
		if repo, err = git.Open(store, nil); err != nil {
			return nil, err
		}
	}
	return &local{repo}, nil
}

func (l *local) lacks() bool  { return false }
func (l *local) close() error { return nil }

func (l *local) references(context.Context) (*references, error) {
	r := &references{hashes: map[string]plumbing.Hash{}, peeled: map[string]plumbing.Hash{}, find: l.find}
	all, err := l.repo.References()
	if err != nil {
		return nil, err
	}
	err = all.ForEach(func(ref *plumbing.Reference) error {
		if ref.Type() == plumbing.HashReference && (ref.Name().IsBranch() || ref.Name().IsTag()) {
			name := ref.Name().String()
			r.hashes[name] = ref.Hash()
			if tag, err := l.repo.TagObject(ref.Hash()); err == nil {
				r.peeled[name] = tag.Target
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if head, err := l.repo.Head(); err == nil {
		r.headHash = head.Hash()
		if head.Name().IsBranch() {
			r.head = head.Name().String()
		}
	}
	return r, nil
}

// find finds commits by their first digits.
func (l *local) find(prefix string) (found []plumbing.Hash, err error) {
	all, err := l.repo.CommitObjects()
	if err != nil {
		return nil, err
	}
	err = all.ForEach(func(c *object.Commit) error {
		if c.Hash.String()[:len(prefix)] == prefix {
			found = append(found, c.Hash)
		}
		return nil
	})
	return found, err
}

// pack writes the files of the commits. The history is left out.
func (l *local) pack(ctx context.Context, wants []plumbing.Hash, _ int) (io.ReadCloser, []plumbing.Hash, error) {
	seen := map[plumbing.Hash]bool{}
	var objects, shallow []plumbing.Hash
	add := func(h plumbing.Hash) bool {
		if seen[h] {
			return false
		}
		seen[h] = true
		objects = append(objects, h)
		return true
	}
	for _, h := range wants {
		if tag, err := l.repo.TagObject(h); err == nil {
			add(h)
			h = tag.Target
		}
		commit, err := l.repo.CommitObject(h)
		if errors.Is(err, plumbing.ErrObjectNotFound) {
			return nil, nil, noCommit(h)
		}
		if err != nil {
			return nil, nil, err
		}
		add(h)
		if len(commit.ParentHashes) > 0 {
			shallow = append(shallow, h)
		}
		if err := addTree(ctx, l.repo.Storer, commit.TreeHash, add, 0); err != nil {
			return nil, nil, err
		}
	}
	r, w := io.Pipe()
	go func() { // ends when r is read to the end or closed
		_, err := packfile.NewEncoder(w, l.repo.Storer, false).Encode(objects, 0)
		_ = w.CloseWithError(err)
	}()
	return r, shallow, nil
}

func addTree(ctx context.Context, store storer.EncodedObjectStorer, hash plumbing.Hash, add func(plumbing.Hash) bool,
	depth int) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if depth > maxDepth {
		return fmt.Errorf("the repository has more than %d folders inside each other", maxDepth)
	}
	if !add(hash) {
		return nil
	}
	tree, err := object.GetTree(store, hash)
	if err != nil {
		return err
	}
	for _, e := range tree.Entries {
		switch e.Mode {
		case filemode.Submodule:
		case filemode.Dir:
			if err := addTree(ctx, store, e.Hash, add, depth+1); err != nil {
				return err
			}
		default:
			add(e.Hash)
		}
	}
	return nil
}

func noCommit(h plumbing.Hash) error {
	return fmt.Errorf("the repository has no commit %s: compare the digits; a commit must be on a branch or tag of "+
		"the repository", h)
}
