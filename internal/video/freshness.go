package video

import "time"

const (
	// lagAllowed is how much longer than the fastest frame a frame may have taken to arrive: networks vary.
	lagAllowed = 500 * time.Millisecond
	// clockDrift is by which part of the time a camera's clock may be slow.
	clockDrift = 200
	// maxBehind bounds the time in which frames are late, for a source that never ends to be faster than its times.
	maxBehind = 10 * time.Second
	// longestWait bounds the time that a frame waits for a newer one.
	longestWait = 150 * time.Millisecond
)

// freshness finds the late frames of a live source, as they come when a source was opened, or after
// its network or server had stopped for a while. A camera's clock says how far frames are apart, but not what time it is.
// So a source is behind from its opening on, and when a frame has arrived much later than the fastest one, by the
// difference between arrival and presentation time; it has caught up when no newer frame follows a frame in less than the
// time between the two.
type freshness struct {
	opened bool
	behind bool
	since  time.Duration // when behind began
	least  time.Duration // smallest difference between arrival and presentation time, which rises with clockDrift
	last   time.Duration // arrival of the last frame
	pts    time.Duration // its presentation time
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

// late reports whether a frame is late: a newer one is there. arrived is by a clock that never jumps.
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
	// This is the newest frame, however long it took: the clock may have been set, or the way may have become longer.
	f.behind, f.least = false, lag
	return false
}
