package load

import (
	"math"
	"math/bits"
	"time"
)

// Histogram counts durations in buckets whose width grows with the value: 64 to
// each power of two, so that a quantile is off by 1/128 of itself at most.
// Below 128 ns it is exact. The zero value is empty. It is for one goroutine at
// a time.
type Histogram struct {
	counts   []uint64 // as long as the largest value needs
	n        uint64
	sum      float64
	min, max time.Duration
}

const (
	subBits = 6
	sub     = 1 << subBits
)

// bucket is the index of v's bucket: v itself below 2*sub, after that the
// power of two followed by the next subBits bits.
func bucket(v uint64) int {
	if v < 2*sub {
		return int(v)
	}
	e := bits.Len64(v) - subBits - 1
	return e<<subBits + int(v>>e)
}

// middle is the value in the middle of a bucket.
func middle(i int) time.Duration {
	if i < 2*sub {
		return time.Duration(i)
	}
	e := i>>subBits - 1
	low := uint64(i-e<<subBits) << e
	return time.Duration(low + (1<<e-1)/2)
}

// Add counts d. A negative duration counts as none.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	i := bucket(uint64(d))
	if i >= len(h.counts) {
		h.counts = append(h.counts, make([]uint64, i+1-len(h.counts))...)
	}
	h.counts[i]++
	if h.n == 0 || d < h.min {
		h.min = d
	}
	h.max = max(h.max, d)
	h.n++
	h.sum += float64(d)
}

// Merge adds what o has counted.
func (h *Histogram) Merge(o *Histogram) {
	if o.n == 0 {
		return
	}
	if len(o.counts) > len(h.counts) {
		h.counts = append(h.counts, make([]uint64, len(o.counts)-len(h.counts))...)
	}
	for i, c := range o.counts {
		h.counts[i] += c
	}
	if h.n == 0 || o.min < h.min {
		h.min = o.min
	}
	h.max = max(h.max, o.max)
	h.n += o.n
	h.sum += o.sum
}

// Reset empties the histogram and keeps its memory.
func (h *Histogram) Reset() {
	clear(h.counts)
	*h = Histogram{counts: h.counts}
}

// Count returns how many durations were added.
func (h *Histogram) Count() uint64 { return h.n }

// Mean returns their mean, as exactly as a float64 has it; 0 when there are none.
func (h *Histogram) Mean() time.Duration {
	if h.n == 0 {
		return 0
	}
	mean := time.Duration(min(h.sum/float64(h.n), math.MaxInt64-1023)) // the next float64 below 1<<63
	return min(max(mean, h.min), h.max)
}

// Quantile returns the duration that the share q, 0 to 1, of all does not
// exceed; 0 when there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := rankOf(q, h.n)
	switch rank {
	case 1:
		return h.min
	case h.n:
		return h.max
	}
	var seen uint64
	for i, c := range h.counts {
		if seen += c; seen >= rank {
			return min(max(middle(i), h.min), h.max)
		}
	}
	return h.max
}

// rankOf is the place of quantile q among n sorted values, counted from 1.
func rankOf(q float64, n uint64) uint64 {
	r := uint64(q * float64(n))
	if float64(r) < q*float64(n) {
		r++
	}
	return min(max(r, 1), n)
}

// Quantiles is a histogram's summary, in milliseconds.
type Quantiles struct {
	Count uint64  `json:"count"`
	Mean  float64 `json:"mean_ms"`
	Min   float64 `json:"min_ms"`
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	P95   float64 `json:"p95_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p999_ms"`
	Max   float64 `json:"max_ms"`
}

// Summary returns the quantiles that reports show.
func (h *Histogram) Summary() Quantiles {
	return Quantiles{
		Count: h.n, Mean: millis(h.Mean()), Min: millis(h.min), P50: millis(h.Quantile(0.5)), P90: millis(h.Quantile(0.9)),
		P95: millis(h.Quantile(0.95)), P99: millis(h.Quantile(0.99)), P999: millis(h.Quantile(0.999)), Max: millis(h.max),
	}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Fairness is Jain's index of what each stream got: 1 when all got the same,
// 1/n when one of n got everything. It is 1 when nobody got anything.
//
// Jain, Chiu and Hawe, A Quantitative Measure of Fairness, DEC TR-301, 1984.
func Fairness[T uint64 | float64](got []T) float64 {
	var sum, squares float64
	for _, g := range got {
		sum += float64(g)
		squares += float64(g) * float64(g)
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(got)) * squares)
}
