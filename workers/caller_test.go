package workers_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
)

// brief is faulty with brief runs. Each result has the goroutine of the run.
type brief struct{ faulty }

func init() {
	workers.Register(workers.Kind{Name: "brief", New: func() workers.Worker { return &brief{} }})
}

func (*brief) Brief() bool { return true }

func (b *brief) Run(ctx context.Context, batch *batching.Batch) error {
	for _, r := range batch.Requests {
		if string(r.Payload) == "where" {
			r.Payload = goroutine()
		}
	}
	return b.faulty.Run(ctx, batch)
}

// goroutine returns the number of the current goroutine.
func goroutine() []byte {
	text := make([]byte, 64)
	return bytes.Fields(text[:runtime.Stack(text, false)])[1]
}

// call is a sink of one request at a time, of a caller.
type call struct {
	stream  *stream.Stream
	by      stream.Caller
	results chan ending
}

func newCall(t *testing.T, g *workers.Group) *call {
	t.Helper()
	c := &call{results: make(chan ending, 1)}
	c.by.Ended = func() bool { return len(c.results) > 0 }
	var err error
	if c.stream, err = g.Open(every, c); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *call) Push(r *stream.Result) {
	x := ending{seq: r.Seq, outcome: r.Outcome, err: r.Err}
	if len(r.Outputs) > 0 {
		x.data = string(r.Outputs[0].Data)
	}
	r.Release()
	c.results <- x
}

func (*call) Done(stream.CloseReason) {}

// infer makes a request as a caller.
func (c *call) infer(t *testing.T, f stream.Frame) ending {
	c.by.Open()
	err := c.stream.SubmitBy(f, &c.by, stream.Now())
	c.by.Work()
	if err != nil {
		t.Error(err)
		return ending{}
	}
	return <-c.results
}

// TestCallerRunsItsBatch: the batch of a caller's request runs in the goroutine of the caller if a worker is idle, the
// runs of the kind are brief, and the batcher never waits.
func TestCallerRunsItsBatch(t *testing.T) {
	for batcher, in := range map[string]bool{"adaptive": true, "soft": false, "deadline": false} {
		inBubble(t, func(t *testing.T) {
			r := newRig(t)
			g := r.load(t, workers.Config{Kind: "brief", Batching: workers.Batching{
				Kind: workers.BatcherKind(batcher)}})
			c := newCall(t, g)
			for i := range 3 {
				synctest.Wait() // the worker is idle
				x := c.infer(t, r.frame(t, uint64(i), "where"))
				if here := string(goroutine()); x.outcome != stream.Answered || (x.data == here) != in {
					t.Errorf("%s: %+v, called in goroutine %s", batcher, x, here)
				}
			}
			synctest.Wait() // the worker's goroutine has put its batch back
			if st := g.Stats(); st.Batches != 3 || st.Busy != 0 || st.BuffersFree != st.Buffers {
				t.Errorf("%s: %+v", batcher, st)
			}
		})
	}
}

// TestTimeOfBriefRuns: a run of a Brief worker lasts until the last answer, in the goroutine of a caller and of the
// worker, also when the first request of the batch failed; an unanswered last request ends after the run.
func TestTimeOfBriefRuns(t *testing.T) {
	for frames, want := range map[[2]string]time.Duration{
		{"slow", "slow"}: 2, {"error", "slow"}: 1, {"slow", "error"}: 1, {"slow", "silent"}: 1,
	} {
		inBubble(t, func(t *testing.T) {
			r := newRig(t)
			g := r.load(t, workers.Config{Kind: "brief"})
			s, e := open(t, g, every)
			for i, what := range []string{"hang", frames[0], frames[1]} { // the last two wait for the first
				if err := s.Submit(r.frame(t, uint64(i), what)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			releaseHung()
			e.wait(t, 3)
			synctest.Wait()
			sizes := g.Stats().RunTotals.Sizes
			if got := sizes[len(sizes)-1]; got.Rows != 2 || got.Infer != want*time.Millisecond {
				t.Errorf("%q: a run of %d rows took %v, want 2 rows and %v", frames, got.Rows, got.Infer,
					want*time.Millisecond)
			}
		})
	}
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		g := r.load(t, workers.Config{Kind: "brief"})
		c := newCall(t, g)
		synctest.Wait() // the worker is idle
		c.infer(t, r.frame(t, 0, "slow"))
		synctest.Wait()
		if got := g.Stats().RunTotals.Sizes[0].Infer; got != time.Millisecond {
			t.Errorf("the run in the goroutine of a caller took %v, want 1ms", got)
		}
	})
}

// TestCallerFindsBusyWorker: with no idle worker, the request of a caller waits in the queue like other frames.
func TestCallerFindsBusyWorker(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		g := r.load(t, workers.Config{Kind: "brief"})
		s, e := open(t, g, every)
		_ = s.Submit(r.frame(t, 0, "hang"))
		waitBusy(t, g)
		c := newCall(t, g)
		var got ending
		var wg sync.WaitGroup
		wg.Go(func() { got = c.infer(t, r.frame(t, 0, "where")) })
		synctest.Wait()
		if st := g.Stats(); st.Waiting != 1 {
			t.Errorf("%+v", st)
		}
		releaseHung()
		wg.Wait()
		e.wait(t, 1)
		if got.outcome != stream.Answered {
			t.Errorf("%+v", got)
		}
	})
}

// TestCallerOfHangingRun: the watchdog ends the request of a caller whose run hangs, and replaces the worker; the
// caller itself returns with the run.
func TestCallerOfHangingRun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		g := r.load(t, workers.Config{Kind: "brief",
			Limits: workers.Limits{Run: 20 * time.Millisecond, Quarantined: 4}})
		c, other := newCall(t, g), newCall(t, g)
		synctest.Wait() // the worker is idle
		var got ending
		var wg sync.WaitGroup
		wg.Go(func() { got = c.infer(t, r.frame(t, 0, "hang")) })
		until(t, "the hung worker is replaced", func() bool {
			st := g.Stats()
			return st.Quarantined == 1 && st.Workers == 1 && len(c.results) == 1
		})
		if x := other.infer(t, r.frame(t, 0, "where")); x.outcome != stream.Answered {
			t.Errorf("%+v", x)
		}
		releaseHung()
		wg.Wait()
		if stream.CodeOf(got.err) != stream.Timeout {
			t.Errorf("%+v", got)
		}
		until(t, "the quarantine is over", func() bool { return g.Stats().Quarantined == 0 })
	})
}

// TestCallerOfBrokenWorker: a worker that breaks in the goroutine of a caller is replaced, and a removed worker leaves
// after its run there.
func TestCallerOfBrokenWorker(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Kind: "brief", Instances: 2, Limits: workers.Limits{Restarts: 1 << 30}})
	c := newCall(t, g)
	for i, what := range []string{"die", "panic", "fine", "die", "fine"} {
		x := c.infer(t, r.frame(t, uint64(i), what))
		if (x.outcome == stream.Answered) != (what == "fine") {
			t.Errorf("%s: %+v", what, x)
		}
	}
	if err := r.Scale(context.Background(), "brief", 1); err != nil {
		t.Fatal(err)
	}
	until(t, "one worker is left", func() bool { return g.Workers() == 1 })
}

// TestCallersLoseNoWakeUp is TestNoWakeUpIsLostWhenWorkersLeave with callers: each caller and each stream waits for an
// answer before going on, so that the workers park all the time.
func TestCallersLoseNoWakeUp(t *testing.T) {
	for _, buffers := range []int{1, 9} {
		r := newRig(t)
		g := r.load(t, workers.Config{Kind: "brief", Instances: 3, Batching: workers.Batching{Buffers: buffers},
			Limits: workers.Limits{Restarts: 1 << 30}})
		each := 2000
		if testing.Short() {
			each = 300
		}
		var wg sync.WaitGroup
		var over atomic.Bool
		for p := range 6 {
			what := func(rnd *rand.Rand) string {
				if rnd.IntN(100) == 0 {
					return "die"
				}
				return "fine"
			}
			rnd := rand.New(rand.NewPCG(uint64(p), 9))
			if p < 2 {
				s, e := open(t, g, every)
				wg.Go(func() {
					for i := range each {
						_ = s.Submit(r.frame(t, uint64(i), what(rnd)))
						e.wait(t, i+1)
					}
				})
				continue
			}
			c := newCall(t, g)
			wg.Go(func() {
				for i := range each {
					c.infer(t, r.frame(t, uint64(i), what(rnd)))
					for range rnd.IntN(20) {
						runtime.Gosched()
					}
				}
			})
		}
		var scaler sync.WaitGroup
		scaler.Go(func() {
			for n := 0; !over.Load(); n++ {
				if err := r.Scale(context.Background(), "brief", 1+n%4); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Wait()
		over.Store(true)
		scaler.Wait()
	}
}
