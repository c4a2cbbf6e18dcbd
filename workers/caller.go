package workers

import (
	"fmt"
	"runtime/debug"

	"millrace/stream"
)

// Brief is a Worker whose runs may be made in the goroutine of a caller (stream.Caller). The ending of the caller's
// request cannot reach the client before the run has returned, so a run must not wait for anything, and return soon.
// A Brief worker does not use a request after Run, or in Run after Unbind of a request taken from the batch.
type Brief interface {
	Worker
	// Brief reports whether the next run is brief. Other goroutines than that of the next Run may call Brief, but not
	// during Run.
	Brief() bool
}

var _ stream.Loan = (*runner)(nil)

// Run implements stream.Loan.
func (r *runner) Run(by *stream.Caller) {
	over := false
	defer func() {
		if !over {
			crash(recover())
		}
	}()
	if r.runLent(r, by) {
		r.handBack()
	}
	over = true
}

// GiveBack implements stream.Loan.
func (r *runner) GiveBack() {
	if !r.parkIdle(r) {
		r.handBack()
	}
}

// crash ends the program with a panic, as a panic in the goroutine of a runner does: the caller's recovery would leave
// locks held.
func crash(value any) {
	stack := debug.Stack()
	go func() { panic(fmt.Sprintf("%v\n\n%s", value, stack)) }()
	select {}
}

// parkIfIdle parks r again if no frame waits, and reports whether r is parked.
func (g *Group) parkIfIdle(r *runner) bool {
	seen := g.intake.Arrivals()
	g.gather.Lock()
	idle := g.intake.Idle()
	g.gather.Unlock()
	return idle && g.idle.repark(&r.waiter, func() bool { return g.mustLookAgain(r.instance, seen) })
}

// maxLentBatches is the most batches that a caller runs while it waits for the ending of its request.
const maxLentBatches = 4

// runInCaller runs batches as r in the goroutine of by, and parks r again. runInCaller returns true if r is not
// parked, because there is more to do for the goroutine of r.
func (g *Group) runInCaller(r *runner, by *stream.Caller) (more bool) {
	w := r.instance
	for n := 0; !w.stopRequested.Load() && w.replacement.Load() == nil; {
		seen := g.intake.Arrivals()
		if !r.tookAll || seen != r.seen {
			if n == maxLentBatches || n > 0 && (by.Ended() || !r.brief.Brief()) {
				return true
			}
			b, wait, err := g.gatherFor(r, seen)
			switch {
			case err != nil || wait > 0: // the goroutine of r finds the same
				return true
			case b != nil:
				n++
				if !g.run(r, b) {
					r.ended = true
					return true
				}
				continue
			}
		}
		r.tookAll = false
		if g.idle.repark(&r.waiter, func() bool { return g.mustLookAgain(w, seen) }) {
			return false
		}
	}
	return true
}
