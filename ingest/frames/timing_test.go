package frames_test

import (
	"testing"
	"time"

	"millrace/ingest/frames"
	"millrace/stream"
)

// TestServerTiming checks that each duration is the time between two points, in milliseconds, and that steps not
// reached are left out.
func TestServerTiming(t *testing.T) {
	at := func(us int) stream.Instant {
		return stream.Instant(time.Second + time.Duration(us)*time.Microsecond)
	}
	for want, timing := range map[string]stream.Timing{
		"queue;dur=1.500, prepare;dur=0.250, run;dur=12.000": {Received: at(0), Dequeued: at(1500), Started: at(1750),
			Done: at(13750)},
		"queue;dur=1.500":                    {Received: at(0), Dequeued: at(1500)},
		"queue;dur=1.500, prepare;dur=0.500": {Received: at(0), Dequeued: at(1500), Started: at(2000)},
		"queue;dur=0.000, prepare;dur=0.000, run;dur=0.000": {Received: at(5), Dequeued: at(5), Started: at(5),
			Done: at(5)},
		"run;dur=2.000": {Started: at(1000), Done: at(3000)},
		"":              {Received: at(5), Done: at(9)},
	} {
		if got := string(frames.AppendTiming(nil, &timing)); got != want {
			t.Errorf("%+v: %q, want %q", timing, got, want)
		}
	}
}
