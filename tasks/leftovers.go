package tasks

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"millrace/tasks/blob"
)

const (
	maxLeftovers    = 100_000          // keys to delete later; the next start deletes the blobs of further tasks
	leftoversAtOnce = 8                // keys that are deleted at once
	leftoverPause   = 10 * time.Second // between two tries
)

// deleteBlobs deletes the blobs of a deleted task. While the S3 server is away, Run deletes the blobs later.
func (s *Store) deleteBlobs(ctx context.Context, key string) error {
	err := s.blobs.Delete(ctx, key)
	if !errors.Is(err, blob.ErrAway) {
		return err
	}
	s.warnNotDeleted(err)
	s.deleteLater(key)
	return nil
}

func (s *Store) warnNotDeleted(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.notDeleted {
		s.notDeleted = true
		s.opts.Log.Warn("the blobs of deleted tasks cannot be removed yet: trying again", "error", err)
	}
}

// deleteExpired deletes the blobs of a task whose retention is over, in S3 later: Run must not wait for the S3 server.
func (s *Store) deleteExpired(ctx context.Context, key string) error {
	if _, remote := s.blobs.(blob.Fetcher); !remote {
		return s.blobs.Delete(ctx, key)
	}
	s.deleteLater(key)
	return nil
}

func (s *Store) deleteLater(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.leftovers) < maxLeftovers {
		s.leftovers = append(s.leftovers, key)
	}
}

// deleteLeftovers deletes the blobs that are to be deleted later, and reports whether some are left.
func (s *Store) deleteLeftovers(ctx context.Context) (left bool) {
	for ctx.Err() == nil {
		s.mu.Lock()
		first := max(0, len(s.leftovers)-leftoversAtOnce)
		keys := slices.Clone(s.leftovers[first:])
		s.leftovers = s.leftovers[:first]
		s.notDeleted = s.notDeleted && len(keys) > 0
		s.mu.Unlock()
		if len(keys) == 0 {
			return false
		}
		errs := make([]error, len(keys))
		var deletions sync.WaitGroup
		for i, key := range keys {
			deletions.Go(func() { errs[i] = s.blobs.Delete(ctx, key) })
		}
		deletions.Wait()
		failed := slices.IndexFunc(errs, func(err error) bool { return err != nil })
		if failed < 0 {
			continue
		}
		if ctx.Err() == nil {
			s.warnNotDeleted(errs[failed])
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, key := range keys {
			if errs[i] != nil { // at the begin: a blob that cannot be deleted does not hold up the others
				s.leftovers = slices.Insert(s.leftovers, 0, key)
			}
		}
		return true
	}
	return true
}
