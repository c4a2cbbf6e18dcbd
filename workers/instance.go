package workers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"

	"millrace/batching"
	"millrace/internal/backoff"
	"millrace/stream"
	"millrace/workers/results"
)

// instance is one worker of a group and the goroutine that runs it.
//
// phase decides between that goroutine and the watchdog. What may hang is a run,
// or the worker being taken down and started again, and each has a number: the
// goroutine moves 2k -> 2k+1 to begin and 2k+1 -> 2k+2 to end it; the watchdog
// moves 2k+1 -> gone to give the instance up. Only one of the two last steps
// succeeds, and whoever made it owns the endings of a run's members.
type instance struct {
	group  *Group
	worker Worker
	inbox  *batching.Inbox // of a worker with affinity
	prep   *preparer
	decode batching.Decode // of prep
	stages *results.Chain  // nil: the worker's outputs are the answer
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{}
	timer  *time.Timer

	phase  atomic.Uint64
	until  atomic.Int64    // Instant after which the watchdog gives up on it
	batch  *batching.Batch // of a run
	given  chan struct{}   // closed when the watchdog has given the instance up
	leave  atomic.Bool
	parked atomic.Bool

	admission chan struct{} // closed when the started worker may run, or must leave
	admitted  bool          // which of the two

	warm     bool // has run a batch: the first is left out of the learned times
	failures int  // broken in a row
	back     backoff.Backoff
}

const gone = ^uint64(0)

// start makes the worker ready. The first of a group completes the group as soon as
// the model's metadata are known: before there is memory taken for it.
func (w *instance) start(ctx context.Context) (err error) {
	g := w.group
	ctx, cancel := context.WithTimeout(ctx, g.cfg.Limits.Start)
	defer cancel()
	steps := 0
	defer func() {
		if p := recover(); p != nil {
			err = stream.Errorf(stream.Internal, "", "%s panicked while starting: %v", g.cfg.Kind, p)
			g.log.Error("worker panicked", "model", g.cfg.Name, "panic", p, "stack", string(debug.Stack()))
		}
		if err != nil {
			w.undo(steps)
		}
	}()
	kind, ok := Lookup(g.cfg.Kind)
	if !ok {
		return stream.Errorf(stream.NotFound, "source", "%q is no kind of worker", g.cfg.Kind)
	}
	w.worker, w.warm = kind.New(), false
	settings, err := kind.Decode(g.cfg.Params)
	if err != nil {
		return err
	}
	env := &Env{
		Name: g.cfg.Name, Source: g.cfg.Source, Settings: settings, Log: g.log,
		MaxBatch: g.cfg.Batching.MaxSize, Image: g.cfg.Image, Window: g.cfg.Window,
	}
	m, err := w.worker.Init(ctx, env)
	if err != nil {
		return err
	}
	steps++
	if g.model == nil {
		if err = g.complete(m); err != nil {
			return err
		}
	}
	if w.prep == nil { // else it is started again
		if err = w.equip(); err != nil {
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

// equip makes what turns frames into inputs, and outputs into results.
func (w *instance) equip() (err error) {
	g := w.group
	if w.prep, err = newPreparer(g.model, g.pixels); err != nil {
		return err
	}
	w.decode = w.prep.decode
	w.stages, _, err = results.New(g.cfg.Parts, g.computed, results.Tools{Look: w.prep.look, Skipped: g.skipped})
	return err
}

func (w *instance) stop() { w.undo(3) }

// begin has the watchdog look at what comes next, a run of b or, nil, a change of
// the worker's life: it gives the instance up at that moment.
func (w *instance) begin(b *batching.Batch, until stream.Instant) {
	w.batch = b
	w.until.Store(int64(until))
	w.phase.Add(1)
}

// end says that it is over, and reports whether the instance was not given up.
func (w *instance) end() (mine bool) {
	phase := w.phase.Load()
	return phase != gone && w.phase.CompareAndSwap(phase, phase+1)
}

// down takes the worker down. It reports whether that was not given up.
func (w *instance) down() (mine bool) {
	w.begin(nil, stream.Now().Add(w.group.cfg.Limits.late()))
	w.stop()
	if mine = w.end(); !mine {
		w.returned()
	}
	return mine
}

// undo takes the worker down from that many steps of its start, the last first.
// A panic in one does not keep the next from being called.
func (w *instance) undo(steps int) {
	down := [...]func(){w.worker.Destroy, w.worker.Deallocate, w.worker.Release}
	for steps--; steps >= 0; steps-- {
		w.guard(down[steps])
	}
}

func (w *instance) guard(f func()) {
	defer func() {
		if p := recover(); p != nil {
			w.group.log.Error("worker panicked while stopping", "model", w.group.cfg.Name, "panic", p)
		}
	}()
	f()
}

// loop runs batches until the group stops, the instance is told to leave, or it
// is given up.
func (w *instance) loop() {
	g := w.group
	defer w.cancel()
	defer w.prep.close()
	if kind, _ := Lookup(g.cfg.Kind); kind.Foreign {
		lendProcessors(1)
		defer lendProcessors(-1)
	}
	for {
		b := g.next(w)
		if b == nil {
			w.down()
			return
		}
		broken, mine := w.run(b)
		if !mine {
			w.returned()
			w.stop()
			return
		}
		if !broken {
			w.failures = 0
			w.back.Reset()
			continue
		}
		if !w.restart() {
			return
		}
	}
}

// run prepares and runs one batch. broken says that the instance must be
// replaced, mine that it was not given up meanwhile.
func (w *instance) run(b *batching.Batch) (broken, mine bool) {
	g := w.group
	if w.stages != nil {
		b.Stages = w.stages
	}
	if !b.Prepare(w.decode) {
		g.done(b, batchTimes{})
		return false, true
	}
	t := batchTimes{begun: b.Gathered, started: b.Gathered, rows: b.Rows, warm: w.warm}
	if !g.model.Ragged { // there was nothing to prepare, and a clock reading is dear
		t.started = stream.Now()
	}
	for _, r := range b.Requests {
		r.Timing.Started = t.started
	}
	w.begin(b, t.started.Add(g.cfg.Limits.Run))
	g.batches.Add(1)
	err, panicked := w.call(b)
	if !w.end() {
		return true, false
	}
	switch {
	case err != nil:
		if panicked {
			for _, r := range b.Requests {
				r.DetachState() // it may be half changed
			}
		}
		b.FailAll(err)
	default:
		w.answer(b)
	}
	t.ended = stream.Now()
	g.done(b, t)
	w.warm = true
	return panicked || errors.Is(err, ErrBroken), true
}

func (w *instance) call(b *batching.Batch) (err error, panicked bool) { //nolint:revive // the panic is the rarer news
	defer func() {
		if p := recover(); p != nil {
			panicked = true
			err = stream.Errorf(stream.Internal, "", "model %s panicked on this batch: %v", w.group.cfg.Name, p)
			w.group.log.Error("worker panicked", "model", w.group.cfg.Name, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	return w.worker.Run(w.ctx, b), false
}

// giveUp is the watchdog's: it gives up an instance whose run, stop or restart
// is past its time, ends the members of a run, and reports whether it did. The
// instance and its batch are then in quarantine until the call returns.
func (w *instance) giveUp(now stream.Instant) bool {
	g := w.group
	phase := w.phase.Load()
	if phase%2 == 0 || phase == gone || stream.Instant(w.until.Load()) > now {
		return false
	}
	if !w.phase.CompareAndSwap(phase, gone) {
		return false
	}
	defer close(w.given)
	w.cancel()
	n := g.quarantined.Add(1)
	if w.batch == nil {
		g.log.Error("worker hangs while it stops or starts again, and is quarantined", "model", g.cfg.Name, "limit", g.cfg.Limits.late(), "quarantined", n)
		return true
	}
	g.busy.Add(-1)
	g.gather.Lock()
	g.pool.Quarantine()
	g.gather.Unlock()
	g.log.Error("worker hangs and is quarantined", "model", g.cfg.Name, "limit", g.cfg.Limits.Run, "quarantined", n)
	g.rouse() // there is memory for another batch again
	for _, r := range w.batch.Requests {
		r.DetachState()
		r.Fail(stream.Errorf(stream.Timeout, "limits.run", "model %s did not answer within %v: its worker is replaced", g.cfg.Name, g.cfg.Limits.Run))
	}
	return true
}

// returned takes the instance out of quarantine: what hung has come back at last.
func (w *instance) returned() {
	<-w.given // the watchdog has done with the batch
	g := w.group
	g.quarantined.Add(-1)
	if w.batch == nil {
		return
	}
	g.gather.Lock()
	g.pool.Restore(w.batch)
	g.gather.Unlock()
}

// restart replaces a broken worker, waiting longer after each failure in a row.
// It reports whether there is one to go on with.
func (w *instance) restart() bool {
	g := w.group
	if !w.down() {
		return false
	}
	g.handOver(w)
	for {
		w.failures++
		if w.failures > g.cfg.Limits.Restarts {
			g.log.Error("worker given up", "model", g.cfg.Name, "restarts", g.cfg.Limits.Restarts)
			return false
		}
		if !g.sleep(w.back.Next(rand.Float64())) {
			return false
		}
		g.restarts.Add(1)
		w.begin(nil, stream.Now().Add(g.cfg.Limits.late()))
		err := w.start(w.ctx)
		if !w.end() {
			w.returned()
			if err == nil {
				w.stop()
			}
			return false
		}
		if err == nil {
			return true
		}
		g.log.Error("worker did not restart", "model", g.cfg.Name, "error", err)
	}
}
