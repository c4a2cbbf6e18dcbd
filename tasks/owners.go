package tasks

import (
	"context"
	"errors"
	"slices"

	"millrace/stream/coded"
)

// Owners returns the owners of tasks and uploads that have not ended, without the owner "".
func (s *Store) Owners() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, u := range s.index.usage {
		if u.Waiting > 0 && name != "" {
			names = append(names, name)
		}
	}
	return names
}

// Shared reports whether further processes work on the same tasks.
func (s *Store) Shared() bool { return s.opts.NATS != nil }

// CancelRefused cancels the tasks that have not ended and for which refuse returns an error, running tasks first. The
// error is the error of the task. refuse must not block, nor call the Store. CancelRefused returns the number of tasks.
func (s *Store) CancelRefused(ctx context.Context, refuse func(*Task) error) (n int, err error) {
	type refused struct {
		id  string
		why error
	}
	var running, queued []refused
	s.mu.Lock()
	for id, e := range s.index.tasks {
		if e.State.Ended() {
			continue
		}
		if why := refuse(&e.Task); why != nil && e.State == Running {
			running = append(running, refused{id, why})
		} else if why != nil {
			queued = append(queued, refused{id, why})
		}
	}
	s.mu.Unlock()
	for _, r := range slices.Concat(running, queued) {
		switch _, err := s.cancel(ctx, r.id, &Failure{Code: string(coded.CodeOf(r.why)), Message: r.why.Error()}); {
		case err == nil:
			n++
		case errors.Is(err, errEnded), coded.CodeOf(err) == coded.NotFound:
		default:
			return n, err
		}
	}
	return n, nil
}

// errEnded is wrapped by the error of a change of a task that has ended.
var errEnded = errors.New("the task has ended")

// cancel is Cancel with a reason; nil = the client has asked.
func (s *Store) cancel(ctx context.Context, id string, why *Failure) (Task, error) {
	return s.change(ctx, id, func(t *Task) error {
		if t.State.Ended() {
			return coded.Errorf(coded.Conflict, "", "%w: it is %s", errEnded, t.State)
		}
		t.State, t.Ended, t.LogBytes = Cancelled, s.now().wall, s.logBytes(ctx, id)
		if why != nil {
			t.Error = why
		}
		return nil
	})
}
