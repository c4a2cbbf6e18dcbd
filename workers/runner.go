package workers

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers/results"
)

// runner is the state of a goroutine of an instance that gathers, prepares and runs batches.
//
// phase decides between the goroutine and the watchdog. Only a step can hang: a run, or stopping and starting the
// worker again. The steps are numbered: the goroutine changes phase from 2k to 2k+1 to begin step k and from 2k+1 to
// 2k+2 to end the step; the watchdog changes phase from 2k+1 to abandoned. Only one of the two changes away from 2k+1
// succeeds, and its goroutine ends the requests of the run.
type runner struct {
	*instance
	waiter
	prep   *preparer
	decode batching.Decode // of prep
	stages *results.Chain  // nil: the worker's outputs are the answer

	extend func(time.Duration) // adds to until
	// held by the watchdog while interrupting a run, and by the goroutine when a run has returned
	interrupting  sync.Mutex
	interrupted   bool        // the watchdog has interrupted the run; under interrupting
	computing     atomic.Bool // Run of a worker that is an Interrupter is called; cleared under interrupting
	phase         atomic.Uint64
	until         atomic.Int64    // Instant after which the watchdog abandons the step
	batch         *batching.Batch // of a run
	watchdogEnded chan struct{}   // closed after the watchdog has abandoned the step

	// tookAll reports that the last batch, gathered after Intake.Arrivals returned seen, left no frame. Only next
	// uses both fields.
	tookAll bool
	seen    uint64
	ended   bool // after a batch in the goroutine of a caller, the instance cannot run another batch
}

const abandoned = ^uint64(0) // a phase

func (r *runner) init(w *instance) {
	r.instance, r.watchdogEnded = w, make(chan struct{})
	r.extend = func(d time.Duration) { r.until.Add(int64(d)) }
	r.waiter.init()
	r.waiter.runner = r
}

// makeTools makes the decoder of pictures and the stages.
func (r *runner) makeTools() (err error) {
	if r.prep, r.stages, err = r.newPreparerAndStages(); err == nil {
		r.decode = r.prep.decode
	}
	return err
}

// beginWatched makes the watchdog check the following step, a run of b or, with nil, a start or stop of the worker:
// after until the watchdog abandons the instance.
func (r *runner) beginWatched(b *batching.Batch, until stream.Instant) {
	r.batch = b
	r.until.Store(int64(until))
	r.phase.Add(1)
}

// endWatched ends the step, and reports whether the instance was not abandoned during the step.
func (r *runner) endWatched() (kept bool) {
	phase := r.phase.Load()
	return phase != abandoned && r.phase.CompareAndSwap(phase, phase+1)
}

// abandon is called by the watchdog: abandon gives up a step that has passed its time at now, and reports whether the
// step is given up. Then the watchdog ends the requests of the run, and closes watchdogEnded afterwards.
func (r *runner) abandon(now stream.Instant) bool {
	phase := r.phase.Load()
	return phase%2 == 1 && phase != abandoned && stream.Instant(r.until.Load()) <= now &&
		r.phase.CompareAndSwap(phase, abandoned)
}

// interruptGrace is how long an interrupted run may take to return.
const interruptGrace = 2 * time.Second

// interrupt is called by the watchdog: interrupt ends a run overdue at now, once, and gives the run interruptGrace to
// return.
func (r *runner) interrupt(now stream.Instant) {
	if stream.Instant(r.until.Load()) > now {
		return
	}
	r.interrupting.Lock()
	defer r.interrupting.Unlock()
	if r.interrupted || !r.computing.Load() || r.phase.Load() == abandoned || stream.Instant(r.until.Load()) > now {
		return
	}
	if worker, ok := r.worker.(Interrupter); ok {
		r.interrupted = true
		r.until.Add(int64(interruptGrace))
		worker.Interrupt()
	}
}

// interrupt interrupts the overdue runs of the instance at now.
func (w *instance) interrupt(now stream.Instant) {
	for _, r := range w.runners() {
		r.interrupt(now)
	}
}

// wasInterrupted reports whether the returned run was interrupted. The goroutine calls wasInterrupted before
// endWatched.
func (r *runner) wasInterrupted() (yes bool) {
	if !r.computing.Load() {
		return false
	}
	r.interrupting.Lock()
	defer r.interrupting.Unlock()
	if yes, r.interrupted = r.interrupted, false; yes {
		r.worker.(Interrupter).ClearInterrupt()
	}
	r.computing.Store(false)
	return yes
}

// call runs a batch.
func (r *runner) call(b *batching.Batch) (err error, panicked bool) { //nolint:revive // callers look at err first
	defer func() {
		if p := recover(); p != nil {
			panicked = true
			err = stream.Errorf(stream.Internal, "", "model %s panicked on this batch: %v", r.cfg.Name, p)
			r.log.Error("worker panicked", "model", r.cfg.Name, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	if _, ok := r.worker.(Interrupter); ok {
		r.computing.Store(true)
	}
	return r.worker.Run(r.ctx, b), false
}

// answer ends the requests that the worker has not answered itself, with their rows of the batch's outputs or of the
// stages' results.
func answer(b *batching.Batch, stages *results.Chain) {
	if b.Outputs == nil || !stages.Transforms() {
		b.Split()
		return
	}
	b.After = nil // the stages have run for the requests finished below
	for i, r := range b.Requests {
		if r.Outcome() != stream.Pending {
			continue
		}
		if out, err := stages.After(r, b.Outputs, b.Offsets[i]); err != nil {
			b.Fail(i, err)
		} else {
			b.Finish(i, out)
		}
	}
}
