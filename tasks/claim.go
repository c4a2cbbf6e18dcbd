package tasks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/backoff"
	"millrace/internal/ctxio"
	"millrace/stream/coded"
	"millrace/tasks/blob"
)

// StoreClaim is a Claim of a task of a Store in this process.
type StoreClaim struct {
	store   *Store
	id      string
	attempt int
	renews  bool        // the claim renews itself
	logs    atomic.Bool // Log was called
	ending  atomic.Bool // the claim is writing a change that ends the claim
	ctx     context.Context
	end     context.CancelCauseFunc

	mu       sync.Mutex // held while a change is being written
	task     Task
	contents *contents // of the task; nil = not read
	result   *storedWriter
	finished []byte // the record of the finished task
	revision uint64
	ended    bool
	renewal  *time.Timer // of a claim that renews itself
}

// ErrClaimLost is the error of a claim whose task was cancelled or taken, and the cause of the end of its context.
var ErrClaimLost error = coded.Errorf(coded.Canceled, "",
	"the task was cancelled, or another consumer has taken the task")

// Claim waits for a queued task of the models for which serves is true, until ctx ends, and claims the task for a
// consumer, whose name is for people. Claim looks at serves again when a task becomes ready, and after
// Store.ModelsChanged.
func (s *Store) Claim(ctx context.Context, consumer string, serves func(model string) bool) (*StoreClaim, error) {
	return s.nextRenewing(ctx, ctx, consumer, serves)
}

// ClaimFor implements Source.
func (s *Store) ClaimFor(ctx, work context.Context, consumer string, m Models) (Claim, error) {
	c, err := s.nextRenewing(ctx, work, consumer, m.Serves)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// nextRenewing is next for a claim that renews itself.
func (s *Store) nextRenewing(ctx, work context.Context, consumer string, serves func(model string) bool) (*StoreClaim,
	error) {
	c, err := s.next(ctx, work, claimant{consumer: consumer}, serves)
	if err == nil {
		c.renewing()
	}
	return c, err
}

// claimant is the consumer of a claim.
type claimant struct {
	consumer    string // for people
	credentials string // see Task.Claimant
}

// next is Claim without renewals. The context of the claim ends with work.
func (s *Store) next(ctx, work context.Context, by claimant, serves func(model string) bool) (*StoreClaim, error) {
	for {
		s.mu.Lock()
		e := s.index.next(serves)
		if e == nil {
			more := s.index.readyChan()
			s.mu.Unlock()
			select {
			case <-more:
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		t, revision := e.Task, e.revision
		s.mu.Unlock()
		c, err := s.claim(work, by, t, revision)
		if c != nil || err != nil && !errors.Is(err, errStale) {
			return c, err
		}
	}
}

// claim claims one revision of a queued task. When the write fails, the task is queued again.
func (s *Store) claim(ctx context.Context, by claimant, t Task, revision uint64) (*StoreClaim, error) {
	now := s.now().wall
	if !t.Expires.IsZero() && !now.Before(t.Expires) {
		t.State, t.Ended = Expired, now
		_, err := s.write(ctx, t, nil, revision)
		return nil, err
	}
	has, err := s.contents(ctx, &t, revision)
	if err != nil && !errors.Is(err, errStale) {
		s.requeue(t.ID, revision)
		return nil, err
	}
	t.State, t.Attempt, t.Consumer, t.Claimant = Running, t.Attempt+1, by.consumer, by.credentials
	t.Started, t.Progress = now, Progress{}
	next := uint64(0)
	if err == nil {
		next, err = s.begin(ctx, t, &has, revision)
	}
	if errors.Is(err, errStale) {
		_, _, err := s.refresh(ctx, t.ID)
		if coded.CodeOf(err) == coded.NotFound {
			err = nil
		}
		return nil, err
	}
	if err != nil {
		s.requeue(t.ID, revision)
		return nil, err
	}
	c := s.newClaim(ctx, t, next)
	c.contents = &has
	return c, nil
}

// newClaim returns the claim of a revision of a running task.
func (s *Store) newClaim(ctx context.Context, t Task, revision uint64) *StoreClaim {
	c := &StoreClaim{store: s, id: t.ID, attempt: t.Attempt, task: t, revision: revision}
	c.ctx, c.end = context.WithCancelCause(ctx)
	return c
}

// ModelsChanged implements Source.
func (s *Store) ModelsChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index.wakeConsumers()
}

// requeue makes a task ready again that a claim has taken from the queue, unless the task has changed since.
func (s *Store) requeue(id string, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.index.tasks[id]; e != nil && e.revision == revision && e.State == Queued && e.heapIndex[inReady] < 0 {
		s.index.enqueue(e)
	}
}

// Task implements Claim.
func (c *StoreClaim) Task() Task {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.task
}

// Context implements Claim.
func (c *StoreClaim) Context() context.Context { return c.ctx }

// Input implements Claim. The SHA-256 of the input is checked for a model of this process; a consumer on another host
// checks the bytes that arrive.
func (c *StoreClaim) Input() (blob.Reader, error) {
	t := c.Task()
	if from, ok := c.store.blobs.(blob.Fetcher); ok && c.renews && t.Input.Size > 0 && !t.inputSmall {
		return c.fetchInput(from)
	}
	r, err := c.openInput()
	if err != nil || !c.renews {
		return r, err
	}
	checked, err := c.store.verified.open(c.ctx, inputKey(c.id), r, t.Input.Info)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: task %s: %w", ErrDamaged, c.id, err), r.Close())
	}
	return checked, nil
}

// openInput opens the stored input.
func (c *StoreClaim) openInput() (blob.Reader, error) {
	c.mu.Lock()
	t, has := c.task, c.contents
	c.mu.Unlock()
	if t.inputSmall && has != nil {
		return memory{bytes.NewReader(has.InputData)}, nil
	}
	return c.store.openStored(c.ctx, &t, false)
}

// fetchInput opens a copy of the input on this machine.
func (c *StoreClaim) fetchInput(from blob.Fetcher) (blob.Reader, error) {
	want := c.Task().Input.Info
	if err := checkRoom(c.store.blobs, resultReserve+want.Size); err != nil {
		return nil, err
	}
	r, err := from.Fetch(c.ctx, inputKey(c.id), want)
	if coded.CodeOf(err) == coded.Internal && c.ctx.Err() == nil && errors.Is(err, blob.ErrDamaged) {
		err = fmt.Errorf("%w: task %s: %w", ErrDamaged, c.id, err)
	}
	return r, err
}

// verify compares the bytes of r with the info, and goes back to the begin. The errors of a damaged file name both.
func verify(ctx context.Context, r blob.Reader, info blob.Info) error {
	if err := info.Check(ctxio.Reader(ctx, r)); err != nil {
		return err
	}
	_, err := r.Seek(0, io.SeekStart)
	return err
}

// Create implements Claim.
func (c *StoreClaim) Create() (blob.Writer, error) {
	if err := checkRoom(c.store.blobs, resultReserve); err != nil {
		return nil, err
	}
	stored, err := c.store.create(c.ctx, resultKey(c.id, c.attempt), false)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.result = stored
	c.mu.Unlock()
	w := blob.Writer(&reserving{Writer: stored, blobs: c.store.blobs, keep: resultReserve})
	if c.renews {
		w = &patient{w, c}
	}
	return w, nil
}

// patient is a result whose Commit waits while the S3 server is away, until the claim is lost or the consumer ends.
type patient struct {
	blob.Writer
	claim *StoreClaim
}

// Commit implements blob.Writer.
func (w *patient) Commit() (blob.Info, error) {
	for warned := false; ; warned = true {
		info, err := w.Writer.Commit()
		if !errors.Is(err, blob.ErrAway) {
			return info, err
		}
		if !warned {
			w.claim.store.opts.Log.Warn("a result cannot be stored: trying again", "task", w.claim.id, "error", err)
		}
		if ctxio.Sleep(w.claim.ctx, claimRetryDelay); w.claim.ctx.Err() != nil {
			return info, context.Cause(w.claim.ctx)
		}
	}
}

// renewing renews the claim three times in each lease from now on, and ends the context when the task is no longer the
// consumer's.
func (c *StoreClaim) renewing() {
	c.renews = true
	c.mu.Lock()
	c.renewal = time.AfterFunc(c.store.opts.Lease/3, c.renewAgain)
	c.mu.Unlock()
	s := c.store
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.index.tasks[c.id]
	if e == nil || e.State != Running || e.Attempt != c.attempt {
		c.lose()
		return
	}
	e.claim = c
}

// renewAgain renews the claim until the context ends.
func (c *StoreClaim) renewAgain() {
	if c.ctx.Err() != nil {
		return
	}
	_ = c.change(func(*Task) {}) // without the broker the lease runs out, and the claim is lost
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended && c.ctx.Err() == nil {
		c.renewal.Reset(c.store.opts.Lease / 3)
	}
}

// lose ends the context of a claim whose task is no longer the consumer's, unless the claim itself is ending the task.
func (c *StoreClaim) lose() {
	if !c.ending.Load() {
		c.end(ErrClaimLost)
	}
}

// changeChan returns a channel that is closed at the next revision of a task; closed already for a deleted task.
func (s *Store) changeChan(id string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.index.tasks[id]; e != nil {
		return e.changeChan()
	}
	closed := make(chan struct{})
	close(closed)
	return closed
}

// change writes the next revision of the claimed task. Errors: ErrClaimLost.
func (c *StoreClaim) change(f func(*Task)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx := context.WithoutCancel(c.ctx)
	for !c.ended {
		t := c.task
		t.Progress = c.store.latestProgress(&t)
		f(&t)
		c.ending.Store(t.State != Running)
		next, err := c.write(ctx, &t)
		c.ending.Store(err == nil && t.State != Running)
		if errors.Is(err, errStale) {
			if err = c.reconcile(ctx, t.State); err != nil || c.ended {
				return err
			}
			continue
		}
		if err == nil {
			c.task, c.revision = t, next
			c.stop(t.State != Running, context.Canceled)
		}
		return err
	}
	return ErrClaimLost
}

// write writes the next revision with the result that Create has made, when the result is small. The caller holds mu.
func (c *StoreClaim) write(ctx context.Context, t *Task) (uint64, error) {
	if c.contents == nil {
		has, err := c.store.contents(ctx, t, c.revision)
		if err != nil {
			return 0, err
		}
		c.contents = &has
	}
	has := contents{InputData: c.contents.InputData} // a Finish that has failed leaves no result
	if t.State == Finished && c.result != nil && c.result.data != nil && infoOf(c.result.data) == t.Result.Info {
		has.ResultData = c.result.data
	}
	t.resultSmall = has.ResultData != nil
	value := encode(*t, has)
	next, err := c.store.update(ctx, *t, value, c.revision)
	if err == nil && t.State == Finished {
		c.finished = value
		c.store.recent.put(c.id, has)
	}
	return next, err
}

// reconcile looks for the reason why a change was refused. When an earlier change of this claim has arrived although
// its answer was lost, reconcile takes the revision over and returns nil. Otherwise the claim has ended. Errors:
// ErrClaimLost, unless the task is in the wanted state by this attempt.
func (c *StoreClaim) reconcile(ctx context.Context, wanted State) error {
	t, revision, err := c.store.refresh(ctx, c.id)
	switch {
	case coded.CodeOf(err) == coded.NotFound:
	case err != nil:
		return err
	case t.Attempt == c.attempt && t.State == Running:
		c.task, c.revision = t, revision
		return nil
	case t.Attempt == c.attempt && t.State == wanted:
		c.task, c.revision = t, revision
		c.stop(true, context.Canceled)
		return nil
	}
	c.stop(true, ErrClaimLost)
	return ErrClaimLost
}

// stop ends the claim if ended is true.
func (c *StoreClaim) stop(ended bool, cause error) {
	if ended {
		c.ended = true
		c.end(cause)
		if c.renewal != nil {
			c.renewal.Stop()
		}
	}
}

// Report implements Claim.
func (c *StoreClaim) Report(p Progress) error { return c.store.setProgress(c.id, c.attempt, p) }

// Renew renews the claim of a consumer on another host.
func (c *StoreClaim) Renew() error { return c.change(func(*Task) {}) }

// Finish implements Claim. The result of a lost claim is deleted.
func (c *StoreClaim) Finish(result File) error {
	err := c.endClaim(func(t *Task) {
		t.State, t.Ended, t.Result, t.Error = Finished, c.store.now().wall, &result, nil
		t.LogBytes = c.logBytes()
	})
	if err == nil {
		c.store.writeFinished(context.WithoutCancel(c.ctx), c.Task(), c.finished)
	}
	if errors.Is(err, ErrClaimLost) {
		key := resultKey(c.id, c.attempt)
		return errors.Join(err, c.store.blobs.Delete(context.WithoutCancel(c.ctx), key))
	}
	return err
}

// Fail implements Claim.
func (c *StoreClaim) Fail(f Failure, again bool) error {
	return c.endClaim(func(t *Task) {
		now := c.store.now().wall
		t.Error, t.LogBytes = &f, c.logBytes()
		if again && t.Attempt < t.LastAttempt {
			t.State, t.Queued, t.Progress = Queued, now, Progress{}
			t.NotBefore = now.Add(retryDelay(t.Attempt + 1))
			return
		}
		t.State, t.Ended = Failed, now
	})
}

// endClaim writes the change that ends the claim. While the broker is away or the disk is full, a claim that renews
// itself tries again, until the claim is lost or the consumer ends.
func (c *StoreClaim) endClaim(f func(*Task)) error {
	warned := false
	for {
		err := c.change(f)
		if err == nil || !c.renews || errors.Is(err, ErrClaimLost) {
			return err
		}
		if cause := context.Cause(c.ctx); cause != nil {
			return cause
		}
		if !warned {
			warned = true
			c.store.opts.Log.Warn("the end of a task cannot be stored: trying again", "task", c.id, "error", err)
		}
		ctxio.Sleep(c.ctx, claimRetryDelay)
	}
}

// Release implements Claim. When the release cannot be stored, the task is queued again at the end of the lease.
func (c *StoreClaim) Release() error {
	defer c.Close()
	return c.change(func(t *Task) {
		t.State, t.Queued, t.Progress = Queued, c.store.now().wall, Progress{}
		t.Consumer, t.Claimant, t.Started = "", "", time.Time{}
		t.LastAttempt++
		t.LogBytes = c.logBytes()
	})
}

// logBytes returns the size of the kept logs of the task. The caller holds mu.
func (c *StoreClaim) logBytes() int64 {
	if c.renews && c.attempt == 1 && !c.logs.Load() {
		return 0
	}
	return c.store.logBytes(context.WithoutCancel(c.ctx), c.id)
}

// maxRetryDelay is the longest wait of retryDelay.
const maxRetryDelay = 5 * time.Minute

// retryDelay returns the wait before an attempt after a failed one: 1 s, doubled each time, at most maxRetryDelay.
func retryDelay(attempt int) time.Duration {
	b := backoff.Backoff{Min: time.Second, Max: maxRetryDelay}
	var wait time.Duration
	for range min(attempt-1, 16) {
		wait = b.Next(rand.Float64())
	}
	return wait
}
