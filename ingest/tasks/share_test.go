package tasks

import (
	"testing"
	"time"

	"millrace/stream"
)

// A task pauses after a frame while live frames arrive: seven times as long as the frame took for a share of an eighth.
func TestShare(t *testing.T) {
	const start = stream.Instant(time.Hour)
	for name, c := range map[string]struct {
		of         float64
		live, took time.Duration // before the pause
		want       time.Duration
	}{
		"no live frame yet":  {.125, -1, 10 * time.Millisecond, 0},
		"live frames":        {.125, 300 * time.Millisecond, 10 * time.Millisecond, 70 * time.Millisecond},
		"live frames before": {.125, time.Second, 10 * time.Millisecond, 0},
		"all of the time":    {1, 0, 10 * time.Millisecond, 0},
		"a slow model":       {.125, 0, time.Minute, maxPause},
		"the first frame":    {.125, 0, 0, 0},
	} {
		s := newShare(c.of, func() stream.Instant {
			if c.live < 0 {
				return 0
			}
			return start.Add(-c.live)
		})
		s.took(c.took)
		if got := s.pause(start); got != c.want {
			t.Errorf("%s: a pause of %v, want %v", name, got, c.want)
		}
	}
}

// A task notices within a tenth of a second that live frames begin and that they have ended.
func TestShareLooks(t *testing.T) {
	const start = stream.Instant(time.Hour)
	live := stream.Instant(0)
	s := newShare(.5, func() stream.Instant { return live })
	s.took(time.Millisecond)
	for i, c := range []struct {
		after time.Duration
		live  bool
		want  time.Duration
	}{{0, false, 0}, {50 * time.Millisecond, true, 0}, {100 * time.Millisecond, true, time.Millisecond},
		{2 * time.Second, false, 0}} {
		if now := start.Add(c.after); c.live {
			live = now
		}
		if got := s.pause(start.Add(c.after)); got != c.want {
			t.Errorf("%d: a pause of %v, want %v", i, got, c.want)
		}
	}
}
