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
	"millrace/stream/buf"
	"millrace/workers/results"
)

// common is what the instances of a group have in common.
type common struct {
	cfg      Config
	digest   string // of the model's files
	log      *slog.Logger
	pixels   codec.Limits
	decoding *buf.Pool // of which decoding pictures takes memory
	hooks    Hooks
	model    *stream.Model // as clients see it; nil until the first instance has started
	computed *stream.Model // what the worker computes, before the stages after it
	models   Models        // finds loaded models; nil in tests without any
	uses     []Use         // the models that this one is made of
	taken    func(*stream.Request)
	// describe is called with the metadata that the first instance returns.
	describe func(*stream.Model) error
}

// instance is one worker of a group and the goroutine that runs it.
//
// phase decides between that goroutine and the watchdog. Only a run, or stopping and
// starting the worker again, can hang, and each of them has a number: the goroutine
// changes phase from 2k to 2k+1 to begin and from 2k+1 to 2k+2 to end it; the watchdog
// changes it from 2k+1 to abandoned. Only one of the two last changes succeeds, and the
// one that made it ends the requests of the run.
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
	stopRequested atomic.Bool

	admission chan struct{} // closed when the started worker may run, or must stop
	admitted  bool          // which of the two

	// tookAll says that with the last batch, gathered after Intake.Arrivals returned seen,
	// nothing was left. Only next uses them.
	tookAll bool
	seen    uint64

	warm     bool // has run a batch: the first one is not measured
	failures int  // consecutive failures
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

// start makes the worker ready. The first instance of a group calls describe as soon as
// the model's metadata are known, before memory is allocated for it.
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
		return stream.Errorf(stream.NotFound, "source", "%q is not a kind of worker", w.cfg.Kind)
	}
	settings, err := kind.Decode(w.cfg.Params)
	if err != nil {
		return err
	}
	w.worker, w.warm = kind.New(), false
	env := &Env{
		Name: w.cfg.Name, Source: w.cfg.Source, Digest: w.digest, Settings: settings, Log: w.log,
		MaxBatch: w.cfg.Batching.MaxSize, Image: w.cfg.Image, Window: w.cfg.Window, Declared: w.cfg.Declared,
		Models: w.models, Memory: w.decoding, Pixels: w.pixels, Limit: w.cfg.Limits.Run, Done: w.taken,
		Step: func(s *stream.Step) {
			if w.hooks.Step != nil {
				w.hooks.Step(s)
			}
		},
	}
	m, err := w.worker.Init(ctx, env)
	if err != nil {
		return w.cfg.ofDeclared(err)
	}
	steps++
	if w.model == nil {
		if err = w.describe(m); err != nil {
			return err
		}
	}
	if w.prep == nil { // otherwise it is a restart
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

// makeTools makes the decoder of pictures and the stages.
func (w *instance) makeTools() (err error) {
	if w.prep, err = newPreparer(w.model, w.pixels, w.decoding); err != nil {
		return err
	}
	w.decode = w.prep.decode
	w.stages, _, err = results.New(w.cfg.Parts, w.computed, results.Tools{Picture: w.prep.picture, Skipped: func(r *stream.Request) {
		r.Gated = true
		if w.hooks.Skipped != nil {
			w.hooks.Skipped(r)
		}
	}})
	return err
}

func (w *instance) stop() { w.tearDown(3) }

// tearDown undoes that many steps of the worker's start, the last first. After a panic
// in one the next is still called.
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

// beginWatched makes the watchdog check the step that follows, a run of b or, with nil,
// a start or stop of the worker: after until the watchdog abandons the instance.
func (w *instance) beginWatched(b *batching.Batch, until stream.Instant) {
	w.batch = b
	w.until.Store(int64(until))
	w.phase.Add(1)
}

// endWatched ends that step, and reports whether the instance was not abandoned.
func (w *instance) endWatched() (kept bool) {
	phase := w.phase.Load()
	return phase != abandoned && w.phase.CompareAndSwap(phase, phase+1)
}

// abandon is called by the watchdog: it abandons an instance whose run, stop or restart
// has passed its time, and reports whether it did. Then the watchdog ends the requests
// of the run, and closes watchdogEnded after that.
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

// answer ends the requests that the worker has not answered itself, with their rows of
// the batch's outputs or with the stages' results of these.
func (w *instance) answer(b *batching.Batch) {
	if b.Outputs == nil || !w.stages.Transforms() {
		b.Split()
		return
	}
	b.After = nil // what is finished below has gone through the stages
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
