package video

import "time"

const (
	// lagAllowed is how much longer than the fastest frame a frame may have taken to arrive: networks vary.
	lagAllowed = 500 * time.Millisecond
	// clockDrift: a camera's clock may be slow by 1/clockDrift of the time.
	clockDrift = 200
	// maxBehind bounds how long frames count as late, for a source that never proves faster than its times.
	maxBehind = 10 * time.Second
	// longestWait bounds the time for which a frame waits for a newer frame.
	longestWait = 150 * time.Millisecond
)

// freshness finds the late frames of a live source: frames come late after the opening of a source, and after a stop
// of the network or server. A camera's clock gives the distances between frames, but not the time of day. So a source
// is behind from its opening on. A source is also behind when a frame has arrived much later than the fastest frame,
// measured by arrival minus presentation time. The source has caught up when, after a frame, no newer frame follows
// in less than the time between the two frames.
type freshness struct {
	opened bool
	behind bool
	since  time.Duration // when behind began
	least  time.Duration // smallest arrival minus presentation time; rises with clockDrift
	last   time.Duration // arrival of the last frame
	pts    time.Duration // presentation time of the frame
	step   time.Duration // between frames

	newer func(time.Duration) bool // waits for a newer frame, for at most the given time
}

// newFreshness returns the state before the first frame of a source with a frame rate, 0 for unknown.
func newFreshness(fps float64, newer func(time.Duration) bool) *freshness {
	f := &freshness{step: 40 * time.Millisecond, newer: newer}
	if fps > 0 {
		f.step = time.Duration(float64(time.Second) / fps)
	}
	return f
}

// late reports whether a frame is late, i.e. a newer frame is ready. arrived must be from a monotonic clock.
func (f *freshness) late(pts, arrived time.Duration) bool {
	lag := arrived - pts
	if !f.opened {
		f.opened, f.behind, f.since, f.least = true, true, arrived, lag
	} else {
		if d := pts - f.pts; d > 0 && d < 10*time.Second {
			f.step = d
		}
		f.least = min(f.least+(arrived-f.last)/clockDrift, lag)
		if lag > f.least+lagAllowed && !f.behind {
			f.behind, f.since = true, arrived
		}
	}
	f.pts, f.last = pts, arrived
	if !f.behind {
		return false
	}
	if arrived-f.since < maxBehind && f.newer(min(f.step*2/3, longestWait)) {
		return true
	}
	// This is the newest frame, however late: the clock may have been set, or the delay of the network may have
	// grown.
	f.behind, f.least = false, lag
	return false
}
