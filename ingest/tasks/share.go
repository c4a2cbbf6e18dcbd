package tasks

import (
	"sync/atomic"
	"time"

	"millrace/stream"
)

// liveFor is how long a live frame makes tasks pause, and lookEvery how often a task looks for live frames.
const liveFor, lookEvery = time.Second, 100 * time.Millisecond

// maxPause is the longest pause of a task between two frames.
const maxPause = time.Second

// share makes a task pause between frames while live frames arrive, so that frames of the task are in work for a share
// of the time. A processor that works on a frame of a task is not free for a live frame, whatever the priorities are.
type share struct {
	of   float64
	live func() stream.Instant // when the server accepted a live frame at last; 0 = never

	last atomic.Int64 // time from receipt to result of the newest frame

	looked stream.Instant // for pause
	isLive bool
}

func newShare(of float64, live func() stream.Instant) *share { return &share{of: of, live: live} }

// took records the time from receipt to result of a frame.
func (s *share) took(d time.Duration) { s.last.Store(int64(max(d, 0))) }

// pause returns how long the next frame waits at now.
func (s *share) pause(now stream.Instant) time.Duration {
	last := s.last.Load()
	if last == 0 || s.of >= 1 {
		return 0
	}
	if s.looked == 0 || now.Sub(s.looked) >= lookEvery {
		at := s.live()
		s.looked, s.isLive = now, at != 0 && now.Sub(at) < liveFor
	}
	if !s.isLive {
		return 0
	}
	return min(time.Duration(float64(last)*(1/s.of-1)), maxPause)
}
