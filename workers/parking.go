package workers

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// parking holds the idle workers of a group. The last worker to park is woken first, because its caches are the
// warmest.
type parking struct {
	mu     sync.Mutex
	parked []*waiter
	count  atomic.Int32 // of parked
}

// waiter is a worker that can be parked.
type waiter struct {
	wake  chan struct{}
	timer *time.Timer
	in    atomic.Pointer[parking] // where the worker is parked; written under the lock of that parking
}

func (w *waiter) init() {
	w.wake, w.timer = make(chan struct{}, 1), time.NewTimer(time.Hour)
	w.timer.Stop()
}

func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// wait parks w until w is woken, or for at most limit if limit is more than 0. wait returns at once when changed
// returns true. wait calls changed after w can be woken, so that no arrival is missed.
func (p *parking) wait(w *waiter, limit time.Duration, changed func() bool) {
	p.mu.Lock()
	p.parked = append(p.parked, w)
	w.in.Store(p)
	p.count.Add(1)
	p.mu.Unlock()
	switch {
	case changed():
	case limit <= 0:
		<-w.wake
	default:
		w.timer.Reset(limit)
		select {
		case <-w.wake:
		case <-w.timer.C:
		}
		w.timer.Stop()
	}
	p.remove(w)
}

// remove takes w out of the parked workers, if w is parked.
func (p *parking) remove(w *waiter) {
	if w.in.Load() != p {
		return
	}
	p.mu.Lock()
	if i := slices.Index(p.parked, w); i >= 0 {
		w.in.Store(nil)
		p.parked = slices.Delete(p.parked, i, i+1)
		p.count.Add(-1)
	}
	p.mu.Unlock()
}

// wakeOne wakes one parked worker, and reports whether a worker was parked.
func (p *parking) wakeOne() bool {
	if p.count.Load() == 0 {
		return false
	}
	p.mu.Lock()
	n := len(p.parked)
	if n == 0 {
		p.mu.Unlock()
		return false
	}
	w := p.parked[n-1]
	w.in.Store(nil)
	p.parked = p.parked[:n-1]
	p.count.Add(-1)
	p.mu.Unlock()
	w.signal()
	return true
}

// wakeThis wakes w, or keeps w from parking.
func (p *parking) wakeThis(w *waiter) {
	p.remove(w)
	w.signal()
}

// wakeAll wakes all workers that are parked now.
func (p *parking) wakeAll() {
	p.mu.Lock()
	all := p.parked
	p.parked = nil
	p.count.Store(0)
	for _, w := range all {
		w.in.Store(nil)
	}
	p.mu.Unlock()
	for _, w := range all {
		w.signal()
	}
}
