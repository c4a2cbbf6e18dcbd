package workers

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// parking holds the workers of a group that have nothing to do. The last one to park is
// woken first, since its caches are the warmest.
type parking struct {
	mu     sync.Mutex
	parked []*waiter
	count  atomic.Int32 // of parked
}

// waiter is a worker that can be parked.
type waiter struct {
	wake  chan struct{}
	timer *time.Timer
	in    atomic.Pointer[parking] // where it is parked; written under the lock of that
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

// wait parks w until it is woken, or for limit if that is more than 0. It returns at
// once when changed returns true. changed is called after w can be woken, so that no
// arrival is missed.
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

// remove takes w out of the parked workers, if it is still among them.
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

// wakeOne wakes one parked worker, and reports whether there was one.
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

// wakeThis wakes w, or keeps it from parking.
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
