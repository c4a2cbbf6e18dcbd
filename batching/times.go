package batching

import (
	"time"

	"millrace/stream"
)

// probeAfter is how long the table is used without a new measurement. Afterwards, one frame runs without a deadline
// check: otherwise a single slow measurement, by which every frame is late, could keep all frames from running for
// ever.
const probeAfter = time.Second

// Times is a decaying table of how long batches take, by their rows: prepare and run
// together. The caller serialises calls.
type Times struct {
	mean []time.Duration // by rows; 0 = not measured
	last stream.Instant
}

// Observe adds a measurement made at now.
func (t *Times) Observe(now stream.Instant, n int, took time.Duration) {
	if n < 1 {
		return
	}
	if t.last != 0 && now.Sub(t.last) > probeAfter {
		clear(t.mean)
	}
	t.last = now
	for len(t.mean) <= n {
		t.mean = append(t.mean, 0)
	}
	if t.mean[n] == 0 {
		t.mean[n] = max(took, 1)
		return
	}
	t.mean[n] += (took - t.mean[n]) / 4
}

// measured reports whether a batch of n rows was measured.
func (t *Times) measured(n int) bool { return n < len(t.mean) && t.mean[n] > 0 }

// Predict returns the predicted time of a batch of n rows, 0 without a measurement, and whether the table is too old
// for dropping a frame.
func (t *Times) Predict(now stream.Instant, n int) (took time.Duration, probe bool) {
	if t.last == 0 {
		return 0, false
	}
	probe = now.Sub(t.last) > probeAfter
	if t.measured(n) {
		return t.mean[n], probe
	}
	// The time does not fall with more rows, and grows no faster than their number:
	// both neighbours are upper bounds.
	for m := n + 1; m < len(t.mean); m++ {
		if t.mean[m] > 0 {
			took = t.mean[m]
			break
		}
	}
	for m := min(n, len(t.mean)) - 1; m > 0; m-- {
		if t.mean[m] > 0 {
			if most := t.mean[m] * time.Duration(n) / time.Duration(m); took == 0 || most < took {
				took = most
			}
			break
		}
	}
	return took, probe
}
