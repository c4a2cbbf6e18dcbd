package v1

import (
	"bytes"
	"io"
	"reflect"
	"testing"
	"testing/iotest"
	"time"

	"millrace/ingest"
	"millrace/ingest/ws/conn"
	"millrace/internal/wire"
	"millrace/stream"
)

// The number of endings kept per stream is twice the bound of unanswered frames, within limits.
func TestKeptEndings(t *testing.T) {
	for window, kept := range map[int]int{1: minReplay, 2: 4, 3: 6, 32: 64, 33: maxReplay} {
		c := &channel{window: ingest.NewWindow()}
		c.opened(stream.New(&stream.Model{AcceptsAnyInput: true}, nowhere{}, c,
			stream.Options{Policy: stream.Policy{Window: window}}))
		if c.kept.size != kept || c.window.Limit() != uint64(window) {
			t.Errorf("window %d: %d endings, %d frames", window, c.kept.size, c.window.Limit())
		}
	}
}

// Each drop is reported once, with its reason, and a single entry of the outbox reports all noted drops.
func TestNotedDrops(t *testing.T) {
	var p pendingDrops
	for i, d := range []struct {
		seq   uint64
		why   stream.Reason
		first bool
	}{
		{1, stream.Superseded, true}, {2, stream.Stale, false}, {3, stream.Superseded, false},
		{4, stream.Superseded, false}, {5, stream.Stale, false},
	} {
		if p.note(d.seq, d.why) != d.first {
			t.Errorf("drop %d: an entry is wanted: %v", i, !d.first)
		}
	}
	want := []dropRun{
		{stream.Superseded, []wire.Range{{1, 1}, {3, 4}}, 3}, {stream.Stale, []wire.Range{{2, 2}, {5, 5}}, 2},
	}
	if got := p.take(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if len(p.take()) != 0 || !p.note(6, stream.Stale) {
		t.Error("what was taken is still noted")
	}
}

// A result has the form in force when its frame was received. Forms no longer needed by a frame are forgotten.
func TestOutputsOfEachFrame(t *testing.T) {
	begin := func() *outputs { // frame 0 is in flight when the form changes
		o := &outputs{}
		o.set(conn.AsBinary, 0, true)
		o.set(conn.AsJSON, 0, false)
		return o
	}
	for _, c := range []struct {
		name    string
		change  func(*outputs)
		entries int
		want    []conn.Outputs // of the frames from 0
	}{
		{"first update", func(o *outputs) {}, 2, []conn.Outputs{conn.AsBinary, conn.AsJSON, conn.AsJSON}},
		{"again, without a frame in between", func(o *outputs) {
			o.set(conn.AsNone, 0, false)
		}, 2, []conn.Outputs{conn.AsBinary, conn.AsNone}},
		{"as it was, without a frame in between", func(o *outputs) {
			o.set(conn.AsBinary, 0, false)
		}, 1, []conn.Outputs{conn.AsBinary, conn.AsBinary}},
		{"with frames 1 and 2", func(o *outputs) {
			o.set(conn.AsNone, 2, false)
		}, 3, []conn.Outputs{conn.AsBinary, conn.AsJSON, conn.AsJSON, conn.AsNone}},
		{"with none in flight", func(o *outputs) {
			o.set(conn.AsNone, 3, true)
		}, 1, []conn.Outputs{conn.AsNone, conn.AsNone}},
	} {
		o := begin()
		c.change(o)
		if len(o.all) != c.entries {
			t.Errorf("%s: %d entries, want %d", c.name, len(o.all), c.entries)
		}
		for seq, want := range c.want {
			if got := o.of(uint64(seq)); got != want {
				t.Errorf("%s: frame %d has form %v, want %v", c.name, seq, got, want)
			}
		}
		if len(o.all) != 1 {
			t.Errorf("%s: %d entries are left", c.name, len(o.all))
		}
	}
	o := begin()
	for i := uint64(1); !o.full(); i++ {
		if o.set(conn.Outputs(i%2+1), i, false); i > maxOutputs {
			t.Fatal("forms without a bound")
		}
	}
	if len(o.all) != maxOutputs {
		t.Errorf("full with %d forms", len(o.all))
	}
}

// The fields of an update replace earlier values; other fields stay.
func TestChanged(t *testing.T) {
	p := stream.Policy{Mode: stream.Latest, MaxAge: time.Second, Deadline: 2 * time.Second, MaxFPS: 3, Window: 4}
	if got := changed(p, &wire.PolicyChange{}); got != p {
		t.Errorf("%+v", got)
	}
	ms, more, fps, window := 250, 750, 7.5, 9
	got := changed(p, &wire.PolicyChange{Mode: "every", MaxAgeMS: &ms, DeadlineMS: &more, MaxFPS: &fps,
		Window: &window})
	want := stream.Policy{Mode: stream.Every, MaxAge: 250 * time.Millisecond, Deadline: 750 * time.Millisecond,
		MaxFPS: 7.5, Window: 9}
	if got != want {
		t.Errorf("%+v", got)
	}
	if got := policyOf(wire.Policy{Mode: "every", MaxAgeMS: 250, DeadlineMS: 750, MaxFPS: 7.5,
		Window: 9}); got != want {
		t.Errorf("%+v", got)
	}
}

// A headReader returns the header read ahead, in pieces of any size, and then the rest.
func TestHeadReader(t *testing.T) {
	whole := bytes.Repeat([]byte("0123456789"), 5)
	for _, ahead := range []int{0, 5, wire.HeaderLen} {
		h := &headReader{n: copy(make([]byte, wire.HeaderLen), whole[:ahead]), rest: bytes.NewReader(whole[ahead:])}
		copy(h.head[:], whole[:ahead])
		for _, r := range []io.Reader{iotest.OneByteReader(h), h} {
			h.at, h.rest = 0, bytes.NewReader(whole[ahead:])
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, whole) {
				t.Errorf("%d bytes ahead: %q, %v", ahead, got, err)
			}
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for code, want := range map[stream.Code]int{
		stream.Overloaded: 1000, stream.Unavailable: 1000, stream.Draining: 1000, stream.InvalidArgument: 0,
		stream.FlowControl: 0,
	} {
		if m := errorMessage(stream.Errorf(code, "", "x")); m.RetryAfterMS != want || m.Code != string(code) {
			t.Errorf("%s: %+v", code, m)
		}
	}
}
