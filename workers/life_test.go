package workers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/stream"
	"millrace/workers"
)

// until waits for a condition that no channel signals.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

func TestAffinityStaysAndMoves(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Kind: "affine", Instances: 3})
	before := tallies.Load()
	home := func(s *stream.Stream, e *endings, i int) string {
		t.Helper()
		_ = s.Submit(r.frame(t, uint64(i), "x"))
		x := e.wait(t, i+1)[i]
		if x.outcome != stream.Answered {
			t.Fatalf("frame %d: %+v", i, x)
		}
		where, count, _ := strings.Cut(x.data, " ")
		if i < 50 && count != fmt.Sprint(i+1) {
			t.Fatalf("frame %d is counted %s", i, count)
		}
		return where
	}
	var streams []*stream.Stream
	var sinks []*endings
	var homes []string
	for range 6 {
		s, e := open(t, g, every)
		streams, sinks, homes = append(streams, s), append(sinks, e), append(homes, home(s, e, 0))
	}
	for i := 1; i < 50; i++ {
		for k, s := range streams {
			if at := home(s, sinks[k], i); at != homes[k] {
				t.Fatalf("stream %d went from %s to %s", k, homes[k], at)
			}
		}
	}
	// The streams of a failed worker continue, on other workers or on the replacement.
	_ = streams[0].Submit(r.frame(t, 50, "die"))
	if x := sinks[0].wait(t, 51)[50]; x.outcome != stream.Failed {
		t.Fatalf("%+v", x)
	}
	for k, s := range streams {
		at := home(s, sinks[k], len(sinks[k].wait(t, 50)))
		if (at == homes[k]) == (homes[k] == homes[0]) {
			t.Fatalf("stream %d was on %s and is on %s; %s has failed", k, homes[k], at, homes[0])
		}
	}
	for _, s := range streams {
		s.Close(stream.ByClient)
		<-s.Finished()
	}
	if n := tallies.Load() - before; n != 0 {
		t.Fatalf("%d states were not released", n)
	}
}

func TestAffinityLeavesAHungWorkerAndAScaledDownOne(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		g := r.load(t, workers.Config{Kind: "affine", Instances: 2, Limits: workers.Limits{Run: 20 * time.Millisecond}})
		s, e := open(t, g, every)
		_ = s.Submit(r.frame(t, 0, "hang"))
		for i := range 20 {
			_ = s.Submit(r.frame(t, uint64(i+1), "x"))
		}
		for i, x := range e.wait(t, 21) {
			if (x.outcome == stream.Answered) != (i > 0) {
				t.Fatalf("frame %d: %+v", i, x)
			}
		}
		releaseHung()
		for _, n := range []int{1, 4, 1} {
			if err := r.Scale(context.Background(), "affine", n); err != nil {
				t.Fatal(err)
			}
			had := len(e.wait(t, 21))
			_ = s.Submit(r.frame(t, 0, "x"))
			if x := e.wait(t, had+1)[had]; x.outcome != stream.Answered {
				t.Fatalf("%d: %+v %v", n, x, x.err)
			}
		}
	})
}

func TestIdleStateIsReleased(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		g := r.load(t, workers.Config{Kind: "affine", Limits: workers.Limits{IdleState: time.Millisecond,
			Run: 40 * time.Millisecond}})
		before := tallies.Load()
		s, e := open(t, g, every)
		_ = s.Submit(r.frame(t, 0, "x"))
		e.wait(t, 1)
		until(t, "the state of an idle stream is released", func() bool { return tallies.Load() == before })
		_ = s.Submit(r.frame(t, 1, "x"))
		if x := e.wait(t, 2)[1]; !strings.HasSuffix(x.data, " 1") {
			t.Fatalf("%+v", x)
		}
	})
}

func TestQuarantineIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		g := r.load(t, workers.Config{Kind: "faulty", Limits: workers.Limits{Run: 10 * time.Millisecond,
			Quarantined: 2}})
		s, e := open(t, g, every)
		for i := range 3 {
			_ = s.Submit(r.frame(t, uint64(i), "hang"))
			if x := e.wait(t, i+1)[i]; x.outcome != stream.Failed {
				t.Fatalf("%+v", x)
			}
		}
		<-s.Finished()
		if st := g.Stats(); st.Quarantined != 3 || st.Workers != 0 || g.Ready() || st.BuffersFree != st.Buffers {
			t.Fatalf("%+v", st)
		}
		releaseHung()
		until(t, "the hung runs are over", func() bool { return g.Stats().Quarantined == 0 })
	})
}

// When a stream's frame hangs, the next frame is answered with a new state, and the state of the hung run is released
// once, when the run returns.
func TestStateOfAHungRun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		g := r.load(t, workers.Config{Kind: "affine", Limits: workers.Limits{Run: 10 * time.Millisecond}})
		before := tallies.Load()
		s, e := open(t, g, every)
		_ = s.Submit(r.frame(t, 0, "x"))
		_ = s.Submit(r.frame(t, 1, "hang"))
		_ = s.Submit(r.frame(t, 2, "x"))
		if x := e.wait(t, 3)[2]; !strings.HasSuffix(x.data, " 1") {
			t.Fatalf("%+v", x)
		}
		if n := tallies.Load() - before; n != 2 {
			t.Fatalf("%d states while the run hangs", n)
		}
		releaseHung()
		until(t, "the hung run's state is released", func() bool { return tallies.Load()-before == 1 })
		s.Close(stream.ByClient)
		<-s.Finished()
		if n := tallies.Load() - before; n != 0 {
			t.Fatalf("%d states are left", n)
		}
	})
}

func TestStarts(t *testing.T) {
	for _, c := range []struct {
		how   string
		code  stream.Code
		calls string
	}{
		{"init fails", stream.Internal, "init"},
		{"init panics", stream.Internal, "init"},
		{"waits", stream.Timeout, ""},
		{"allocate fails", stream.Internal, "init allocate destroy"},
		{"allocate panics", stream.Internal, "init allocate destroy"},
		{"acquire fails", stream.Internal, "init allocate acquire deallocate destroy"},
		{"acquire panics", stream.Internal, "init allocate acquire deallocate destroy"},
		{"release panics", "", "init allocate acquire release deallocate destroy"},
	} {
		t.Run(c.how, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t)
				started.Lock()
				started.all = nil
				started.Unlock()
				ctx := context.Background()
				limit := 20 * time.Second
				if c.code == stream.Timeout {
					limit = 20 * time.Millisecond
				}
				name, err := r.LoadConfig(ctx, workers.Config{Name: "s", Kind: "starter",
					Params: stream.Params{"how": c.how}, Limits: workers.Limits{Start: limit}}, true)
				if stream.CodeOf(err) != c.code {
					t.Fatalf("%v", err)
				}
				if err == nil {
					if err := r.Unload(ctx, name, ""); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := r.Group("s", ""); stream.CodeOf(err) != stream.NotFound {
					t.Fatal("it is there")
				}
				started.Lock()
				defer started.Unlock()
				if got := strings.Join(started.all[0].calls, " "); got != c.calls {
					t.Fatalf("called %q, want %q", got, c.calls)
				}
			})
		})
	}
}

// hangStarters forgets the earlier starters, and makes later starters hang, in their configured step, until the gate
// is closed.
func hangStarters() (gate chan struct{}) {
	started.Lock()
	defer started.Unlock()
	started.all, started.gate = nil, make(chan struct{})
	return started.gate
}

// A start that hangs in any step fails for the caller and does not delay other changes.
func TestAStartThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		gate := hangStarters()
		cfg := workers.Config{Name: "s", Kind: "starter", Params: stream.Params{"how": "acquire hangs"},
			Limits: workers.Limits{Start: 20 * time.Millisecond}}
		if _, err := r.LoadConfig(context.Background(), cfg, true); stream.CodeOf(err) != stream.Timeout {
			t.Fatalf("%v", err)
		}
		r.load(t, workers.Config{Kind: "identity"})
		close(gate)
		until(t, "what it took is given back", func() bool {
			started.Lock()
			defer started.Unlock()
			return slices.Contains(started.all[0].calls, "destroy")
		})
	})
}

// A model refused after the creation of its worker, with a hung worker, does not delay other models.
func TestARefusedModelWhoseWorkerHangs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		gate := hangStarters()
		defer close(gate)
		cfg := workers.Config{Name: "s", Kind: "starter", Params: stream.Params{"how": "destroy hangs"},
			Image: &stream.ImageSpec{}, Limits: workers.Limits{Start: 20 * time.Millisecond}}
		if _, err := r.LoadConfig(context.Background(), cfg, true); stream.CodeOf(err) != stream.Timeout {
			t.Fatalf("%v", err)
		}
		r.load(t, workers.Config{Kind: "identity"})
	})
}

// A worker that breaks and then hangs while being stopped or restarted is replaced, like a worker with a hung run.
func TestARestartThatHangs(t *testing.T) {
	for _, how := range []string{"release hangs", "restart hangs"} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t)
				gate := hangStarters()
				g := r.load(t, workers.Config{Name: "s", Kind: "starter", Params: stream.Params{"how": how},
					Limits: workers.Limits{Start: 500 * time.Millisecond, Run: 200 * time.Millisecond}})
				s, e := open(t, g, every)
				_ = s.Submit(r.frame(t, 0, "die"))
				e.wait(t, 1)
				_ = s.Submit(r.frame(t, 1, "x"))
				if x := e.wait(t, 2); x[0].outcome != stream.Failed || x[1].outcome != stream.Answered {
					t.Fatalf("%+v", x)
				}
				until(t, "the hung one is in quarantine and out of the group", func() bool {
					st := g.Stats()
					return st.Quarantined == 1 && st.Workers == 1 && st.BuffersFree == st.Buffers && g.Ready()
				})
				close(gate)
				until(t, "what hung is over", func() bool { return g.Stats().Quarantined == 0 })
				if err := r.Unload(context.Background(), "s", ""); err != nil {
					t.Fatal(err)
				}
				started.Lock()
				defer started.Unlock()
				for i, w := range started.all {
					if n := len(w.calls); n == 0 || w.calls[n-1] != "destroy" {
						t.Errorf("worker %d was left behind: %v", i, w.calls)
					}
				}
			})
		})
	}
}

// A slow start delays changes only of its own family. The change of a departed caller is not made.
func TestACallerWhoLeavesItsChange(t *testing.T) {
	r := newRig(t)
	gate := hangStarters()
	slow := workers.Config{Name: "slow", Kind: "starter", Params: stream.Params{"how": "acquire hangs"}}
	first := make(chan error, 1)
	ctx, leave := context.WithCancel(context.Background())
	go func() {
		_, err := r.LoadConfig(ctx, slow, true)
		first <- err
	}()
	until(t, "the first is being made", func() bool {
		started.Lock()
		defer started.Unlock()
		return len(started.all) == 1 && slices.Contains(started.all[0].calls, "acquire")
	})
	for _, name := range []string{"other", "other-0", "slower"} {
		r.load(t, workers.Config{Name: name, Kind: "identity"})
		if err := r.Scale(context.Background(), name, 2); err != nil {
			t.Fatal(err)
		}
		if err := r.Unload(context.Background(), name, ""); err != nil {
			t.Fatal(err)
		}
	}
	queued := make(chan error, 1)
	ctx2, leave2 := context.WithCancelCause(context.Background())
	go func() {
		_, err := r.LoadConfig(ctx2, workers.Config{Name: "slow-1-0", Kind: "identity"}, true)
		queued <- err
	}()
	leave2(errors.New("caller left"))
	if err := <-queued; err == nil || !strings.Contains(err.Error(), "caller left") {
		t.Fatalf("%v", err)
	}
	leave()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	close(gate)
	r.load(t, workers.Config{Name: "slow", Kind: "identity"}) // after all queued changes
	if _, err := r.Group("slow-1-0", ""); stream.CodeOf(err) != stream.NotFound {
		t.Fatal("a change was made for a caller who no longer waited")
	}
}

// Changes of one family never overlap, whatever the names of the endpoints: a load of "m" makes "m-0", which may also
// be the name of another model.
func TestChangesOfAFamily(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	var wg sync.WaitGroup
	for i, name := range []string{"m", "m-0", "m-0-0", "m-1"} {
		wg.Go(func() {
			for range 10 {
				var mine []string
				for n := range 3 {
					endpoint, err := r.LoadConfig(ctx, workers.Config{Name: name, Kind: "identity",
						MaxFlows: 10 + 3*i + n}, true)
					if err != nil {
						t.Error(err)
						return
					}
					if g, err := r.Group(endpoint, ""); err != nil || g.Config().MaxFlows != 10+3*i+n {
						t.Errorf("%s is of another model", endpoint)
					}
					mine = append(mine, endpoint)
				}
				for _, endpoint := range mine {
					if err := r.Unload(ctx, endpoint, ""); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if left := r.Snapshot(); len(left) != 0 {
		t.Errorf("%d endpoints are left", len(left))
	}
}

// Repeating and contradicting requests are all answered, and the final state is a requested state.
func TestContradictoryChanges(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for j := range 15 {
				var err error
				switch (i + j) % 6 {
				case 0, 1:
					_, err = r.Load(ctx, "identity", workers.Load{})
				case 2:
					_, err = r.Load(ctx, "identity", workers.Load{Params: stream.Params{"share": false}})
				case 3:
					err = r.Unload(ctx, "identity", "")
				case 4:
					err = r.Scale(ctx, "identity", 1+j%3)
				case 5:
					err = r.Swap(ctx, "identity", workers.Config{Kind: "identity"})
				}
				if err != nil && stream.CodeOf(err) != stream.NotFound {
					t.Error(err)
				}
				r.Snapshot()
			}
		})
	}
	wg.Wait()
	if _, err := r.Load(ctx, "identity", workers.Load{}); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if r.Unload(ctx, "identity", "") != nil {
			break
		}
	}
	for _, st := range r.Snapshot() {
		t.Errorf("%s is left with %d workers", st.Model.Name, st.Workers)
	}
}

func TestCloseIsWaitedForByAll(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Kind: "faulty"})
	s, e := open(t, g, every)
	_ = s.Submit(r.frame(t, 0, "hang"))
	waitBusy(t, g)
	_ = s.Submit(r.frame(t, 1, "x"))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("a batch runs still: %v", err)
	}
	if _, err := r.Load(context.Background(), "identity", workers.Load{}); stream.CodeOf(err) != stream.Draining {
		t.Fatalf("%v", err)
	}
	until(t, "frames that wait are ended", func() bool { return s.WaitingFrames() == 0 })
	releaseHung()
	if err := r.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	all := e.wait(t, 2)
	if stream.CodeOf(all[0].err) != stream.Draining || stream.CodeOf(all[1].err) != stream.Draining {
		t.Fatalf("%+v", all)
	}
}
