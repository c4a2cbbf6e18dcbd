package powercut

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"millrace/internal/testseed"
	"millrace/stream/coded"
	"millrace/tasks"
	"millrace/tasks/blob"
)

var fulls = flag.Int("powercut.fulls", 0, "full disks of TestFullDisk; 0 = as many as fit its time")

// script submits, runs, cancels, retries and deletes tasks, one after the other, and repeats each call until the call
// succeeds. Each error is told as an Ack.
type script struct{ *worker }

// repeat calls f until f succeeds. An answer that says that the call has succeeded before is no error.
func (s *script) repeat(name string, f func() error) error {
	for range 100 {
		err := f()
		if err == nil {
			return nil
		}
		if err := s.say("error", name, strings.ReplaceAll(err.Error(), "\n", " ")); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New(name + " does not succeed")
}

// workFull runs the script for n tasks.
func workFull(folder string, seed uint64, n int) error {
	acks, err := os.OpenFile(filepath.Join(folder, AckFile), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	ctx := context.Background()
	s := &script{worker: &worker{acks: acks, seed: seed}}
	if err := s.repeat("open", func() (err error) {
		s.Data, err = tasks.OpenData(ctx, filepath.Join(folder, dataFolder), true,
			tasks.Options{Lease: 2 * time.Second, Log: slog.Default()})
		return err
	}); err != nil {
		return err
	}
	go s.Run(ctx)
	for i := range n {
		if err := s.one(ctx, i); err != nil {
			return err
		}
	}
	return s.say("done", "-")
}

func (s *script) one(ctx context.Context, i int) error {
	var t tasks.Task
	input := []byte(fmt.Sprint("input ", i))
	if err := s.repeat("submit", func() (err error) {
		t, _, err = s.Submit(ctx, tasks.Submission{Task: tasks.Task{Model: "m", Attempts: 100, Retention: 24 * 3600},
			Data: func(w blob.Writer) error { _, err := w.Write(input); return err }})
		return err
	}); err != nil {
		return err
	}
	if err := s.say("submitted", t.ID, sum(input)); err != nil {
		return err
	}
	switch i % 4 {
	case 1:
		if err := s.say("cancelling", t.ID); err != nil {
			return err
		}
		if err := s.repeat("cancel", func() error {
			now, err := s.Cancel(ctx, t.ID)
			if coded.CodeOf(err) == coded.Conflict && now.State == tasks.Cancelled {
				return nil
			}
			return err
		}); err != nil {
			return err
		}
		return s.say("cancelled", t.ID)
	case 2:
		if err := s.say("deleting", t.ID); err != nil {
			return err
		}
		if err := s.repeat("delete", func() error {
			err := s.Delete(ctx, t.ID)
			if coded.CodeOf(err) == coded.NotFound {
				return nil
			}
			return err
		}); err != nil {
			return err
		}
		return s.say("deleted", t.ID)
	}
	return s.run(ctx)
}

// run runs one task. Another attempt follows an attempt that has lost the claim.
func (s *script) run(ctx context.Context) error {
	return s.repeat("run", func() error {
		c, err := s.Claim(ctx, "victim", func(string) bool { return true })
		if err != nil {
			return err
		}
		t := c.Task()
		w, err := c.Create()
		if err != nil {
			return errors.Join(err, c.Release())
		}
		if _, err = w.Write(resultOf(t.ID, t.Attempt)); err != nil {
			w.Discard()
			return errors.Join(err, c.Release())
		}
		info, err := w.Commit()
		if err != nil {
			return errors.Join(err, c.Release())
		}
		if err := c.Finish(tasks.File{Info: info}); err != nil {
			return err
		}
		return s.say("finished", t.ID, t.Attempt, info.SHA256)
	})
}

// needsRoom reports whether a full disk refuses a step.
func needsRoom(s *Step) bool { return s.Kind == Create || s.Kind == Mkdir || s.Kind == Write }

// TestFullDisk: the disk is full from one of the steps that need room, for a few steps. Each call answers with an error
// that says what is full and what to do; when there is room again, the calls succeed, and no acknowledged task or
// result is lost.
func TestFullDisk(t *testing.T) {
	want := *fulls
	if want == 0 {
		want = 40
		if testing.Short() {
			want = 8
		}
	}
	seed := testseed.First()
	scratch := scratchFolder(t)
	first := runFull(t, NewDisk(Tree{}), seed)
	needs := 0
	for _, s := range first {
		if needsRoom(&s) {
			needs++
		}
	}
	r := rand.New(rand.NewPCG(seed, 0))
	at := r.Perm(needs)
	var mu sync.Mutex
	errs := map[string]int{}
	var all sync.WaitGroup
	places := make(chan struct{}, 4)
	for i := range want {
		n, more := at[i%needs], 1+r.IntN(6)
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			for _, text := range fullAt(t, seed, n, more, filepath.Join(scratch, fmt.Sprint(i))) {
				mu.Lock()
				errs[text]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	t.Logf("%d full disks at %d steps, seed %d, with these errors:", want, needs, seed)
	for text, n := range errs {
		t.Logf("%5d %s", n, text)
	}
}

// runFull runs the script on a disk, and returns the steps.
func runFull(t *testing.T, d *Disk, seed uint64) []Step {
	t.Helper()
	runProcess(t, d, "full", seed, 8)
	return d.Steps()
}

// fullAt runs the script on a disk that refuses more steps that need room, from one of these steps on. fullAt returns
// the errors of calls.
func fullAt(t *testing.T, seed uint64, n, more int, folder string) (errs []string) {
	d := NewDisk(Tree{})
	seen := 0
	d.Before(func(s *Step, _ int64) syscall.Errno {
		if !needsRoom(s) {
			return 0
		}
		if seen++; seen > n && seen <= n+more {
			return syscall.ENOSPC
		}
		return 0
	})
	at := fmt.Sprintf("seed %d, full at step %d for %d steps", seed, n, more)
	p := &point{seed: seed, kind: "end", variant: None, known: history{}}
	done := false
	for _, s := range runFull(t, d, seed) {
		line := string(s.Data)
		switch {
		case s.Kind != Ack:
		case strings.HasPrefix(line, "done"):
			done = true
		case strings.HasPrefix(line, "error"):
			line = strings.TrimSpace(line)
			if !strings.Contains(line, "the disk is full: delete tasks, or make room for ") &&
				!strings.Contains(line, "see that the disk has room") && // the broker hides some reasons
				!strings.Contains(line, tasks.ErrClaimLost.Error()) { // the lease was over before the disk had room
				t.Errorf("%s: %s", at, line)
			}
			errs = append(errs, strings.SplitN(line, " ", 3)[1])
		default:
			p.known.hear(t, line)
		}
	}
	if !done {
		t.Errorf("%s: the calls do not succeed with room", at)
	}
	p.tree = d.Survive(None, rand.New(rand.NewPCG(seed, 1)))
	if err := p.check(t, folder, true); err != nil {
		t.Errorf("%s: %v", at, err)
	}
	return errs
}

// TestSmallDisk: submissions leave room for records on a disk that becomes full, so that clients can delete tasks, and
// submit tasks again.
func TestSmallDisk(t *testing.T) {
	d := NewDisk(Tree{})
	d.Resize(40 << 20)
	runProcess(t, d, "small", 1, 0)
}

// workSmall fills the disk.
func workSmall(folder string) error {
	ctx := context.Background()
	d, err := tasks.OpenData(ctx, filepath.Join(folder, dataFolder), true, tasks.Options{})
	if err != nil {
		return err
	}
	submit := func(size int) (tasks.Task, error) {
		t, _, err := d.Submit(ctx, tasks.Submission{Task: tasks.Task{Model: "m"}, Data: func(w blob.Writer) error {
			_, err := io.CopyN(w, zeros{}, int64(size))
			return err
		}})
		return t, err
	}
	large, err := submit(6 << 20)
	if err != nil {
		return err
	}
	if _, err = submit(4 << 20); !errors.Is(err, blob.ErrFull) || coded.CodeOf(err) != coded.Overloaded {
		return fmt.Errorf("a submission to a full disk: %w", err)
	}
	c, err := d.Claim(ctx, "tester", func(string) bool { return true })
	if err != nil {
		return err
	}
	w, err := c.Create()
	if err != nil {
		return err
	}
	if _, err = io.CopyN(w, zeros{}, 20<<20); !errors.Is(err, blob.ErrFull) {
		return fmt.Errorf("a large result on a full disk: %w", err)
	}
	w.Discard()
	if err := c.Release(); err != nil {
		return err
	}
	if err := d.Delete(ctx, large.ID); err != nil {
		return err
	}
	_, err = submit(4 << 20)
	return err
}

// zeros has any number of bytes.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
