package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// Limits of a commit's files.
const (
	maxFiles  = 500_000
	maxDepth  = 100  // folders inside each other
	maxLink   = 4096 // bytes of a symbolic link
	maxLinks  = 40   // symbolic links on a path
	maxLFS    = 1024 // bytes of a pointer of Git LFS
	maxModule = 1 << 20
)

// lfsVersion begins a pointer of Git LFS.
const lfsVersion = "version https://git-lfs.github.com/spec/"

// listing is the files of a commit, by their paths.
type listing struct {
	store   storer.EncodedObjectStorer
	max     int64 // bytes
	entries map[string]object.TreeEntry
	links   map[string]string // targets of symbolic links
	lfs     []string
	bytes   int64
}

// list lists the files of a commit, and refuses names and links that lead out of the folder.
func list(ctx context.Context, store storer.EncodedObjectStorer, root plumbing.Hash, maxBytes int64) (*listing, error) {
	l := &listing{store: store, max: maxBytes, entries: map[string]object.TreeEntry{}, links: map[string]string{}}
	if err := l.add(ctx, "", root, 0); err != nil {
		return nil, err
	}
	for name := range l.links {
		if err := l.follow(name); err != nil {
			return nil, err
		}
	}
	slices.Sort(l.lfs)
	return l, nil
}

func (l *listing) add(ctx context.Context, dir string, hash plumbing.Hash, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("the repository has more than %d folders inside each other: %q", maxDepth, dir)
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	tree, err := object.GetTree(l.store, hash)
	if err != nil {
		return fmt.Errorf("the folder %q of the commit: %w", dir, err)
	}
	for _, e := range tree.Entries {
		name := path.Join(dir, e.Name)
		if err := checkName(e.Name); err != nil {
			return fmt.Errorf("the repository has the path %q, which %w: it is not safe to write", dir+"/"+e.Name, err)
		}
		if _, twice := l.entries[name]; twice {
			return fmt.Errorf("the repository has the path %q twice: it is not safe to write", name)
		}
		if len(l.entries) >= maxFiles {
			return fmt.Errorf("the repository has more than %d files and folders", maxFiles)
		}
		l.entries[name] = e
		switch e.Mode {
		case filemode.Dir:
			err = l.add(ctx, name, e.Hash, depth+1)
		case filemode.Regular, filemode.Deprecated, filemode.Executable:
			err = l.file(name, e.Hash)
		case filemode.Symlink:
			err = l.link(name, e.Hash)
		case filemode.Submodule:
		default:
			err = fmt.Errorf("the repository has the path %q of the unknown kind %v", name, e.Mode)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkName refuses names that lead out of their folder, or into .git on some file system.
func checkName(name string) error {
	switch lower := strings.ToLower(name); {
	case name == "" || name == "." || name == "..", strings.ContainsAny(name, "/\\\x00"):
		return errors.New("leads out of its folder")
	case lower == ".git" || strings.HasPrefix(lower, "git~") || strings.HasPrefix(lower, ".git:"),
		strings.TrimRight(lower, ". ") == ".git", strings.Contains(lower, ".git") && hasIgnored(lower):
		return errors.New("is a name of the folder .git")
	}
	return nil
}

// hasIgnored reports whether a name has characters that some file systems ignore.
func hasIgnored(name string) bool {
	return strings.ContainsFunc(name, func(r rune) bool {
		return r >= 0x200c && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x206a && r <= 0x206f || r == 0xfeff
	})
}

func (l *listing) file(name string, hash plumbing.Hash) error {
	size, err := l.store.EncodedObjectSize(hash)
	if err != nil {
		return fmt.Errorf("the file %q of the commit: %w", name, err)
	}
	if l.bytes += size; l.bytes > l.max {
		return tooLarge(l.max, "its files have more bytes")
	}
	if size > maxLFS || size < int64(len(lfsVersion)) {
		return nil
	}
	text, err := l.read(hash, maxLFS)
	if err == nil && strings.HasPrefix(text, lfsVersion) {
		l.lfs = append(l.lfs, name)
	}
	return err
}

func (l *listing) link(name string, hash plumbing.Hash) error {
	to, err := l.read(hash, maxLink)
	switch {
	case err != nil:
		return fmt.Errorf("the symbolic link %q: %w", name, err)
	case name == modulesFile:
		return fmt.Errorf("%s is a symbolic link: it is not safe to read", modulesFile)
	}
	l.links[name] = to
	return nil
}

// read returns the text of an object of at most limit bytes.
func (l *listing) read(hash plumbing.Hash, limit int64) (string, error) {
	blob, err := object.GetBlob(l.store, hash)
	if err != nil {
		return "", err
	}
	if blob.Size > limit {
		return "", fmt.Errorf("has %d bytes: at most %d are allowed", blob.Size, limit)
	}
	r, err := blob.Reader()
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(r, limit))
	return string(text), errors.Join(err, r.Close())
}

// follow refuses a symbolic link that leads out of the folder, also by way of other links.
func (l *listing) follow(name string) error {
	escapes := fmt.Errorf("the symbolic link %q leads out of the repository, to %q: remove the link, or let it name a "+
		"path inside the repository", name, l.links[name])
	at, rest := splitPath(path.Dir(name)), l.links[name]
	links := 0
	inModule := false // the files behind are not known
	for todo := []string{rest}; len(todo) > 0; {
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if path.IsAbs(next) || next == "" {
			return escapes
		}
		part, others, more := strings.Cut(next, "/")
		if others = strings.TrimLeft(others, "/"); more && others != "" {
			todo = append(todo, others)
		}
		switch part {
		case ".":
			continue
		case "..":
			if len(at) == 0 || inModule {
				return escapes
			}
			at = at[:len(at)-1]
			continue
		}
		at = append(at, part)
		here := strings.Join(at, "/")
		if len(at) == 1 && checkName(part) != nil {
			return escapes // .git
		}
		if to, isLink := l.links[here]; isLink {
			if links++; links > maxLinks {
				return fmt.Errorf("the symbolic link %q leads through more than %d links", name, maxLinks)
			}
			at = at[:len(at)-1]
			todo = append(todo, to)
			continue
		}
		inModule = inModule || l.entries[here].Mode == filemode.Submodule
	}
	return nil
}

func splitPath(dir string) []string {
	if dir == "." || dir == "" {
		return nil
	}
	return strings.Split(dir, "/")
}
