package tasks

import (
	"context"
	"sync"
	"time"

	"millrace/internal/ctxio"
	"millrace/stream/coded"
)

// Run does until ctx ends the work that is due without a change by a client or consumer: ends waits, expires tasks,
// ends leases without renewal, deletes tasks at the end of the retention, and removes contents of deleted tasks. A
// single Run is enough for all processes; more are no harm.
func (s *Store) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var deleting sync.WaitGroup
	deleting.Go(func() {
		for ctxio.Sleep(ctx, leftoverPause) {
			s.deleteLeftovers(ctx)
			s.shortenNext(ctx)
		}
	})
	defer deleting.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.index.deadlineSignal:
		case <-timer.C:
		}
		timer.Reset(max(s.handleDue(ctx, s.now()), 10*time.Millisecond))
	}
}

// jumpPause is the longest wait for a time of day, which may jump.
const jumpPause = 10 * time.Second

// due returns the task that is due at a time; nil = none is due for a wait.
func (x *index) due(now moment) (e *entry, wait time.Duration) {
	wait = time.Hour
	if x.waits.Len() > 0 {
		e = x.waits.entries[0]
		if wait = min(wait, e.due.Sub(now.mono)); wait <= 0 {
			return e, 0
		}
	}
	if x.times.Len() > 0 {
		e = x.times.entries[0]
		if wait = min(wait, e.at.Sub(now.wall), jumpPause); wait <= 0 {
			return e, 0
		}
	}
	return nil, wait
}

// handleDue does what is due at a time, and returns the wait for the next time.
func (s *Store) handleDue(ctx context.Context, now moment) time.Duration {
	for ctx.Err() == nil {
		s.mu.Lock()
		e, wait := s.index.due(now)
		if e == nil {
			s.mu.Unlock()
			return wait
		}
		t, revision := e.Task, e.revision
		if t.State == Queued && (t.Expires.IsZero() || t.Expires.After(now.wall)) {
			s.index.dequeue(e)
			s.index.schedule(e, now, true)
			s.mu.Unlock()
			continue
		}
		s.mu.Unlock()
		if err := s.applyDeadline(ctx, t, revision, now.wall); err != nil {
			s.opts.Log.Warn("a task that is due cannot be changed: trying again", "task", t.ID, "error", err)
			return time.Second
		}
	}
	return time.Hour
}

// applyDeadline changes one task whose time has come.
func (s *Store) applyDeadline(ctx context.Context, t Task, revision uint64, now time.Time) error {
	switch {
	case t.State.Ended():
		err := s.remove(ctx, t, revision)
		if err == nil {
			return s.deleteExpired(ctx, folder(t.ID))
		}
		if err == errStale {
			_, _, err = s.refresh(ctx, t.ID)
		}
		if coded.CodeOf(err) == coded.NotFound {
			err = nil
		}
		return err
	case t.State == Queued:
		t.State, t.Ended = Expired, now
	case t.Attempt >= t.LastAttempt:
		t.State, t.Ended = Failed, now
		t.Error = lostConsumer(t)
	default:
		t.State, t.Queued, t.Error, t.Progress = Queued, now, lostConsumer(t), Progress{}
	}
	if _, err := s.write(ctx, t, nil, revision); err == errStale {
		_, _, err = s.refresh(ctx, t.ID)
		return err
	} else if err != nil {
		return err
	}
	return nil
}

// lostConsumer is the failure of an attempt whose consumer no longer renews its claim.
func lostConsumer(t Task) *Failure {
	return &Failure{Code: string(coded.Unavailable),
		Message: "the consumer " + t.Consumer + " has ended or cannot reach the task store"}
}
