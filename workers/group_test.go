package workers_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var every = stream.Options{Policy: stream.Policy{Mode: stream.Every, Window: 256}}

func open(t *testing.T, g *workers.Group, o stream.Options) (*stream.Stream, *endings) {
	t.Helper()
	e := newEndings()
	s, err := g.Open(o, e)
	if err != nil {
		t.Fatal(err)
	}
	return s, e
}

func TestIdentityAnswersInOrder(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Kind: "identity", Instances: 3})
	s, e := open(t, g, every)
	for i := range 200 {
		if err := s.Submit(r.frame(t, uint64(i), "abc")); err != nil {
			t.Fatal(err)
		}
	}
	for i, x := range e.wait(t, 200) {
		if x.seq != uint64(i) || x.outcome != stream.Answered || x.data != "\x03\x00\x00\x00abc" {
			t.Fatalf("ending %d: %+v", i, x)
		}
	}
	s.Close(stream.ByClient)
	<-s.Finished()
	if c := s.Counts(); c.Accepted != 200 || c.Results != 200 {
		t.Fatalf("%+v", c)
	}
}

func TestLatestKeepsTheNewest(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Kind: "faulty"})
	blocker, be := open(t, g, every)
	if err := blocker.Submit(r.frame(t, 0, "hang")); err != nil {
		t.Fatal(err)
	}
	waitBusy(t, g)
	s, e := open(t, g, stream.Options{Policy: stream.Policy{Mode: stream.Latest}})
	for i := range 10 {
		if err := s.Submit(r.frame(t, uint64(i), "x")); err != nil {
			t.Fatal(err)
		}
	}
	releaseHung()
	all := e.wait(t, 10)
	for i, x := range all[:9] {
		if x.seq != uint64(i) || x.reason != stream.Superseded {
			t.Fatalf("ending %d: %+v", i, x)
		}
	}
	if last := all[9]; last.seq != 9 || last.outcome != stream.Answered {
		t.Fatalf("%+v", last)
	}
	be.wait(t, 1)
}

// waitBusy waits until a run hangs.
func waitBusy(t *testing.T, g *workers.Group) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); g.Stats().Busy == 0 || hanging() == 0; {
		if time.Now().After(end) {
			t.Fatal("no worker became busy")
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func TestDenseRowsReturnToTheirRequests(t *testing.T) {
	all := []batching.Backend{batching.Heap, batching.C}
	if batching.SharedAvailable() {
		all = append(all, batching.Shared)
	}
	for _, mem := range all {
		r := newRig(t)
		g := r.load(t, workers.Config{Kind: "dense", Name: string(mem), Batching: workers.Batching{Memory: mem}})
		var sinks []*endings
		for i := range 5 {
			s, e := open(t, g, every)
			sinks = append(sinks, e)
			for j := range 20 {
				v := float32(100*i + j)
				l, _ := r.mem.Copy(stream.AppendFloat32(nil, v, v+1, v+2))
				f := stream.Frame{Seq: uint64(j), Codec: stream.Tensors, Lease: l,
					Inputs: []stream.Tensor{{Name: "x", Datatype: stream.Float32, Shape: []int{3}, Data: l.Bytes()}}}
				if err := s.Submit(f); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i, e := range sinks {
			for j, x := range e.wait(t, 20) {
				v := 2 * float32(100*i+j)
				if want := string(stream.AppendFloat32(nil, v, v+2, v+4)); x.data != want {
					t.Fatalf("%s: stream %d frame %d: %q, want %q, %v", mem, i, j, x.data, want, x.err)
				}
			}
		}
	}
}

func TestBadFramesEndAsErrorsInTheirTurn(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Kind: "dense"})
	s, e := open(t, g, every)
	good := func() stream.Frame {
		return stream.Frame{Codec: stream.Tensors,
			Inputs: []stream.Tensor{{Name: "x", Datatype: stream.Float32, Shape: []int{2, 3}, Data: make([]byte, 24)}}}
	}
	bad := []func(*stream.Frame){
		func(f *stream.Frame) { f.Inputs[0].Shape = []int{4} },
		func(f *stream.Frame) { f.Inputs[0].Datatype = stream.Int32 },
		func(f *stream.Frame) { f.Inputs[0].Name = "z" },
		func(f *stream.Frame) { f.Inputs = append(f.Inputs, f.Inputs[0]) },
		func(f *stream.Frame) { f.Inputs[0].Shape = []int{5, 3} },
		func(f *stream.Frame) { f.Inputs[0].Shape = []int{0, 3} },
		func(f *stream.Frame) { f.Codec = stream.Opaque },
	}
	n := 0
	for _, spoil := range bad {
		for _, f := range []stream.Frame{good(), good()} {
			if n%2 == 1 {
				spoil(&f)
			}
			f.Seq = uint64(n)
			n++
			if err := s.Submit(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, x := range e.wait(t, n) {
		want := stream.Answered
		if i%2 == 1 {
			want = stream.Failed
		}
		if x.seq != uint64(i) || x.outcome != want {
			t.Errorf("ending %d: %+v", i, x)
		}
	}
}

func TestPanicFailsItsBatchAndTheNextIsServed(t *testing.T) {
	for _, what := range []string{"panic", "die", "error", "silent"} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			g := r.load(t, workers.Config{Kind: "faulty"})
			s, e := open(t, g, every)
			_ = s.Submit(r.frame(t, 0, what))
			if x := e.wait(t, 1)[0]; x.outcome != stream.Failed {
				t.Fatalf("%+v", x)
			}
			_ = s.Submit(r.frame(t, 1, "fine"))
			if x := e.wait(t, 2)[1]; x.data != "fine" {
				t.Fatalf("%+v", x)
			}
		})
	}
}

func TestHungRunIsAbandonedAndReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		g := r.load(t, workers.Config{Kind: "faulty-stateful", Limits: workers.Limits{Run: 20 * time.Millisecond}})
		s, e := open(t, g, every)
		_ = s.Submit(r.frame(t, 0, "hang"))
		if x := e.wait(t, 1)[0]; stream.CodeOf(x.err) != stream.Timeout {
			t.Fatalf("%+v", x)
		}
		_ = s.Submit(r.frame(t, 1, "fine"))
		if x := e.wait(t, 2)[1]; x.data != "fine" {
			t.Fatalf("%+v", x)
		}
		until(t, "one instance is in quarantine, and replaced", func() bool {
			st := g.Stats()
			return st.Quarantined == 1 && st.Restarts == 1 && st.Busy == 0
		})
		releaseHung()
		until(t, "the hung run came back and is not counted any more", func() bool {
			return g.Stats().Quarantined == 0
		})
	})
}

func TestWorkersThatFailTooOftenEndTheGroup(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Kind: "faulty", Limits: workers.Limits{Restarts: 1}})
	s, e := open(t, g, every)
	for i := range 2 { // one restart is allowed in a row
		_ = s.Submit(r.frame(t, uint64(i), "die"))
		e.wait(t, i+1)
	}
	<-s.Finished()
	if g.Ready() {
		t.Fatal("ready without a worker")
	}
	if _, err := g.Open(every, newEndings()); stream.CodeOf(err) != stream.Unavailable {
		t.Fatalf("%v", err)
	}
	again := r.load(t, workers.Config{Kind: "faulty", Limits: workers.Limits{Restarts: 1}})
	if again == g || !again.Ready() {
		t.Fatal("loading again did not make a new group")
	}
}

func TestUnloadEndsWaitingFramesAndCompletesThoseInFlight(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Kind: "faulty", Batching: workers.Batching{MaxSize: 1}})
	s, e := open(t, g, every)
	_ = s.Submit(r.frame(t, 0, "hang"))
	waitBusy(t, g)
	for i := range 5 {
		_ = s.Submit(r.frame(t, uint64(i+1), "x"))
	}
	unloaded := make(chan error)
	go func() { unloaded <- r.Unload(context.Background(), "faulty", "") }()
	for end := time.Now().Add(10 * time.Second); s.WaitingFrames() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("frames still wait")
		}
	}
	releaseHung()
	if err := <-unloaded; err != nil {
		t.Fatal(err)
	}
	all := e.wait(t, 6)
	if all[0].outcome != stream.Answered {
		t.Fatalf("the frame in flight: %+v", all[0])
	}
	for _, x := range all[1:] {
		if stream.CodeOf(x.err) != stream.Unloaded {
			t.Fatalf("%+v", x)
		}
	}
	if err := s.Submit(r.frame(t, 9, "late")); stream.CodeOf(err) != stream.Unloaded {
		t.Fatalf("%v", err)
	}
	if _, err := r.Group("faulty", ""); stream.CodeOf(err) != stream.NotFound {
		t.Fatalf("%v", err)
	}
}

func TestSwapMovesStreams(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Kind: "faulty", Name: "m", Batching: workers.Batching{MaxSize: 1}})
	s, e := open(t, g, every)
	_ = s.Submit(r.frame(t, 0, "hang"))
	waitBusy(t, g)
	for i := range 5 {
		_ = s.Submit(r.frame(t, uint64(i+1), "x"))
	}
	swapped := make(chan error)
	go func() { swapped <- r.Swap(context.Background(), "m", workers.Config{Kind: "identity"}) }()
	for end := time.Now().Add(10 * time.Second); s.WaitingFrames() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("frames were not taken by the new group")
		}
	}
	releaseHung()
	if err := <-swapped; err != nil {
		t.Fatal(err)
	}
	all := e.wait(t, 6)
	for i, x := range all {
		if x.seq != uint64(i) || x.outcome != stream.Answered {
			t.Fatalf("%+v", all)
		}
	}
	if all[5].data != "\x01\x00\x00\x00x" {
		t.Fatalf("not answered by the new model: %q", all[5].data)
	}
	s.Close(stream.ByClient)
	<-s.Finished()
}

func TestHardBatchesAreFull(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Kind: "faulty", Instances: 2, Batching: workers.Batching{Kind: batching.Hard,
		MaxSize: 4}})
	var sinks []*endings
	for range 4 {
		s, e := open(t, g, every)
		sinks = append(sinks, e)
		for j := range 3 {
			_ = s.Submit(r.frame(t, uint64(j), "x"))
		}
	}
	for _, e := range sinks {
		e.wait(t, 3)
	}
	if b := g.Stats().Batches; b != 3 {
		t.Fatalf("12 frames ran in %d batches of 4", b)
	}
}

func TestSoftBatchRunsAfterItsDelay(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		g := r.load(t, workers.Config{Kind: "faulty", Batching: workers.Batching{Kind: batching.Soft, MaxSize: 4},
			Parts: []any{&batching.SoftSettings{MaxDelay: 20 * time.Millisecond}}})
		s, e := open(t, g, every)
		_ = s.Submit(r.frame(t, 0, "x"))
		_ = s.Submit(r.frame(t, 1, "x"))
		e.wait(t, 2)
		if b := g.Stats().Batches; b != 1 {
			t.Fatalf("%d batches", b)
		}
	})
}

func TestScaleAndShare(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	g := r.load(t, workers.Config{Kind: "identity"})
	if err := r.Scale(ctx, "identity", 3); err != nil || g.Workers() != 3 {
		t.Fatalf("%v, %d workers", err, g.Workers())
	}
	if err := r.Scale(ctx, "identity", 1); err != nil || g.Workers() != 1 {
		t.Fatalf("%v, %d workers", err, g.Workers())
	}
	for _, step := range []struct {
		params  stream.Params
		loaded  workers.Loaded
		workers int
	}{
		{nil, workers.Loaded{Endpoint: "identity", Result: "unchanged"}, 1},
		{stream.Params{"share": false}, workers.Loaded{Endpoint: "identity", Result: "scaled"}, 2},
		{stream.Params{"max_size": int64(3)}, workers.Loaded{Endpoint: "identity-0", Result: "loaded"}, 1},
		{stream.Params{"max_size": int64(3)}, workers.Loaded{Endpoint: "identity-0", Result: "unchanged"}, 1},
		{stream.Params{"max_size": int64(4)}, workers.Loaded{Endpoint: "identity-1", Result: "loaded"}, 1},
	} {
		loaded, err := r.Load(ctx, "identity", workers.Load{Params: step.params})
		if err != nil || loaded != step.loaded {
			t.Fatalf("%v: %v, %v: want %v", step.params, loaded, err, step.loaded)
		}
		g, _ := r.Group(loaded.Endpoint, "")
		if g.Workers() != step.workers {
			t.Fatalf("%v: %d workers", step.params, g.Workers())
		}
	}
	for range 2 {
		if err := r.Unload(ctx, "identity", ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Unload(ctx, "identity", ""); stream.CodeOf(err) != stream.NotFound {
		t.Fatalf("%v", err)
	}
	if _, err := r.Load(ctx, "nonsense", workers.Load{}); stream.CodeOf(err) != stream.NotFound {
		t.Fatalf("%v", err)
	}
	if _, err := r.Load(ctx, "identity", workers.Load{Params: stream.Params{"color": "red"}}); stream.CodeOf(
		err) != stream.InvalidArgument {
		t.Fatalf("%v", err)
	}
}
