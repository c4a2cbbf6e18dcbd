package workers

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/backoff"
)

// repairs let the runners of an instance agree on the runner that replaces a broken worker. The other runner waits
// outside of Run, with its batch if not yet begun.
type repairs struct {
	mu        sync.Mutex
	changed   sync.Cond // a field below, or instance.gone
	started   int       // how often the worker was started again
	repairing bool
	dead      atomic.Bool // the restart failed
	running   int         // runners in Run
	backoff   backoff.Backoff
}

// enter is called before Run. enter waits while the worker is replaced, and returns the number of the running worker;
// ok is false when no worker is left.
func (w *instance) enter() (started int, ok bool) {
	if w.second == nil {
		return 0, true
	}
	p := &w.repairs
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.repairing && !w.gone.Load() {
		p.changed.Wait()
	}
	if p.dead.Load() || w.gone.Load() {
		return 0, false
	}
	p.running++
	return p.started, true
}

// endRun is called after Run.
func (w *instance) endRun() {
	if w.second == nil {
		return
	}
	p := &w.repairs
	p.mu.Lock()
	p.running--
	p.mu.Unlock()
	p.changed.Broadcast()
}

// awaitRepair waits while the other runner replaces the worker, so that no frame is bound to the broken worker, and
// reports whether a worker is left.
func (w *instance) awaitRepair() bool {
	if w.second == nil {
		return true
	}
	p := &w.repairs
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.repairing && !w.gone.Load() {
		p.changed.Wait()
	}
	return !p.dead.Load() && !w.gone.Load()
}

// repair replaces the worker with the number started, returned by enter, unless the other runner replaces or has
// replaced the worker. cause is the error that broke the worker; nil = a planned replacement. repair reports whether
// the instance has a worker again.
func (g *Group) repair(r *runner, started int, cause error) bool {
	p := &r.repairs
	p.mu.Lock()
	for p.repairing && !r.gone.Load() {
		p.changed.Wait()
	}
	if p.dead.Load() || r.gone.Load() || p.started != started {
		defer p.mu.Unlock()
		return !p.dead.Load() && !r.gone.Load()
	}
	p.repairing = true
	for p.running > 0 && !r.gone.Load() {
		p.changed.Wait()
	}
	gone := r.gone.Load()
	p.mu.Unlock()
	ok := !gone && g.restart(r, cause)
	p.mu.Lock()
	p.repairing = false
	p.dead.Store(!ok)
	if ok && r.second != nil {
		p.started++
	}
	p.mu.Unlock()
	p.changed.Broadcast()
	if !ok {
		g.wakeAll() // the other runner may wait for frames
	}
	return ok
}

// failed counts one more failure, and returns the failures in a row.
func (w *instance) failed() int { return int(w.failures.Add(1)) }

// steady is the uptime after which a worker without a batch ends a row of failures.
const steady = time.Minute

// succeeded ends a row of failures.
func (w *instance) succeeded() {
	if w.failures.Load() == 0 {
		return
	}
	w.repairs.mu.Lock()
	defer w.repairs.mu.Unlock()
	w.failures.Store(0)
	w.repairs.backoff.Reset()
}

// pause returns how long to wait before the worker is started again.
func (w *instance) pause(random float64) time.Duration {
	w.repairs.mu.Lock()
	defer w.repairs.mu.Unlock()
	return w.repairs.backoff.Next(random)
}

// PauseBefore returns a cause of a replacement with the text and code of err. The replacement starts after at least the
// pause, unless a batch waits for the replacement.
func PauseBefore(pause time.Duration, err error) error {
	if pause <= 0 {
		return err
	}
	return &pausing{error: err, pause: pause}
}

type pausing struct {
	error
	pause time.Duration
}

func (p *pausing) Unwrap() error { return p.error }

// pauseAfter returns how long to wait before the worker is started again after a failure.
func (g *Group) pauseAfter(w *instance, cause error, random float64) time.Duration {
	d := w.pause(random)
	if p := (*pausing)(nil); errors.As(cause, &p) && !g.holds(w) {
		d = max(d, p.pause)
	}
	return d
}

// replacement is the request to replace a worker although no run has failed.
type replacement struct {
	start int64 // number of the start of the instance's worker
	err   error // nil: planned
}

// replacer returns Env.Replace for the starting worker.
func (w *instance) replacer() func(error) {
	start := w.starts.Add(1)
	return func(err error) {
		for {
			old := w.replacement.Load()
			if old != nil && old.start >= start {
				return
			}
			if w.replacement.CompareAndSwap(old, &replacement{start, err}) {
				w.wakeRunners()
				return
			}
		}
	}
}

// replaceUnfit replaces a worker that has asked for replacement, and reports whether a worker is left.
func (g *Group) replaceUnfit(r *runner) bool {
	u := r.replacement.Swap(nil)
	if u == nil {
		return true
	}
	p := &r.repairs
	p.mu.Lock()
	for p.repairing && !r.gone.Load() { // else u, of the worker that starts now, would be taken as served by the repair
		p.changed.Wait()
	}
	started := p.started
	p.mu.Unlock()
	if u.start != r.starts.Load() { // replaced already: read after started, to keep the new worker
		return true
	}
	return g.repair(r, started, u.err)
}
