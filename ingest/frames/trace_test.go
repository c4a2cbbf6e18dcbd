package frames_test

import (
	"testing"

	"millrace/ingest/frames"
	"millrace/stream"
)

func FuzzTraceContext(f *testing.F) {
	f.Add([]byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))
	f.Add([]byte("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-more"))
	f.Add([]byte("00-00000000000000000000000000000000-00f067aa0ba902b7-01"))
	f.Fuzz(func(t *testing.T, h []byte) {
		var fr stream.Frame
		frames.TraceContext(&fr, h)
		if (fr.Trace == stream.TraceID{}) != (fr.Parent == stream.SpanID{}) {
			t.Errorf("%q gave half a context", h)
		}
	})
}

func TestTraceContext(t *testing.T) {
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for h, want := range map[string][2]bool{ // taken, sampled
		"00-" + trace + "-" + span + "-01":        {true, true},
		"00-" + trace + "-" + span + "-00":        {true, false},
		"cc-" + trace + "-" + span + "-03-future": {true, true},
		"00-" + trace + "-" + span + "-01-x":      {},
		"ff-" + trace + "-" + span + "-01":        {},
		"00-" + trace + "-0000000000000000-01":    {},
		"00-" + trace + "-" + span:                {},
		"zz-" + trace + "-" + span + "-01":        {},
	} {
		var f stream.Frame
		frames.TraceContext(&f, []byte(h))
		if (f.Trace != stream.TraceID{}) != want[0] || f.Sampled != want[1] {
			t.Errorf("%s: %+v", h, f)
		}
		if want[0] && (f.Trace[0] != 0x4b || f.Parent[7] != 0xb7) {
			t.Errorf("%s: %x %x", h, f.Trace, f.Parent)
		}
	}
}
