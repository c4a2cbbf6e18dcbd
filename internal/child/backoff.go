package child

import "time"

// Backoff computes the waits between attempts: they double from Min to Max, with jitter, so that many children
// that failed together do not come back together. It is pure: no clock, no source of chance, no goroutine.
// The zero value waits between 100 ms and 10 s. Not for concurrent use.
type Backoff struct {
	// Min is the shortest wait, Max the longest. A Max below Min counts as Min.
	Min, Max time.Duration

	step time.Duration // upper bound of the wait given last; 0 before the first
}

// Next returns the next wait. u is a random number in [0, 1), say rand.Float64(). The n-th wait lies between
// Min*2^n/2 and Min*2^n (n from 1), both bounds limited to Min and Max.
func (b *Backoff) Next(u float64) time.Duration {
	lo, hi := b.Min, b.Max
	if lo <= 0 {
		lo = 100 * time.Millisecond
	}
	if hi <= 0 {
		hi = 10 * time.Second
	}
	hi = max(lo, hi)
	switch {
	case b.step == 0:
		b.step = lo
	case b.step > hi:
		b.step = hi
	}
	if b.step > hi/2 {
		b.step = hi
	} else {
		b.step *= 2
	}
	u = min(max(u, 0), 1)
	half := b.step / 2
	// Rounding through float64 may step over either bound.
	return min(hi, max(lo, half+time.Duration(u*float64(b.step-half))))
}

// Reset starts over: the next wait is short again. Call it when an attempt has worked for a while.
func (b *Backoff) Reset() { b.step = 0 }
