package stream_test

import (
	"testing"
	"time"

	"millrace/stream"
)

func TestPauseHoldsFrames(t *testing.T) {
	b := newBench(anything, every)
	_ = b.offer()
	b.Pause()
	if b.take(t) != nil {
		t.Fatal("a frame of a paused stream was bound")
	}
	_ = b.offer()
	if b.ep.queued() != 0 {
		t.Fatal("a paused stream queued a token")
	}
	b.check(t)
	b.Resume()
	for range 2 {
		r := b.take(t)
		answer(b.mem, r)
		r.Unbind()
	}
	b.Close(stream.ByClient)
	b.check(t, "0 result", "1 result")
	b.checkFinished(t)
}

func TestPausedStreamEnds(t *testing.T) {
	b := newBench(anything, latest)
	b.Pause()
	_ = b.offer()
	_ = b.offer()
	b.Close(stream.ByClient)
	b.Resume()
	b.check(t, "0 drop superseded", "1 drop closed")
	b.checkFinished(t)
}

func TestFlush(t *testing.T) {
	b := newBench(anything, every)
	for range 3 {
		_ = b.offer()
	}
	r := b.take(t)
	b.Flush()
	b.check(t) // in turn: after the frame in flight
	answer(b.mem, r)
	r.Unbind()
	b.check(t, "0 result", "1 drop flushed", "2 drop flushed")
	_ = b.offer()
	r = b.take(t)
	answer(b.mem, r)
	r.Unbind()
	b.Close(stream.ByClient)
	b.Flush()
	b.check(t, "0 result", "1 drop flushed", "2 drop flushed", "3 result")
	b.checkFinished(t)
}

func TestUpdate(t *testing.T) {
	b := newBench(anything, stream.Policy{Mode: stream.Latest, MaxAge: time.Second})
	if err := b.Update(every); stream.CodeOf(err) != stream.Conflict {
		t.Errorf("another mode: %v", err)
	}
	if err := b.Update(stream.Policy{MaxFPS: -1}); stream.CodeOf(err) != stream.InvalidArgument {
		t.Errorf("no rate: %v", err)
	}
	if err := b.Update(stream.Policy{MaxFPS: 10, Window: 5}); err != nil {
		t.Fatal(err)
	}
	if p := b.Policy(); p.MaxAge != time.Second || p.MaxFPS != 10 || p.Window != 5 || p.Mode != stream.Latest {
		t.Errorf("policy %+v", p)
	}
	_ = b.offer()
	_ = b.offer()
	b.Close(stream.ByClient)
	b.check(t, "1 drop rate", "0 drop closed")
	b.checkFinished(t)
}

// After a change to a smaller window, the stream accepts as many frames as the larger window had room for, and then
// no more than the smaller window allows.
func TestSmallerWindow(t *testing.T) {
	end := func(b *bench) {
		r := b.take(t)
		answer(b.mem, r)
		r.Unbind()
	}
	b := newBench(anything, stream.Policy{Mode: stream.Every, Window: 4})
	_ = b.offer()
	end(b)
	_ = b.offer()
	for _, n := range []int{2, 3, 1, 2} { // the larger window in between allows no more
		if err := b.Update(stream.Policy{Window: n}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		if err := b.offer(); err != nil {
			t.Errorf("frame %d of 3 that had room: %v", i+1, err)
		}
	}
	for left := 4; left > 1; left-- {
		if err := b.offer(); stream.CodeOf(err) != stream.FlowControl {
			t.Errorf("with %d in flight: %v", left, err)
		}
		end(b)
	}
	if err := b.offer(); err != nil {
		t.Errorf("with one in flight: %v", err)
	}
	if err := b.offer(); stream.CodeOf(err) != stream.FlowControl {
		t.Errorf("with two in flight: %v", err)
	}
	b.Close(stream.ByClient)
	b.checkFinished(t)

	b = newBench(anything, stream.Policy{Mode: stream.Latest, Window: 3})
	_ = b.offer(must)
	if err := b.Update(stream.Policy{Window: 1}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := b.offer(must); (err == nil) != (i < 2) {
			t.Errorf("frame %d that must be processed: %v", i+1, err)
		}
	}
	b.Close(stream.ByClient)
	b.checkFinished(t)
}

// Fields not set by Replace return to the model's defaults.
func TestReplace(t *testing.T) {
	m := *anything
	m.Policy = stream.Policy{Mode: stream.Every, MaxAge: time.Minute, Window: 7}
	b := newBench(&m, stream.Policy{Mode: stream.Latest, MaxAge: time.Second, Deadline: time.Second, MaxFPS: 3,
		Window: 5})
	if err := b.Replace(every); stream.CodeOf(err) != stream.Conflict {
		t.Errorf("another mode: %v", err)
	}
	if err := b.Replace(stream.Policy{MaxFPS: -1}); stream.CodeOf(err) != stream.InvalidArgument {
		t.Errorf("no rate: %v", err)
	}
	if err := b.Replace(stream.Policy{MaxFPS: 9}); err != nil {
		t.Fatal(err)
	}
	if p, want := b.Policy(), (stream.Policy{Mode: stream.Latest, MaxAge: time.Minute, MaxFPS: 9,
		Window: stream.DefaultWindowLatest, Priority: stream.Normal}); p != want {
		t.Errorf("policy %+v, want %+v", p, want)
	}
	if err := b.Replace(stream.Policy{}); err != nil || b.Policy().MaxFPS != 0 {
		t.Errorf("%v, policy %+v", err, b.Policy())
	}
	_ = b.offer()
	_ = b.offer()
	b.Close(stream.ByClient)
	b.check(t, "0 drop superseded", "1 drop closed")
	b.checkFinished(t)
}
