package ws_test

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"millrace/ingest/ws"
)

// No frame is accepted after the last frame.
func TestFlagEnd(t *testing.T) {
	r := start(t, ws.Options{})
	for _, mode := range []string{"latest", "every"} {
		v := r.v1("/v2/stream")
		v.open(1, `,"model":"echo","policy":{"mode":"`+mode+`","window":8}`)
		v.say(`{"type":"pause","sid":1}`)
		v.media(raw(1, 0, 8, 1, 5, []byte("the last")))
		v.frame(1, 6)
		if e := v.expectError("conflict", "flags"); e.Seq != 6 || e.Fatal || e.Ack != 1 {
			t.Errorf("%s: %+v", mode, e)
		}
		v.media(raw(1, 0, 8, 1, 7, []byte("one more")))
		if e := v.expectError("conflict", "frame 5"); e.Seq != 7 {
			t.Errorf("%s: %+v", mode, e)
		}
		v.say(`{"type":"resume","sid":1}`)
		if e := v.expect("result"); e.Seq != 5 || e.Ack != 3 {
			t.Errorf("%s: %+v", mode, e)
		}
		if e := v.expect("closed"); e.Totals.Received != 3 || e.Totals.Results != 1 || e.Totals.Errors != 2 {
			t.Errorf("%s: %+v", mode, e)
		}
	}
}

// Newer frames do not supersede frames flagged as must.
func TestFlagMustInLatest(t *testing.T) {
	r := start(t, ws.Options{})
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"echo","policy":{"max_age_ms":1}`)
	v.say(`{"type":"pause","sid":1}`)
	sent := time.Now()
	v.media(raw(1, 0, 4, 1, 0, []byte("must")))
	for seq := uint64(1); seq < 4; seq++ {
		v.frame(1, seq)
	}
	v.media(raw(1, 0, 4, 1, 4, []byte("must")))
	var gone []uint64
	for len(gone) < 3 {
		e := v.expect("drop")
		if e.Reason != "superseded" && e.Reason != "stale" { // stale: the next frame came later than max_age_ms
			t.Errorf("dropped: %+v", e)
		}
		for _, span := range e.Seqs {
			for seq := span[0]; seq <= span[1]; seq++ {
				gone = append(gone, seq)
			}
		}
	}
	if slices.Sort(gone); !slices.Equal(gone, []uint64{1, 2, 3}) {
		t.Errorf("dropped %v, want 1, 2 and 3", gone)
	}
	r.until("they are too old", func() bool { return time.Since(sent) > 5*time.Millisecond })
	v.say(`{"type":"resume","sid":1}`)
	for _, seq := range []uint64{0, 4} {
		if e := v.expect("result"); e.Seq != seq {
			t.Errorf("%+v, want frame %d", e, seq)
		}
	}
}

// The header's deadline_ms applies to one frame: deadline_ms shortens the policy's deadline, and 0 keeps the policy's
// deadline.
func TestHeaderDeadline(t *testing.T) {
	r := start(t, ws.Options{})
	by := func(ms uint16, flags byte, seq uint64) []byte {
		b := raw(1, 0, flags, 1, seq, []byte("x"))
		binary.LittleEndian.PutUint16(b[30:], ms)
		return b
	}
	v := r.v1("/v2/stream")
	v.open(1, `,"model":"echo","policy":{"mode":"every","window":8,"deadline_ms":3600000}`)
	v.say(`{"type":"pause","sid":1}`)
	v.media(by(2, 0, 0))
	v.media(by(0, 0, 1))
	v.media(by(2, 4, 2)) // never judged stale
	v.media(by(65535, 0, 3))
	v.say(`{"type":"ping","t":0}`)
	e := v.next()
	early := e.Type == "drop" // the next frame came after the deadline of the first
	if early {
		v.expect("pong")
	} else if e.Type != "pong" {
		t.Fatalf("want pong, got %+v", e)
	}
	come := time.Now() // of all frames
	r.until("some are too late", func() bool { return time.Since(come) > 5*time.Millisecond })
	v.say(`{"type":"resume","sid":1}`)
	if !early {
		e = v.expect("drop")
	}
	if e.Reason != "stale" || !slices.Equal(e.Seqs, [][2]uint64{{0, 0}}) {
		t.Errorf("%+v", e)
	}
	for seq := uint64(1); seq < 4; seq++ {
		if e := v.expect("result"); e.Seq != seq {
			t.Errorf("%+v, want frame %d", e, seq)
		}
	}
}
