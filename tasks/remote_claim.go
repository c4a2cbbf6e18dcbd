package tasks

import (
	"context"
	"time"

	"millrace/stream/coded"
)

// ClaimRemote is Claim for a consumer on another host, whose requests end the claim or renew the claim, see
// ResumeClaim. by names the credentials of the consumer and is not empty: ResumeClaim compares the name.
func (s *Store) ClaimRemote(ctx context.Context, consumer, by string, serves func(model string) bool) (Task, error) {
	c, err := s.next(ctx, context.WithoutCancel(ctx), claimant{consumer, by}, serves)
	if err != nil {
		return Task{}, err
	}
	c.Close()
	return c.Task(), nil
}

// ResumeClaim returns the claim of a consumer on another host for one request: the task runs as this attempt, claimed
// with these credentials. A claim of the server itself, whose Claimant is empty, is nobody's. The caller closes the
// claim. Errors: NotFound; ErrClaimLost.
func (s *Store) ResumeClaim(ctx context.Context, id string, attempt int, by string) (*StoreClaim, error) {
	s.mu.Lock()
	e := s.index.tasks[id]
	if e == nil {
		s.mu.Unlock()
		return nil, Missing(id)
	}
	t, revision := e.Task, e.revision
	s.mu.Unlock()
	switch {
	case by == "" || t.Claimant != by:
		return nil, Missing(id)
	case t.State != Running || t.Attempt != attempt:
		return nil, ErrClaimLost
	}
	return s.newClaim(ctx, t, revision), nil
}

// FinishedBy reports whether a task has finished with a result by this attempt, claimed with these credentials: a
// consumer without an answer repeats the request.
func (s *Store) FinishedBy(id string, attempt int, by, sha256 string) bool {
	t, err := s.Get(id)
	return err == nil && by != "" && t.Claimant == by && t.State == Finished && t.Attempt == attempt &&
		t.Result.SHA256 == sha256
}

// Close ends the context of a claim whose consumer renews the claim by further calls of ResumeClaim.
func (c *StoreClaim) Close() { c.end(context.Canceled) }

// WaitLost waits until the task is no longer the claim's. Errors: ErrClaimLost; nil when ctx ends before.
func (c *StoreClaim) WaitLost(ctx context.Context) error {
	for {
		changed := c.store.changeChan(c.id)
		t, err := c.store.Get(c.id)
		if err != nil && coded.CodeOf(err) != coded.NotFound {
			return err
		}
		if err != nil || t.State != Running || t.Attempt != c.attempt {
			return ErrClaimLost
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// Lease returns the time without a renewal after which a running task is queued again.
func (s *Store) Lease() time.Duration { return s.opts.Lease }
