package tasks

import "time"

// progressPause is the shortest time between two changes that watchers of a task are told because of progress.
const progressPause = time.Second

// show shows the progress of an attempt. Without a write to the bucket, a model may report as often as the model likes:
// the next renewal writes the progress. Errors: ErrClaimLost; InvalidArgument.
func (s *Store) show(id string, attempt int, p Progress) error {
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
	e.Progress, e.live = p, true
	now := time.Now()
	wait := progressPause - now.Sub(e.told)
	switch {
	case e.telling:
	case wait <= 0:
		e.told = now
		e.tell()
	default:
		e.telling = true
		time.AfterFunc(wait, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			e.telling, e.told = false, time.Now()
			e.tell()
		})
	}
	return nil
}

// shown returns the newest progress of the attempt of t.
func (s *Store) shown(t *Task) Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.index.tasks[t.ID]; e != nil && e.Attempt == t.Attempt && e.live {
		return e.Progress
	}
	return t.Progress
}
