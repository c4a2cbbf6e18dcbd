package apps

import (
	"context"
	"time"
)

// awaitPeriod is the time between two looks whether a program is ready.
const awaitPeriod = 20 * time.Millisecond

// await is the wait of all requests for one program to be ready.
type await struct {
	requests int           // that wait; Adapter.awaitsMu guards it
	ended    chan struct{} // closed when the program is ready, or the server ends
	ready    bool          // to be read when ended is closed
}

// awaitReady waits until a program and the models of its routes have workers, and reports
// whether they had before ctx ended. All requests that wait for a program share one check.
func (a *Adapter) awaitReady(ctx context.Context, name string) bool {
	if a.isReady(name) {
		return true
	}
	a.awaitsMu.Lock()
	w := a.awaits[name]
	if w == nil {
		w = &await{ended: make(chan struct{})}
		if !a.tasks.Go("await", func() { a.check(w, name) }, nil) {
			a.awaitsMu.Unlock()
			return false
		}
		a.awaits[name] = w
	}
	w.requests++
	a.awaitsMu.Unlock()
	defer func() {
		a.awaitsMu.Lock()
		defer a.awaitsMu.Unlock()
		w.requests--
	}()
	select {
	case <-w.ended:
		return w.ready
	case <-ctx.Done():
		return false
	}
}

// check ends w when the program is ready, the server ends or no request waits any more.
func (a *Adapter) check(w *await, name string) {
	tick := time.NewTicker(awaitPeriod)
	defer tick.Stop()
	for range tick.C {
		ready := a.isReady(name)
		a.awaitsMu.Lock()
		ends := ready || a.draining() || w.requests == 0
		if ends {
			delete(a.awaits, name)
		}
		a.awaitsMu.Unlock()
		if ends {
			w.ready = ready
			close(w.ended)
			return
		}
	}
}

// draining reports whether the server ends: models are closed before the adapter is.
func (a *Adapter) draining() bool {
	if a.requests.Closing() {
		return true
	}
	s := a.requests.Service()
	return s != nil && s.backend.State().Draining
}

func (a *Adapter) isReady(name string) bool {
	s := a.requests.Service()
	if s == nil {
		return false
	}
	p, err := find(s.backend.Models(), name)
	return err == nil && p.Ready
}
