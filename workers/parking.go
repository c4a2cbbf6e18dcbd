package workers

import (
	"sync"
	"sync/atomic"
	"time"
)

// parking is the workers of a group that have nothing to do. They are woken in the
// order of a stack, since the last to stop has the warmest caches.
type parking struct {
	mu     sync.Mutex
	parked []*waiter
	count  atomic.Int32 // of parked
}

// waiter is a worker that can be parked.
type waiter struct {
	wake   chan struct{}
	timer  *time.Timer
	parked atomic.Bool
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
// once when changed says that there may be work; changed is asked when w can be
// woken already, so that no arrival is missed.
func (p *parking) wait(w *waiter, limit time.Duration, changed func() bool) {
	p.mu.Lock()
	p.parked = append(p.parked, w)
	w.parked.Store(true)
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

// remove takes w out of the parked ones, if it is still there.
func (p *parking) remove(w *waiter) {
	if !w.parked.Load() {
		return
	}
	p.mu.Lock()
	w.parked.Store(false)
	for i := len(p.parked) - 1; i >= 0; i-- {
		if p.parked[i] == w {
			p.parked = append(p.parked[:i], p.parked[i+1:]...)
			p.count.Add(-1)
			break
		}
	}
	p.mu.Unlock()
}

// wakeOne wakes one parked worker.
func (p *parking) wakeOne() {
	if p.count.Load() == 0 {
		return
	}
	p.mu.Lock()
	n := len(p.parked)
	if n == 0 {
		p.mu.Unlock()
		return
	}
	w := p.parked[n-1]
	w.parked.Store(false)
	p.parked = p.parked[:n-1]
	p.count.Add(-1)
	p.mu.Unlock()
	w.signal()
}

// wakeThis wakes w, or has it not park.
func (p *parking) wakeThis(w *waiter) {
	p.remove(w)
	w.signal()
}

// wakeAll wakes all that are parked now.
func (p *parking) wakeAll() {
	p.mu.Lock()
	all := p.parked
	p.parked = nil
	p.count.Store(0)
	for _, w := range all {
		w.parked.Store(false)
	}
	p.mu.Unlock()
	for _, w := range all {
		w.signal()
	}
}
