package workers

import (
	"errors"
	"math/rand/v2"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers/results"
)

// loop runs batches on w until the group stops, w is told to stop, or it is abandoned.
func (g *Group) loop(w *instance) {
	defer w.cancel()
	defer w.prep.close()
	if kind, _ := Lookup(g.cfg.Kind); kind.Foreign {
		addProcessors(1)
		defer addProcessors(-1)
	}
	for {
		b := g.next(w)
		if b == nil {
			g.shutDown(w)
			return
		}
		broken, kept := g.run(w, b)
		if !kept {
			g.leaveQuarantine(w)
			w.stop()
			return
		}
		if !broken {
			w.failures = 0
			w.backoff.Reset()
			continue
		}
		if !g.restart(w) {
			return
		}
	}
}

// run prepares and runs one batch. broken says that the instance must be replaced, kept
// that it was not abandoned during the run.
func (g *Group) run(w *instance, b *batching.Batch) (broken, kept bool) {
	if w.stages != nil {
		b.Stages = w.stages
	}
	if w.stages.Transforms() {
		b.After = func(i int, outputs []stream.Tensor) ([]stream.Tensor, error) {
			return w.stages.After(b.Requests[i], outputs, results.AllRows)
		}
	}
	if !b.Prepare(w.decode) {
		g.done(b, batchTimes{})
		return false, true
	}
	t := batchTimes{begun: b.Gathered, started: b.Gathered, rows: b.Rows, warm: w.warm}
	if !g.model.Ragged { // a ragged batch needs no preparation: this avoids a clock read
		t.started = stream.Now()
	}
	for _, r := range b.Requests {
		r.Timing.Started = t.started
	}
	w.beginWatched(b, t.started.Add(g.cfg.Limits.Run))
	g.totals.batches[b.Cause].Add(1)
	g.totals.rows.Add(uint64(b.Rows))
	g.totals.capacity.Add(uint64(g.model.MaxBatch))
	err, panicked := w.call(b)
	t.ran = stream.Now()
	if !w.endWatched() {
		return true, false
	}
	if len(b.Requests) == 0 { // the worker has taken them
		g.done(b, batchTimes{})
		return panicked || errors.Is(err, ErrBroken), true
	}
	if w.stages.Transforms() {
		for _, r := range b.Requests {
			if r.Outcome() == stream.Pending {
				r.Timing.Ran = t.ran
			}
		}
	}
	switch {
	case err != nil:
		if panicked {
			for _, r := range b.Requests {
				r.DetachState() // the state may be changed only in part
			}
		}
		b.FailAll(err)
	default:
		w.answer(b)
	}
	t.ended, t.err = stream.Now(), err
	g.done(b, t)
	w.warm = true
	return panicked || errors.Is(err, ErrBroken), true
}

// shutDown stops the worker. It reports whether it was not abandoned while stopping.
func (g *Group) shutDown(w *instance) (kept bool) {
	w.beginWatched(nil, stream.Now().Add(g.cfg.Limits.hangsAfter()))
	w.stop()
	if kept = w.endWatched(); !kept {
		g.leaveQuarantine(w)
	}
	return kept
}

// restart replaces a broken worker, and waits longer after each failure in a row. It
// reports whether the instance has a worker again.
func (g *Group) restart(w *instance) bool {
	if !g.shutDown(w) {
		return false
	}
	g.releaseWork(w)
	for {
		w.failures++
		if w.failures > g.cfg.Limits.Restarts {
			g.log.Error("worker abandoned after too many restarts", "model", g.cfg.Name, "restarts", g.cfg.Limits.Restarts)
			return false
		}
		if !g.sleep(w.backoff.Next(rand.Float64())) {
			return false
		}
		g.totals.restarts.Add(1)
		w.beginWatched(nil, stream.Now().Add(g.cfg.Limits.hangsAfter()))
		err := w.start(w.ctx)
		if !w.endWatched() {
			g.leaveQuarantine(w)
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

// quarantine abandons w if its time has passed, ends the requests of its run, and
// reports whether it did. The instance and its batch then stay in quarantine until the
// call returns.
func (g *Group) quarantine(w *instance, now stream.Instant) bool {
	if !w.abandon(now) {
		return false
	}
	defer close(w.watchdogEnded)
	n := g.quarantined.Add(1)
	if w.batch == nil {
		g.log.Error("worker hangs while it stops or starts again, and is quarantined", "model", g.cfg.Name, "limit", g.cfg.Limits.hangsAfter(), "quarantined", n)
		return true
	}
	g.gather.Lock()
	g.busy--
	g.pool.Quarantine()
	g.gather.Unlock()
	g.log.Error("worker hangs and is quarantined", "model", g.cfg.Name, "limit", g.cfg.Limits.Run, "quarantined", n)
	g.recheck() // another batch can be made now
	hangs := stream.Errorf(stream.Timeout, "limits.run", "model %s did not answer within %v: its worker is replaced", g.cfg.Name, g.cfg.Limits.Run)
	for _, r := range w.batch.Requests {
		r.DetachState()
		r.Fail(hangs)
	}
	if g.hooks.Run != nil {
		g.hooks.Run(BatchRun{Batch: w.batch, Started: w.batch.Requests[0].Timing.Started, Ended: stream.Now(), Err: hangs})
	}
	for _, r := range w.batch.Requests {
		r.NotifyUnbound() // the call may return much later, or never
	}
	return true
}

// leaveQuarantine ends the quarantine of an instance whose call has returned.
func (g *Group) leaveQuarantine(w *instance) {
	<-w.watchdogEnded // the watchdog no longer uses the batch
	g.quarantined.Add(-1)
	if w.batch == nil {
		return
	}
	g.gather.Lock()
	g.pool.Restore(w.batch)
	g.gather.Unlock()
}
