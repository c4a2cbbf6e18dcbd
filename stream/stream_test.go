package stream_test

import (
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"millrace/stream"
)

var (
	latest = stream.Policy{Mode: stream.Latest}
	every  = stream.Policy{Mode: stream.Every, Window: 8}
)

func TestLatestKeepsOneFrame(t *testing.T) {
	b := newBench(anything, latest)
	for range 3 {
		if err := b.offer(); err != nil {
			t.Fatal(err)
		}
	}
	b.check(t, "0 drop superseded", "1 drop superseded")
	r := b.take(t)
	answer(b.mem, r)
	r.Unbind()
	b.Close(stream.ByClient)
	b.check(t, "0 drop superseded", "1 drop superseded", "2 result")
	b.checkFinished(t)
}

func TestMustIsNeverDropped(t *testing.T) {
	b := newBench(anything, stream.Policy{Mode: stream.Latest, Window: 2, MaxAge: time.Millisecond, MaxFPS: 1})
	_ = b.offer(must)
	_ = b.offer(must)
	if err := b.offer(must); stream.CodeOf(err) != stream.FlowControl {
		t.Fatalf("a third: %v", err)
	}
	_ = b.offer() // an ordinary frame does not wait for Must frames
	b.now = b.now.Add(time.Hour)
	r0, r1 := b.take(t), b.take(t)
	b.check(t)
	answer(b.mem, r1)
	b.check(t) // waits for the older frame
	answer(b.mem, r0)
	b.check(t, "0 result", "1 result")
	if b.take(t) != nil {
		t.Fatal("a frame an hour old was taken")
	}
	b.check(t, "0 result", "1 result", "2 drop stale")
	r0.Unbind()
	r1.Unbind()
	b.Close(stream.ByClient)
	b.checkFinished(t)
}

func TestFramesToBeSupersededDoNotCountForMust(t *testing.T) {
	b := newBench(anything, stream.Policy{Mode: stream.Latest, Window: 1})
	_ = b.offer()
	if err := b.offer(must); err != nil {
		t.Fatal(err)
	}
	b.check(t, "0 drop superseded")
	b.Close(stream.ByClient)
	b.checkFinished(t)
}

func TestOvertaken(t *testing.T) {
	b := newBench(anything, latest)
	var rs []*stream.Request
	for range 4 {
		_ = b.offer()
		rs = append(rs, b.take(t))
	}
	rs[2].Fail(errors.New("no"))
	b.check(t) // an error does not overtake, but waits
	answer(b.mem, rs[1])
	b.check(t, "0 drop overtaken", "1 result", "2 error internal")
	if answer(b.mem, rs[0]) {
		t.Fatal("a second ending counted")
	}
	b.Close(stream.ClientGone)
	if rs[3].Wanted() {
		t.Fatal("it is not wanted")
	}
	answer(b.mem, rs[3])
	b.check(t, "0 drop overtaken", "1 result", "2 error internal", "3 result")
	for _, r := range rs {
		r.Unbind()
	}
	b.checkFinished(t)
}

func TestEveryHoldsOrderAndWindow(t *testing.T) {
	b := newBench(anything, stream.Policy{Mode: stream.Every, Window: 3})
	_ = b.offer()
	_ = b.offer(unknown)
	_ = b.offer()
	if err := b.offer(); stream.CodeOf(err) != stream.FlowControl {
		t.Fatalf("%v", err)
	}
	b.check(t) // the failed frame is pushed after the first
	r0, r2 := b.take(t), b.take(t)
	answer(b.mem, r2)
	b.check(t)
	answer(b.mem, r0)
	b.check(t, "0 result", "1 error invalid_argument", "2 result")
	r0.Unbind()
	r2.Unbind()
	if err := b.offer(); err != nil {
		t.Fatalf("the window has room again: %v", err)
	}
	b.CloseWith(stream.ByUnload, stream.Errorf(stream.Unloaded, "", "unloaded"))
	b.check(t, "0 result", "1 error invalid_argument", "2 result", "3 error unloaded")
	if err := b.offer(); stream.CodeOf(err) != stream.Unloaded {
		t.Fatalf("%v", err)
	}
	b.checkFinished(t)
}

// After a close by an error, the stream refuses further frames with the error.
func TestClosedWithAnError(t *testing.T) {
	for why, want := range map[stream.CloseReason]stream.Code{stream.ByError: stream.Unauthenticated,
		stream.ByUnload: stream.Unloaded, stream.ByClient: stream.Conflict} {
		b := newBench(anything, stream.Policy{Mode: stream.Every, Window: 3})
		_ = b.offer()
		b.CloseWith(why, stream.Errorf(stream.Unauthenticated, "", "the key was removed"))
		b.check(t, "0 error unauthenticated")
		if err := b.offer(); stream.CodeOf(err) != want {
			t.Errorf("%s: %v", why, err)
		}
	}
}

func TestStaleIncludesThePredictedTime(t *testing.T) {
	for _, c := range []struct {
		name          string
		policy        stream.Policy
		frame         time.Duration
		wait, predict time.Duration
		stale         bool
	}{
		{"in time", stream.Policy{MaxAge: 10 * time.Millisecond}, 0, 4 * time.Millisecond, 6 * time.Millisecond, false},
		{"by the batch", stream.Policy{MaxAge: 10 * time.Millisecond}, 0, 4 * time.Millisecond, 6*time.Millisecond + 1,
			true},
		{"by its own deadline", stream.Policy{MaxAge: 10 * time.Millisecond}, 3 * time.Millisecond,
			4 * time.Millisecond, 0, true},
		{"the shorter counts", stream.Policy{MaxAge: time.Second, Deadline: time.Millisecond}, time.Minute,
			2 * time.Millisecond, 0, true},
		{"none", stream.Policy{}, 0, time.Hour, time.Hour, false},
		{"for ever", stream.Policy{MaxAge: math.MaxInt64}, 0, time.Hour, time.Hour, false},
		{"negative is none", stream.Policy{}, -1, time.Hour, 0, false},
	} {
		for _, mode := range []stream.Mode{stream.Latest, stream.Every} {
			c.policy.Mode = mode
			b := newBench(anything, c.policy)
			_ = b.offer(func(f *stream.Frame) { f.Deadline = c.frame })
			b.ep.pop()
			r, _ := b.Take(b.now.Add(c.wait), 1, nil, c.predict)
			if stale := r == nil; stale != c.stale {
				t.Errorf("%s, %s: stale %v", c.name, mode, stale)
			}
		}
	}
}

// A worker may read the clock before taking a frame received later. Such a frame leaves the queue at its receipt, and
// not before.
func TestReceivedDuringTheGathering(t *testing.T) {
	b := newBench(anything, stream.Policy{})
	_ = b.offer(func(*stream.Frame) {})
	b.ep.pop()
	r, _ := b.Take(b.now.Add(-time.Millisecond), 1, nil, 0)
	if r == nil || r.Timing.Received == 0 || r.Timing.Dequeued != r.Timing.Received {
		t.Errorf("%+v", r)
	}
}

func TestMaxFPS(t *testing.T) {
	const fps, step = 50, 20 * time.Millisecond
	pass := func(jitter func(i int) time.Duration, every time.Duration, n int) int {
		b := newBench(anything, stream.Policy{Mode: stream.Latest, MaxFPS: fps})
		start := b.now
		passed := 0
		for i := range n {
			b.now = start.Add(time.Duration(i)*every + jitter(i))
			drops := b.Counts().Drops
			_ = b.offer()
			if b.Counts().Drops == drops {
				passed++
			}
			for b.ep.queued() > 0 {
				b.take(t)
			}
		}
		return passed
	}
	none := func(int) time.Duration { return 0 }
	if n := pass(none, step, 100); n != 100 {
		t.Errorf("at its rate: %d of 100", n)
	}
	if n := pass(func(i int) time.Duration { return time.Duration(i%2) * step / 4 }, step, 100); n != 100 {
		t.Errorf("jittering around it: %d of 100", n)
	}
	if n := pass(none, step/10, 1000); n < 99 || n > 102 {
		t.Errorf("ten times too fast: %d of the 100 allowed", n)
	}
	if n := pass(func(i int) time.Duration { return time.Duration(i/100) * time.Minute }, 0, 200); n > 4 {
		t.Errorf("a pause allowed a burst of %d", n)
	}
}

func TestEmitInTurn(t *testing.T) {
	b := newBench(anything, every)
	_ = b.offer()
	_ = b.offer()
	r0, r1 := b.take(t), b.take(t)
	part := func(r *stream.Request) bool {
		l, _ := b.mem.Copy([]byte("part"))
		return r.Emit([]stream.Tensor{{Name: "y", Data: l.Bytes()}}, l)
	}
	part(r1)
	part(r0)
	b.check(t, "0 part")
	answer(b.mem, r0)
	b.check(t, "0 part", "0 result", "1 part")
	part(r1)
	answer(b.mem, r1)
	b.check(t, "0 part", "0 result", "1 part", "1 part", "1 result")
	if part(r1) {
		t.Fatal("emitted after its ending")
	}
	r0.Unbind()
	r1.Unbind()
	b.Close(stream.ByClient)
	b.checkFinished(t)
}

func stateful(name string) *stream.Model {
	return &stream.Model{Name: name, AcceptsAnyInput: true, Ragged: true, Stateful: true, MaxBatch: 4}
}

func TestStatefulHasOneFrameInFlight(t *testing.T) {
	b := newBench(stateful("s"), every)
	_ = b.offer()
	_ = b.offer()
	r0 := b.take(t)
	if b.ep.queued() != 0 {
		t.Fatal("a second token while a frame is in flight")
	}
	answer(b.mem, r0)
	r0.Unbind()
	r1 := b.take(t)
	b.Close(stream.ByClient)
	r1.Fail(errors.New("no"))
	r1.Unbind()
	b.check(t, "0 result", "1 error internal")
	b.checkFinished(t)
}

func TestStateIsReleasedOnce(t *testing.T) {
	released := 0
	keep := func(r *stream.Request) { r.SetState("state", func(any) { released++ }) }
	t.Run("at the end", func(t *testing.T) {
		released = 0
		b := newBench(stateful("s"), every)
		_ = b.offer()
		r := b.take(t)
		keep(r)
		b.Close(stream.ByClient)
		if released != 0 {
			t.Fatal("released while a frame is in flight")
		}
		answer(b.mem, r)
		if released != 1 {
			t.Fatalf("released %d times", released)
		}
		keep(r) // the worker has answered already: too late for the stream
		if released != 1 || b.Kept() != nil || r.State() == nil {
			t.Fatal("released before the run has returned")
		}
		r.Unbind()
		r.Unbind()
		if released != 2 {
			t.Fatalf("a state set too late is released %d times", released-1)
		}
		b.checkFinished(t)
	})
	t.Run("when idle", func(t *testing.T) {
		released = 0
		b := newBench(stateful("s"), every)
		_ = b.offer()
		r := b.take(t)
		keep(r)
		if b.DropIdleState(math.MaxInt64) {
			t.Fatal("released while a frame is in flight")
		}
		answer(b.mem, r)
		r.Unbind()
		if b.DropIdleState(1) || !b.DropIdleState(math.MaxInt64) || b.DropIdleState(math.MaxInt64) || released != 1 {
			t.Fatalf("released %d times", released)
		}
	})
	t.Run("detached", func(t *testing.T) {
		released = 0
		b := newBench(stateful("s"), every)
		_ = b.offer()
		_ = b.offer()
		r0 := b.take(t)
		keep(r0)
		r0.DetachState()
		if released != 0 || b.Kept() != nil || r0.State() == nil {
			t.Fatal("released while the run uses it")
		}
		r0.Fail(errors.New("hangs"))
		r1 := b.take(t)
		keep(r1)
		r0.DetachState() // the run loses the stream's state
		if released != 0 || r1.State() == nil {
			t.Fatal("took the state of the next frame")
		}
		r0.SetState("late", func(any) { released++ })
		if r1.State() != "state" || r0.State() != "late" {
			t.Fatal("a run that was given up changed the stream's state")
		}
		r0.Unbind()
		if released != 1 {
			t.Fatalf("released %d times after the run", released)
		}
		answer(b.mem, r1)
		r1.Unbind()
		b.Close(stream.ByClient)
		if released != 2 {
			t.Fatalf("released %d of 2", released)
		}
		b.checkFinished(t)
	})
	t.Run("with affinity", func(t *testing.T) {
		released = 0
		b := newBench(stateful("s"), every)
		_ = b.offer()
		r := b.take(t)
		keep(r)
		b.SetAffinity(b.ep, "here")
		answer(b.mem, r)
		r.Unbind()
		_ = b.offer()
		if b.ep.affinities[0] != "here" {
			t.Fatal("the token has not the worker that has the state")
		}
		b.ClearAffinity("there")
		if released != 0 {
			t.Fatal("another worker's end cleared the state")
		}
		b.ClearAffinity("here")
		if released != 1 {
			t.Fatalf("released %d times", released)
		}
	})
}

func TestMove(t *testing.T) {
	next := stateful("next")
	b := newBench(anything, every)
	for range 4 {
		_ = b.offer()
	}
	r0, r1 := b.take(t), b.take(t)
	old := b.ep
	b.ep = &queue{}
	if !b.Move(b.ep, next) {
		t.Fatal("an open stream was not moved")
	}
	b.ForgetToken(old) // the queued token is no longer in the old queue
	b.SetAffinity(old, "a worker of the old group")
	if old.waiting != 0 || b.ep.waiting != 2 || b.ep.queued() != 1 || b.Model() != next {
		t.Fatalf("%d wait in the old queue, %d in the new, %d tokens", old.waiting, b.ep.waiting, b.ep.queued())
	}
	released := 0
	r2 := b.take(t)
	r2.SetState("new", func(any) { released++ })
	answer(b.mem, r0) // of the old model: without the token and the state
	if b.ep.queued() != 0 || released != 0 || b.Kept() == nil {
		t.Fatalf("%d tokens, %d released", b.ep.queued(), released)
	}
	l, _ := b.mem.Copy(nil)
	r1.Emit(nil, l)
	answer(b.mem, r2)
	answer(b.mem, r1)
	r3 := b.take(t)
	answer(b.mem, r3)
	if b.ep.last != nil {
		t.Fatal("the token has a worker of the old group")
	}
	b.check(t, "0 result", "1 part", "1 result", "2 result", "3 result")
	for i, want := range []*stream.Model{anything, anything, anything, next, next} {
		if b.sink.models[i] != want {
			t.Errorf("line %d names model %s", i, b.sink.models[i].Name)
		}
	}
	for _, r := range []*stream.Request{r0, r1, r2, r3} {
		r.Unbind()
	}
	b.Close(stream.ByClient)
	b.ep.ended += old.ended
	b.checkFinished(t)
	if released != 1 {
		t.Fatalf("released %d times", released)
	}
}

func TestMoveEndsWhatTheNextModelDoesNotTake(t *testing.T) {
	b := newBench(anything, every)
	_ = b.offer()
	_ = b.offer()
	old := b.ep
	b.ep = &queue{ended: 0}
	b.Move(b.ep, &stream.Model{Name: "tensors", MaxBatch: 1,
		Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{1}}}})
	b.check(t, "0 error unsupported", "1 error unsupported")
	if b.ep.queued() != 0 || old.waiting != 0 || b.WaitingFrames() != 0 || b.WaitingRows() != 0 {
		t.Fatal("a token is queued without a frame")
	}
	b.Close(stream.ByClient)
	b.checkFinished(t)
	if b.Move(old, anything) {
		t.Fatal("a finished stream was moved")
	}
}

// The place must not be free while the token is in the queue: other streams would fill the queue beyond the bound.
func TestPlaceIsFreedWithTheToken(t *testing.T) {
	for _, how := range []string{"take", "rest", "discard"} {
		b := newBench(anything, latest)
		_ = b.offer()
		b.Close(stream.ByClient)
		if b.ep.detached != 0 || b.ep.looks != 1 {
			t.Fatalf("detached %d times, %d calls of AddWaiting(0)", b.ep.detached, b.ep.looks)
		}
		b.ep.pop()
		switch how {
		case "take":
			b.Take(b.now, 1, nil, 0)
		case "rest":
			b.ReleaseToken()
		case "discard":
			b.ForgetToken(b.ep)
		}
		b.check(t, "0 drop closed")
		b.checkFinished(t)
	}
}

func TestLargeFrameKeepsItsToken(t *testing.T) {
	m := &stream.Model{Name: "m", MaxBatch: 4,
		Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{-1}}}}
	b := newBench(m, every)
	rows := func(n, d int) func(*stream.Frame) {
		return func(f *stream.Frame) {
			f.Codec, f.Inputs = stream.Tensors,
				[]stream.Tensor{{Name: "x", Datatype: stream.Uint8, Shape: []int{n, d}, Data: make([]byte, n*d)}}
		}
	}
	_ = b.offer(rows(3, 2))
	_ = b.offer(rows(1, 5))
	if b.WaitingFrames() != 2 || b.WaitingRows() != 4 {
		t.Fatalf("%d frames of %d rows", b.WaitingFrames(), b.WaitingRows())
	}
	b.ep.pop()
	if r, kept := b.Take(b.now, 2, nil, 0); r != nil || !kept || b.ep.queued() != 0 {
		t.Fatal("three rows were taken for two free ones")
	}
	r, _ := b.Take(b.now, 3, nil, 0)
	if r == nil || b.ep.queued() != 1 {
		t.Fatal("not taken though it fits")
	}
	b.ep.pop()
	if r, kept := b.Take(b.now, 1, &r.Class, 0); r != nil || kept || b.ep.queued() != 1 {
		t.Fatal("the token of a frame of another class is not queued again")
	}
}

func TestEndingsRace(t *testing.T) {
	for range 200 {
		b := newBench(anything, every)
		_ = b.offer()
		r := b.take(t)
		_ = b.offer()
		var wg sync.WaitGroup
		for _, f := range []func(){
			func() { answer(b.mem, r) }, func() { r.Fail(errors.New("no")) }, func() { r.Drop(stream.Memory) },
			func() { b.Close(stream.ByClient) }, func() { b.CloseWith(stream.ByDrain, errors.New("no")) },
			func() { _ = b.SubmitAt(stream.Frame{Seq: 9}, b.now) },
		} {
			wg.Go(f)
		}
		wg.Wait()
		r.Unbind()
		b.checkFinished(t)
	}
}

func TestSubmitTakeFinishAllocates(t *testing.T) {
	b := newBench(anything, every)
	f := stream.Frame{Payload: []byte("frame")}
	out := stream.Tensor{Name: "y", Datatype: stream.Uint8, Shape: []int{5}, Data: f.Payload}
	quiet := stream.New(anything, b.ep, discard{}, stream.Options{Policy: every})
	n := testing.AllocsPerRun(1000, func() {
		_ = quiet.SubmitAt(f, b.now)
		b.ep.tokens, b.ep.affinities = b.ep.tokens[:0], b.ep.affinities[:0]
		r, _ := quiet.Take(b.now, 1, nil, 0)
		r.FinishSingle(out, nil, false)
		r.Unbind()
	})
	if n > 2 {
		t.Errorf("%v allocations", n)
	}
}

type discard struct{}

func (discard) Push(r *stream.Result)   { r.Release() }
func (discard) Done(stream.CloseReason) {}
