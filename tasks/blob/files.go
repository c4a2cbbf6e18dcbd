package blob

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/ctxio"
	"millrace/stream"
)

// Files is a Store in a folder. A blob is written to a temporary file, synced, and renamed. The folder belongs to the
// servers that use it: keys cannot leave the folder, and Files makes no links.
type Files struct {
	folder   string
	sync     bool
	process  string // begins the names of temporary files
	sequence atomic.Uint64
	durable  sync.Map // folders of the first level whose names are durable
}

// FilesOptions configure Files.
type FilesOptions struct {
	Sync   bool // Commit returns when the disk has the blob
	Shared bool // other processes use the folder at the same time
	// ReadOnly leaves the folder unchanged: a missing folder is empty, and unfinished blobs remain.
	ReadOnly bool
}

// unfinishedAge is the age from which no process of a shared folder still writes a temporary file.
const unfinishedAge = 24 * time.Hour

var (
	_ Store    = (*Files)(nil)
	_ Lister   = (*Files)(nil)
	_ Appender = (*Files)(nil)
)

// temporaryFolder is the folder of unfinished blobs. Keys cannot begin with a dot.
const temporaryFolder = ".writing"

// OpenFiles opens the folder, which is created when missing, and removes unfinished blobs of earlier processes.
func OpenFiles(folder string, o FilesOptions) (*Files, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	f := &Files{folder: folder, sync: o.Sync, process: rand.Text()}
	if o.ReadOnly {
		return f, nil
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	if o.Shared {
		return f, f.removeUnfinished(time.Now().Add(-unfinishedAge))
	}
	return f, errors.Join(os.RemoveAll(f.path(temporaryFolder)), os.Mkdir(f.path(temporaryFolder), 0o700))
}

// removeUnfinished removes the temporary files from before a time.
func (f *Files) removeUnfinished(before time.Time) error {
	if err := os.Mkdir(f.path(temporaryFolder), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	list, err := os.ReadDir(f.path(temporaryFolder))
	for _, e := range list {
		info, err := e.Info()
		if err == nil && info.ModTime().Before(before) {
			err = os.Remove(f.path(path.Join(temporaryFolder, e.Name())))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// ignoreMissing returns err, and nil for a file that another process has removed meanwhile.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// path returns the path of a key that checkKey has accepted.
func (f *Files) path(key string) string { return f.folder + "/" + key }

// checkKey refuses keys that are no path below the folder.
func checkKey(key string) error {
	if !fs.ValidPath(key) || key == "." || strings.HasPrefix(key, ".") || strings.Contains(key, "/.") ||
		strings.ContainsAny(key, "\\\x00") {
		return stream.Errorf(stream.InvalidArgument, "", "%q cannot be the name of a stored file", key)
	}
	return nil
}

// Create implements Store.
func (f *Files) Create(ctx context.Context, key string) (Writer, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	w, err := f.temporary(ctx)
	if err != nil {
		return nil, err
	}
	w.key = key
	return w, nil
}

// temporary begins a blob without a key.
func (f *Files) temporary(ctx context.Context) (*fileWriter, error) {
	name := f.path(path.Join(temporaryFolder, f.process+strconv.FormatUint(f.sequence.Add(1), 10)))
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, f.full(err)
	}
	return &fileWriter{files: f, ctx: ctx, file: file, hash: sha256.New()}, nil
}

// CreateFile returns a writer of a file outside of a Store. The file is visible before Commit, and is not synced.
func CreateFile(ctx context.Context, name string) (Writer, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return &fileWriter{ctx: ctx, file: file, hash: sha256.New()}, nil
}

// fileWriter writes one blob of Files, or one file outside.
type fileWriter struct {
	files *Files // nil = CreateFile has opened the file
	ctx   context.Context
	file  *os.File
	key   string // of Files
	hash  hash.Hash
	size  int64

	pipeline *pipeline // of a large blob; nil = none, or ended
	failed   error     // of the ended pipeline
	written  int64
	begun    int64 // bytes that the system writes to the disk already
	ended    bool
}

// writeBack is the number of bytes after which the system begins to write a blob to the disk.
const writeBack = 16 << 20

// Write implements io.Writer.
func (w *fileWriter) Write(b []byte) (n int, err error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	if w.pipeline == nil && w.size+int64(len(b)) >= largeBlob {
		w.pipeline = newPipeline(w.write, w.hash)
	}
	if w.pipeline != nil {
		n, err = w.pipeline.Write(b)
	} else {
		n, err = w.write(b)
		w.hash.Write(b[:n])
	}
	w.size += int64(n)
	return n, w.full(err)
}

// write writes bytes to the file.
func (w *fileWriter) write(b []byte) (int, error) {
	n, err := w.file.Write(b)
	if w.written += int64(n); w.files != nil && w.files.sync && w.written-w.begun >= writeBack {
		startWriting(w.file, w.begun, w.written-w.begun)
		w.begun = w.written
	}
	return n, err
}

// endWrites waits until all bytes are in the file and in the digest.
func (w *fileWriter) endWrites() error {
	if w.pipeline != nil {
		w.failed = errors.Join(w.failed, w.pipeline.end())
		w.pipeline = nil
	}
	return w.full(w.failed)
}

// Fill implements Writer.
func (w *fileWriter) Fill(fill func(path string, room func() error) error) error {
	err := w.endWrites()
	if err == nil {
		err = w.full(fill(w.file.Name(), func() error { return nil }))
	}
	if err == nil {
		_, err = w.file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	w.hash.Reset()
	w.size, err = io.Copy(w.hash, ctxio.Reader(w.ctx, w.file))
	return err
}

// Commit implements Writer.
func (w *fileWriter) Commit() (Info, error) {
	if w.ended {
		return Info{}, os.ErrClosed
	}
	defer w.Discard()
	if err := w.endWrites(); err != nil {
		return Info{}, err
	}
	if w.files != nil && w.files.sync {
		if err := w.file.Sync(); err != nil {
			return Info{}, w.full(err)
		}
	}
	if err := w.file.Close(); err != nil {
		return Info{}, w.full(err)
	}
	if w.files != nil {
		if err := w.files.moveTo(w.key, w.file.Name()); err != nil {
			return Info{}, w.full(err)
		}
	}
	w.ended = true
	return Info{w.size, hexDigest(w.hash)}, nil
}

// full is Files.full for a file of Files, and returns err for a file outside.
func (w *fileWriter) full(err error) error {
	if w.files == nil {
		return err
	}
	return w.files.full(err)
}

// Discard implements Writer.
func (w *fileWriter) Discard() {
	if w.ended {
		return
	}
	w.ended = true
	_ = w.endWrites()
	_ = w.file.Close()
	_ = os.Remove(w.file.Name())
}

// moveTo makes a complete file the blob of a key.
func (f *Files) moveTo(key, file string) error {
	dir := path.Dir(key)
	if err := f.makeFolders(dir); err != nil {
		return err
	}
	if err := os.Rename(file, f.path(key)); err != nil {
		return err
	}
	return f.syncFolder(dir)
}

// Adopt makes a complete file of the same file system the blob of a key, without a copy: the file is there no longer.
// The caller has synced the file.
func (f *Files) Adopt(_ context.Context, file, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return f.moveTo(key, file)
}

// MakeFolder makes the folder of a key.
func (f *Files) MakeFolder(key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return f.makeFolders(path.Dir(key))
}

// OpenAppend opens a blob that grows by writes of the caller, and makes a missing blob with the folder.
func (f *Files) OpenAppend(key string) (*os.File, error) {
	if err := f.MakeFolder(key); err != nil {
		return nil, err
	}
	return os.OpenFile(f.path(key), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// makeFolders makes a folder and the folders above. With sync, each new folder is in the disk's copy of the folder
// above. Many keys share a folder of the first level, which another goroutine or an earlier process may have made and
// not yet synced.
func (f *Files) makeFolders(dir string) error {
	first := !strings.Contains(dir, "/")
	if _, known := f.durable.Load(dir); known {
		return nil
	}
	err := os.Mkdir(f.path(dir), 0o700)
	switch {
	case err == nil, first && errors.Is(err, fs.ErrExist):
		if err := f.syncFolder(path.Dir(dir)); err != nil || !first {
			return err
		}
		f.durable.Store(dir, nil)
		return nil
	case errors.Is(err, fs.ErrExist):
		return nil
	case !errors.Is(err, fs.ErrNotExist) || dir == ".":
		return err
	}
	if err := f.makeFolders(path.Dir(dir)); err != nil {
		return err
	}
	return f.makeFolders(dir)
}

// syncFolder makes the names in a folder durable.
func (f *Files) syncFolder(dir string) error {
	if !f.sync {
		return nil
	}
	return SyncFolder(f.path(dir))
}

// SyncFolder makes the names in a folder durable.
func SyncFolder(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Open implements Store.
func (f *Files) Open(_ context.Context, key string) (Reader, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	file, err := os.Open(f.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, stream.Errorf(stream.NotFound, "", "the stored file %s does not exist", key)
	}
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = stream.Errorf(stream.NotFound, "", "the stored file %s does not exist", key)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return fileReader{file, info.Size()}, nil
}

// Put implements Store.
func (f *Files) Put(ctx context.Context, key string, b []byte) error {
	return f.write(ctx, key, os.O_TRUNC, b)
}

// Append implements Appender.
func (f *Files) Append(ctx context.Context, key string, b []byte) error {
	return f.write(ctx, key, os.O_APPEND, b)
}

// write writes bytes to a blob at once, without a temporary file.
func (f *Files) write(ctx context.Context, key string, flag int, b []byte) error {
	if err := errors.Join(checkKey(key), ctx.Err()); err != nil {
		return err
	}
	file, err := os.OpenFile(f.path(key), os.O_CREATE|os.O_WRONLY|flag, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return stream.Errorf(stream.NotFound, "", "the folder of the stored file %s does not exist", key)
	}
	if err != nil {
		return err
	}
	_, err = file.Write(b)
	return errors.Join(err, file.Close())
}

// List implements Appender.
func (f *Files) List(_ context.Context, folder string) ([]Entry, error) {
	if err := checkKey(folder); err != nil {
		return nil, err
	}
	all, err := os.ReadDir(f.path(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var found []Entry
	for _, d := range all {
		info, failed := d.Info()
		switch {
		case failed == nil && info.Mode().IsRegular():
			found = append(found, Entry{d.Name(), info.Size()})
		case failed != nil && !errors.Is(failed, fs.ErrNotExist):
			err = errors.Join(err, failed)
		}
	}
	return found, err
}

// FileReader returns a reader of an open file of a size. Close closes the file.
func FileReader(f *os.File, size int64) Reader { return fileReader{f, size} }

// fileReader reads one blob of Files, or one file outside.
type fileReader struct {
	*os.File
	size int64
}

// Stamp implements Stamped.
func (r fileReader) Stamp() (Stamp, error) {
	info, err := r.Stat()
	return Stamp{file: info}, err
}

// Size implements Reader.
func (r fileReader) Size() int64 { return r.size }

// Delete implements Store.
func (f *Files) Delete(_ context.Context, prefix string) error {
	if err := checkKey(prefix); err != nil {
		return err
	}
	return os.RemoveAll(f.path(prefix))
}

// Folders implements Lister.
func (f *Files) Folders(ctx context.Context) (found []Folder, err error) {
	err = fs.WalkDir(os.DirFS(f.folder), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir() || name == ".":
			return errors.Join(ignoreMissing(err), ctx.Err())
		case name == temporaryFolder:
			return fs.SkipDir
		case strings.Contains(name, "/"):
			blobs, err := f.List(ctx, name)
			if err != nil {
				return err
			}
			found = append(found, Folder{name, blobs})
			return fs.SkipDir
		}
		return ctx.Err()
	})
	return found, err
}
