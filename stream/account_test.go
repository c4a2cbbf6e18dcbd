package stream_test

import (
	"testing"
	"time"

	"millrace/stream"
	"millrace/stream/coded"
)

func limits(q stream.Quota, n float64) (l stream.Limits) {
	l[q] = n
	return l
}

// TestAccountRates: a rate is limited, its burst is allowed at once, and a retry succeeds after the time of the
// refusal and no earlier.
func TestAccountRates(t *testing.T) {
	for _, c := range []struct {
		rate  float64
		burst time.Duration
		first int // taken at once
	}{{10, time.Second, 10}, {0.5, time.Second, 1}, {1000, 10 * time.Millisecond, 10}, {3, 2 * time.Second, 6}} {
		a, now := &stream.Account{}, stream.Instant(1)
		a.SetLimits(limits(stream.QuotaRequests, c.rate), c.burst)
		taken := 0
		for a.Take(stream.QuotaRequests, 1, now) == nil {
			taken++
		}
		if taken != c.first {
			t.Errorf("%v/s: %d at once, want %d", c.rate, taken, c.first)
		}
		for range 100 {
			err := a.Take(stream.QuotaRequests, 1, now)
			wait := coded.RetryAfter(err)
			if stream.CodeOf(err) != stream.FlowControl || wait <= 0 ||
				wait > time.Duration(float64(time.Second)/c.rate)+time.Nanosecond {
				t.Fatalf("%v/s: %v, after %v", c.rate, err, wait)
			}
			if a.Take(stream.QuotaRequests, 1, now.Add(wait-time.Nanosecond)) == nil {
				t.Fatalf("%v/s: taken before the time that was told", c.rate)
			}
			if now = now.Add(wait); a.Take(stream.QuotaRequests, 1, now) != nil {
				t.Fatalf("%v/s: refused after the time that was told", c.rate)
			}
		}
		if got, want := now.Sub(1).Seconds(), 100/c.rate; got < want*0.99 || got > want*1.01 {
			t.Errorf("%v/s: 100 took %v s, want %v", c.rate, got, want)
		}
		if a.Denied(stream.QuotaRequests) != 201 || a.Used(stream.QuotaRequests) != int64(c.first+100) {
			t.Errorf("%v/s: %d denied, %d used", c.rate, a.Denied(stream.QuotaRequests), a.Used(stream.QuotaRequests))
		}
	}
}

// TestAccountFrames: an account pays for bytes and decoding; a frame larger than the burst needs the whole burst; a
// refused frame costs nothing.
func TestAccountFrames(t *testing.T) {
	a, now := &stream.Account{}, stream.Instant(1)
	var l stream.Limits
	l[stream.QuotaFrames], l[stream.QuotaBytes] = 2, 1000
	a.SetLimits(l, time.Second)
	big := &stream.Frame{Payload: make([]byte, 5000)}
	if err := a.TakeFrame(big, now); err != nil {
		t.Fatal(err)
	}
	if err := a.TakeFrame(big, now.Add(4*time.Second)); coded.RetryAfter(err) != time.Second {
		t.Errorf("a second one: %v, after %v", err, coded.RetryAfter(err))
	}
	now = now.Add(10 * time.Second)
	small := &stream.Frame{Payload: make([]byte, 500)}
	for range 2 {
		if err := a.TakeFrame(small, now); err != nil {
			t.Fatal(err)
		}
	}
	empty := &stream.Frame{}
	if err := a.TakeFrame(empty, now.Add(-1)); err == nil {
		t.Error("a third frame was taken")
	}
	now = now.Add(time.Second)
	a.SetLimits(limits(stream.QuotaDecode, 0.5), time.Second)
	a.Decoded(2*time.Second, now)
	picture := &stream.Frame{Codec: stream.JPEG}
	// 2 s last for 4 s, and the burst covers 1 s
	if err := a.TakeFrame(picture, now); coded.RetryAfter(err) != 3*time.Second {
		t.Errorf("after much decoding: %v, after %v", err, coded.RetryAfter(err))
	}
	if err := a.TakeFrame(small, now); err != nil {
		t.Errorf("a frame without a picture: %v", err)
	}
	denied := a.Denied(stream.QuotaDecode)
	if a.DecodeWait(now) != 3*time.Second || a.DecodeWait(now.Add(2*time.Second)) != time.Second ||
		a.DecodeWait(now.Add(5*time.Second)) != 0 || a.Denied(stream.QuotaDecode) != denied {
		t.Errorf("decoding waits for %v, then %v; %d are refused", a.DecodeWait(now),
			a.DecodeWait(now.Add(2*time.Second)), a.Denied(stream.QuotaDecode)-denied)
	}
	if a.Idle(now) || !a.Idle(now.Add(4*time.Second)) {
		t.Error("idle")
	}
	if err := a.TakeFrame(picture, now.Add(3*time.Second)); err != nil {
		t.Error(err)
	}
}

// TestAccountPlaces: so many are held, and no more.
func TestAccountPlaces(t *testing.T) {
	a := &stream.Account{}
	a.SetLimits(limits(stream.QuotaStreams, 2), time.Second)
	for range 2 {
		if err := a.Hold(stream.QuotaStreams); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Hold(stream.QuotaStreams); stream.CodeOf(err) != stream.FlowControl ||
		coded.RetryAfter(err) != time.Second || a.Idle(1) {
		t.Errorf("a third: %v", err)
	}
	a.Release(stream.QuotaStreams)
	if err := a.Hold(stream.QuotaStreams); err != nil {
		t.Errorf("after one was given back: %v", err)
	}
	var none *stream.Account
	if none.Hold(stream.QuotaStreams) != nil || none.TakeFrame(&stream.Frame{}, 1) != nil ||
		none.Take(stream.QuotaRequests, 1, 1) != nil {
		t.Error("nil has limits")
	}
	none.Release(stream.QuotaStreams)
	none.Decoded(1, 1)
	if none.DecodeWait(1) != 0 {
		t.Error("nil waits")
	}
}

// TestAccountAllocs: requests and frames within the quotas allocate nothing.
func TestAccountAllocs(t *testing.T) {
	for _, l := range []stream.Limits{{}, {1e9, 1e9, 1e15, 1e6}} {
		a, f := &stream.Account{}, &stream.Frame{Codec: stream.JPEG, Payload: make([]byte, 10)}
		a.SetLimits(l, time.Second)
		if n := testing.AllocsPerRun(100, func() {
			if a.Take(stream.QuotaRequests, 1, 0) != nil || a.TakeFrame(f, 0) != nil {
				t.Error("refused")
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}
