package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"millrace/internal/sshclient"
)

// turn starts r in place of before.
func (s *site) turn(ctx context.Context, run runner, r, before *release) error {
	s.say("installs release %d", r.Number)
	if err := run.install(ctx, r, s.o.Secrets); err != nil {
		return err
	}
	busy := false
	if before != nil {
		st, err := run.status(before)
		if err != nil {
			return err
		}
		busy = st[0].running
	}
	if busy && s.o.StopFirst {
		s.say("stops release %d", before.Number)
		if err := run.stop(before); err != nil {
			return err
		}
		busy = false
	}
	if !busy {
		before = nil
		if err := s.checkPorts(r); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	s.say("starts release %d", r.Number)
	if err := run.start(r); err != nil {
		return err
	}
	return s.await(ctx, run, r, before)
}

// await waits until r is ready, and before, unless nil, has left.
func (s *site) await(ctx context.Context, run runner, r, before *release) error {
	limit := time.Now().Add(s.o.Wait)
	of := []*release{r}
	if before != nil {
		of = append(of, before)
	}
	for {
		var why error
		st, err := run.status(of...)
		switch {
		case errors.Is(err, errLost):
			return err
		case err != nil:
			why = err
		case st[0].restarts:
			return s.withLogs(run, r, errors.New("it ended at its start and was started again"))
		case !st[0].running:
			return s.withLogs(run, r, fmt.Errorf("it has ended (%s)", st[0].text))
		case len(of) > 1 && st[1].running:
			s.say("release %d waits for release %d to leave", r.Number, before.Number)
			why = fmt.Errorf("the release %d still serves", before.Number)
		default:
			of = of[:1]
			if why = run.healthy(r); why == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(limit) {
			return s.withLogs(run, r, fmt.Errorf("not ready after %v (--ready-timeout): %w", s.o.Wait, why))
		}
	}
}

// withLogs adds the last lines of a release to an error.
func (s *site) withLogs(run runner, r *release, err error) error {
	var b strings.Builder
	if e := run.logs(context.Background(), r, 10, false, &bounded{&b, 8 << 10}); e == nil && b.Len() > 0 {
		text := ""
		for line := range strings.Lines(b.String()) {
			indent := len(line) - len(strings.TrimLeft(line, " "))     // of a traceback
			text += "\n  " + line[:indent] + sshclient.Printable(line) // no codes for the terminal
		}
		return fmt.Errorf("%w. Its last lines:%s", err, text)
	}
	return err
}

// rollBack removes r after a failure, and makes before serve, if it does not.
func (s *site) rollBack(run runner, r, before *release, failure error) error {
	text := fmt.Sprintf("%s: release %d", s.name, r.Number)
	failure = fmt.Errorf("%s: %w", text, trimHost(failure, s.name))
	if errors.Is(failure, errLost) {
		return failure
	}
	s.say("rolls back to release %d", s.state.Current)
	if err := s.undo(run, r, before); err != nil {
		return fmt.Errorf("%w\n%s: the roll-back failed, too: %w: repeat the command", failure, s.name, err)
	}
	if before == nil {
		return fmt.Errorf("%w\n%s: the release was removed, and no other release is there", failure, s.name)
	}
	return fmt.Errorf("%w\n%s: the release was removed, and release %d serves", failure, s.name, before.Number)
}

// trimHost removes the host's name from the text of an error, which gets it anew.
func trimHost(err error, name string) error {
	if text, ok := strings.CutPrefix(err.Error(), name+": "); ok {
		return trimmed{err, text}
	}
	return err
}

type trimmed struct {
	error
	text string
}

func (t trimmed) Error() string { return t.text }
func (t trimmed) Unwrap() error { return t.error }

// undo removes r, and starts before if it does not run.
func (s *site) undo(run runner, r, before *release) error {
	if err := run.remove(r); err != nil {
		return err
	}
	if before != nil {
		st, err := run.status(before)
		if err != nil {
			return err
		}
		if !st[0].running {
			if err := run.start(before); err != nil {
				return err
			}
			if err := s.await(context.Background(), run, before, nil); err != nil {
				return err
			}
		}
	}
	s.state.drop(r.Number)
	s.state.Starting = 0
	if s.state.Fresh && len(s.state.Releases) == 0 {
		if err := run.removeState(); err != nil {
			return err
		}
		s.state.Fresh = false
	}
	return errors.Join(s.write(), s.sweep())
}

// recover finishes or undoes a deploy that has died.
func (s *site) recover(ctx context.Context) error {
	r := s.state.of(s.state.Starting)
	if r == nil {
		return nil
	}
	copied := *r
	r = &copied // undo changes the list
	run, err := s.runner(r.With)
	if err != nil {
		return err
	}
	before := s.state.of(s.state.Current)
	if before != nil {
		b := *before
		before = &b
	}
	of := []*release{r}
	if before != nil {
		of = append(of, before)
	}
	st, err := run.status(of...)
	if err != nil {
		return err
	}
	// The old release may have passed the sockets on, and wait for its clients to leave: only r serves new ones.
	finished := false
	if st[0].running && !st[0].restarts {
		err := s.await(ctx, run, r, before)
		if ctx.Err() != nil || errors.Is(err, errLost) {
			return err
		}
		finished = err == nil
	}
	if finished {
		s.state.Current, s.state.Starting, s.state.Fresh = r.Number, 0, false
		s.notes = append(s.notes, fmt.Sprintf("an earlier deploy, which did not end, was finished: release %d",
			r.Number))
		s.bootNote(run, r, before)
		return s.write()
	}
	s.say("undoes release %d of a deploy that did not end", r.Number)
	if err := s.undo(run, r, before); err != nil {
		return fmt.Errorf("%s: release %d of a deploy that did not end cannot be removed: %w", s.name, r.Number,
			trimHost(err, s.name))
	}
	s.notes = append(s.notes, fmt.Sprintf("an earlier deploy, which did not end, was undone: release %d", r.Number))
	return ctx.Err()
}

// bootNote makes r start with the host.
func (s *site) bootNote(run runner, r, before *release) {
	if err := run.boot(r, before); err != nil {
		s.notes = append(s.notes, "the release does not start with the host: "+trimHost(err, s.name).Error())
	}
}

// prune removes all but the last releases. The release that serves stays.
func (s *site) prune() error {
	for len(s.state.Releases) > Kept {
		i := slices.IndexFunc(s.state.Releases, func(r release) bool { return r.Number != s.state.Current })
		old := s.state.Releases[i]
		run, err := s.runner(old.With)
		if err != nil {
			return err
		}
		if err := run.remove(&old); err != nil {
			return err
		}
		s.state.drop(old.Number)
		if err := s.write(); err != nil {
			return err
		}
	}
	return s.sweep()
}
