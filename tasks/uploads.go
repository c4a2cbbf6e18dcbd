package tasks

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/filelock"
	"millrace/stream/coded"
	"millrace/tasks/blob"
)

// uploads are the unfinished uploads of a data folder: for each, a file ID.json with the Upload, and a file ID.part
// with the bytes that have arrived. The modification time of the second file is the time of the newest byte.
type uploads struct {
	store  *Store
	folder string
	sync   bool
	shared bool // other processes use the folder
	expiry time.Duration

	mu    sync.Mutex
	known map[string]*upload
}

// uploadsFolder is the folder of unfinished uploads in a data folder.
const uploadsFolder = "uploads"

// uploadSweep is the time between two searches for uploads that have expired.
const uploadSweep = time.Minute

// openUploads reads the unfinished uploads of a data folder, which is made when missing.
func openUploads(dir string, s *Store, always bool, now time.Time) (*uploads, error) {
	r := &uploads{store: s, folder: filepath.Join(dir, uploadsFolder), sync: always, shared: s.opts.NATS != nil,
		expiry: s.opts.UploadExpiry, known: map[string]*upload{}}
	if err := os.MkdirAll(r.folder, 0o700); err != nil {
		return nil, err
	}
	age := r.expiry
	if !r.shared {
		age = 0
	}
	return r, r.look(now, age)
}

func (r *uploads) description(id string) string { return filepath.Join(r.folder, id+".json") }

func (r *uploads) part(id string) string { return filepath.Join(r.folder, id+".part") }

// look looks at the files: adds the uploads of other processes, removes expired uploads, and removes files from before
// age without an upload, which a process has left that ended in create or remove.
func (r *uploads) look(now time.Time, age time.Duration) error {
	r.mu.Lock()
	before := maps.Clone(r.known)
	r.mu.Unlock()
	entries, err := os.ReadDir(r.folder)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, e := range entries {
		id, kind, _ := strings.Cut(e.Name(), ".")
		if kind != "json" {
			continue
		}
		if u, err := r.get(id); err == nil {
			seen[id] = true
			if err := r.refresh(u, now); err != nil && coded.CodeOf(err) != coded.NotFound {
				return err
			}
		}
	}
	for _, e := range entries {
		id, _, _ := strings.Cut(e.Name(), ".")
		info, err := e.Info()
		if err == nil && !seen[id] && (age == 0 || now.Sub(info.ModTime()) > age) {
			err = os.Remove(filepath.Join(r.folder, e.Name()))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, u := range before {
		if !seen[id] && len(u.turn) == 0 { // another process has finished or removed the upload
			r.drop(u)
		}
	}
	return nil
}

// refresh counts the bytes of an upload that no request uses, and removes the upload when it has expired. Errors:
// NotFound.
func (r *uploads) refresh(u *upload, now time.Time) error {
	select {
	case u.turn <- struct{}{}:
	default:
		return nil
	}
	defer u.release()
	info, err := os.Stat(r.part(u.Task.ID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // being finished
	}
	if err != nil {
		return err
	}
	if now.Sub(info.ModTime()) >= r.expiry {
		return errors.Join(MissingUpload(u.Task.ID), r.remove(u))
	}
	r.store.hold(u.Task.Owner, 0, info.Size()-u.counted)
	u.counted = info.Size()
	return nil
}

// get returns an upload that is known, or read from the folder. Errors: NotFound.
func (r *uploads) get(id string) (*upload, error) {
	if CheckID(id) != nil {
		return nil, MissingUpload(id)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if u := r.known[id]; u != nil {
		return u, nil
	}
	text, err := os.ReadFile(r.description(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, MissingUpload(id)
	}
	u := newUpload(Upload{})
	if err == nil {
		err = json.Unmarshal(text, &u.Upload)
	}
	if err == nil && (u.Task.ID != id || u.Length < 0) {
		err = coded.Errorf(coded.Internal, "", "the description of the upload %s is damaged", id)
	}
	if err != nil {
		return nil, err
	}
	r.add(u)
	return u, nil
}

func newUpload(u Upload) *upload {
	return &upload{Upload: u, turn: make(chan struct{}, 1), hash: sha256.New()}
}

// add and drop begin and end the counting of an upload. The caller holds mu.
func (r *uploads) add(u *upload) {
	r.known[u.Task.ID] = u
	r.store.hold(u.Task.Owner, 1, 0)
}

func (r *uploads) drop(u *upload) {
	if r.known[u.Task.ID] == u {
		delete(r.known, u.Task.ID)
		r.store.hold(u.Task.Owner, -1, -u.counted)
		u.counted = 0
	}
}

// find is get for a request. Errors: NotFound, also for an upload that has expired.
func (r *uploads) find(id string, now time.Time) (*upload, error) {
	u, err := r.get(id)
	if err != nil {
		return nil, err
	}
	return u, r.refresh(u, now)
}

// MissingUpload returns the error about an upload that does not exist.
func MissingUpload(id string) error {
	return coded.Errorf(coded.NotFound, "", "there is no upload %.40q: no byte has arrived for the time "+
		"tasks.upload_expiry, or the upload was removed", id)
}

// openPart opens and locks the file of an upload, and returns the size. The caller has taken the upload. Errors:
// NotFound; Unavailable, while another process has the lock.
func (r *uploads) openPart(u *upload, flag int) (*os.File, int64, error) {
	f, err := os.OpenFile(r.part(u.Task.ID), flag, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, MissingUpload(u.Task.ID)
	}
	if err != nil {
		return nil, 0, err
	}
	err = lockPart(f)
	info, failed := f.Stat()
	if err = errors.Join(err, failed); err != nil {
		return nil, 0, errors.Join(err, filelock.Close(f))
	}
	r.store.hold(u.Task.Owner, 0, info.Size()-u.counted)
	u.counted = info.Size()
	return f, info.Size(), nil
}

// create makes the files of an upload.
func (r *uploads) create(n Upload) (*upload, error) {
	f, err := os.OpenFile(r.part(n.Task.ID), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(n)
	if err != nil {
		return nil, err
	}
	u := newUpload(n)
	r.mu.Lock()
	r.add(u)
	r.mu.Unlock()
	if err := writeFile(r.description(n.Task.ID), text, r.sync); err != nil {
		return nil, errors.Join(err, r.remove(u))
	}
	return u, nil
}

// remove removes an upload with its bytes, forget removes an upload that has become a task.
func (r *uploads) remove(u *upload) error {
	if err := os.Remove(r.part(u.Task.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return r.forget(u)
}

func (r *uploads) forget(u *upload) error {
	if err := os.Remove(r.description(u.Task.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(u)
	return nil
}

// has reports whether the folder has an upload.
func (r *uploads) has(id string) bool {
	_, err := os.Stat(r.description(id))
	return err == nil
}

// Adopter is a Store of blobs that takes over a complete file without a copy.
type Adopter interface {
	// Adopt makes a file of the same file system the blob of a key. The file is there no longer.
	Adopt(ctx context.Context, file, key string) error
}

var _ Adopter = (*blob.Files)(nil)

// place makes the file of a complete upload the input of the task.
func (r *uploads) place(ctx context.Context, blobs blob.Store, u *upload) error {
	from, key := r.part(u.Task.ID), inputKey(u.Task.ID)
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // moved before a restart, see uploadSum
	}
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	if to, ok := blobs.(Adopter); ok {
		if err := to.Adopt(ctx, from, key); !errors.Is(err, syscall.EXDEV) {
			return err
		}
	}
	w, err := blobs.Create(ctx, key)
	if err != nil {
		return err
	}
	defer w.Discard()
	if _, err := io.Copy(w, in); err != nil {
		return err
	}
	if _, err := w.Commit(); err != nil {
		return err
	}
	return os.Remove(from)
}

// NewUpload is the description of an upload.
type NewUpload struct {
	Upload                   // Task has the fields that the client chose
	Admit  func(Usage) error // as in Submission
}

// CreateUpload begins an upload. An unfinished upload counts as a task that waits. A second upload with the
// idempotency key of an earlier upload or task returns the earlier one, and there = true. An upload without bytes is a
// task at once. Errors: as of Submit.
func (d *Data) CreateUpload(ctx context.Context, n NewUpload) (u Upload, there bool, err error) {
	if n.Task.Key != "" {
		if u, there, err = d.earlier(ctx, n.Task.Owner, n.Task.Key); there || err != nil {
			return u, there, err
		}
	}
	release, err := d.admit(&Submission{Task: n.Task, Admit: n.Admit})
	if err != nil {
		return u, false, err
	}
	defer release()
	now := time.Now()
	n.Task.ID, n.Task.Created = newID(now), now.UTC()
	made, err := d.uploads.create(n.Upload)
	if err != nil {
		return u, false, fullError(d.uploads.folder, err)
	}
	u = made.Upload
	if u.Expires = now.Add(d.uploads.expiry); u.Length > 0 {
		return u, false, nil
	}
	if err := made.take(ctx); err != nil {
		return u, false, err
	}
	defer made.release()
	t, err := d.finishUpload(ctx, made)
	return uploadOf(&t), false, err
}

// uploadOf returns the upload that has become a task.
func uploadOf(t *Task) Upload { return Upload{Task: *t, Length: t.Input.Size, Offset: t.Input.Size} }

// earlier looks for an upload or a task with an idempotency key.
func (d *Data) earlier(ctx context.Context, owner, key string) (u Upload, there bool, err error) {
	d.uploads.mu.Lock()
	for _, k := range d.uploads.known {
		if k.Task.Owner == owner && k.Task.Key == key {
			u, there = k.Upload, true
		}
	}
	d.uploads.mu.Unlock()
	if there {
		if u, err = d.Upload(ctx, u.Task.ID); coded.CodeOf(err) != coded.NotFound {
			return u, err == nil, err
		}
	}
	e, err := d.kv.Get(ctx, idempotencyKey(owner, key))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return u, false, nil
	}
	if err != nil {
		return u, false, unavailable(ctx, err)
	}
	t, _, err := d.refresh(ctx, string(e.Value()))
	if coded.CodeOf(err) == coded.NotFound {
		return u, false, nil
	}
	return uploadOf(&t), err == nil, err
}

// UploadExpiry returns the time without a byte after which an unfinished upload is removed.
func (d *Data) UploadExpiry() time.Duration { return d.uploads.expiry }

// UploadTask returns the task of an upload, or the task that the upload has become. Errors: NotFound.
func (d *Data) UploadTask(id string) (Task, error) {
	u, err := d.uploads.find(id, time.Now())
	if err == nil {
		return u.Task, nil
	}
	if t, failed := d.Get(id); failed == nil && coded.CodeOf(err) == coded.NotFound {
		return t, nil
	}
	return Task{}, err
}

// Upload returns an upload, or the upload that has become the task with the id. A part that another request is
// receiving ends, so that the client can continue at Offset. Errors: NotFound.
func (d *Data) Upload(ctx context.Context, id string) (u Upload, err error) {
	of, err := d.uploads.find(id, time.Now())
	if coded.CodeOf(err) == coded.NotFound {
		if t, failed := d.Get(id); failed == nil {
			return uploadOf(&t), nil
		}
	}
	if err != nil {
		return u, err
	}
	return d.offset(ctx, of)
}

// offset returns an upload with the number of bytes that have arrived.
func (d *Data) offset(ctx context.Context, of *upload) (u Upload, err error) {
	if err := of.take(ctx); err != nil {
		return u, err
	}
	defer of.release()
	u = of.Upload
	f, size, err := d.uploads.openPart(of, os.O_RDONLY)
	if err != nil {
		if t, failed := d.Get(u.Task.ID); failed == nil && coded.CodeOf(err) == coded.NotFound {
			return uploadOf(&t), nil
		}
		if coded.CodeOf(err) == coded.NotFound && d.uploads.has(u.Task.ID) { // the record could not be made
			u.Offset = u.Length
			return u, nil
		}
		return u, err
	}
	info, err := f.Stat()
	if err = errors.Join(err, filelock.Close(f)); err != nil {
		return u, err
	}
	u.Offset, u.Expires = size, info.ModTime().Add(d.uploads.expiry).UTC()
	return u, nil
}

// DeleteUpload removes an unfinished upload. Errors: NotFound; Conflict, when the upload has become a task.
func (d *Data) DeleteUpload(ctx context.Context, id string) error {
	u, err := d.uploads.find(id, time.Now())
	if coded.CodeOf(err) == coded.NotFound {
		if _, failed := d.Get(id); failed == nil {
			return coded.Errorf(coded.Conflict, "", "the upload is complete, and is a task now: delete the task")
		}
	}
	if err != nil {
		return err
	}
	if err := u.take(ctx); err != nil {
		return err
	}
	defer u.release()
	return d.uploads.remove(u)
}

// RunUploads makes tasks of the complete uploads that an earlier process has left, and removes uploads that have
// expired, until ctx ends.
func (d *Data) RunUploads(ctx context.Context) {
	d.finishUploads(ctx)
	every := time.NewTicker(min(uploadSweep, d.uploads.expiry))
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-every.C:
			if err := d.uploads.look(now, d.uploads.expiry); err != nil {
				d.opts.Log.Warn("the unfinished uploads of tasks cannot be read", "error", err)
			}
			d.finishUploads(ctx)
		}
	}
}

// finishUploads makes tasks of complete uploads.
func (d *Data) finishUploads(ctx context.Context) {
	d.uploads.mu.Lock()
	var all []*upload
	for _, u := range d.uploads.known {
		all = append(all, u)
	}
	d.uploads.mu.Unlock()
	for _, u := range all {
		if err := d.finishLeft(ctx, u); err != nil && ctx.Err() == nil {
			d.opts.Log.Warn("an upload is complete and cannot become a task", "upload", u.Task.ID, "error", err)
		}
	}
}

// finishLeft makes a task of an upload if the upload is complete, and no request uses the upload.
func (d *Data) finishLeft(ctx context.Context, u *upload) error {
	select {
	case u.turn <- struct{}{}:
	default:
		return nil // a request uses the upload
	}
	defer u.release()
	info, err := os.Stat(d.uploads.part(u.Task.ID))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		in, failed := d.blobs.Open(ctx, inputKey(u.Task.ID))
		if coded.CodeOf(failed) == coded.NotFound { // the removal of the upload was interrupted
			return d.uploads.forget(u)
		}
		if failed != nil {
			return failed
		}
		_ = in.Close()
	case err != nil:
		return err
	case info.Size() < u.Length:
		return nil
	}
	_, err = d.finishUpload(ctx, u)
	return err
}
