package workers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
)

// program runs one batch after the other, like the program of a child process, and accepts the next batch during a
// run. A frame "slow" takes a second; "die" ends the program; "hang" ends after the limit of a run; "deaf" returns
// only after a long time.
type program struct {
	workers.Base
	env   *workers.Env
	state bool

	// of the program; a channel, because time passes in a synctest bubble while a goroutine waits for a channel
	turn chan struct{}
	dead bool // under turn
	in   atomic.Int32
	up   atomic.Bool
}

var programs struct {
	sync.Mutex
	log    []string // of the program's batches
	starts []int    // Env.Instance of each start
	most   int32    // runs of one program at the same time
	faults []string
}

func (p *program) note(format string, args ...any) {
	programs.Lock()
	defer programs.Unlock()
	programs.log = append(programs.log, fmt.Sprintf(format, args...))
}

func toldPrograms(t *testing.T) (log []string, starts []int, most int32) {
	t.Helper()
	programs.Lock()
	defer programs.Unlock()
	log, starts, most = programs.log, programs.starts, programs.most
	if len(programs.faults) > 0 {
		t.Error(programs.faults)
	}
	programs.log, programs.starts, programs.most, programs.faults = nil, nil, 0, nil
	return log, starts, most
}

func init() {
	for _, state := range []bool{false, true} {
		name := "program"
		if state {
			name = "program-affine"
		}
		workers.Register(workers.Kind{Name: name, Ahead: true, New: func() workers.Worker {
			return &program{state: state, turn: make(chan struct{}, 1)}
		}})
	}
}

func (p *program) Init(_ context.Context, env *workers.Env) (*stream.Model, error) {
	p.env = env
	programs.Lock()
	defer programs.Unlock()
	programs.starts = append(programs.starts, env.Instance)
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 4, Stateful: p.state, Affinity: p.state}, nil
}

func (p *program) Acquire(context.Context) error { p.up.Store(true); return nil }

func (p *program) Release() {
	if p.in.Load() > 0 {
		programs.Lock()
		programs.faults = append(programs.faults, "a worker is stopped during a run")
		programs.Unlock()
	}
	p.up.Store(false)
}

func (p *program) Run(ctx context.Context, b *batching.Batch) error {
	n := p.in.Add(1)
	defer p.in.Add(-1)
	programs.Lock()
	programs.most = max(programs.most, n)
	if n > 2 || !p.up.Load() {
		programs.faults = append(programs.faults, fmt.Sprintf("%d runs at once of a worker that is up: %v", n,
			p.up.Load()))
	}
	programs.Unlock()
	if n == 2 {
		p.note("ahead %s", text(b))
	}
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	if p.dead {
		return fmt.Errorf("as requested before: %w", workers.ErrNotStarted)
	}
	b.Begin(stream.Now())
	p.note("begin %s", text(b))
	for i, r := range b.Requests {
		switch string(r.Payload) {
		case "slow":
			time.Sleep(time.Second)
		case "short":
			time.Sleep(time.Millisecond)
		case "die":
			p.dead = true
			return fmt.Errorf("requested: %w", workers.ErrBroken)
		case "panic":
			p.dead = true
			panic("as told")
		case "hang":
			p.dead = true
			time.Sleep(p.env.Limit)
			return fmt.Errorf("%w: %w", stream.Errorf(stream.Timeout, "limits.run", "too long"), workers.ErrBroken)
		case "deaf":
			time.Sleep(time.Hour)
		}
		n := 0
		if p.state {
			n, _ = r.State().(int)
			n++
			r.SetState(n, func(any) {})
		}
		b.Finish(i, []stream.Tensor{{Name: "n", Datatype: stream.Uint8, Shape: []int{len(r.Payload)},
			Data: fmt.Appendf(nil, "%s%d", r.Payload, n)}})
	}
	return nil
}

// text returns the payloads of a batch.
func text(b *batching.Batch) string {
	var all []string
	for _, r := range b.Requests {
		all = append(all, string(r.Payload))
	}
	return strings.Join(all, " ")
}

func (r rig) send(t *testing.T, s *stream.Stream, data ...string) {
	t.Helper()
	for i, d := range data {
		if err := s.Submit(r.frame(t, uint64(i), d)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullBatchIsGatheredAhead checks that a busy worker is given the next batch only when full, so that batches do
// not become smaller.
func TestFullBatchIsGatheredAhead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		g := r.load(t, workers.Config{Kind: "program"})
		s, e := open(t, g, every)
		r.send(t, s, "slow")
		time.Sleep(100 * time.Millisecond)
		r.send(t, s, "b", "b", "b")
		time.Sleep(100 * time.Millisecond)
		if log, _, _ := toldPrograms(t); !slices.Equal(log, []string{"begin slow"}) {
			t.Errorf("while three frames wait: %q", log)
		}
		r.send(t, s, "c")
		time.Sleep(100 * time.Millisecond)
		if log, _, most := toldPrograms(t); !slices.Equal(log, []string{"ahead b b b c"}) || most != 2 {
			t.Errorf("while four frames wait: %q, at most %d at once", log, most)
		}
		if st := g.Stats(); st.Busy != 1 || st.Buffers != 3 || st.BuffersFree != 1 {
			t.Errorf("%+v", st)
		}
		r.send(t, s, "d", "d", "d", "d", "e")
		time.Sleep(100 * time.Millisecond)
		if log, _, _ := toldPrograms(t); len(log) > 0 {
			t.Errorf("with a batch ahead: %q", log)
		}
		e.wait(t, 10)
		synctest.Wait() // until the last run has ended, behind the endings of its frames
		log, _, _ := toldPrograms(t)
		// Entries "ahead" are left out: the runs take no time, so no batch needs to be ahead.
		if want := []string{"begin b b b c", "begin d d d d", "begin e"}; !slices.Equal(slices.DeleteFunc(log,
			func(s string) bool {
				return strings.HasPrefix(s, "ahead")
			}), want) {
			t.Errorf("%q, want %q", log, want)
		}
		if st := g.Stats(); st.Busy != 0 || st.BuffersFree != 3 || st.Batches != 4 || st.Rows != 10 {
			t.Errorf("%+v", st)
		}
	})
}

func TestIdleWorkersComeFirst(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		g := r.load(t, workers.Config{Kind: "program", Instances: 3, Batching: workers.Batching{MaxSize: 1}})
		time.Sleep(time.Millisecond) // until all three gather
		s, e := open(t, g, every)
		r.send(t, s, "slow", "slow", "slow")
		time.Sleep(time.Millisecond)
		if log, starts, most := toldPrograms(t); len(log) != 3 || most != 1 || !slices.Equal(starts, []int{0, 1, 2}) {
			t.Errorf("three batches for three workers: %q, at most %d at once, instances %v", log, most, starts)
		}
		r.send(t, s, "slow", "slow", "slow", "slow")
		time.Sleep(time.Millisecond)
		if log, _, most := toldPrograms(t); len(log) != 3 || most != 2 {
			t.Errorf("four more: %q, at most %d at once", log, most)
		}
		e.wait(t, 7)
		toldPrograms(t)
	})
}

// TestRunsLastAsLongAsTheirProgramTook checks that the wait of a batch for the previous batch counts neither as run
// time nor in the estimate for later frames.
func TestRunsLastAsLongAsTheirProgramTook(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		g := r.load(t, workers.Config{Kind: "program", Batching: workers.Batching{MaxSize: 1}})
		s, e := open(t, g, every)
		for range 5 {
			r.send(t, s, "slow")
		}
		e.wait(t, 5)
		s.Close(stream.ByClient)
		<-s.Finished()
		until(t, "all are counted", func() bool { return g.Stats().RunTotals.Runs == 5 })
		if ran := g.Stats().RunTotals; ran.Infer != 5*time.Second {
			t.Errorf("five runs of a second took %v", ran.Infer)
		}
		late := every
		late.Policy.Deadline = 1500 * time.Millisecond
		s, e = open(t, g, late)
		r.send(t, s, "slow")
		if x := e.wait(t, 1)[0]; x.outcome != stream.Answered {
			t.Errorf("a frame that is in time by the times of runs: %+v", x)
		}
		toldPrograms(t)
	})
}

// TestABatchThatWasNotBegunIsRunAgain checks that the next worker runs the batch behind a fatal batch, after a single
// replacement.
func TestABatchThatWasNotBegunIsRunAgain(t *testing.T) {
	for what, code := range map[string]stream.Code{"die": stream.Internal, "panic": stream.Internal,
		"hang": stream.Timeout} {
		for _, kind := range []string{"program", "program-affine"} {
			t.Run(what+" "+kind, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					r := newRig(t)
					g := r.load(t, workers.Config{Kind: kind, Batching: workers.Batching{MaxSize: 2},
						Limits: workers.Limits{Run: 3 * time.Second}})
					bad, be := open(t, g, every)
					r.send(t, bad, "slow")
					var streams [4]*stream.Stream
					var ends [4]*endings
					for i := range streams {
						streams[i], ends[i] = open(t, g, every)
					}
					time.Sleep(time.Millisecond)
					r.send(t, streams[0], "slow")
					r.send(t, streams[1], what) // the batch ahead; one frame is answered
					time.Sleep(time.Millisecond)
					r.send(t, streams[2], "x")
					r.send(t, streams[3], "x") // and the next batch
					be.wait(t, 1)
					for i, want := range []stream.Code{"", code, "", ""} {
						x := ends[i].wait(t, 1)[0]
						if stream.CodeOf(x.err) != want {
							t.Errorf("stream %d: %+v", i, x)
						}
					}
					if st := g.Stats(); st.Restarts != 1 || st.Workers != 1 || st.Quarantined != 0 {
						t.Errorf("%d restarts, %d workers, %d quarantined", st.Restarts, st.Workers, st.Quarantined)
					}
					log, starts, _ := toldPrograms(t)
					if !slices.Equal(starts, []int{0, 0}) {
						t.Errorf("instances %v", starts)
					}
					n := 0
					for _, l := range log {
						if l == "begin x x" {
							n++
						}
					}
					if n != 1 {
						t.Errorf("the batch behind was begun %d times: %q", n, log)
					}
				})
			})
		}
	}
}

// TestBatchesAheadEndWithTheirWorker checks that when a worker cannot be started again another worker runs the batch
// ahead, or the batch ends with the group.
func TestBatchesAheadEndWithTheirWorker(t *testing.T) {
	for _, n := range []int{1, 2} {
		inBubble(t, func(t *testing.T) {
			r := newRig(t)
			g := r.load(t, workers.Config{Kind: "program", Instances: n, Batching: workers.Batching{MaxSize: 1},
				Limits: workers.Limits{Restarts: -1}})
			s, e := open(t, g, every)
			for range n { // each worker has a slow batch
				r.send(t, s, "slow")
			}
			time.Sleep(time.Millisecond)
			r.send(t, s, "die")
			time.Sleep(time.Millisecond)
			r.send(t, s, "x", "x", "x")
			all := e.wait(t, n+4)
			answered := 0
			for _, x := range all[n+1:] {
				if x.outcome == stream.Answered {
					answered++
				} else if stream.CodeOf(x.err) != stream.Unavailable {
					t.Errorf("%d workers: %+v", n, x)
				}
			}
			if want := []int{1: 0, 2: 3}[n]; answered != want {
				t.Errorf("%d workers: %d frames were answered, want %d: %+v", n, answered, want, all)
			}
			toldPrograms(t)
		})
	}
}

// TestChangesWithABatchAhead checks that an unload, a swap, a smaller number of workers and the end of the server
// lose neither the running batch nor the batch ahead.
func TestChangesWithABatchAhead(t *testing.T) {
	changes := map[string]func(r rig) error{
		"unload": func(r rig) error { return r.Unload(context.Background(), "program", "") },
		"swap": func(r rig) error {
			return r.Swap(context.Background(), "program",
				workers.Config{Kind: "program", Batching: workers.Batching{MaxSize: 1}, MaxFlows: 17})
		},
		"scale": func(r rig) error { return r.Scale(context.Background(), "program", 1) },
		"drain": func(r rig) error { return r.Close(context.Background()) },
	}
	for _, bad := range []bool{false, true} {
		for name, change := range changes {
			t.Run(fmt.Sprint(name, " after a failure: ", bad), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					r := newRig(t)
					g := r.load(t, workers.Config{Kind: "program", Instances: 2,
						Batching: workers.Batching{MaxSize: 1}, Limits: workers.Limits{Run: 3 * time.Second}})
					first := "slow"
					if bad {
						first = "hang"
					}
					ends := make([]*endings, 4)
					for i := range ends {
						var s *stream.Stream
						s, ends[i] = open(t, g, every)
						if i < 2 {
							r.send(t, s, first)
						} else {
							r.send(t, s, "slow")
						}
						time.Sleep(time.Millisecond)
					}
					if _, _, most := toldPrograms(t); most != 2 {
						t.Fatalf("at most %d at once", most)
					}
					if err := change(r); err != nil {
						t.Error(err)
					}
					for i, e := range ends {
						x := e.wait(t, 1)[0]
						if failed := x.outcome != stream.Answered; failed != (bad && i < 2) {
							t.Errorf("frame %d: %+v", i, x)
						}
					}
					_ = r.Close(context.Background())
					toldPrograms(t)
				})
			})
		}
	}
}

// TestHungProgramIsAbandonedAsAWhole checks that when a worker ignores the limit of a run the watchdog ends both
// batches of the worker, and that a new worker with the same number replaces the worker.
func TestHungProgramIsAbandonedAsAWhole(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		g := r.load(t, workers.Config{Kind: "program", Batching: workers.Batching{MaxSize: 1},
			Limits: workers.Limits{Run: time.Second}})
		s, e := open(t, g, every)
		began := time.Now()
		r.send(t, s, "deaf", "x")
		for _, x := range e.wait(t, 2) {
			if stream.CodeOf(x.err) != stream.Timeout {
				t.Errorf("%+v", x)
			}
		}
		if took := time.Since(began); took < 2*time.Second {
			t.Errorf("ended after %v: the worker's own limit could not come first", took)
		}
		r.send(t, s, "x")
		if x := e.wait(t, 3)[2]; x.outcome != stream.Answered {
			t.Errorf("%+v", x)
		}
		until(t, "one worker is left, one is in quarantine", func() bool {
			st := g.Stats()
			return st.Workers == 1 && st.Quarantined == 1 && st.Busy == 0
		})
		_, starts, _ := toldPrograms(t)
		if !slices.Equal(starts, []int{0, 0}) {
			t.Errorf("instances %v", starts)
		}
		time.Sleep(2 * time.Hour) // the program returns
		until(t, "none is in quarantine", func() bool { return g.Stats().Quarantined == 0 })
		toldPrograms(t)
	})
}

// TestInstancesKeepTheirNumbers checks that the highest numbers stop first, and new instances get the smallest free
// numbers.
func TestInstancesKeepTheirNumbers(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Kind: "program", Instances: 3})
	scale := func(n int) {
		t.Helper()
		if err := r.Scale(t.Context(), "program", n); err != nil {
			t.Fatal(err)
		}
		until(t, "the others have stopped", func() bool { return g.Stats().Workers == n })
	}
	scale(1)
	scale(4)
	if _, starts, _ := toldPrograms(t); !slices.Equal(starts, []int{0, 1, 2, 1, 2, 3}) {
		t.Errorf("%v", starts)
	}
}

// TestMinuteEndsARowOfFailures checks that a seldom failing worker is replaced each time, despite few batches between
// the failures.
func TestMinuteEndsARowOfFailures(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		g := r.load(t, workers.Config{Kind: "program", Limits: workers.Limits{Restarts: 1}})
		s, e := open(t, g, every)
		for n := range 5 {
			time.Sleep(time.Minute + time.Second)
			r.send(t, s, "die")
			e.wait(t, n+1)
		}
		r.send(t, s, "x")
		if last := e.wait(t, 6)[5]; last.outcome != stream.Answered || g.Stats().Exhausted {
			t.Errorf("%+v", last)
		}
		toldPrograms(t)
	})
}

// TestStateOfWorkersThatAreReplaced checks that a model is not ready during the replacement of its only worker, is
// ready again afterwards, and reports a worker with more failures in a row than limits.restarts allows, although
// other workers serve.
func TestStateOfWorkersThatAreReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		g := r.load(t, workers.Config{Kind: "program", Instances: 2, Batching: workers.Batching{MaxSize: 1},
			Limits: workers.Limits{Restarts: 2}})
		s, e := open(t, g, every)
		n := 0
		send := func(what string) {
			r.send(t, s, what)
			n++
			e.wait(t, n)
		}
		if st := g.Stats(); !g.Ready() || st.Exhausted || st.State != workers.StateReady {
			t.Errorf("%+v", st)
		}
		if err := r.Scale(t.Context(), "program", 1); err != nil {
			t.Fatal(err)
		}
		until(t, "one has stopped", func() bool { return g.Stats().Workers == 1 })
		send("die")
		synctest.Wait() // the worker waits before the restart
		if st := g.Stats(); g.Ready() || st.Exhausted || st.State != workers.StateUnavailable || st.Reason == "" {
			t.Errorf("while the only worker is replaced: %+v", st)
		}
		send("x") // ends the row of failures
		if st := g.Stats(); !g.Ready() || st.State != workers.StateReady {
			t.Errorf("%+v", st)
		}
		send("die")
		send("die")
		send("x")
		if g.Stats().Exhausted {
			t.Error("two failures in a row, of which two are allowed, are too many")
		}
		if err := r.Scale(t.Context(), "program", 2); err != nil {
			t.Fatal(err)
		}
		for range 3 { // both workers have three in a row at the latest then
			send("die")
			send("die")
		}
		synctest.Wait()
		if st := g.Stats(); !st.Exhausted {
			t.Errorf("a worker has failed three times in a row: %+v", st)
		}
		toldPrograms(t)
	})
}
