package stream

import (
	"errors"
	"testing"
	"time"

	"millrace/stream/coded"
)

// Each ending is counted by reason or code, refused frames also count as accepted, and the sums agree.
func TestFrameCountsAddUp(t *testing.T) {
	var c FrameCounts
	n := uint64(0)
	end := func(times int, r *Result) {
		for range times {
			n++
			c.accept(Normal, 0)
			c.end(r, 0)
		}
	}
	for i, why := range Reasons {
		end(i+1, &Result{Outcome: Dropped, Reason: why})
		c.Refuse(why, nil)
		n++
	}
	for i, code := range coded.Codes {
		end(i+1, &Result{Outcome: Failed, Err: Errorf(code, "", "x")})
		c.Refuse("", Errorf(code, "", "x"))
		n++
	}
	end(3, &Result{Outcome: Answered})
	end(2, &Result{Outcome: Failed, Err: errors.New("without a code")})
	c.accept(Normal, 0)
	c.accept(Normal, 0)
	(&Result{counts: &c}).CountUnsendable(Errorf(Unsupported, "", "x"))
	(&Result{counts: &c, Partial: true}).CountUnsendable(Errorf(Unsupported, "", "x"))
	refused := func(name string) uint64 { // sum over the reason and the code of this name
		if name == string(FlowControl) {
			return 2
		}
		return 1
	}
	check := func(got Totals, times uint64) {
		t.Helper()
		sum := got.Results + got.InFlight
		for i, why := range Reasons {
			sum += got.Drops[why]
			if got.Drops[why] != times*uint64(i+2) || got.Refused[string(why)] != times*refused(string(why)) {
				t.Errorf("%s: %d drops, %d refused", why, got.Drops[why], got.Refused[string(why)])
			}
		}
		for i, code := range coded.Codes {
			want := times * uint64(i+2)
			if code == Internal {
				want += 2 * times
			}
			sum += got.Errors[code]
			if got.Errors[code] != want || got.Refused[string(code)] != times*refused(string(code)) {
				t.Errorf("%s: %d errors, %d refused", code, got.Errors[code], got.Refused[string(code)])
			}
		}
		if got.Results != 3*times || got.InFlight != 2*times || got.Accepted != (n+2)*times || got.Accepted != sum ||
			got.Unsendable[Unsupported] != times {
			t.Errorf("%+v, want %d accepted, %d added up", got, n+2, sum)
		}
	}
	check(c.Totals(), 1)
	twice := c.Totals()
	twice.Add(c.Totals())
	check(twice, 2)
	var none Totals
	none.Add(c.Totals())
	check(none, 1)
	if _, there := c.Totals().Drops[Other]; there {
		t.Error("there are drops for other reasons")
	}
	c.Refuse("odd", nil)
	c.Refuse("", Errorf("odd", "", "x"))
	if got := c.Totals(); got.Drops[Other] != 1 || got.Errors[Other] != 1 || got.Refused[Other] != 2 ||
		got.InFlight != 2 {
		t.Errorf("a reason and a code that are not listed: %+v", got)
	}
	var nobody *FrameCounts
	nobody.Refuse(Memory, nil)
	(&Result{Model: &Model{}}).CountUnsendable(errors.New("x"))
}

// A frame that might be refused stays on the caller's stack: only the refusal and the ending are allocated.
func TestRefusedFrameIsCopied(t *testing.T) {
	var c FrameCounts
	var o Options
	var seen SpanID
	c.OnRefused(func(x *Refusal) { seen = x.Result.Span })
	err := Errorf(InvalidArgument, "", "x")
	counting := testing.AllocsPerRun(100, func() { c.Refuse("", err) })
	n := testing.AllocsPerRun(100, func() {
		f := Frame{Seq: 7}
		if r := c.RefuseFrame(&f, &o, "", err); r.Seq != 7 || r.Trace == (TraceID{}) || r.Span != seen {
			t.Error("not the ending that the function got")
		}
	})
	if n > counting+2 {
		t.Errorf("%v allocations, %v of them for the counts", n, counting)
	}
}

// Each frame without a trace starts a trace of its own; frames of a given trace have different spans.
func TestIdsOfAFrame(t *testing.T) {
	given := TraceContext{Trace: NewTraceID(), Parent: NewSpanID()}
	traces, spans := map[TraceID]bool{}, map[SpanID]bool{{}: true, given.Parent: true}
	for i := range 100 {
		var own, opened, sent TraceContext
		sent = given
		for _, id := range []SpanID{own.allot(&TraceContext{}), opened.allot(&given),
			sent.allot(&TraceContext{Trace: NewTraceID()})} {
			if spans[id] {
				t.Fatalf("frame %d has the span %x of another one", i, id)
			}
			spans[id] = true
		}
		if own.Trace == (TraceID{}) || traces[own.Trace] || opened != given || sent != given {
			t.Fatalf("frame %d: %v, %v and %v, given %v", i, own, opened, sent, given)
		}
		traces[own.Trace] = true
	}
}

// Live is the time of frames above the priority low.
func TestLiveFrames(t *testing.T) {
	var c FrameCounts
	for i, f := range []struct {
		p        Priority
		at, want time.Duration
	}{{Low, time.Hour, 0}, {Delayed, time.Hour, 0}, {Normal, time.Hour, time.Hour},
		{High, time.Hour + liveStep/2, time.Hour}, {High, time.Hour + liveStep, time.Hour + liveStep},
		{Low, 2 * time.Hour, time.Hour + liveStep}} {
		c.accept(f.p, Instant(f.at))
		if got := time.Duration(c.Live()); got != f.want {
			t.Errorf("%d: %v, want %v", i, got, f.want)
		}
	}
}
