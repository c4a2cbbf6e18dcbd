package workers

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// parking holds the idle workers of a group. The last worker to park is woken first, because its caches are the
// warmest; with turns, the worker that has been idle for longest.
type parking struct {
	turns  bool          // constant
	last   atomic.Uint64 // turn of the worker that has run last
	mu     sync.Mutex
	parked []*waiter
	count  atomic.Int32 // of parked
}

// waiter is a worker that can be parked.
type waiter struct {
	runner *runner // that waits
	wake   chan struct{}
	timer  *time.Timer
	in     atomic.Pointer[parking] // where the worker is parked; written under the lock of that parking
	turn   uint64                  // with turns, the parked workers are in the order of this number
	// state decides between the runner's goroutine, woken by wake, and a borrower.
	state atomic.Uint32
}

// The states of a waiter.
const (
	awake   = iota // the goroutine runs, or waits for a limited time
	asleep         // the goroutine waits for wake
	lentOut        // the same, and another goroutine has borrowed the runner
)

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
	p.push(w)
	p.mu.Unlock()
	switch {
	case changed():
	case limit <= 0:
		w.state.Store(asleep)
		for <-w.wake; !w.state.CompareAndSwap(asleep, awake); <-w.wake { // lent out: an earlier signal was left
		}
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

// push adds w to the parked workers. mu is held.
func (p *parking) push(w *waiter) {
	i := len(p.parked)
	for p.turns && i > 0 && p.parked[i-1].turn > w.turn {
		i--
	}
	p.parked = slices.Insert(p.parked, i, w)
	w.in.Store(p)
	p.count.Add(1)
}

// borrow takes out the worker that wakeOne would wake, if its goroutine sleeps, and leaves the goroutine asleep until
// handBack. borrow returns nil when there is no such worker, or with turns.
func (p *parking) borrow() *waiter {
	if p.turns || p.count.Load() == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.parked)
	if n == 0 {
		return nil
	}
	w := p.parked[n-1]
	if !w.state.CompareAndSwap(asleep, lentOut) {
		return nil
	}
	w.in.Store(nil)
	p.parked = p.parked[:n-1]
	p.count.Add(-1)
	return w
}

// handBack wakes the goroutine of a borrowed worker.
func (w *waiter) handBack() {
	w.state.Store(asleep)
	w.signal()
}

// repark parks a borrowed worker again, whose goroutine sleeps on, and reports whether the borrower has no longer
// the worker. When changed returns true, and no other goroutine has taken the worker meanwhile, the borrower keeps
// the worker.
func (p *parking) repark(w *waiter, changed func() bool) bool {
	p.mu.Lock()
	p.push(w)
	w.state.Store(asleep) // under the lock: the goroutine, woken by an earlier signal, must find its runner parked
	p.mu.Unlock()
	if !changed() {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.parked, w)
	if i < 0 || !w.state.CompareAndSwap(asleep, lentOut) {
		return true
	}
	w.in.Store(nil)
	p.parked = slices.Delete(p.parked, i, i+1)
	p.count.Add(-1)
	return false
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
	i := len(p.parked) - 1
	if i < 0 {
		p.mu.Unlock()
		return false
	}
	if p.turns {
		i = 0
	}
	w := p.parked[i]
	w.in.Store(nil)
	p.parked = slices.Delete(p.parked, i, i+1)
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
