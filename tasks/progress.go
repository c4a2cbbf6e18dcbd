package tasks

import "time"

// progressPause is the shortest time between two changes that watchers of a task are notified of because of progress.
const progressPause = time.Second

// setProgress shows the progress of an attempt. Without a write to the bucket, a model may report as often as the model
// likes: the next renewal writes the progress. Errors: ErrClaimLost; InvalidArgument.
func (s *Store) setProgress(id string, attempt int, p Progress) error {
	if err := p.Check(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.index.tasks[id]
	switch {
	case e == nil || e.State != Running || e.Attempt != attempt:
		return ErrClaimLost
	case e.Progress == p:
		return nil
	}
	e.Progress, e.progressDirty = p, true
	now := time.Now()
	wait := progressPause - now.Sub(e.notifiedAt)
	switch {
	case e.notifyPending:
	case wait <= 0:
		e.notifiedAt = now
		e.notifyWatchers()
	default:
		e.notifyPending = true
		time.AfterFunc(wait, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			e.notifyPending, e.notifiedAt = false, time.Now()
			e.notifyWatchers()
		})
	}
	return nil
}

// latestProgress returns the newest progress of the attempt of t.
func (s *Store) latestProgress(t *Task) Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.index.tasks[t.ID]; e != nil && e.Attempt == t.Attempt && e.progressDirty {
		return e.Progress
	}
	return t.Progress
}
