package streams

import (
	"sync"
	"time"
)

const (
	rateSlots  = 16
	rateWindow = 10 // length of the measurement in seconds
)

// rate measures events per second over the last ten whole seconds.
type rate struct {
	mu    sync.Mutex
	first int64            // second of the first event
	at    [rateSlots]int64 // second of each slot
	n     [rateSlots]int
}

// count counts an event.
func (r *rate) count(now time.Time) {
	second := now.Unix()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == 0 {
		r.first = second
	}
	i := second % rateSlots
	if r.at[i] != second {
		r.at[i], r.n[i] = second, 0
	}
	r.n[i]++
}

// perSecond returns the rate, 0 in the first second.
func (r *rate) perSecond(now time.Time) float64 {
	second := now.Unix()
	r.mu.Lock()
	defer r.mu.Unlock()
	seconds := min(rateWindow, second-r.first-1) // the first second was not whole
	if r.first == 0 || seconds <= 0 {
		return 0
	}
	total := 0
	for i, at := range r.at {
		if at >= second-seconds && at < second {
			total += r.n[i]
		}
	}
	return float64(total) / float64(seconds)
}
