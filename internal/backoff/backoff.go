// Package backoff computes the waits between attempts. The package is pure: no clock, no source of random numbers, no
// goroutine.
package backoff

import "time"

// Backoff returns waits that double from Min to Max, with jitter, so that clients do not all retry at the same time
// after a common failure. The zero value waits between 100 ms and 10 s. A Backoff is not for concurrent use.
type Backoff struct {
	// Min is the shortest wait, Max the longest. A Max below Min counts as Min.
	Min, Max time.Duration

	limit time.Duration // upper bound of the newest wait; 0 before the first
}

// Next returns the next wait. u is a random number in [0, 1), such as rand.Float64(). The n-th wait is between
// Min*2^n/2 and Min*2^n (n from 1), both limited to Min and Max.
func (b *Backoff) Next(u float64) time.Duration {
	lo, hi := b.Min, b.Max
	if lo <= 0 {
		lo = 100 * time.Millisecond
	}
	if hi <= 0 {
		hi = 10 * time.Second
	}
	hi = max(lo, hi)
	if b.limit == 0 {
		b.limit = lo
	}
	if b.limit > hi/2 {
		b.limit = hi
	} else {
		b.limit *= 2
	}
	u = min(max(u, 0), 1)
	half := b.limit / 2
	// Rounding through float64 may step over either bound.
	return min(hi, max(lo, half+time.Duration(u*float64(b.limit-half))))
}

// Reset makes the next wait short again. Call Reset after lasting success.
func (b *Backoff) Reset() { b.limit = 0 }
