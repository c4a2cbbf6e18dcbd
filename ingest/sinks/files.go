package sinks

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"millrace/stream"
)

// fileSystem opens files: in the whole file system, or in a folder that no name can leave.
type fileSystem interface {
	OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error)
	Rename(from, to string) error
	Stat(name string) (fs.FileInfo, error)
}

var _ fileSystem = (*os.Root)(nil)

// osFileSystem is the file system, for files named by the configuration.
type osFileSystem struct{}

func (osFileSystem) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag, perm)
}
func (osFileSystem) Rename(from, to string) error          { return os.Rename(from, to) }
func (osFileSystem) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

// removedFolder replaces a folder that the server no longer has.
type removedFolder struct{ osFileSystem }

func (removedFolder) OpenFile(string, int, fs.FileMode) (*os.File, error) {
	return nil, errors.New("the server has no folder for files that requests name (sinks.folder)")
}

// fileCost is the minimum charge for a file, so that empty files cost something.
const fileCost = 4096

// Files is the folder for results of streams of requests. Names are relative to the folder, and neither ".." nor a
// link leads out of the folder. Files is safe for concurrent use.
type Files struct {
	root *os.Root
	max  int64 // bytes of one client

	mu     sync.Mutex
	owners map[string]*owner // by the names of files
}

// owner is the owner of a file, with the state of the file.
type owner struct {
	client any
	known  bool  // false = of a stream stored by an earlier run of the server
	size   int64 // size of the file that triggers a rotation
	made   bool  // made, but not yet opened by a sink
	open   int   // number of sinks that write the file
}

// inUse reports whether a stream has the file. The file itself may have been removed from the folder.
func (o *owner) inUse() bool { return o.made || o.open > 0 }

// OpenFiles opens a folder. A client's files may have at most most bytes together.
func OpenFiles(folder string, most int64) (*Files, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "sinks.folder", "%w", err)
	}
	return &Files{root: root, max: most, owners: map[string]*owner{}}, nil
}

// Make makes the file of a sink for a client, or, if has is set, changes the allowed size of the client's file. undo
// reverts Make. Make does not touch an existing file.
func (d *Files) Make(c *File, client any, has bool) (undo func(), err error) {
	bad := func(code stream.Code, format string, args ...any) (func(), error) {
		return nil, stream.Errorf(code, "sinks.file", format, args...)
	}
	if d == nil {
		return bad(stream.PermissionDenied, "a request may name a file only if the setting sinks.folder of the "+
			"server says in which folder: leave it out")
	}
	name := c.Path
	if err := checkName(name); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	own := d.owners[name]
	has = has && own != nil
	if !has && own != nil && own.inUse() {
		return bad(stream.Conflict, "%q is the file of a stream: choose another name", name)
	}
	for i := range keepFiles + 1 {
		if has {
			break
		}
		if _, err := d.root.Lstat(old(name, i)); err == nil {
			return bad(stream.Conflict, "%q exists already: choose another name", old(name, i))
		}
	}
	used, err := d.used(client, name)
	if err != nil {
		return bad(stream.Unavailable, "the folder sinks.folder cannot be read: %w", err)
	}
	if need := reserve(c.MaxSize); used+need > d.max {
		return nil, stream.Errorf(stream.FlowControl, "sinks.max_size", "with %d bytes for this file and its %d old "+
			"ones, the client's files may have %d bytes, but sinks.client_bytes is %d: give a smaller max_size, "+
			"remove files, or raise the setting", need, keepFiles, used+need, d.max)
	}
	if has {
		before := own.size
		own.size = c.MaxSize
		return func() { d.resize(own, before) }, nil
	}
	f, err := d.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		code := stream.InvalidArgument
		if errors.Is(err, fs.ErrPermission) {
			code = stream.PermissionDenied
		}
		return bad(code, "cannot be made in the folder sinks.folder: %w", err)
	}
	_ = f.Close()
	own = &owner{client: client, known: true, size: c.MaxSize, made: true}
	d.owners[name] = own
	return func() { d.forget(name, own) }, nil
}

// Check returns an error if a sink made by a request, perhaps in an earlier run of the server, may not write its
// file. The file must be in the folder, and no link may lead out of the folder.
func (d *Files) Check(c *File) error {
	if d == nil {
		return stream.Errorf(stream.PermissionDenied, "sinks.file", "%.140q was named by a request, and the server "+
			"has no folder for such files: set sinks.folder, or change the stream", c.Path)
	}
	if err := checkName(c.Path); err != nil {
		return err
	}
	if _, err := d.root.Stat(c.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return stream.Errorf(stream.InvalidArgument, "sinks.file", "is not in the folder sinks.folder: %w", err)
	}
	return nil
}

// checkName checks the file name in a request.
func checkName(name string) error {
	why := ""
	base := filepath.Base(name)
	switch {
	case !filepath.IsLocal(name) || filepath.Clean(name) != name || strings.ContainsFunc(name, func(r rune) bool {
		return r < ' '
	}):
		why = "is not a name in the folder sinks.folder, such as door.jsonl: no .., no / in front"
	case len(name) > 200:
		why = "is longer than 200 bytes"
	case strings.HasPrefix(base, "."):
		why = "begins with a dot"
	}
	for i := 1; i <= keepFiles; i++ {
		if strings.HasSuffix(base, fmt.Sprintf(".%d", i)) {
			why = "ends as the old files of another one do: choose a name without a number behind a dot at its end"
		}
	}
	if why != "" {
		return stream.Errorf(stream.InvalidArgument, "sinks.file", "%.140q %s", name, why)
	}
	return nil
}

// old returns the name of an old file, of the file itself for 0.
func old(name string, i int) string {
	if i == 0 {
		return name
	}
	return fmt.Sprintf("%s.%d", name, i)
}

// reserve returns the maximum number of bytes of a file and its old files together.
func reserve(size int64) int64 { return (keepFiles + 1) * max(size, fileCost) }

// used returns the bytes of a client's files except one file, and of files without an owner. used forgets the owners
// of files that no stream has and that are missing in the folder. d.mu is held.
func (d *Files) used(client any, except string) (n int64, err error) {
	for name, o := range d.owners {
		if name != except && (!o.known || o.client == client) && o.inUse() {
			n += reserve(o.size)
		}
	}
	exist := map[string]bool{}
	err = fs.WalkDir(d.root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name := path
		for i := 1; i <= keepFiles; i++ {
			name = strings.TrimSuffix(name, fmt.Sprintf(".%d", i))
		}
		o := d.owners[name]
		exist[name] = true
		if o != nil && (name == except || o.inUse() || o.known && o.client != client) {
			return nil
		}
		if st, err := e.Info(); err == nil {
			n += max(st.Size(), fileCost)
		}
		return nil
	})
	if err == nil {
		maps.DeleteFunc(d.owners, func(name string, o *owner) bool { return !o.inUse() && !exist[name] })
	}
	return n, err
}

// hold records that a sink writes a file; release ends the record.
func (d *Files) hold(name string, size int64) (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.owners[name]
	if o == nil {
		o = &owner{}
		d.owners[name] = o
	}
	o.size, o.made = size, false
	o.open++
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		o.open--
	}
}

func (d *Files) resize(o *owner, size int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o.size = size
}

// forget removes a file made in vain.
func (d *Files) forget(name string, o *owner) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o.made && d.owners[name] == o {
		_ = d.root.Remove(name)
		delete(d.owners, name)
	}
}

// Close closes the folder: open sinks go on, and no further file can be opened.
func (d *Files) Close() {
	if d != nil {
		_ = d.root.Close()
	}
}
