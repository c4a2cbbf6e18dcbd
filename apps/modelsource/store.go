package modelsource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/docker/go-units"

	"millrace/internal/ctxio"
	"millrace/internal/filelock"
	"millrace/internal/modelurl"
	"millrace/internal/newfile"
	"millrace/internal/textfile"
)

// The parts of a cache. lockFile is locked during each change; an entry of contentDir is shared by its lock while a
// process uses the entry; a folder of partialDir belongs to the owner of the lock beside the folder.
const (
	lockFile   = "lock"
	contentDir = "content" // DIGEST/files, DIGEST/manifest.json
	pointerDir = "sources" // KEY.json: a state of a source
	partialDir = "partial" // KEY: what a fetch has received
	useDir     = "use"     // folders of running processes

	filesDir     = "files"
	manifestFile = "manifest.json"
)

// Limits of sources.
const (
	maxFiles    = 100_000
	maxManifest = 64 << 20
	maxPointer  = 64 << 10
	// keepPartial is the time for which received parts of a failed fetch are kept.
	keepPartial = 7 * 24 * time.Hour
)

// file is an entry of a manifest.
type file struct {
	Path       string `json:"path"` // with slashes
	Size       int64  `json:"size"`
	SHA256     string `json:"sha256"`
	Executable bool   `json:"executable,omitempty"`
}

// pointer is the last state of a source.
type pointer struct {
	Source   string    `json:"source"` // for people, without secrets
	Revision string    `json:"revision"`
	Digest   string    `json:"digest"`
	Fetched  time.Time `json:"fetched"`
}

// change runs f while no other process changes the cache.
func (c *Cache) change(f func() error) error {
	lock, err := os.OpenFile(filepath.Join(c.o.Dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := filelock.Lock(lock); err != nil {
		_ = lock.Close()
		return err
	}
	err = f()
	return errors.Join(err, filelock.Close(lock))
}

// lockSource locks the parts of a source.
func (c *Cache) lockSource(ctx context.Context, u modelurl.URL, key string) (*os.File, error) {
	for waits := false; ; waits = true {
		lock, err := os.OpenFile(filepath.Join(c.o.Dir, partialDir, key+".lock"), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		err = filelock.TryLock(lock)
		if err == nil {
			return lock, nil
		}
		_ = lock.Close()
		if !errors.Is(err, filelock.ErrLocked) {
			return nil, err
		}
		if !waits {
			c.o.Log.Info("a model source is being fetched by another process", "source", u.Source())
		}
		if !ctxio.Sleep(ctx, 100*time.Millisecond) {
			return nil, context.Cause(ctx)
		}
	}
}

func (c *Cache) pointerFile(key string) string {
	return filepath.Join(c.o.Dir, pointerDir, key+".json")
}

// cached returns the cached state of a source, or nil. revision "" = any.
func (c *Cache) cached(ctx context.Context, u modelurl.URL, key, revision string) (s *Source, err error) {
	text, err := textfile.Read(c.pointerFile(key), maxPointer)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var p pointer
	err = json.Unmarshal(text, &p)
	if err != nil || revision != "" && p.Revision != revision || !isDigest(p.Digest) {
		return nil, nil // the source is fetched again
	}
	err = c.change(func() (err error) {
		s, err = c.open(p.Digest)
		return err
	})
	if s == nil || err != nil {
		return nil, err
	}
	s.URL, s.Revision = u, p.Revision
	if err := c.verify(ctx, s); err != nil {
		s.Release()
		if c.o.Offline || !errors.As(err, new(damage)) {
			return nil, err
		}
		c.o.Log.Warn("the cached files of a model source are damaged, and are removed", "source", u.Source(), "error",
			err)
		return nil, c.change(func() error { return c.drop(p.Digest) })
	}
	return s, nil
}

// damage is the error of files in the cache that are not the fetched files.
type damage struct{ error }

func (d damage) Error() string {
	return "the files in the cache are damaged, and are fetched again without model_sources.offline: " + d.error.Error()
}

func isDigest(text string) bool {
	return len(text) == 64 && strings.Trim(text, "0123456789abcdef") == ""
}

// open shares an entry, or returns nil. The caller has locked the cache.
func (c *Cache) open(digest string) (*Source, error) {
	dir := filepath.Join(c.o.Dir, contentDir, digest)
	lock, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &Source{Digest: digest, dir: filepath.Join(dir, filesDir), lock: lock, cache: c}
	text, err := textfile.Read(filepath.Join(dir, manifestFile), maxManifest)
	damaged := errors.Is(err, fs.ErrNotExist)
	if err == nil {
		err = json.Unmarshal(text, &s.files)
		damaged = err != nil
	}
	if err == nil {
		err = filelock.TryShare(lock)
	}
	switch {
	case err == nil:
	case !damaged: // such as too many open files
		return nil, errors.Join(err, lock.Close())
	case c.o.Offline:
		return nil, errors.Join(damage{err}, lock.Close())
	default:
		_ = lock.Close()
		return nil, c.drop(digest)
	}
	for _, f := range s.files {
		s.Bytes += f.Size
	}
	now := time.Now()
	_ = os.Chtimes(filepath.Join(dir, manifestFile), now, now) // the time of the last use
	return s, nil
}

// verify compares the files of an entry with the manifest: the sizes, and at the first use of this process the digests.
// Errors: damage.
func (c *Cache) verify(ctx context.Context, s *Source) error {
	c.mu.Lock()
	known := c.verified[s.Digest]
	c.mu.Unlock()
	if digestOf(s.files) != s.Digest {
		return damage{errors.New("the manifest has another digest")}
	}
	for _, f := range s.files {
		name := filepath.Join(s.dir, filepath.FromSlash(f.Path))
		st, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return damage{err}
		}
		if err != nil {
			return err
		}
		if !st.Mode().IsRegular() || st.Size() != f.Size {
			return damage{fmt.Errorf("%s has changed", f.Path)}
		}
		if known {
			continue
		}
		sum, err := sumOf(ctx, name, false)
		if err != nil {
			return err
		}
		if sum != f.SHA256 {
			return damage{fmt.Errorf("%s has changed", f.Path)}
		}
	}
	c.setVerified(s.Digest)
	return nil
}

func (c *Cache) setVerified(digest string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verified[digest] = true
}

func sumOf(ctx context.Context, name string, sync bool) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, ctxio.Reader(ctx, f)); err != nil {
		return "", err
	}
	if sync {
		err = f.Sync()
	}
	return hex.EncodeToString(h.Sum(nil)), err
}

// digestOf returns the digest of a manifest.
func digestOf(files []file) string {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%q %d %s %v\n", f.Path, f.Size, f.SHA256, f.Executable)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// drop removes an entry. The caller has locked the cache.
func (c *Cache) drop(digest string) error {
	c.mu.Lock()
	delete(c.verified, digest)
	c.mu.Unlock()
	// a name that no process opens: a killed removal leaves no half entry
	gone, err := os.MkdirTemp(filepath.Join(c.o.Dir, partialDir), "removed-*")
	if err != nil {
		return err
	}
	err = os.Rename(filepath.Join(c.o.Dir, contentDir, digest), filepath.Join(gone, "entry"))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(gone))
}

// store makes the files of a fetch an entry, and the state of the source.
func (c *Cache) store(ctx context.Context, u modelurl.URL, key, revision string, w *work) (s *Source, err error) {
	files, err := ingest(ctx, w.tree, c.o.MaxSize)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(files)
	if err != nil {
		return nil, err
	}
	entry := filepath.Join(w.dir, "entry")
	if err := errors.Join(os.RemoveAll(entry), os.Mkdir(entry, 0o700)); err != nil {
		return nil, err
	}
	err = os.Rename(w.tree, filepath.Join(entry, filesDir))
	if err == nil {
		err = newfile.Write(filepath.Join(entry, manifestFile), func(to io.Writer) error {
			_, err := to.Write(text)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	digest, size := digestOf(files), int64(0)
	for _, f := range files {
		size += f.Size
	}
	err = c.change(func() error {
		to := filepath.Join(c.o.Dir, contentDir, digest)
		if _, err := os.Stat(to); errors.Is(err, fs.ErrNotExist) { // otherwise another source has the same files
			if err := c.makeRoom(size, key); err != nil {
				return err
			}
			if err := os.Rename(entry, to); err != nil {
				return err
			}
			c.setVerified(digest)
		}
		p, err := json.Marshal(pointer{u.Source(), revision, digest, time.Now().UTC()})
		if err != nil {
			return err
		}
		if err := newfile.Write(c.pointerFile(key), func(to io.Writer) error {
			_, err := to.Write(p)
			return err
		}); err != nil {
			return err
		}
		s, err = c.open(digest)
		return err
	})
	if err == nil && s == nil {
		err = errors.New("the files are gone from the cache again")
	}
	if err != nil {
		return nil, err
	}
	s.URL, s.Revision = u, revision
	return s, os.RemoveAll(w.dir)
}

// ingest makes the fetched files a tree of regular files: links to files become the files, links to folders and the
// folder .git are removed. ingest returns the manifest.
func ingest(ctx context.Context, root string, limit int64) (files []file, err error) {
	at, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, err
	}
	size := int64(0)
	err = filepath.WalkDir(at, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		inside := filepath.ToSlash(strings.TrimPrefix(strings.TrimPrefix(name, at), "/"))
		switch {
		case d.IsDir() && d.Name() == ".git" && name != at:
			if err := os.RemoveAll(name); err != nil {
				return err
			}
			return fs.SkipDir
		case d.IsDir():
			return os.Chmod(name, 0o700)
		case d.Type()&fs.ModeSymlink != 0:
			if err := replaceLink(at, name); err != nil {
				return fmt.Errorf("the link %q: %w", inside, err)
			}
			if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
				return nil
			}
		case !d.Type().IsRegular():
			return fmt.Errorf("%q is not a file", inside)
		case d.Name() == ".git": // of a submodule
			return os.Remove(name)
		}
		st, err := os.Lstat(name)
		if err != nil {
			return err
		}
		if size += st.Size(); size > limit {
			return tooLarge(limit)
		}
		if len(files) >= maxFiles {
			return fmt.Errorf("the source has more than %d files", maxFiles)
		}
		f := file{Path: inside, Size: st.Size(), Executable: st.Mode().Perm()&0o100 != 0}
		mode := fs.FileMode(0o400)
		if f.Executable {
			mode = 0o500
		}
		if f.SHA256, err = sumOf(ctx, name, true); err != nil {
			return err
		}
		files = append(files, f)
		return os.Chmod(name, mode)
	})
	if err == nil && len(files) == 0 {
		err = errors.New("the source has no files")
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.Path, b.Path) })
	return files, err
}

// replaceLink makes a link to a file inside of root a copy of the file, and removes a link to a folder.
func replaceLink(root, name string) error {
	to, err := filepath.EvalSymlinks(name)
	if err != nil {
		return errors.New("leads to no file of the source")
	}
	if to != root && !strings.HasPrefix(to, root+string(filepath.Separator)) {
		return errors.New("leads out of the source: put a copy there")
	}
	st, err := os.Stat(to)
	if err != nil {
		return err
	}
	if err := os.Remove(name); err != nil || st.IsDir() {
		return err
	}
	if !st.Mode().IsRegular() {
		return errors.New("leads to no file of the source")
	}
	return os.Link(to, name)
}

// entry is an entry of contentDir.
type entry struct {
	digest string
	bytes  int64
	used   time.Time
}

// makeRoom removes parts of failed fetches of other sources than key, and then the entries that were used longest ago,
// until need bytes fit into the cache. The caller has locked the cache.
func (c *Cache) makeRoom(need int64, key string) error {
	if err := c.removePartial(key); err != nil {
		return err
	}
	list, total, err := c.entries()
	if err != nil {
		return err
	}
	parts, err := c.partials(key)
	if err != nil {
		return err
	}
	for _, p := range parts {
		total += p.bytes
	}
	for _, p := range parts {
		if total+need <= c.o.Size {
			break
		}
		removed, err := c.dropPartial(p.name)
		if err != nil {
			return err
		}
		if removed {
			total -= p.bytes
		}
	}
	held := 0
	for _, e := range list {
		if total+need <= c.o.Size {
			break
		}
		lock, err := os.Open(filepath.Join(c.o.Dir, contentDir, e.digest))
		if err != nil {
			return err
		}
		if err := filelock.TryLock(lock); err != nil {
			_ = lock.Close()
			if !errors.Is(err, filelock.ErrLocked) {
				return err
			}
			held++
			continue
		}
		err = c.drop(e.digest)
		if err = errors.Join(err, filelock.Close(lock)); err != nil {
			return err
		}
		total -= e.bytes
	}
	if total+need > c.o.Size {
		hint := "model_sources.cache_size allows more"
		if c.o.Foreign {
			hint = "stop a server that uses them"
		}
		return fullError(fmt.Sprintf("the cache %s is full: %s are in use by %d models and repositories, "+
			"and %s more do not fit into %s: %s", c.o.Dir, units.BytesSize(float64(total)), held,
			units.BytesSize(float64(need)), units.BytesSize(float64(c.o.Size)), hint))
	}
	return nil
}

// fullError is the error of a full cache.
type fullError string

func (f fullError) Error() string { return string(f) }

// entries returns the entries, the one used longest ago first, and their bytes.
func (c *Cache) entries() (list []entry, total int64, err error) {
	found, err := os.ReadDir(filepath.Join(c.o.Dir, contentDir))
	if err != nil {
		return nil, 0, err
	}
	for _, d := range found {
		if !isDigest(d.Name()) {
			continue
		}
		dir := filepath.Join(c.o.Dir, contentDir, d.Name())
		e := entry{digest: d.Name()}
		var files []file
		if text, err := textfile.Read(filepath.Join(dir, manifestFile), maxManifest); err == nil {
			_ = json.Unmarshal(text, &files) // a damaged entry has no bytes and is removed first
		}
		if st, err := os.Stat(filepath.Join(dir, manifestFile)); err == nil {
			e.used = st.ModTime()
		}
		for _, f := range files {
			e.bytes += f.Size
		}
		total += e.bytes
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b entry) int { return a.used.Compare(b.used) })
	return list, total, nil
}

// removePartial removes old parts of failed fetches, and of removed entries. keep is a source that is being fetched.
func (c *Cache) removePartial(keep string) error {
	root := filepath.Join(c.o.Dir, partialDir)
	found, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, d := range found {
		name, removed := d.Name(), strings.HasPrefix(d.Name(), "removed-")
		st, err := d.Info()
		if !d.IsDir() || name == keep || err != nil || !removed && time.Since(st.ModTime()) < keepPartial {
			continue
		}
		if !removed {
			if _, err := c.dropPartial(name); err != nil {
				return err
			}
			continue
		}
		if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
			return err
		}
	}
	return nil
}

// dropPartial removes the parts of a source. removed = false: the source is being fetched.
func (c *Cache) dropPartial(key string) (removed bool, err error) {
	dir := filepath.Join(c.o.Dir, partialDir, key)
	lock, err := os.OpenFile(dir+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false, err
	}
	if filelock.TryLock(lock) != nil {
		return false, lock.Close()
	}
	return true, errors.Join(os.RemoveAll(dir), filelock.Close(lock))
}

// partial is what a fetch has received.
type partial struct {
	name  string
	bytes int64
	used  time.Time
}

// partials returns the parts of all sources but keep, the oldest first.
func (c *Cache) partials(keep string) (list []partial, err error) {
	root := filepath.Join(c.o.Dir, partialDir)
	found, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	for _, d := range found {
		st, err := d.Info()
		if !d.IsDir() || d.Name() == keep || err != nil {
			continue
		}
		list = append(list, partial{d.Name(), sizeOf(filepath.Join(root, d.Name())), st.ModTime()})
	}
	slices.SortFunc(list, func(a, b partial) int { return a.used.Compare(b.used) })
	return list, nil
}

// sizeOf returns the bytes of the files below a folder, without those that disappear meanwhile.
func sizeOf(dir string) (size int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if st, err := d.Info(); err == nil {
				size += st.Size()
			}
		}
		return nil
	})
	return size
}

// below returns the files of a source below a path, with paths relative to the path.
func (s *Source) below(at string) (files []file) {
	if at == "" {
		return s.files
	}
	for _, f := range s.files {
		if rest, ok := strings.CutPrefix(f.Path, at+"/"); ok {
			f.Path = rest
			files = append(files, f)
		}
	}
	return files
}

// has reports whether the source has a file.
func (s *Source) has(name string) bool {
	return slices.ContainsFunc(s.files, func(f file) bool { return f.Path == path.Clean(name) })
}
