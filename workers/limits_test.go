package workers_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/batching"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
	"millrace/workers/results/postprocess"
)

// fixed is dense whose batch axis is fixed at 4 rows.
type fixed struct{ dense }

func (f *fixed) Init(ctx context.Context, env *workers.Env) (*stream.Model, error) {
	m, err := f.dense.Init(ctx, env)
	m.Axis = stream.FixedAxis
	return m, err
}

// slow takes a second for each batch, and ten seconds for its first.
type slow struct {
	workers.Base
	warm bool
}

func (*slow) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 1}, nil
}

func (s *slow) Run(_ context.Context, b *batching.Batch) error {
	if !s.warm {
		time.Sleep(9 * time.Second)
	}
	s.warm = true
	time.Sleep(time.Second)
	for i := range b.Requests {
		b.Finish(i, nil)
	}
	return nil
}

// choosy finds a box in each frame, but fails frames whose first byte is not 0.
type choosy struct{ counting }

func (c *choosy) Run(ctx context.Context, b *batching.Batch) error {
	for i := range b.Requests {
		if b.Row(0, b.Offsets[i])[0] != 0 {
			b.Fail(i, stream.Errorf(stream.Unsupported, "", "requested"))
		}
	}
	return c.counting.Run(ctx, b)
}

func init() {
	workers.Register(workers.Kind{Name: "fixed", New: func() workers.Worker { return &fixed{} }})
	workers.Register(workers.Kind{Name: "slow", New: func() workers.Worker { return &slow{} }})
	workers.Register(workers.Kind{Name: "choosy", New: func() workers.Worker { return &choosy{} }})
}

func TestFixedBatchAxis(t *testing.T) {
	r := newRig(t)
	for size, code := range map[int]stream.Code{0: "", 4: "", 3: stream.InvalidArgument, 5: stream.InvalidArgument} {
		_, err := r.LoadConfig(t.Context(), workers.Config{Name: "f", Kind: "fixed",
			Batching: workers.Batching{MaxSize: size}}, true)
		if stream.CodeOf(err) != code || err != nil && !strings.Contains(err.Error(), "batching.max_size: ") {
			t.Errorf("batches of %d rows: %v", size, err)
		}
	}
}

func TestOneShotCallersAreNotCountedAsStreams(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Kind: "identity"})
	oneShot := every
	oneShot.OneShot = true
	for _, o := range []stream.Options{every, oneShot, every} {
		open(t, g, o)
	}
	if st := g.Stats(); st.Streams != 2 || st.PlacesUsed != 3 {
		t.Errorf("%d streams, %d places", st.Streams, st.PlacesUsed)
	}
}

// The hook sees exactly the run batches.
func TestHookOfBatches(t *testing.T) {
	var mu sync.Mutex
	var rows []int
	mem := buf.NewPool(0)
	m := workers.NewManager(workers.ManagerOptions{Memory: mem, Hooks: func(*stream.Model) workers.Hooks {
		return workers.Hooks{Batch: func(n int, _, _ time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			rows = append(rows, n)
		}}
	}})
	g := rig{m, mem}.load(t, workers.Config{Kind: "chaos-image"})
	s, e := open(t, g, every)
	for i, side := range []int{9, 8} { // the first picture is too short for its size
		f := stream.Frame{Seq: uint64(i), Codec: stream.RGB24, Width: side, Height: side, Payload: make([]byte, 8*8*3)}
		if err := s.Submit(f); err != nil {
			t.Fatal(err)
		}
		if x := e.wait(t, i+1)[i]; (x.outcome == stream.Answered) != (i == 1) {
			t.Fatalf("%+v", x)
		}
	}
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(rows, []int{1}) {
		t.Errorf("batches of %v rows", rows)
	}
}

// taker takes the requests of a batch, answers them, and hangs.
type taker struct{ faulty }

func (*taker) Run(_ context.Context, b *batching.Batch) error {
	for _, r := range b.Take(nil) {
		r.FinishSingle(stream.Tensor{Name: "y", Datatype: stream.Uint8}, nil, false)
		r.Unbind()
	}
	hang()
	return nil
}

// TestHungRunWithoutRequests: the watchdog gives up a run whose worker has taken the requests from the batch.
func TestHungRunWithoutRequests(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		mem := buf.NewPool(0)
		m := workers.NewManager(workers.ManagerOptions{Memory: mem, Hooks: func(*stream.Model) workers.Hooks {
			return workers.Hooks{Run: func(r workers.BatchRun) {
				if len(r.Batch.Requests) == 0 {
					t.Error("a run without requests was reported")
				}
			}}
		}})
		g := rig{m, mem}.load(t, workers.Config{Kind: "taker",
			Limits: workers.Limits{Run: 20 * time.Millisecond, Quarantined: 4}})
		s, e := open(t, g, every)
		if err := s.Submit(stream.Frame{Payload: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		e.wait(t, 1)
		until(t, "the hung worker is replaced", func() bool {
			st := g.Stats()
			return st.Quarantined == 1 && st.Workers == 1
		})
		releaseHung()
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Only the first batch of a worker is not measured: a frame is dropped when the measured times predict a late answer.
func TestTimesAreLearnedOfWarmWorkers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		g := r.load(t, workers.Config{Kind: "slow"})
		for i, c := range []struct {
			deadline time.Duration
			want     stream.Outcome
		}{
			{time.Minute, stream.Answered}, // cold, ten seconds
			{2 * time.Second, stream.Answered},
			{100 * time.Millisecond, stream.Dropped},
			{2 * time.Second, stream.Answered},
		} {
			o := every
			o.Policy.Deadline = c.deadline
			s, e := open(t, g, o)
			if err := s.Submit(r.frame(t, 0, "x")); err != nil {
				t.Fatal(err)
			}
			if x := e.wait(t, 1)[0]; x.outcome != c.want || c.want == stream.Dropped && x.reason != stream.Stale {
				t.Errorf("frame %d, to be answered within %v: %+v", i, c.deadline, x)
			}
		}
	})
}

// A state is kept for limits.idle_state, and not much longer.
func TestIdleStateIsKeptForItsTime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		g := r.load(t, workers.Config{Kind: "affine", Limits: workers.Limits{IdleState: 20 * time.Second}})
		before := tallies.Load()
		s, e := open(t, g, every)
		_ = s.Submit(r.frame(t, 0, "x"))
		e.wait(t, 1)
		time.Sleep(19 * time.Second)
		if n := tallies.Load() - before; n != 1 {
			t.Errorf("%d states after 19 s", n)
		}
		time.Sleep(8 * time.Second)
		if n := tallies.Load() - before; n != 0 {
			t.Errorf("%d states after 27 s", n)
		}
	})
}

// Unloading waits for a run, but not after the run is abandoned, and for a worker that stops slowly.
func TestUnloadWaitsForWorkers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		g := r.load(t, workers.Config{Kind: "faulty", Limits: workers.Limits{Run: time.Second}})
		s, e := open(t, g, every)
		_ = s.Submit(r.frame(t, 0, "hang"))
		waitBusy(t, g)
		start := time.Now()
		if err := r.Unload(t.Context(), "faulty", ""); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 900*time.Millisecond || took > 2*time.Second {
			t.Errorf("a hung run of at most 1s was waited for %v", took)
		}
		if x := e.wait(t, 1)[0]; stream.CodeOf(x.err) != stream.Timeout {
			t.Errorf("%+v", x)
		}
		releaseHung()
		until(t, "the memory of the hung run is given back", func() bool { return r.mem.Stats().Leases == 0 })
	})
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		gate := hangStarters()
		cfg := workers.Config{Name: "s", Kind: "starter", Params: stream.Params{"how": "release hangs"},
			Limits: workers.Limits{Start: 10 * time.Second, Run: time.Second}}
		r.load(t, cfg)
		time.AfterFunc(5*time.Second, func() { close(gate) })
		start := time.Now()
		if err := r.Unload(t.Context(), "s", ""); err != nil {
			t.Fatal(err)
		}
		started.Lock()
		defer started.Unlock()
		if took := time.Since(start); took < 5*time.Second || !slices.Contains(started.all[0].calls, "destroy") {
			t.Errorf("unloaded after %v; called %v", took, started.all[0].calls)
		}
	})
}

// Only the panics of a stopping worker are logged.
func TestPanicsOfStoppingWorkersAreLogged(t *testing.T) {
	for how, want := range map[string]int{"release panics": 1, "well": 0} {
		var out bytes.Buffer
		m := workers.NewManager(workers.ManagerOptions{Memory: buf.NewPool(0),
			Log: slog.New(slog.NewTextHandler(&out, nil))})
		hangStarters()
		if _, err := m.LoadConfig(t.Context(), workers.Config{Name: "s", Kind: "starter",
			Params: stream.Params{"how": how}}, true); err != nil {
			t.Fatal(err)
		}
		if err := m.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out.String(), "worker panicked while stopping"); n != want {
			t.Errorf("%s: %d times in the log:\n%s", how, n, out.String())
		}
	}
}

// When the worker ends one frame itself, the stages get the remaining frames of the batch.
func TestStagesOfABatchThatIsAnsweredInPart(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Kind: "choosy", Batching: workers.Batching{Kind: batching.Hard, MaxSize: 2},
		Parts: []any{
			&postprocess.Config{Boxes: &postprocess.Boxes{Boxes: "b", Scores: "s"}},
		}})
	var all []*replies
	for i := range 2 {
		a := newReplies()
		s, err := g.Open(every, a)
		if err != nil {
			t.Fatal(err)
		}
		f := r.frame(t, 0, string(append([]byte{byte(1 - i)}, make([]byte, 11)...)))
		f.Codec, f.Inputs = stream.Tensors, []stream.Tensor{{Name: "x", Datatype: stream.Float32, Shape: []int{1, 3},
			Data: f.Payload}}
		if err := s.Submit(f); err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	if x := all[0].next(t); stream.CodeOf(x.err) != stream.Unsupported {
		t.Errorf("the frame that the worker failed: %+v", x)
	}
	if x := all[1].next(t); x.outcome != stream.Answered || x.outputs["boxes"] == "" {
		t.Errorf("the other frame: %+v", x)
	}
}
