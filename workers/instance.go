package workers

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"millrace/batching"
	"millrace/internal/backoff"
	"millrace/internal/codec"
	"millrace/stream"
	"millrace/workers/results"
)

// common is what the instances of a group have in common.
type common struct {
	cfg      Config
	log      *slog.Logger
	pixels   codec.Limits
	hooks    Hooks
	model    *stream.Model // as clients see it; nil until the first instance has read it
	computed *stream.Model // what the worker computes, before the stages behind it
	// describe gets the metadata that the first instance has read.
	describe func(*stream.Model) error
}

// instance is one worker of a group and the goroutine that runs it.
//
// phase decides between that goroutine and the watchdog. What may hang is a run,
// or the worker being taken down and started again, and each has a number: the
// goroutine moves 2k -> 2k+1 to begin and 2k+1 -> 2k+2 to end it; the watchdog
// moves 2k+1 -> abandoned. Only one of the two last steps succeeds, and whoever
// made it owns the endings of a run's members.
type instance struct {
	*common
	waiter
	worker Worker
	inbox  *batching.Inbox // of a worker with affinity
	prep   *preparer
	decode batching.Decode // of prep
	stages *results.Chain  // nil: the worker's outputs are the answer
	ctx    context.Context
	cancel context.CancelFunc

	phase         atomic.Uint64
	until         atomic.Int64    // Instant after which the watchdog abandons it
	batch         *batching.Batch // of a run
	watchdogEnded chan struct{}   // closed when the watchdog has abandoned it
	leaving       atomic.Bool

	admission chan struct{} // closed when the started worker may run, or must leave
	admitted  bool          // which of the two

	warm     bool // has run a batch: the first is left out of the learned times
	failures int  // broken in a row
	backoff  backoff.Backoff
}

const abandoned = ^uint64(0) // a phase

func newInstance(c *common) *instance {
	w := &instance{common: c, admission: make(chan struct{}), watchdogEnded: make(chan struct{})}
	w.waiter.init()
	w.backoff.Min, w.backoff.Max = 10*time.Millisecond, 5*time.Second
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// start makes the worker ready. The first instance of a group has the group described as
// soon as the model's metadata are known: before memory is taken for it.
func (w *instance) start(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Limits.Start)
	defer cancel()
	steps := 0
	defer func() {
		if p := recover(); p != nil {
			err = stream.Errorf(stream.Internal, "", "%s panicked while starting: %v", w.cfg.Kind, p)
			w.log.Error("worker panicked", "model", w.cfg.Name, "panic", p, "stack", string(debug.Stack()))
		}
		if err != nil {
			w.tearDown(steps)
		}
	}()
	kind, ok := Lookup(w.cfg.Kind)
	if !ok {
		return stream.Errorf(stream.NotFound, "source", "%q is no kind of worker", w.cfg.Kind)
	}
	settings, err := kind.Decode(w.cfg.Params)
	if err != nil {
		return err
	}
	w.worker, w.warm = kind.New(), false
	env := &Env{
		Name: w.cfg.Name, Source: w.cfg.Source, Settings: settings, Log: w.log,
		MaxBatch: w.cfg.Batching.MaxSize, Image: w.cfg.Image, Window: w.cfg.Window,
	}
	m, err := w.worker.Init(ctx, env)
	if err != nil {
		return err
	}
	steps++
	if w.model == nil {
		if err = w.describe(m); err != nil {
			return err
		}
	}
	if w.prep == nil { // else it is started again
		if err = w.makeTools(); err != nil {
			return err
		}
	}
	if err = w.worker.Allocate(ctx); err != nil {
		return fmt.Errorf("allocate: %w", err)
	}
	steps++
	if err = w.worker.Acquire(ctx); err != nil {
		return fmt.Errorf("acquire: %w", err)
	}
	return nil
}

// makeTools makes what turns frames into inputs, and outputs into results.
func (w *instance) makeTools() (err error) {
	if w.prep, err = newPreparer(w.model, w.pixels); err != nil {
		return err
	}
	w.decode = w.prep.decode
	w.stages, _, err = results.New(w.cfg.Parts, w.computed, results.Tools{Look: w.prep.look, Skipped: func(r *stream.Request) {
		if w.hooks.Skipped != nil {
			w.hooks.Skipped(r)
		}
	}})
	return err
}

func (w *instance) stop() { w.tearDown(3) }

// tearDown takes the worker down from that many steps of its start, the last
// first. A panic in one does not keep the next from being called.
func (w *instance) tearDown(steps int) {
	down := [...]func(){w.worker.Destroy, w.worker.Deallocate, w.worker.Release}
	for steps--; steps >= 0; steps-- {
		w.logPanic(down[steps])
	}
}

func (w *instance) logPanic(f func()) {
	defer func() {
		if p := recover(); p != nil {
			w.log.Error("worker panicked while stopping", "model", w.cfg.Name, "panic", p)
		}
	}()
	f()
}

// beginWatched has the watchdog look at what comes next, a run of b or, nil, a
// change of the worker's life: past until the watchdog abandons the instance.
func (w *instance) beginWatched(b *batching.Batch, until stream.Instant) {
	w.batch = b
	w.until.Store(int64(until))
	w.phase.Add(1)
}

// endWatched says that it is over, and reports whether the instance was not
// abandoned.
func (w *instance) endWatched() (kept bool) {
	phase := w.phase.Load()
	return phase != abandoned && w.phase.CompareAndSwap(phase, phase+1)
}

// abandon is the watchdog's: it gives up an instance whose run, stop or restart is
// past its time, and reports whether it did. The endings of a run's members are the
// watchdog's then, which closes watchdogEnded after them.
func (w *instance) abandon(now stream.Instant) bool {
	phase := w.phase.Load()
	if phase%2 == 0 || phase == abandoned || stream.Instant(w.until.Load()) > now || !w.phase.CompareAndSwap(phase, abandoned) {
		return false
	}
	w.cancel()
	return true
}

// call runs a batch.
func (w *instance) call(b *batching.Batch) (err error, panicked bool) { //nolint:revive // err is what callers look at first
	defer func() {
		if p := recover(); p != nil {
			panicked = true
			err = stream.Errorf(stream.Internal, "", "model %s panicked on this batch: %v", w.cfg.Name, p)
			w.log.Error("worker panicked", "model", w.cfg.Name, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	return w.worker.Run(w.ctx, b), false
}

// answer ends the members that the worker left to the batch's outputs: with
// their rows of them, or with what the stages make of those.
func (w *instance) answer(b *batching.Batch) {
	if b.Outputs == nil || !w.stages.Transforms() {
		b.Split()
		return
	}
	for i, r := range b.Requests {
		if r.Outcome() != stream.Pending {
			continue
		}
		if out, err := w.stages.After(r, b.Outputs, b.Offsets[i]); err != nil {
			b.Fail(i, err)
		} else {
			b.Finish(i, out)
		}
	}
}
