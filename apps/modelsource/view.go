package modelsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"millrace/internal/filelock"
	"millrace/internal/modelurl"
)

// view is the folder in which a process uses files of the cache: by hard links, so that programs may write new files
// beside the cached files. The folder is locked until the process ends, and then removed by the next Open.
type view struct {
	dir  string
	lock *os.File
}

// attempts is the number of folders that makeView tries: another process may remove a folder before the lock.
const attempts = 10

func (c *Cache) makeView() (*view, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.view != nil {
		return c.view, nil
	}
	for range attempts {
		dir, err := os.MkdirTemp(filepath.Join(c.o.Dir, useDir), "*")
		if err != nil {
			return nil, err
		}
		lock, err := os.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := filelock.TryLock(lock); err == nil {
			if _, err := os.Stat(dir); err == nil {
				c.view = &view{dir, lock}
				return c.view, nil
			}
		}
		_ = lock.Close()
	}
	return nil, fmt.Errorf("%d folders in %s were removed by another process", attempts, c.o.Dir)
}

func (v *view) remove() error { return errors.Join(os.RemoveAll(v.dir), filelock.Close(v.lock)) }

// sweep removes the folders of killed processes.
func (c *Cache) sweep() error {
	root := filepath.Join(c.o.Dir, useDir)
	found, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, d := range found {
		dir := filepath.Join(root, d.Name())
		lock, err := os.Open(dir)
		if err != nil {
			continue // removed by another process
		}
		if err := filelock.TryLock(lock); err != nil {
			_ = lock.Close()
			continue
		}
		if err := (&view{dir, lock}).remove(); err != nil {
			return err
		}
	}
	return c.change(func() error { return c.removePartial("") })
}

// Place makes a folder with the files of the source, and returns the path that the address names. remove removes the
// folder. Programs may add files to the folder, and must not change its files.
func (s *Source) Place(name string) (local string, remove func(), err error) {
	inside, class, err := s.named()
	if err != nil {
		if s.Stale != nil {
			err = fmt.Errorf("%w; the present state is not in the cache: %w", err, s.Stale)
		}
		return "", nil, fmt.Errorf("%s: %w", s.URL, err)
	}
	v, err := s.cache.makeView()
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp(v.dir, safeName(name)+"-*")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	if err := link(s.dir, "", s.files, dir); err != nil {
		remove()
		return "", nil, err
	}
	return filepath.Join(dir, filepath.FromSlash(inside)) + class, remove, nil
}

func safeName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || r == '*' || r == 0 {
			return '-'
		}
		return r
	}, name[:min(len(name), 100)])
}

// named returns the path of the file or folder that the address names, and :CLASS behind the file.
func (s *Source) named() (inside, class string, err error) {
	at := s.URL.Path
	file, name, hasClass := strings.Cut(at, ":")
	switch {
	case at == "" && len(s.files) == 1 && !strings.Contains(s.files[0].Path, "/"):
		return s.files[0].Path, "", nil
	case at == "", s.has(at), len(s.below(at)) > 0:
		return at, "", nil
	case hasClass && s.has(file):
		return file, ":" + name, nil
	}
	return "", "", fmt.Errorf("the source has no %s%s", at, s.list(at))
}

// list names the files beside a missing file, for the end of an error.
func (s *Source) list(missing string) string {
	var names []string
	dir := path.Dir(missing)
	for _, f := range s.files {
		if path.Dir(f.Path) == dir {
			names = append(names, path.Base(f.Path))
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf(": the folder has %.300s", strings.Join(names, ", "))
}

// link makes hard links of files below from/at in the folder to.
func link(from, at string, files []file, to string) error {
	for _, f := range files {
		name := filepath.Join(to, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		source := filepath.Join(from, filepath.FromSlash(path.Join(at, f.Path)))
		if err := os.Link(source, name); err != nil {
			if err := copyFile(source, name); err != nil { // a file system without links
				return err
			}
		}
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, st.Mode().Perm()|0o200)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// Repository is a folder with the models of a source, which changes with the source.
type Repository struct {
	Dir string

	url    modelurl.URL
	cache  *Cache
	source *Source           // of the files in Dir; nil = none
	models map[string]string // digests of the models in Dir
}

// Repository makes an empty folder for the models of a source. Update fills the folder.
func (c *Cache) Repository(u modelurl.URL) (*Repository, error) {
	v, err := c.makeView()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(v.dir, "repository-*")
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "models")
	return &Repository{Dir: dir, url: u, cache: c, models: map[string]string{}}, os.Mkdir(dir, 0o700)
}

// Update fetches the present state of the source, and changes the folders of the models that differ. Update returns the
// state. Only one Update at a time is allowed.
func (r *Repository) Update(ctx context.Context) (*Source, error) {
	s, err := r.cache.Get(ctx, r.url)
	if err != nil {
		return nil, err
	}
	if r.source != nil && s.Digest == r.source.Digest {
		s.Release()
		now := *r.source
		now.Revision, now.Stale = s.Revision, s.Stale
		return &now, nil
	}
	found := map[string][]file{}
	for _, f := range s.below(s.URL.Path) {
		if name, rest, inFolder := strings.Cut(f.Path, "/"); inFolder && !strings.HasPrefix(name, ".") {
			f.Path = rest
			found[name] = append(found[name], f)
		}
	}
	if len(found) == 0 {
		s.Release()
		return nil, fmt.Errorf("%s: the source has no folders of models%s: name their folder behind #", s.URL,
			s.list(path.Join(s.URL.Path, "x")))
	}
	for name, files := range found {
		if digest := digestOf(files); r.models[name] != digest && err == nil {
			if err = r.replace(s, name, files); err == nil {
				r.models[name] = digest
			}
		}
	}
	for name := range r.models {
		if _, is := found[name]; !is && err == nil {
			if err = r.replace(s, name, nil); err == nil {
				delete(r.models, name)
			}
		}
	}
	if err != nil {
		s.Release()
		return nil, err
	}
	if r.source != nil {
		r.source.Release()
	}
	r.source = s
	now := *s
	return &now, nil
}

// replace makes files the folder of a model. Without files the folder is removed.
func (r *Repository) replace(s *Source, name string, files []file) error {
	next, err := os.MkdirTemp(filepath.Dir(r.Dir), "next-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(next) }()
	at, made := filepath.Join(r.Dir, name), filepath.Join(next, "new")
	if files != nil {
		if err := link(s.dir, path.Join(s.URL.Path, name), files, made); err != nil {
			return err
		}
	}
	if err := os.Rename(at, filepath.Join(next, "old")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if files == nil {
		return nil
	}
	return os.Rename(made, at)
}
