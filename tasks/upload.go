package tasks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ctxio"
	"millrace/internal/filelock"
	"millrace/stream/coded"
	"millrace/tasks/blob"
)

// Upload is the input of a later task, which arrives in parts. The task has the id of the upload.
type Upload struct {
	Task     Task   `json:"task"` // the fields that the client chose, with ID, Owner and Created
	Length   int64  `json:"length"`
	SHA256   string `json:"sha256,omitempty"`   // of the whole input, as the client announced; "" = not announced
	Metadata string `json:"metadata,omitempty"` // the text that describes the upload, as the client sent the text

	Offset  int64     `json:"-"` // bytes that have arrived
	Expires time.Time `json:"-"` // when the upload is removed unless further bytes arrive; zero = the task exists
}

// UploadPart is a part of an upload.
type UploadPart struct {
	Offset int64                 // of the first byte
	Data   func(io.Writer) error // writes the bytes; the bytes before an error are kept
	Stop   func()                // ends Data, because another request continues the upload; called by any goroutine
	Admit  func(Usage) error     // like Submission.Admit, called before each piece; Usage.Waiting is not to be compared
}

// upload is an unfinished upload that this process knows.
type upload struct {
	Upload
	turn chan struct{} // holds an element while a request uses the file

	mu      sync.Mutex
	stop    func() // ends the present part; nil = there is none
	stopped bool   // the present part has to end

	// The following fields belong to the holder of turn.
	counted int64     // bytes in the use of the owner
	hash    hash.Hash // of the first hashed bytes
	hashed  int64
}

var errContinued = coded.Errorf(coded.Conflict, "", "another request continues the upload")

// take waits until no other request uses the file, and ends a part that another request is receiving: the connection
// of that request may be broken.
func (u *upload) take(ctx context.Context) error {
	for {
		select {
		case u.turn <- struct{}{}:
			return nil
		default:
		}
		u.mu.Lock()
		u.stopped = true
		if u.stop != nil {
			u.stop()
		}
		u.mu.Unlock()
		select {
		case u.turn <- struct{}{}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// begin says how another request ends the part that begins.
func (u *upload) begin(stop func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.stop = stop; u.stopped && stop != nil {
		stop()
	}
}

// release ends take.
func (u *upload) release() {
	u.mu.Lock()
	u.stop, u.stopped = nil, false
	u.mu.Unlock()
	<-u.turn
}

func (u *upload) isStopped() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.stopped
}

// uploadWriter writes a part of an upload.
type uploadWriter struct {
	of    *upload
	store *Store
	file  *os.File
	admit func(Usage) error
	size  int64 // of the file
}

// Write implements io.Writer.
func (w *uploadWriter) Write(b []byte) (int, error) {
	switch {
	case w.of.isStopped():
		return 0, errContinued
	case int64(len(b)) > w.of.Length-w.size:
		return 0, coded.Errorf(coded.TooLarge, "Upload-Length", "the upload has more than the announced %d bytes",
			w.of.Length)
	}
	if err := w.store.room(w.of.Task.Owner, w.admit); err != nil {
		return 0, err
	}
	if w.size/roomStep != (w.size+int64(len(b)))/roomStep {
		if err := checkRoom(w.store.blobs, inputReserve); err != nil {
			return 0, err
		}
	}
	n, err := w.file.Write(b)
	if w.of.hashed == w.size {
		w.of.hash.Write(b[:n])
		w.of.hashed += int64(n)
	}
	w.size += int64(n)
	w.store.hold(w.of.Task.Owner, 0, int64(n))
	w.of.counted += int64(n)
	return n, err
}

// AppendUpload appends a part to an upload, and ends a part that another request is receiving. With the last byte, the
// upload becomes a task, which is returned; then an upload has no further parts. Errors: NotFound; Conflict, for
// another offset than of the end; TooLarge; InvalidArgument, for another SHA-256 than announced, which removes the
// upload; the error of Data.
func (d *Data) AppendUpload(ctx context.Context, id string, p UploadPart) (offset int64, task *Task, err error) {
	defer func() { err = fullError(d.uploads.folder, err) }()
	u, err := d.uploads.find(id, time.Now())
	if err != nil {
		return d.appended(id, p.Offset, err)
	}
	if err := u.take(ctx); err != nil {
		return 0, nil, err
	}
	defer u.release()
	file, size, err := d.uploads.openPart(u, os.O_WRONLY|os.O_APPEND)
	if coded.CodeOf(err) == coded.NotFound && d.uploads.has(id) { // moved, and the record could not be made
		t, err := d.finishUpload(ctx, u)
		return u.Length, &t, err
	}
	if err != nil {
		return d.appended(id, p.Offset, err)
	}
	defer func() { _ = filelock.Close(file) }()
	if p.Offset != size {
		return size, nil, wrongOffset(p.Offset, size)
	}
	if err := checkRoom(d.blobs, inputReserve); err != nil {
		return size, nil, err
	}
	u.begin(p.Stop)
	w := &uploadWriter{of: u, store: d.Store, file: file, admit: p.Admit, size: size}
	err = p.Data(w)
	if d.uploads.sync {
		err = errors.Join(err, file.Sync())
	}
	if err != nil || w.size < u.Length {
		return w.size, nil, err
	}
	t, err := d.finishUpload(ctx, u)
	if err != nil {
		return w.size, nil, err
	}
	return w.size, &t, nil
}

// appended returns the task that an upload has become: a client repeats the last part when the answer was lost. err is
// the error without such a task.
func (d *Data) appended(id string, offset int64, err error) (int64, *Task, error) {
	t, failed := d.Get(id)
	switch {
	case failed != nil || coded.CodeOf(err) != coded.NotFound:
		return 0, nil, err
	case offset != t.Input.Size:
		return t.Input.Size, nil, wrongOffset(offset, t.Input.Size)
	}
	return t.Input.Size, &t, nil
}

func wrongOffset(got, want int64) error {
	return coded.Errorf(coded.Conflict, "Upload-Offset", "is %d, and the upload has %d bytes: continue at %d", got,
		want, want)
}

// finishUpload makes the task of a complete upload. The caller has taken the upload. A process that ends in between
// leaves an upload that finishUpload makes a task later.
func (d *Data) finishUpload(ctx context.Context, u *upload) (t Task, err error) {
	ctx = context.WithoutCancel(ctx) // the client may leave after the last byte
	sum, err := d.uploadSum(ctx, u)
	if err != nil {
		return t, err
	}
	if u.SHA256 != "" && sum != u.SHA256 {
		return t, errors.Join(coded.Errorf(coded.InvalidArgument, "sha256",
			"the %d bytes of the input have the SHA-256 %s, not %s: the upload is removed, begin again", u.Length, sum,
			u.SHA256), d.uploads.remove(u))
	}
	t = u.Task
	t.Input.Info = blob.Info{Size: u.Length, SHA256: sum}
	t.Created = d.now().wall
	t.queue()
	if t.Key != "" {
		old, there, err := d.reserveKey(ctx, &t)
		if there && old.ID != t.ID {
			return t, errors.Join(coded.Errorf(coded.Conflict, "Idempotency-Key",
				"the task %s has the key already: the upload is removed", old.ID), d.uploads.remove(u))
		}
		if err != nil {
			return t, err
		}
	}
	if err := d.uploads.place(ctx, d.blobs, u); err != nil {
		return t, err
	}
	if t, err = d.createRecord(ctx, t); err != nil {
		return t, err
	}
	return t, d.uploads.forget(u)
}

// createRecord makes the record of a new task with its input; a task that exists is returned.
func (s *Store) createRecord(ctx context.Context, t Task) (Task, error) {
	revision, err := s.kv.Create(ctx, taskPrefix+t.ID, encode(t, contents{}))
	if errors.Is(err, jetstream.ErrKeyExists) {
		t, _, err := s.refresh(ctx, t.ID)
		return t, err
	}
	if err != nil {
		return t, unavailable(ctx, err)
	}
	s.apply(t.ID, &t, revision)
	return t, nil
}

// uploadSum returns the SHA-256 of a complete upload. After a restart, the file is read again.
func (d *Data) uploadSum(ctx context.Context, u *upload) (string, error) {
	if u.hashed == u.Length {
		return hex.EncodeToString(u.hash.Sum(nil)), nil
	}
	var in io.ReadCloser
	in, err := os.Open(d.uploads.part(u.Task.ID))
	if errors.Is(err, fs.ErrNotExist) { // moved before a restart
		in, err = d.blobs.Open(ctx, inputKey(u.Task.ID))
	}
	if err != nil {
		return "", err
	}
	h := sha256.New()
	n, err := io.Copy(h, ctxio.Reader(ctx, in))
	if err = errors.Join(err, in.Close()); err == nil && n != u.Length {
		err = coded.Errorf(coded.Internal, "", "the upload %s has %d bytes, not %d", u.Task.ID, n, u.Length)
	}
	return hex.EncodeToString(h.Sum(nil)), err
}

// lockPart takes the lock of the file of an upload, which another process of a shared folder may have.
func lockPart(f *os.File) error {
	err := filelock.TryLock(f)
	if errors.Is(err, filelock.ErrLocked) {
		return coded.Errorf(coded.Unavailable, "", "another server receives a part of the upload: try again")
	}
	return err
}
