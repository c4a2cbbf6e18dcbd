package tasks

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ctxio"
	"millrace/stream/coded"
	"millrace/tasks/blob"
)

// Options configure a Store. Zero fields take their defaults.
type Options struct {
	Lease      time.Duration // a running task without a renewal for this time is queued again; default 30 s
	Retention  time.Duration // from the end of a task to its deletion; default 7 days
	MaxWaiting int           // tasks that have not ended, at most; default 100,000
	MaxBytes   int64         // stored bytes of inputs, results and logs from which tasks are refused; default 64 GiB

	UploadExpiry time.Duration // an unfinished upload without a further byte for this time is removed; default 24 h

	S3   *blob.S3Options // keeps inputs and results, without Temp; nil = the data folder does
	NATS *NATS           // keeps the records, and other processes share the data folder; nil = embedded
	Log  *slog.Logger

	clock func() moment // of the tests; nil = of the machine
	alone bool          // this Store makes all changes of the bucket
	small bool          // small contents are in the record, when the blobs are files
	blobs bool          // of the tests: OpenData keeps all contents in blobs
}

func (o Options) filled() Options {
	o.Lease = cmp.Or(o.Lease, 30*time.Second)
	o.Retention = cmp.Or(o.Retention, 7*24*time.Hour)
	o.MaxWaiting = cmp.Or(o.MaxWaiting, 100_000)
	o.MaxBytes = cmp.Or(o.MaxBytes, 64<<30)
	o.UploadExpiry = cmp.Or(o.UploadExpiry, 24*time.Hour)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.clock == nil {
		o.clock = readClock
	}
	return o
}

// Store keeps tasks. All methods are safe for concurrent use.
type Store struct {
	opts  Options
	kv    jetstream.KeyValue
	blobs Blobs
	files *blob.Files // the blobs, when small contents are in the record; nil = all contents are blobs

	verified verified // results
	finished finishedLog
	begun    begunLog
	recent   recentContents

	logMu      sync.Mutex // held while a log grows
	mu         sync.Mutex
	index      index
	submitting map[string]int // submissions in progress, by owner
	refusedIDs []string       // of submissions that the disk has refused
	leftovers  []string       // keys of blobs to delete later
	notDeleted bool           // the newest deletion has failed, and the log has the error
}

// Blobs keep the files of a Store.
type Blobs interface {
	blob.Store
	blob.Lister
	blob.Appender
	blob.Room
}

// Open opens the tasks of a broker and their files, and returns when the index holds every task.
func Open(ctx context.Context, b *Broker, blobs Blobs, o Options) (*Store, error) {
	o = o.filled()
	kv, err := b.bucket(ctx)
	if err != nil {
		return nil, err
	}
	s := &Store{opts: o, kv: boundedKV{kv, &sharedTimeout{}}, blobs: blobs, index: newIndex(o),
		submitting: map[string]int{}}
	if o.small {
		s.files, _ = blobs.(*blob.Files)
	}
	watching, end := context.WithCancel(context.WithoutCancel(ctx))
	w, err := kv.WatchAll(watching)
	if err != nil {
		end()
		return nil, err
	}
	if err := s.load(ctx, w); err != nil {
		err = errors.Join(err, w.Stop())
		end()
		return nil, err
	}
	s.index.counts.open = true
	s.stopFollowing(w)
	if len(s.index.tasks) > manyTasks {
		debug.FreeOSMemory() // what the reading has used, which can be more than the index
	}
	go func() {
		defer end() // a goroutine of the watcher waits for the end of watching
		s.follow(watching, b, kv, w)
	}()
	return s, nil
}

// manyTasks is the number of tasks from which the start gives memory back to the system.
const manyTasks = 10_000

// load reads the records that the bucket has at the start.
func (s *Store) load(ctx context.Context, w jetstream.KeyWatcher) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-w.Updates():
			switch {
			case !ok:
				return coded.Errorf(coded.Unavailable, "", "the task store ended the connection")
			case e == nil:
				return nil
			}
			s.applyEntry(e)
		}
	}
}

// stopFollowing ends the reports of a watcher that has read all records, when there are no changes by others.
func (s *Store) stopFollowing(w jetstream.KeyWatcher) (stopped bool) {
	if !s.opts.alone {
		return false
	}
	_ = w.Stop() // fails after the end of the connection only
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index.followed = false
	clear(s.index.tombstones)
	return true
}

// follow applies the changes of all processes until the broker is closed. After another start of an embedded server,
// and after a change of unknown outcome, follow reads all records again.
func (s *Store) follow(ctx context.Context, b *Broker, kv jetstream.KeyValue, w jetstream.KeyWatcher) {
	var reread <-chan struct{}
	own, _ := kv.(*ownBucket)
	if own != nil {
		reread = own.reread
	}
	updates := w.Updates()
	for {
		select {
		case e, ok := <-updates:
			switch {
			case !ok && reread == nil:
				return
			case !ok:
				updates = nil
			case e == nil:
				s.removeRefused(ctx)
				if s.stopFollowing(w) {
					updates = nil
				}
			default:
				s.applyEntry(e)
			}
		case <-reread:
			_ = w.Stop() // of a connection that is closed
			s.mu.Lock()
			s.index.followed = true
			s.mu.Unlock()
			next, err := kv.WatchAll(ctx)
			if err != nil {
				s.opts.Log.Warn("the records of tasks cannot be read again yet: trying again", "error", err)
				updates = nil
				time.AfterFunc(restartPause, own.signalReread)
				continue
			}
			w, updates = next, next.Updates()
		case <-b.closed:
			return
		}
	}
}

// removeRefused deletes the files of submissions that the disk of an embedded server has refused, unless the record is
// there after another start of the server.
func (s *Store) removeRefused(ctx context.Context) {
	s.mu.Lock()
	ids := s.refusedIDs
	s.refusedIDs = nil
	ids = slices.DeleteFunc(ids, func(id string) bool { return s.index.tasks[id] != nil })
	s.mu.Unlock()
	for _, id := range ids {
		if err := s.blobs.Delete(ctx, folder(id)); err != nil {
			s.opts.Log.Warn("the files of a refused submission cannot be removed: the next start removes the files",
				"task", id, "error", err)
		}
	}
}

// applyEntry applies one entry of the bucket.
func (s *Store) applyEntry(e jetstream.KeyValueEntry) {
	id, ok := idOf(e.Key())
	if !ok {
		return
	}
	if s.knows(id, e.Revision()) {
		return // a change by this process
	}
	var t *Task
	if e.Operation() == jetstream.KeyValuePut {
		of, _, err := decode(e.Value())
		if err != nil || of.ID != id {
			s.opts.Log.Error("the record of a task is damaged", "task", id, "error", err)
			return
		}
		t = &of
	}
	s.apply(id, t, e.Revision())
}

// knows reports whether the index has this revision of a task or a later one.
func (s *Store) knows(id string, revision uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.index.tasks[id]
	return e != nil && e.revision >= revision
}

// apply puts a revision of a task into the index; nil = the task is deleted.
func (s *Store) apply(id string, t *Task, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index.put(id, t, revision, s.now())
}

// taskPrefix begins the keys of records. The rest is the id.
const taskPrefix = "t."

func idOf(key string) (id string, ok bool) {
	if len(key) != len(taskPrefix)+32 || key[:len(taskPrefix)] != taskPrefix {
		return "", false
	}
	return key[len(taskPrefix):], true
}

// Submission is a new task.
type Submission struct {
	Task                         // the fields that a client may choose
	Data func(blob.Writer) error // writes the input
	// Admit returns an error when the owner, who has this usage, may submit no further task. Admit must not block, nor
	// call the Store; nil = any owner may.
	Admit func(Usage) error
	File  bool // the input is a file also when it is small: a program reads the input
}

// Submit stores a task and returns the task when task and input are durable. A second submission with the key of an
// earlier one returns the earlier task, and there = true. Errors: Overloaded (Options.MaxWaiting).
func (s *Store) Submit(ctx context.Context, n Submission) (t Task, there bool, err error) {
	release, err := s.admit(&n)
	if err != nil {
		return Task{}, false, err
	}
	defer release()
	t = n.Task
	t.Created = s.now().wall
	t.ID = newID(t.Created)
	t.queue()
	if err := checkRoom(s.blobs, inputReserve); err != nil {
		return Task{}, false, err
	}
	w, err := s.create(ctx, inputKey(t.ID), n.File)
	if err != nil {
		return Task{}, false, err
	}
	defer w.Discard()
	if err := n.Data(&reserving{Writer: w, blobs: s.blobs, keep: inputReserve}); err != nil {
		return Task{}, false, err
	}
	if t.Input.Info, err = w.Commit(); err != nil {
		return Task{}, false, errors.Join(err, s.deleteBlobs(context.WithoutCancel(ctx), folder(t.ID)))
	}
	c := contents{InputData: w.data}
	t.inputSmall = w.data != nil
	if t.Key != "" {
		old, there, err := s.reserveKey(ctx, &t)
		if there || err != nil {
			return old, there, errors.Join(err, s.deleteBlobs(context.WithoutCancel(ctx), folder(t.ID)))
		}
	}
	revision, err := s.kv.Create(ctx, taskPrefix+t.ID, encode(t, c))
	if err != nil {
		return Task{}, false, s.createFailed(ctx, t.ID, err)
	}
	s.recent.put(t.ID, c)
	s.apply(t.ID, &t, revision)
	return t, false, nil
}

// queue sets the fields of a new task that a client cannot choose.
func (t *Task) queue() {
	t.State, t.Queued, t.Attempt = Queued, t.Created, 0
	t.Attempts = cmp.Or(t.Attempts, 3)
	t.LastAttempt = t.Attempts
}

// createFailed returns why a record was not made. The input is deleted only if the bucket has refused the record:
// without an answer, or after an error of the disk, the record may exist.
func (s *Store) createFailed(ctx context.Context, id string, err error) error {
	var failed *coded.Error
	if errors.As(err, &failed) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refusedIDs = append(s.refusedIDs, id)
		return err
	}
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return unavailable(ctx, err)
	}
	return errors.Join(unavailable(ctx, err), s.deleteBlobs(context.WithoutCancel(ctx), folder(id)))
}

// admit takes a place for a submission, until release. Errors: Overloaded, or the error of Submission.Admit.
func (s *Store) admit(n *Submission) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	use := Usage{Waiting: s.submitting[n.Owner]}
	if u := s.index.usage[n.Owner]; u != nil {
		use.Waiting, use.Bytes = use.Waiting+u.Waiting, u.Bytes
	}
	if n.Admit != nil {
		if err := n.Admit(use); err != nil {
			return nil, err
		}
	}
	all := s.index.counts.waiting() + s.index.uploads
	for _, of := range s.submitting {
		all += of
	}
	if all >= s.opts.MaxWaiting {
		return nil, coded.Errorf(coded.Overloaded, "tasks.max_waiting",
			"%d tasks wait or run, as many as allowed: submit again later", all)
	}
	if s.index.bytes >= s.opts.MaxBytes {
		return nil, errFull()
	}
	s.submitting[n.Owner]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.submitting[n.Owner]--; s.submitting[n.Owner] == 0 {
			delete(s.submitting, n.Owner)
		}
	}, nil
}

func errFull() error {
	return coded.Errorf(coded.Overloaded, "tasks.max_bytes",
		"inputs, results and logs have as many bytes as allowed: delete tasks, or submit again later")
}

// hold counts unfinished uploads of an owner and their bytes, also with negative numbers.
func (s *Store) hold(owner string, uploads int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index.uploads += uploads
	s.index.count(owner, uploads, uploads, bytes)
}

// room returns an error when an owner, or the store, may have no further bytes.
func (s *Store) room(owner string, admit func(Usage) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var use Usage
	if u := s.index.usage[owner]; u != nil {
		use = *u
	}
	if s.index.bytes >= s.opts.MaxBytes {
		return errFull()
	}
	if admit == nil {
		return nil
	}
	return admit(use)
}

// Another submission with the same key makes its record within reserveTries times reservePause, unless its process
// ended.
const (
	reserveTries = 20
	reservePause = 100 * time.Millisecond
)

// reserveKey makes t the task of its idempotency key, after the input of t is stored: a submission that fails before
// reserves nothing. When an earlier submission has the key, reserveKey returns the earlier task, and there = true.
func (s *Store) reserveKey(ctx context.Context, t *Task) (old Task, there bool, err error) {
	name := idempotencyKey(t.Owner, t.Key)
	for try := 0; ; try++ {
		_, err := s.kv.Create(ctx, name, []byte(t.ID))
		if !errors.Is(err, jetstream.ErrKeyExists) {
			return Task{}, false, unavailable(ctx, err)
		}
		e, err := s.kv.Get(ctx, name)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			continue // the task was deleted meanwhile
		}
		if err != nil {
			return Task{}, false, unavailable(ctx, err)
		}
		if string(e.Value()) == t.ID {
			return Task{}, false, nil // reserved before a restart, see finishUpload
		}
		old, _, err := s.refresh(ctx, string(e.Value()))
		if coded.CodeOf(err) != coded.NotFound {
			return old, err == nil, err
		}
		if try == reserveTries {
			_, err := s.kv.Update(ctx, name, []byte(t.ID), e.Revision())
			return Task{}, false, unavailable(ctx, err)
		}
		ctxio.Sleep(ctx, reservePause)
		if err := ctx.Err(); err != nil {
			return Task{}, false, err
		}
	}
}

// refresh reads a task from the bucket, when another process made the newest change. Errors: NotFound.
func (s *Store) refresh(ctx context.Context, id string) (Task, uint64, error) {
	e, err := s.kv.Get(ctx, taskPrefix+id)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		if time.Since(submitted(id)) > replicaLag {
			s.forget(id)
		}
		return Task{}, 0, Missing(id)
	}
	if err != nil {
		return Task{}, 0, unavailable(ctx, err)
	}
	s.applyEntry(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.index.tasks[id]; e != nil {
		return e.Task, e.revision, nil
	}
	return Task{}, 0, Missing(id)
}

// replicaLag is the age from which every NATS server that answers a read has the record of a submitted task.
const replicaLag = time.Minute

// forget removes a task that the bucket no longer has: the deletion by another process may be too old to be reported.
func (s *Store) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index.delete(id, s.now())
}

// Get returns a task. Errors: NotFound.
func (s *Store) Get(id string) (Task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.index.tasks[id]; e != nil {
		return e.Task, nil
	}
	return Task{}, Missing(id)
}

// Missing returns the error about a task that does not exist.
func Missing(id string) error {
	if err := CheckID(id); err != nil {
		return err
	}
	return coded.Errorf(coded.NotFound, "", "there is no task %s: it was deleted, or its retention is over", id)
}

// unavailable returns the error of a broker that cannot be reached; nil for nil. When ctx has ended, the error is about
// the end of ctx.
func unavailable(ctx context.Context, err error) error {
	var known *coded.Error // of the disk
	if err == nil || ctx.Err() != nil || errors.As(err, &known) {
		return err
	}
	return coded.Errorf(coded.Unavailable, "", "the task store does not answer: %w", err)
}

// Wait returns a task when its revision differs from the one at the call, when the task has ended, or when ctx ends.
func (s *Store) Wait(ctx context.Context, id string) (Task, error) {
	s.mu.Lock()
	e := s.index.tasks[id]
	if e == nil || e.State.Ended() {
		s.mu.Unlock()
		return s.Get(id)
	}
	changed := e.changeChan()
	s.mu.Unlock()
	select {
	case <-changed:
	case <-ctx.Done():
	}
	return s.Get(id)
}

// WaitEnd returns a task when the task has ended, or when ctx ends. Errors: NotFound.
func (s *Store) WaitEnd(ctx context.Context, id string) (Task, error) {
	s.mu.Lock()
	e := s.index.tasks[id]
	if e == nil || e.State.Ended() {
		s.mu.Unlock()
		return s.Get(id)
	}
	if e.endSignal == nil {
		e.endSignal = make(chan struct{})
	}
	ended := e.endSignal
	s.mu.Unlock()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return s.Get(id)
}

// errStale is the error of a change that another process has made impossible.
var errStale = coded.Errorf(coded.Conflict, "", "another process has changed the task meanwhile")

// change changes a task by f, which gets a copy. When another process was faster, f is called again with the newer
// task.
func (s *Store) change(ctx context.Context, id string, f func(*Task) error) (Task, error) {
	for {
		s.mu.Lock()
		e := s.index.tasks[id]
		if e == nil {
			s.mu.Unlock()
			return Task{}, Missing(id)
		}
		t, revision := e.Task, e.revision
		s.mu.Unlock()
		if err := f(&t); err != nil {
			return t, err
		}
		switch _, err := s.write(ctx, t, nil, revision); {
		case err == nil:
			return t, nil
		case !errors.Is(err, errStale):
			return Task{}, err
		}
		if _, _, err := s.refresh(ctx, id); err != nil {
			return Task{}, err
		}
	}
}

// write replaces one revision of a task, and returns the new revision. The contents stay when c is nil. Errors:
// errStale.
func (s *Store) write(ctx context.Context, t Task, c *contents, revision uint64) (uint64, error) {
	if c == nil {
		now, err := s.contents(ctx, &t, revision)
		if err != nil {
			return 0, err
		}
		c = &now
	}
	return s.update(ctx, t, encode(t, *c), revision)
}

// update is write with the value of the record.
func (s *Store) update(ctx context.Context, t Task, value []byte, revision uint64) (uint64, error) {
	release, err := s.reserveChange(&t)
	if err != nil {
		return 0, err
	}
	defer release()
	next, err := s.kv.Update(ctx, taskPrefix+t.ID, value, revision)
	if revisionConflict(err) {
		return 0, errStale
	}
	if err != nil {
		return 0, unavailable(ctx, err)
	}
	s.apply(t.ID, &t, next)
	return next, nil
}

// Cancel cancels a task that has not ended. The claim of the consumer that runs the task ends. Errors: NotFound;
// Conflict.
func (s *Store) Cancel(ctx context.Context, id string) (Task, error) {
	return s.cancel(ctx, id, nil)
}

// Retry queues a task that has ended without a result, with as many attempts as before. admit is as in Submission.
// Errors: NotFound; Conflict; as of Submit.
func (s *Store) Retry(ctx context.Context, id string, admit func(Usage) error) (Task, error) {
	t, err := s.Get(id)
	if err != nil {
		return t, err
	}
	release, err := s.admit(&Submission{Task: Task{Owner: t.Owner}, Admit: admit})
	if err != nil {
		return t, err
	}
	defer release()
	return s.change(ctx, id, func(t *Task) error {
		switch {
		case !t.State.Ended():
			return coded.Errorf(coded.Conflict, "", "the task is %s: only a task that has ended can be queued again",
				t.State)
		case t.State == Finished:
			return coded.Errorf(coded.Conflict, "", "the task is finished, it has a result: submit another task")
		}
		t.LastAttempt = t.Attempt + t.Attempts
		if t.Webhook != nil {
			t.Webhook = &Webhook{URL: t.Webhook.URL, State: Waiting}
		}
		t.State, t.Queued = Queued, s.now().wall
		t.Ended, t.Expires, t.NotBefore = time.Time{}, time.Time{}, time.Time{}
		return nil
	})
}

// Delete deletes a task that does not run, with its files. Errors: NotFound; Conflict.
func (s *Store) Delete(ctx context.Context, id string) error {
	for {
		s.mu.Lock()
		e := s.index.tasks[id]
		if e == nil {
			s.mu.Unlock()
			return Missing(id)
		}
		t, revision := e.Task, e.revision
		s.mu.Unlock()
		if t.State == Running {
			return coded.Errorf(coded.Conflict, "", "the task runs: cancel the task first")
		}
		err := s.remove(ctx, t, revision)
		if err == nil {
			return s.deleteBlobs(ctx, folder(id))
		}
		if !errors.Is(err, errStale) {
			return err
		}
		if _, _, err := s.refresh(ctx, id); err != nil {
			return err
		}
	}
}

// remove deletes the record of one revision of a task. The caller deletes the files. Errors: errStale.
func (s *Store) remove(ctx context.Context, t Task, revision uint64) error {
	release, err := s.reserveChange(&t)
	if err != nil {
		return err
	}
	defer release()
	err = s.kv.Purge(ctx, taskPrefix+t.ID, jetstream.LastRevision(revision), jetstream.PurgeTTL(markerTTL))
	if revisionConflict(err) {
		return errStale
	}
	if err != nil {
		return unavailable(ctx, err)
	}
	s.mu.Lock()
	s.index.delete(t.ID, s.now())
	s.mu.Unlock()
	if t.resultInRecord() && s.files != nil {
		s.logFinished(context.WithoutCancel(ctx), t.ID, []byte(deletedMark+t.ID), -1)
	}
	if t.Key != "" {
		if err := s.kv.Purge(ctx, idempotencyKey(t.Owner, t.Key), jetstream.PurgeTTL(markerTTL)); err != nil {
			return unavailable(ctx, err)
		}
	}
	return nil
}

// revisionConflict reports whether the bucket has refused a change because the key has a later revision.
func revisionConflict(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence
}

// Input opens the input of a task, Result the result of a finished one. Errors: NotFound.
func (s *Store) Input(ctx context.Context, t Task) (blob.Reader, error) {
	return s.openStored(ctx, &t, false)
}

// Result opens the result of a finished task. Of a file that this process has not written, the first call reads the
// whole, and compares the SHA-256. The reader compares each part with a checksum of this reading or writing. Errors:
// Conflict, when the task has no result; Internal, when the result is damaged, also from Read.
func (s *Store) Result(ctx context.Context, t Task) (blob.Reader, error) {
	if t.State != Finished {
		return nil, coded.Errorf(coded.Conflict, "", "the task has no result: it is %s", t.State)
	}
	key := resultKey(t.ID, t.Attempt)
	r, err := s.openStored(ctx, &t, true)
	if err != nil {
		return nil, err
	}
	checked, err := s.verified.open(ctx, key, r, t.Result.Info)
	if err == nil {
		return checked, nil
	}
	if !errors.Is(err, blob.ErrAway) {
		err = coded.Errorf(coded.CodeOf(err), "",
			"the result of the task %s cannot be used, submit the task again: %w", t.ID, err)
	}
	return nil, errors.Join(err, r.Close())
}

// Query says which tasks List returns.
type Query struct {
	States []State          // nil = all
	Model  string           // "" = all
	After  string           // the id of the last task of the page before; "" = from the newest task
	Limit  int              // tasks at most; at least 1
	Keep   func(*Task) bool // false = the task is left out; nil = none is
}

// List returns tasks, the newest first, and the value of After for the next page; "" = there are no more tasks.
func (s *Store) List(q Query) (found []Task, next string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found = []Task{}
	i := len(s.index.ids)
	if q.After != "" {
		i, _ = slices.BinarySearch(s.index.ids, q.After)
	}
	for i--; i >= 0; i-- {
		t := &s.index.tasks[s.index.ids[i]].Task
		if q.States != nil && !slices.Contains(q.States, t.State) || q.Model != "" && q.Model != t.Model ||
			q.Keep != nil && !q.Keep(t) {
			continue
		}
		if len(found) == q.Limit {
			return found, found[q.Limit-1].ID
		}
		found = append(found, *t)
	}
	return found, ""
}
