package stream_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/stream"
)

const ms = time.Millisecond

// passing tests a stream in a synctest bubble, in which time passes only when the test sleeps.
func passing(t *testing.T, m *stream.Model, p stream.Policy,
	test func(t *testing.T, b *bench, after func(time.Duration))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(m, p)
		b.now = stream.Now()
		test(t, b, func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
			b.now = stream.Now()
		})
		b.Close(stream.ByClient)
		b.checkFinished(t)
	})
}

// answer does the batch's part for r.
func (b *bench) answer(r *stream.Request) {
	answer(b.mem, r)
	r.Unbind()
}

func within(d time.Duration) func(*stream.Frame) { return func(f *stream.Frame) { f.Deadline = d } }
func timesOut(d time.Duration) func(*stream.Frame) {
	return func(f *stream.Frame) { f.QueueTimeout = d }
}

// A waiting frame ends at the moment of its deadline.
func TestDeadlinePassesWhileAFrameWaits(t *testing.T) {
	for _, mode := range []stream.Mode{stream.Every, stream.Latest} {
		passing(t, anything, stream.Policy{Mode: mode}, func(t *testing.T, b *bench, after func(time.Duration)) {
			_ = b.offer(within(300 * ms))
			after(300*ms - 1)
			b.check(t)
			after(1)
			b.check(t, "0 drop stale")
			if b.ep.waits() != 0 || b.WaitingFrames() != 0 || b.mem.Stats().Leases != 0 {
				t.Errorf("%d wait, %d leases", b.ep.waiting, b.mem.Stats().Leases)
			}
			_ = b.offer(within(300 * ms)) // the timer is set again
			after(300 * ms)
			b.check(t, "0 drop stale", "1 drop stale")
		})
	}
}

// In mode every, endings are pushed in order although a later frame expires first.
func TestExpiryKeepsTheOrder(t *testing.T) {
	passing(t, anything, stream.Policy{Mode: stream.Every, MaxAge: time.Second},
		func(t *testing.T, b *bench, after func(time.Duration)) {
			_ = b.offer()
			r := b.take(t)
			_ = b.offer()
			_ = b.offer(within(100 * ms))
			after(100 * ms)
			if b.ep.waits() != 1 {
				t.Errorf("%d frames wait, want the one without the nearer deadline", b.ep.waiting)
			}
			b.check(t)
			b.answer(r)
			b.check(t, "0 result")
			b.answer(b.take(t))
			b.check(t, "0 result", "1 result", "2 drop stale")
		})
}

// In mode latest, an expired frame's ending does not wait for the frame in flight.
func TestExpiryInLatestIsToldAtOnce(t *testing.T) {
	passing(t, anything, stream.Policy{Mode: stream.Latest, MaxAge: 300 * ms},
		func(t *testing.T, b *bench, after func(time.Duration)) {
			_ = b.offer()
			r := b.take(t)
			after(100 * ms)
			_ = b.offer()
			after(300 * ms)
			b.check(t, "1 drop stale")
			b.answer(r) // a running frame: the deadline no longer counts
			b.check(t, "1 drop stale", "0 result")
		})
}

// Must frames and frames without a deadline wait as long as necessary; frames of a paused stream do not.
func TestWhatExpires(t *testing.T) {
	passing(t, anything, stream.Policy{Mode: stream.Every}, func(t *testing.T, b *bench, after func(time.Duration)) {
		b.Pause()
		_ = b.offer()
		_ = b.offer(must, within(ms), timesOut(ms))
		_ = b.offer(within(2*ms), must)
		after(time.Hour)
		b.check(t)
		_ = b.offer(within(ms))
		after(ms)
		if b.ep.waits() != 3 {
			t.Errorf("%d frames wait, want 3", b.ep.waiting)
		}
		b.Flush()
		b.check(t, "0 drop flushed", "1 drop flushed", "2 drop flushed", "3 drop stale")
	})
}

// The timer is set to the earliest expiry, in whatever order frames arrive.
func TestNearestDeadlineIsWatched(t *testing.T) {
	passing(t, anything, stream.Policy{Mode: stream.Every}, func(t *testing.T, b *bench, after func(time.Duration)) {
		for _, d := range []time.Duration{400 * ms, 100 * ms, 300 * ms, 200 * ms} {
			_ = b.offer(within(d))
		}
		for i := range 4 {
			after(100 * ms)
			if want := 3 - i; b.ep.waits() != want {
				t.Errorf("%d wait after %d00ms, want %d", b.ep.waiting, i+1, want)
			}
		}
		b.check(t, "0 drop stale", "1 drop stale", "2 drop stale", "3 drop stale")
	})
}

// endings is a sink that keeps the errors of the pushed results.
type endings struct {
	mu   sync.Mutex
	errs []error
}

func (k *endings) Push(r *stream.Result) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.errs = append(k.errs, r.Err)
	r.Release()
}

func (k *endings) Done(stream.CloseReason) {}

func (k *endings) all() []error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.errs
}

// The shorter of the model's and the frame's time-out counts, and the error contains the time-out.
func TestQueueTimeout(t *testing.T) {
	no := false
	for name, c := range map[string]struct {
		queue stream.QueuePolicy
		frame stream.Frame
		after time.Duration
		field string // of the error; "" = a drop that names none
		code  stream.Code
	}{
		"the model's": {stream.QueuePolicy{Timeout: 20 * ms}, stream.Frame{}, 20 * ms, "queue.timeout",
			stream.Overloaded},
		"the frame's": {stream.QueuePolicy{}, stream.Frame{QueueTimeout: 30 * ms}, 30 * ms, "timeout",
			stream.Overloaded},
		"the frame's is shorter": {stream.QueuePolicy{Timeout: 20 * ms}, stream.Frame{QueueTimeout: 5 * ms},
			5 * ms, "timeout", stream.Overloaded},
		"the frame's is longer": {stream.QueuePolicy{Timeout: 20 * ms}, stream.Frame{QueueTimeout: 50 * ms},
			20 * ms, "queue.timeout", stream.Overloaded},
		"the deadline is nearer": {stream.QueuePolicy{Timeout: 20 * ms}, stream.Frame{Deadline: 10 * ms}, 10 * ms,
			"", ""},
		"the time-out is nearer": {stream.QueuePolicy{Timeout: 20 * ms}, stream.Frame{Deadline: 40 * ms}, 20 * ms,
			"queue.timeout", stream.Overloaded},
		"requests have none": {stream.QueuePolicy{AllowTimeoutOverride: &no}, stream.Frame{QueueTimeout: ms},
			0, "timeout", stream.InvalidArgument},
		"negative": {stream.QueuePolicy{}, stream.Frame{QueueTimeout: -ms}, 0, "timeout",
			stream.InvalidArgument},
		"delayed, but with deadline": {stream.QueuePolicy{Timeout: 5 * ms, Action: stream.Delay},
			stream.Frame{Deadline: 40 * ms}, 40 * ms, "", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			m, k := *anything, &endings{}
			m.Queue = c.queue
			s := stream.New(&m, &queue{}, k, stream.Options{Policy: stream.Policy{Mode: stream.Every}})
			if err := s.Submit(c.frame); err != nil {
				t.Fatal(err)
			}
			if c.after > 0 {
				time.Sleep(c.after - 1)
				synctest.Wait()
				if len(k.all()) != 0 {
					t.Errorf("%s: ended before its time", name)
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
			}
			if len(k.all()) != 1 {
				t.Fatalf("%s: %d endings", name, len(k.all()))
			}
			var e *stream.Error
			if errors.As(k.all()[0], &e); c.field == "" && e != nil ||
				c.field != "" && (e == nil || e.Field != c.field || e.Code != c.code) {
				t.Errorf("%s: %v", name, k.all()[0])
			}
			s.Close(stream.ByClient)
		})
	}
}

// A worker taking a frame at the moment of the time-out finds the frame expired, as the timer does.
func TestQueueTimeoutAtBinding(t *testing.T) {
	m := *anything
	m.Queue.Timeout = 20 * ms
	b := newBench(&m, every) // in the far future, so that no timer fires
	_ = b.offer()
	b.now = b.now.Add(20*ms - 1)
	b.answer(b.take(t))
	_ = b.offer()
	b.now = b.now.Add(20 * ms)
	if r := b.take(t); r != nil {
		t.Errorf("took %v", r.Seq)
	}
	b.check(t, "0 result", "1 drop stale")
	b.Close(stream.ByClient)
	b.checkFinished(t)
}

// A delayed frame's token is queued again as the last of all, once. In mode latest the frame is dropped.
func TestDelayQueuesTheTokenAgain(t *testing.T) {
	m := *anything
	m.Queue = stream.QueuePolicy{Timeout: 20 * ms, Action: stream.Delay}
	b := newBench(&m, stream.Policy{Mode: stream.Every, Priority: stream.High})
	_ = b.offer()
	_ = b.offer()
	if p := b.TokenPriority(); p != stream.High {
		t.Errorf("queued as %v", p)
	}
	b.now = b.now.Add(20 * ms)
	if r := b.take(t); r != nil || b.TokenPriority() != stream.Delayed || b.ep.queued() != 1 {
		t.Fatalf("took %v, %d tokens, priority %v", r, b.ep.queued(), b.TokenPriority())
	}
	r := b.take(t) // however late
	if r == nil || b.TokenPriority() != stream.High {
		t.Fatalf("took %v, and the next one is queued as %v", r, b.TokenPriority())
	}
	b.answer(r)
	b.check(t, "0 result")
	b.Close(stream.ByClient)
	b.check(t, "0 result", "1 drop closed")
	b.checkFinished(t)

	b = newBench(&m, stream.Policy{Mode: stream.Latest})
	_ = b.offer()
	b.now = b.now.Add(20 * ms)
	if r := b.take(t); r != nil {
		t.Error("took a frame of mode latest")
	}
	b.check(t, "0 drop stale")
	b.Close(stream.ByClient)
	b.checkFinished(t)
}

// A token has the priority of the next frame, or else of the stream, or else of the model.
func TestPriorityOfTokens(t *testing.T) {
	m := *anything
	m.Policy.Priority = stream.Low
	own := func(p stream.Priority) func(*stream.Frame) { return func(f *stream.Frame) { f.Priority = p } }
	for _, c := range []struct {
		stream, frame, want stream.Priority
	}{
		{0, 0, stream.Low}, {stream.Normal, 0, stream.Normal}, {stream.Normal, stream.High, stream.High},
		{0, stream.Normal, stream.Normal}, {0, stream.Delayed, stream.Low},
	} {
		b := newBench(&m, stream.Policy{Mode: stream.Every, Priority: c.stream})
		_ = b.offer(own(c.frame))
		if got := b.TokenPriority(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
		b.Close(stream.ByClient)
		b.checkFinished(t)
	}
	for n, want := range map[uint64]stream.Priority{0: stream.DefaultPriority, 1: stream.High, 2: stream.Normal,
		3: stream.Low, 1 << 40: stream.Low} {
		if got := stream.PriorityOf(n); got != want {
			t.Errorf("%d: %v", n, got)
		}
	}
}

// A frame without room in the queue ends with an error, in turn; a replacing frame needs no room.
func TestQueueIsFull(t *testing.T) {
	b := newBench(anything, every)
	b.ep.most = 1
	_ = b.offer()
	_ = b.offer()
	b.check(t)
	b.answer(b.take(t))
	b.check(t, "0 result", "1 error overloaded")
	if b.ep.waits() != 0 || b.WaitingFrames() != 0 || b.WaitingRows() != 0 {
		t.Errorf("%d wait", b.ep.waiting)
	}
	b.Close(stream.ByClient)
	b.checkFinished(t)

	b = newBench(anything, stream.Policy{Mode: stream.Latest})
	b.ep.most = 1
	_ = b.offer()
	_ = b.offer()
	b.answer(b.take(t))
	b.check(t, "0 drop superseded", "1 result")
	b.Close(stream.ByClient)
	b.checkFinished(t)
}

// Frames taken in time set the timer once per time-out.
func TestFramesInTimeSetNoTimer(t *testing.T) {
	m := *anything
	m.Queue.Timeout = time.Hour
	b := newBench(&m, stream.Policy{Mode: stream.Every, MaxAge: time.Hour})
	pass := func() {
		if err := b.SubmitAt(stream.Frame{}, b.now); err != nil {
			t.Fatal(err)
		}
		b.now = b.now.Add(ms)
		r := b.take(t)
		r.Drop(stream.RateLimit)
		b.sink.log, b.sink.models, b.ep.affinities = b.sink.log[:0], b.sink.models[:0], b.ep.affinities[:0]
	}
	pass()
	set := b.ExpiryAt()
	for range 100 {
		pass()
	}
	if set == 0 || b.ExpiryAt() != set {
		t.Errorf("the timer was set from %v to %v", set, b.ExpiryAt())
	}
	b.Close(stream.ByClient)
	b.checkFinished(t)
	if text := strings.Join(b.sink.lines(), ""); strings.Contains(text, "stale") {
		t.Error(text)
	}
}
