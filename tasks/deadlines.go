package tasks

import (
	"context"
	"sync"
	"time"

	"millrace/internal/ctxio"
	"millrace/stream/coded"
)

// Run does until ctx ends what is due without a change by a client or consumer: waits that are over, tasks that
// expire, leases that nobody has renewed, tasks whose retention is over. One Run is enough for all processes; more
// are no harm.
func (s *Store) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var deleting sync.WaitGroup
	deleting.Go(func() {
		for ctxio.Sleep(ctx, leftoverPause) {
			s.deleteLeftovers(ctx)
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
		next := s.handleDue(ctx, time.Now())
		timer.Reset(max(time.Until(next), 10*time.Millisecond))
	}
}

// handleDue does what is due at a time, and returns the next time.
func (s *Store) handleDue(ctx context.Context, now time.Time) time.Time {
	for ctx.Err() == nil {
		s.mu.Lock()
		if s.index.deadlines.Len() == 0 || s.index.deadlines.entries[0].deadline.After(now) {
			next := now.Add(time.Hour)
			if s.index.deadlines.Len() > 0 {
				next = s.index.deadlines.entries[0].deadline
			}
			s.mu.Unlock()
			return next
		}
		e := s.index.deadlines.entries[0]
		t, revision := e.Task, e.revision
		if t.State == Queued && !t.NotBefore.IsZero() && (t.Expires.IsZero() || t.Expires.After(now)) {
			s.index.dequeue(e)
			s.index.schedule(e, now)
			s.mu.Unlock()
			continue
		}
		s.mu.Unlock()
		if err := s.applyDeadline(ctx, t, revision, now); err != nil {
			s.opts.Log.Warn("a task that is due cannot be changed: trying again", "task", t.ID, "error", err)
			return now.Add(time.Second)
		}
	}
	return now.Add(time.Hour)
}

// applyDeadline changes one task whose time has come.
func (s *Store) applyDeadline(ctx context.Context, t Task, revision uint64, now time.Time) error {
	now = now.UTC()
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
		t.State, t.Error, t.Progress = Queued, lostConsumer(t), Progress{}
	}
	if _, err := s.write(ctx, t, revision); err == errStale {
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
