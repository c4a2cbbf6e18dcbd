// Package ziptree extracts zip archives of strangers, into a folder or file by file, and packs a folder of strangers
// into a zip archive, all as a stream.
//
// The package owns the rules for names, kinds of files and sizes. An archive or folder that breaks a rule is refused as
// a whole: nothing is skipped. The package must not know tasks or models, and imports nothing of Millrace.
package ziptree

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"millrace/internal/ctxio"
)

// Limits bound an archive or a folder. Each limit must be above 0.
type Limits struct {
	Bytes int64 // of all files, extracted
	Files int   // files and folders
	Ratio int64 // extracted bytes for each byte of the archive; an archive below a MiB counts as a MiB
}

// Error is a broken rule. Other errors are failures to read or write.
type Error struct {
	Name  string // of the file in the archive or folder; "" = the archive or folder itself
	What  string
	Large bool // a limit is exceeded
}

// Error implements error.
func (e *Error) Error() string {
	if e.Name == "" {
		return e.What
	}
	return fmt.Sprintf("%.200q %s", e.Name, e.What)
}

func nameError(name, format string, args ...any) error {
	return &Error{Name: name, What: fmt.Sprintf(format, args...)}
}

func large(name, format string, args ...any) error {
	return &Error{Name: name, What: fmt.Sprintf(format, args...), Large: true}
}

// Bounds of names. File systems refuse longer names.
const (
	maxName  = 255  // bytes of each element of a path
	maxPath  = 1024 // bytes
	maxDepth = 32   // elements
)

// maxDirectory is the largest central directory that is read: the directory is in memory during the extraction.
const maxDirectory = 8 << 20

// Extract extracts the archive of size bytes in r into the folder, which must be empty and must change only by this
// call. Folders get the mode 0755 and files 0644. After an error, the folder may have a part of the files.
func Extract(ctx context.Context, folder *os.Root, r io.ReaderAt, size int64, l Limits) error {
	z, err := open(r, size, l)
	if err != nil {
		return err
	}
	x := newExtraction(folder, size, l)
	for _, f := range z.File {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := x.entry(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// Each calls file with the path and the contents of each file of the archive, in the order of the archive, and writes
// nothing to disk. The paths and kinds of all entries are checked before the first call, and the sizes while the
// contents are read. begin gets the number of files before the first call. The error of a call ends Each.
func Each(ctx context.Context, r io.ReaderAt, size int64, l Limits, begin func(files int) error,
	file func(name string, contents io.Reader) error) error {
	z, err := open(r, size, l)
	if err != nil {
		return err
	}
	x := newExtraction(nil, size, l)
	var files []*zip.File
	for _, f := range z.File {
		isFolder, err := x.check(f)
		if err != nil {
			return err
		}
		if !isFolder {
			files = append(files, f)
		}
	}
	if err := begin(len(files)); err != nil {
		return err
	}
	for _, f := range files {
		if err := x.read(ctx, f, file); err != nil {
			return err
		}
	}
	return nil
}

// read passes the contents of a file to a function.
func (x *extraction) read(ctx context.Context, f *zip.File, to func(name string, contents io.Reader) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.UncompressedSize64 > uint64(max(0, x.remaining)) {
		return x.tooLarge(f.Name)
	}
	in, err := f.Open()
	if err != nil {
		return nameError(f.Name, "cannot be extracted: %v", err)
	}
	defer func() { _ = in.Close() }()
	c := &contents{x: x, name: f.Name, r: in}
	if err := to(f.Name, c); err != nil {
		return err
	}
	return c.err
}

// contents are the contents of a file, within the limits.
type contents struct {
	x    *extraction
	name string
	r    io.Reader
	err  error // of a broken rule
}

// Read implements io.Reader.
func (c *contents) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.r.Read(p)
	if c.x.remaining -= int64(n); c.x.remaining < 0 {
		c.err = c.x.tooLarge(c.name)
		return 0, c.err
	}
	if err != nil && err != io.EOF {
		c.err = nameError(c.name, "cannot be extracted: %v", err)
		err = c.err
	}
	return n, err
}

// open reads the directory of an archive.
func open(r io.ReaderAt, size int64, l Limits) (*zip.Reader, error) {
	directory := &bounded{r: r, remaining: maxDirectory}
	z, err := zip.NewReader(directory, size)
	switch {
	case directory.remaining < 0:
		return nil, large("", "the archive lists more files than are read: its directory is larger than %d MiB",
			maxDirectory>>20)
	case err != nil:
		return nil, nameError("", "the file is no zip archive that can be read: %v", err)
	case len(z.File) > l.Files:
		return nil, large("", "the archive has %d entries: at most %d are extracted", len(z.File), l.Files)
	}
	directory.open = true // from here on the archive is read without this bound
	return z, nil
}

// newExtraction returns the extraction of an archive; without a folder, nothing is written.
func newExtraction(folder *os.Root, size int64, l Limits) *extraction {
	byRatio := max(size, 1<<20) * l.Ratio
	return &extraction{folder: folder, limits: l, remaining: min(l.Bytes, byRatio), byRatio: l.Bytes > byRatio,
		seen: map[string]string{}, buf: make([]byte, 64<<10)}
}

// bounded reads at most remaining bytes until open is set.
type bounded struct {
	r         io.ReaderAt
	remaining int64
	open      bool
}

var errDirectory = errors.New("the directory is too large")

// ReadAt implements io.ReaderAt.
func (b *bounded) ReadAt(p []byte, at int64) (int, error) {
	if !b.open {
		if b.remaining -= int64(len(p)); b.remaining < 0 {
			return 0, errDirectory
		}
	}
	return b.r.ReadAt(p, at)
}

type extraction struct {
	folder    *os.Root // nil = nothing is written
	limits    Limits
	remaining int64 // bytes that may follow
	byRatio   bool  // remaining is from the ratio
	files     int
	seen      map[string]string // paths by their folded form: of files "file", of folders their spelling
	buf       []byte
}

// Name checks the path of a file in an archive or folder: a relative path with slashes, without elements . and .., in
// UTF-8 without control characters and backslashes.
func Name(name string) error {
	switch {
	case name == "" || len(name) > maxPath:
		return nameError(name, "is no usable name: 1 to %d bytes are", maxPath)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return nameError(name, "is no usable name: it has control characters, or is not UTF-8")
	case strings.Contains(name, `\`):
		return nameError(name, "has a backslash in its name")
	case strings.HasPrefix(name, "/") || len(name) > 1 && name[1] == ':':
		return nameError(name, "is an absolute path")
	}
	parts := strings.Split(name, "/")
	if len(parts) > maxDepth {
		return nameError(name, "is more than %d folders deep", maxDepth)
	}
	for _, p := range parts {
		if p == "" || p == "." || p == ".." || len(p) > maxName {
			return nameError(name, "is no usable path: an element is empty, . or .., or longer than %d bytes", maxName)
		}
	}
	return nil
}

// entry extracts one entry of the archive.
func (x *extraction) entry(ctx context.Context, f *zip.File) error {
	isFolder, err := x.check(f)
	if err != nil || isFolder {
		return err
	}
	return x.file(ctx, f.Name, f)
}

// check checks the path and kind of an entry, takes the path, and makes folders.
func (x *extraction) check(f *zip.File) (isFolder bool, err error) {
	name, isFolder := strings.CutSuffix(f.Name, "/")
	if err := Name(name); err != nil {
		return isFolder, err
	}
	switch mode := f.Mode(); {
	case isFolder && mode.Type()&^fs.ModeDir != 0, !isFolder && mode.Type() != 0:
		return isFolder, nameError(name, "is no file or folder (%v): links and devices are refused", mode.Type())
	case f.Flags&1 != 0:
		return isFolder, nameError(name, "is encrypted")
	case isFolder && f.UncompressedSize64 > 0:
		return isFolder, nameError(name, "is a folder with contents")
	}
	if err := x.parents(name); err != nil {
		return isFolder, err
	}
	if isFolder {
		return isFolder, x.makeFolder(name)
	}
	return isFolder, x.claim(name, "file")
}

// claim takes a path for a file or folder. Paths that differ only in letter case are refused, because they are one
// path for some programs.
func (x *extraction) claim(name, as string) error {
	if _, there := x.seen[fold(name)]; there {
		return nameError(name, "is in the archive twice, perhaps with other letter case")
	}
	if x.files++; x.files > x.limits.Files {
		return large("", "the archive has more than %d files and folders", x.limits.Files)
	}
	x.seen[fold(name)] = as
	return nil
}

func fold(name string) string { return strings.ToLower(strings.ToUpper(name)) }

// parents makes the folders above a path.
func (x *extraction) parents(name string) error {
	for i, c := range name {
		if c != '/' {
			continue
		}
		if err := x.makeFolder(name[:i]); err != nil {
			return err
		}
	}
	return nil
}

func (x *extraction) makeFolder(name string) error {
	if spelt, there := x.seen[fold(name)]; there {
		if spelt != "folder "+name {
			return nameError(name, "is in the archive twice, as a file or with other letter case")
		}
		return nil
	}
	if err := x.claim(name, "folder "+name); err != nil {
		return err
	}
	if x.folder == nil {
		return nil
	}
	if err := x.folder.Mkdir(name, 0o755); err != nil {
		return err
	}
	return x.folder.Chmod(name, 0o755) // whatever the umask is
}

// file extracts the contents of a file. The sizes in the archive are not trusted.
func (x *extraction) file(ctx context.Context, name string, f *zip.File) (err error) {
	if f.UncompressedSize64 > uint64(x.remaining) {
		return x.tooLarge(name)
	}
	in, err := f.Open()
	if err != nil {
		return nameError(name, "cannot be extracted: %v", err)
	}
	defer func() { _ = in.Close() }()
	out, err := x.folder.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Chmod(0o644), out.Close()) }()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := in.Read(x.buf)
		if x.remaining -= int64(n); x.remaining < 0 {
			return x.tooLarge(name)
		}
		if _, err := out.Write(x.buf[:n]); err != nil {
			return err
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return nameError(name, "cannot be extracted: %v", err)
		}
	}
}

func (x *extraction) tooLarge(name string) error {
	if x.byRatio {
		return large(name, "makes the extracted files more than %d times as large as the archive", x.limits.Ratio)
	}
	return large(name, "makes the extracted files larger than %d bytes together", x.limits.Bytes)
}

// Size returns the bytes of all files below the folder, and the number of files and folders. Files that vanish
// meanwhile do not count. Size returns early when a limit is exceeded.
func Size(folder *os.Root, l Limits) (bytes int64, files int, err error) {
	err = fs.WalkDir(folder.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || name == "." {
			return nil
		}
		if err != nil {
			return err
		}
		if files++; files > l.Files || bytes > l.Bytes {
			return fs.SkipAll
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes, files, err
}

// List returns the paths of the files and folders below the folder, in order, and checks them: only files and
// folders, within the limits. Nothing may change the folder during the call and until the files are read.
func List(folder *os.Root, l Limits) (paths []fs.FileInfo, names []string, err error) {
	total := int64(0)
	err = fs.WalkDir(folder.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if name == "." || err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if err := Name(name); err != nil {
			return err
		}
		if !info.Mode().IsRegular() && !info.IsDir() {
			return nameError(name, "is no file or folder (%v): links and devices are refused", info.Mode().Type())
		}
		if info.Mode().IsRegular() {
			total += info.Size()
		}
		paths, names = append(paths, info), append(names, name)
		switch {
		case len(names) > l.Files:
			return large("", "the folder has more than %d files and folders", l.Files)
		case total > l.Bytes:
			return large("", "the folder has more than %d bytes", l.Bytes)
		}
		return nil
	})
	return paths, names, err
}

// Pack writes the files and folders below the folder as a zip archive. The rules of List apply.
func Pack(ctx context.Context, w io.Writer, folder *os.Root, l Limits) error {
	infos, names, err := List(folder, l)
	if err != nil {
		return err
	}
	z := zip.NewWriter(w)
	buf := make([]byte, 64<<10)
	for i, name := range names {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: infos[i].ModTime().UTC()}
		h.SetMode(infos[i].Mode().Perm() &^ 0o022)
		if infos[i].IsDir() {
			h.Name, h.Method = name+"/", zip.Store
			h.SetMode(fs.ModeDir | 0o755)
		} else if slices.Contains(compressed, strings.ToLower(path.Ext(name))) {
			h.Method = zip.Store
		}
		to, err := z.CreateHeader(h)
		if err == nil && !infos[i].IsDir() {
			err = Copy(ctx, to, folder, name, infos[i].Size(), buf)
		}
		if err != nil {
			return err
		}
	}
	return z.Close()
}

// compressed are the endings of files that do not get smaller.
var compressed = []string{".zip", ".gz", ".zst", ".xz", ".jpg", ".jpeg", ".png", ".webp", ".mp4", ".webm", ".mp3"}

// Copy writes a file of the folder, which must have the size.
func Copy(ctx context.Context, to io.Writer, folder *os.Root, name string, size int64, buf []byte) error {
	f, err := folder.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	n, err := io.CopyBuffer(struct{ io.Writer }{to}, ctxio.Reader(ctx, io.LimitReader(f, size+1)), buf)
	if err == nil && n != size {
		return nameError(name, "has changed while it was read")
	}
	return err
}
