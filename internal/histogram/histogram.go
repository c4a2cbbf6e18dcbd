// Package histogram counts durations with HdrHistogram, and adds the exact sum, minimum and maximum. An empty
// histogram takes no memory.
package histogram

import (
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longest is the largest duration with its own bucket: longer durations count as longest, except for Max and Mean.
const longest = 24 * time.Hour

// digits is the precision of HdrHistogram's buckets, in significant decimal
// digits: a quantile is off by less than 1 % of itself.
const digits = 2

// Durations is a histogram of durations. The zero value is empty. Durations is for one goroutine at a time.
type Durations struct {
	buckets  *hdrhistogram.Histogram // nil until the first duration
	sum      float64                 // nanoseconds
	min, max time.Duration
}

// Add counts d. A negative duration counts as 0.
func (h *Durations) Add(d time.Duration) {
	d = max(d, 0)
	if h.Count() == 0 {
		h.min = d
	}
	h.allocate()
	_ = h.buckets.RecordValue(int64(min(d, longest))) // fails only beyond the range
	h.min, h.max, h.sum = min(h.min, d), max(h.max, d), h.sum+float64(d)
}

func (h *Durations) allocate() {
	if h.buckets == nil {
		h.buckets = hdrhistogram.New(1, int64(longest), digits)
	}
}

// Merge adds the durations of o.
func (h *Durations) Merge(o *Durations) {
	if o.Count() == 0 {
		return
	}
	if h.Count() == 0 {
		h.min = o.min
	}
	h.allocate()
	h.buckets.Merge(o.buckets) // drops none: the ranges are the same
	h.min, h.max, h.sum = min(h.min, o.min), max(h.max, o.max), h.sum+o.sum
}

// Reset empties the histogram and keeps its memory.
func (h *Durations) Reset() {
	if h.buckets != nil {
		h.buckets.Reset()
	}
	*h = Durations{buckets: h.buckets}
}

// Count returns how many durations were added.
func (h *Durations) Count() uint64 {
	if h.buckets == nil {
		return 0
	}
	return uint64(h.buckets.TotalCount())
}

// Min returns the shortest duration, 0 for an empty histogram.
func (h *Durations) Min() time.Duration { return h.min }

// Max returns the longest duration, 0 for an empty histogram.
func (h *Durations) Max() time.Duration { return h.max }

// Mean returns the mean, 0 for an empty histogram.
func (h *Durations) Mean() time.Duration {
	n := h.Count()
	if n == 0 {
		return 0
	}
	mean := time.Duration(min(h.sum/float64(n), math.MaxInt64-1023)) // the largest float64 below 1<<63
	return min(max(mean, h.min), h.max)
}

// Quantile returns the duration not exceeded by a share q, 0 to 1, of all durations; 0 for an empty histogram.
func (h *Durations) Quantile(q float64) time.Duration {
	if h.buckets == nil {
		return 0
	}
	if q >= 1 {
		return h.max
	}
	return min(max(time.Duration(h.buckets.ValueAtQuantile(100*q)), h.min), h.max)
}
