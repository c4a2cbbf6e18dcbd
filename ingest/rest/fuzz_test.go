package rest

import (
	"math"
	"testing"

	"millrace/ingest"
	"millrace/stream"
)

func FuzzLoadParams(f *testing.F) {
	for _, s := range []string{"", "{}", `{"parameters":{"a":1,"b":2.5,"c":"x","d":true}}`, `{"a":1e999}`, `{"parameters":null}`, `[]`, `{"a":{}}`, `{"a":9223372036854775808}`} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, bare bool) {
		params, err := loadParams(body, bare)
		if err != nil {
			if c := stream.CodeOf(err); c != stream.InvalidArgument {
				t.Errorf("%v has the code %s", err, c)
			}
			return
		}
		for k, v := range params {
			switch v := v.(type) {
			case string, bool, int64:
			case float64:
				if math.IsNaN(v) || math.IsInf(v, 0) {
					t.Errorf("%s is %v", k, v)
				}
			default:
				t.Errorf("%s is a %T", k, v)
			}
		}
	})
}

func FuzzOptions(f *testing.F) {
	for _, s := range [][2]string{{"codec", "jpeg"}, {"width", "640"}, {"shape", "1,-1, 3"}, {"shape", ""}, {"deadline_ms", "0.5"}, {"outputs", "none"}, {"datatype", "FP32"}, {"x", "y"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		var o options
		if err := o.set(key, value); err != nil {
			if c := stream.CodeOf(err); c != stream.InvalidArgument {
				t.Errorf("%v has the code %s", err, c)
			}
			return
		}
		if o.deadline < 0 || o.deadline > maxDeadline || o.width < 0 || o.width > 65535 || o.height < 0 || o.height > 65535 || len(o.shape) > 64 {
			t.Errorf("%s=%s gave %+v", key, value, o)
		}
	})
}

func FuzzTraceContext(f *testing.F) {
	f.Add([]byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))
	f.Add([]byte("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-more"))
	f.Add([]byte("00-00000000000000000000000000000000-00f067aa0ba902b7-01"))
	f.Fuzz(func(t *testing.T, h []byte) {
		var fr stream.Frame
		ingest.TraceContext(&fr, h)
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
		ingest.TraceContext(&f, []byte(h))
		if (f.Trace != stream.TraceID{}) != want[0] || f.Sampled != want[1] {
			t.Errorf("%s: %+v", h, f)
		}
		if want[0] && (f.Trace[0] != 0x4b || f.Parent[7] != 0xb7) {
			t.Errorf("%s: %x %x", h, f.Trace, f.Parent)
		}
	}
}
