package conn

import (
	"time"

	"millrace/internal/wire"
	"millrace/stream"
)

// TimingOf returns the durations of a frame's steps in microseconds, 0 for steps the frame did not reach. ReceivedUS is
// the time of day.
func TimingOf(t *stream.Timing) (w wire.Timing) {
	span := func(from, to stream.Instant) int64 {
		if from == 0 || to == 0 {
			return 0
		}
		return int64(to.Sub(from) / time.Microsecond)
	}
	if t.Received != 0 {
		w.ReceivedUS = t.Received.Wall().UnixMicro()
	}
	w.QueueUS, w.PrepareUS = span(t.Received, t.Dequeued), span(t.Dequeued, t.Started)
	w.RunUS, w.TotalUS = span(t.Started, t.Done), span(t.Received, t.Done)
	return w
}

// EachStep calls f for each step the frame reached.
func EachStep(t *stream.Timing, f func(name string, us int64)) {
	w := TimingOf(t)
	for _, s := range [...]struct {
		name    string
		us      int64
		reached bool
	}{
		{"received_us", w.ReceivedUS, t.Received != 0},
		{"queue_us", w.QueueUS, t.Received != 0 && t.Dequeued != 0},
		{"prepare_us", w.PrepareUS, t.Dequeued != 0 && t.Started != 0},
		{"run_us", w.RunUS, t.Started != 0 && t.Done != 0},
		{"total_us", w.TotalUS, t.Received != 0 && t.Done != 0},
	} {
		if s.reached {
			f(s.name, s.us)
		}
	}
}
