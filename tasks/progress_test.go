package tasks

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"millrace/stream/coded"
)

// TestProgressPace: of many reports, watchers are told the first at once, and the last within progressPause.
func TestProgressPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{opts: Options{}.filled(), index: newIndex(Options{}.filled())}
		id := newID(time.Now())
		s.apply(id, &Task{ID: id, State: Running, Attempt: 1}, 1)
		var told []int64
		ctx, cancel := context.WithCancel(t.Context())
		watching := make(chan struct{})
		go func() {
			defer close(watching)
			for task, _ := s.Wait(ctx, id); ctx.Err() == nil; task, _ = s.Wait(ctx, id) {
				told = append(told, task.Progress.Done)
			}
		}()
		synctest.Wait()
		for i := range 1000 {
			if err := s.setProgress(id, 1, Progress{Done: int64(i + 1), Total: 1000, Unit: "frames"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		time.Sleep(progressPause)
		synctest.Wait()
		cancel()
		<-watching
		if len(told) != 2 || told[0] != 1 || told[1] != 1000 {
			t.Errorf("watchers were told %v, want 1 and 1000", told)
		}
	})
}

// TestProgress: progress is shown at once, without a write to the bucket, is in the record after the next renewal, and
// begins anew with each attempt.
func TestProgress(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	other := r.another(Options{})
	task := r.submit(Task{Model: "m", Attempts: 2}, "x")
	c := claim(t, r.Store)
	revision := c.revision
	p := Progress{Done: 3, Total: 10, Unit: "frames"}
	if err := c.Report(p); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	now := *r.index.tasks[task.ID]
	r.mu.Unlock()
	if now.Progress != p || now.revision != revision {
		t.Errorf("after a report: %+v at revision %d, want %+v at %d", now.Progress, now.revision, p, revision)
	}
	if err := c.Renew(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { seen, err := other.Get(task.ID); return err == nil && seen.Progress == p })
	for _, wrong := range []Progress{{Done: -1}, {Total: -1}, {Unit: "a\x1b[2J"}} {
		if err := c.Report(wrong); coded.CodeOf(err) != coded.InvalidArgument {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	if err := c.Fail(Failure{"internal", "no"}, true); err != nil {
		t.Fatal(err)
	}
	if err := c.Report(p); err != ErrClaimLost {
		t.Errorf("a report after the end: %v", err)
	}
	if now, _ := r.Get(task.ID); now.Progress != (Progress{}) {
		t.Errorf("the task that waits again has the progress %+v", now.Progress)
	}
}
