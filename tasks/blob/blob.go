// Package blob keeps the bytes of tasks: inputs, results and logs. A blob is written once and read many times.
// The package must not know what a blob means.
package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"

	"millrace/stream"
)

// Store keeps blobs by key, such as "7f/7f3a.../input". All methods are safe for concurrent use.
type Store interface {
	// Create begins a blob. The blob exists when Commit has returned nil. A blob with the same key is replaced.
	Create(ctx context.Context, key string) (Writer, error)
	// Open opens a blob. Errors: NotFound.
	Open(ctx context.Context, key string) (Reader, error)
	// Put stores a small blob in one call. Unlike Commit, Put does not wait for the disk. Errors: NotFound, when the
	// store has folders, and the folder of the key does not exist: the record of a deleted task makes no folder.
	Put(ctx context.Context, key string, b []byte) error
	// Delete deletes the blobs whose keys begin with prefix + "/", and the blob with the key prefix. Missing blobs
	// are no error.
	Delete(ctx context.Context, prefix string) error
}

// Lister lists the blobs of a Store.
type Lister interface {
	// Folders returns the folders whose keys have two elements, such as "7f/7f3a...", with the blobs directly in them.
	Folders(ctx context.Context) ([]Folder, error)
}

// Folder is a folder of blobs.
type Folder struct {
	Key   string
	Blobs []Entry
}

// Size returns the size of a blob of the folder, 0 for a missing blob.
func (f *Folder) Size(name string) int64 {
	for _, e := range f.Blobs {
		if e.Name == name {
			return e.Size
		}
	}
	return 0
}

// Appender keeps blobs that grow while readers read the blobs, such as logs. All methods are safe for concurrent use.
// Calls of Append for one key must not overlap.
type Appender interface {
	// Append adds bytes to the end of a blob, and makes a missing blob. Readers see the bytes at once. The bytes are
	// durable when the operating system has written the file. Errors: NotFound, when the folder of the key does not
	// exist: the log of a deleted task makes no folder.
	Append(ctx context.Context, key string, b []byte) error
	// List returns the blobs directly in a folder, sorted by name. A missing folder has none.
	List(ctx context.Context, folder string) ([]Entry, error)
}

// Entry is a blob of a folder.
type Entry struct {
	Name string // the last element of the key
	Size int64
}

// Writer writes one blob. Exactly one of Commit and Discard ends the writing.
type Writer interface {
	io.Writer
	// Fill lets a program write the whole blob, instead of Write: fill returns when the program has written the file
	// with this path, and calls room again and again meanwhile, which returns an error when the disk has too little
	// room. Fill then reads the file for the digest.
	Fill(fill func(path string, room func() error) error) error
	// Commit makes the blob durable and visible, and returns its size and digest.
	Commit() (Info, error)
	// Discard removes what was written. Discard after Commit does nothing.
	Discard()
}

// Reader reads one blob from any offset.
type Reader interface {
	io.ReadSeekCloser
	io.ReaderAt
	Size() int64
}

// Stamped is a Reader that names the version of the blob.
type Stamped interface {
	Reader
	Stamp() (Stamp, error)
}

// Stamp names a version of a blob: a blob that was replaced or written has another Stamp. A disk that changes bytes by
// itself does not change the Stamp.
type Stamp struct {
	file fs.FileInfo // nil = none
	etag string
}

// Same reports whether both name one version.
func (s Stamp) Same(o Stamp) bool {
	if s.file == nil || o.file == nil {
		return s.file == o.file && s.etag == o.etag
	}
	return os.SameFile(s.file, o.file) && s.file.Size() == o.file.Size() && s.file.ModTime().Equal(o.file.ModTime())
}

// Info describes a blob.
type Info struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // 64 hexadecimal digits
}

// ErrDamaged is wrapped by the errors of blobs with other bytes than were stored.
var ErrDamaged = errors.New("a stored file is damaged")

// Check reads r to its end and returns an error if size or digest differ from the info.
func (i Info) Check(r io.Reader) error {
	h := sha256.New()
	buf := make([]byte, max(1, min(i.Size+1, 64<<10))) // without more than the blob needs
	n, err := io.CopyBuffer(h, struct{ io.Reader }{r}, buf)
	if err != nil {
		return err
	}
	if got := (Info{n, hexDigest(h)}); got != i {
		return Damaged(got, i)
	}
	return nil
}

// Damaged returns the error of a blob with other bytes than were stored.
func Damaged(got, want Info) error {
	return stream.Errorf(stream.Internal, "", "%w: %d bytes with SHA-256 %s, not %d bytes with %s",
		ErrDamaged, got.Size, got.SHA256, want.Size, want.SHA256)
}

func hexDigest(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }
