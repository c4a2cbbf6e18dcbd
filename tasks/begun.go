package tasks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// begunName is the file of the data folder with the newest begun attempts of the server's own consumer, a line each.
// With tasks.sync interval, the record of a task that has just begun still says queued: a line costs a twentieth of a
// revision, and most tasks end with the next revision. The next start puts the attempts into the records. A revision
// of a task makes the lines of the task meaningless.
const begunName = "begun"

// maxBegun is the number of lines from which the file is written anew.
const maxBegun = 1000

// begunLog writes the file. The zero value writes no file.
type begunLog struct {
	mu    sync.Mutex
	name  string            // "" = the record says that a task runs
	out   *os.File          // nil = not open
	lines map[string][]byte // of the file, by the id: the newest of a task
	count int               // of the file
}

// begunAttempt is a line.
type begunAttempt struct {
	ID       string    `json:"id"`
	Attempt  int       `json:"attempt"`
	Consumer string    `json:"consumer,omitempty"`
	Started  time.Time `json:"started"`
}

// begin makes a queued task run, and returns the revision. Errors: errStale.
func (s *Store) begin(ctx context.Context, t Task, has *contents, revision uint64) (uint64, error) {
	if t.Claimant != "" || s.begun.name == "" || !s.reserveBegin(t.ID, revision) {
		return s.write(ctx, t, has, revision)
	}
	s.begun.mu.Lock() // until the index has the attempt: rewrite keeps the lines of begun tasks only
	defer s.begun.mu.Unlock()
	added := s.addBegun(&t)
	s.mu.Lock()
	e := s.index.tasks[t.ID]
	if e != nil {
		e.beginning = false
	}
	// The disk may have lost the record, and a change of unknown outcome may have become known.
	stale := e == nil || e.revision != revision || e.State != Queued
	if !stale && added {
		s.index.begin(e, &t, s.now())
	}
	s.mu.Unlock()
	switch {
	case stale:
		return 0, errStale
	case !added:
		return s.write(ctx, t, has, revision)
	}
	return revision, nil
}

// reserveBegin keeps other changes from a queued task, while an attempt of a revision begins without a further
// revision. Without such a task, or during another change, reserveBegin reports false: the bucket decides.
func (s *Store) reserveBegin(id string, revision uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.index.tasks[id]
	if e == nil || e.revision != revision || e.State != Queued || e.changing > 0 || e.beginning {
		return false
	}
	e.beginning = true
	return true
}

// reserveChange keeps attempts from beginning without a further revision, until release: a change replaces the revision
// with t, or is a deletion of t. Errors: errStale, when an attempt has begun since t was read.
func (s *Store) reserveChange(t *Task) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.index.tasks[t.ID]
	switch {
	case e == nil:
		return func() {}, nil
	case e.beginning || e.begun && t.Attempt < e.Attempt:
		return nil, errStale
	}
	e.changing++
	return func() {
		s.mu.Lock()
		e.changing--
		s.mu.Unlock()
	}, nil
}

// addBegun adds the attempt of a task to the file, and reports whether the file has the attempt. The caller holds
// begun.mu.
func (s *Store) addBegun(t *Task) bool {
	l := &s.begun
	line, err := json.Marshal(begunAttempt{t.ID, t.Attempt, t.Consumer, t.Started})
	if err != nil {
		return false
	}
	line = append(line, '\n')
	if l.out == nil || l.count >= maxBegun {
		s.dropBegun()
		if err := l.rewrite(); err != nil {
			s.opts.Log.Debug("the file of begun tasks cannot be written: the records say that tasks run", "error", err)
			return false
		}
	}
	if _, err := l.out.Write(line); err != nil {
		l.close() // the line may be there in part
		return false
	}
	l.lines[t.ID], l.count = line, l.count+1
	return true
}

// dropBegun forgets the attempts whose records have changed since. The caller holds begun.mu.
func (s *Store) dropBegun() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.begun.lines {
		if e := s.index.tasks[id]; e == nil || !e.begun {
			delete(s.begun.lines, id)
		}
	}
}

// rewrite writes the file anew with the lines. The caller holds mu.
func (l *begunLog) rewrite() error {
	l.close()
	if l.lines == nil {
		l.lines = map[string][]byte{}
	}
	var text []byte
	for _, line := range l.lines {
		text = append(text, line...)
	}
	if err := writeFile(l.name, text, false); err != nil {
		return err
	}
	out, err := os.OpenFile(l.name, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		l.out, l.count = out, len(l.lines)
	}
	return err
}

// close closes the file. The caller holds mu.
func (l *begunLog) close() {
	if l.out != nil {
		_ = l.out.Close() // the lines are with the system already
		l.out = nil
	}
}

// begunAttempts returns the attempts in the file whose records say queued. Lines that a power failure has damaged count
// for nothing.
func (d *Data) begunAttempts(folder string) (all []begunAttempt, err error) {
	text, err := os.ReadFile(filepath.Join(folder, begunName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		var b begunAttempt
		// a line whose bytes are lost is zeros, also its line break
		if json.Unmarshal(bytes.TrimLeft(line, "\x00"), &b) != nil {
			continue
		}
		if t, err := d.Get(b.ID); err == nil && t.State == Queued && t.Attempt < b.Attempt {
			all = append(all, b)
		}
	}
	return all, nil
}

// in makes t the task of the attempt.
func (b *begunAttempt) in(t *Task) {
	t.State, t.Attempt, t.Consumer, t.Claimant = Running, b.Attempt, b.Consumer, ""
	t.Started, t.Progress = b.Started, Progress{}
}

// indexBegun puts the attempts of the file into the index alone.
func (d *Data) indexBegun(all []begunAttempt) {
	d.Store.mu.Lock()
	defer d.Store.mu.Unlock()
	for _, b := range all {
		if e := d.index.tasks[b.ID]; e != nil && e.State == Queued && e.Attempt < b.Attempt {
			t := e.Task
			b.in(&t)
			d.index.begin(e, &t, d.now())
		}
	}
}

// recoverBegun puts the attempts of the file into the records, and removes the file. Attempts whose records cannot be
// written, as on a full disk, stay in the file.
func (d *Data) recoverBegun(ctx context.Context, folder string) error {
	all, err := d.begunAttempts(folder)
	if err != nil {
		return err
	}
	var kept []begunAttempt
	for _, b := range all {
		if _, failed := d.change(ctx, b.ID, func(t *Task) error { b.in(t); return nil }); failed == nil {
			continue
		} else if err = failed; ctx.Err() != nil {
			return err
		}
		line, _ := json.Marshal(b) // has no value that cannot be written
		if kept = append(kept, b); d.begun.lines == nil {
			d.begun.lines = map[string][]byte{}
		}
		d.begun.lines[b.ID] = append(line, '\n')
	}
	d.indexBegun(kept)
	d.Store.mu.Lock()
	d.index.counts.Attempts = 0 // the attempts were begun before
	d.Store.mu.Unlock()
	if len(kept) > 0 {
		d.opts.Log.Warn("records of running tasks cannot be written: the next start tries again", "tasks", len(kept),
			"error", err)
		return nil
	}
	if err := os.Remove(filepath.Join(folder, begunName)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
