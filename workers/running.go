package workers

import (
	"errors"
	"math/rand/v2"

	"millrace/batching"
	"millrace/stream"
)

// loop runs batches on w until the group stops, w is asked to leave, or it is
// abandoned.
func (g *Group) loop(w *instance) {
	defer w.cancel()
	defer w.prep.close()
	if kind, _ := Lookup(g.cfg.Kind); kind.Foreign {
		lendProcessors(1)
		defer lendProcessors(-1)
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

// run prepares and runs one batch. broken says that the instance must be
// replaced, kept that it was not abandoned meanwhile.
func (g *Group) run(w *instance, b *batching.Batch) (broken, kept bool) {
	if w.stages != nil {
		b.Stages = w.stages
	}
	if !b.Prepare(w.decode) {
		g.done(b, batchTimes{})
		return false, true
	}
	t := batchTimes{begun: b.Gathered, started: b.Gathered, rows: b.Rows, warm: w.warm}
	if !g.model.Ragged { // nothing was prepared of a ragged one: avoids a clock read
		t.started = stream.Now()
	}
	for _, r := range b.Requests {
		r.Timing.Started = t.started
	}
	w.beginWatched(b, t.started.Add(g.cfg.Limits.Run))
	g.batches.Add(1)
	err, panicked := w.call(b)
	if !w.endWatched() {
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

// shutDown takes the worker down. It reports whether it was not abandoned over that.
func (g *Group) shutDown(w *instance) (kept bool) {
	w.beginWatched(nil, stream.Now().Add(g.cfg.Limits.hangsAfter()))
	w.stop()
	if kept = w.endWatched(); !kept {
		g.leaveQuarantine(w)
	}
	return kept
}

// restart replaces a broken worker, waiting longer after each failure in a row.
// It reports whether there is one to go on with.
func (g *Group) restart(w *instance) bool {
	if !g.shutDown(w) {
		return false
	}
	g.releaseWork(w)
	for {
		w.failures++
		if w.failures > g.cfg.Limits.Restarts {
			g.log.Error("worker given up", "model", g.cfg.Name, "restarts", g.cfg.Limits.Restarts)
			return false
		}
		if !g.sleep(w.backoff.Next(rand.Float64())) {
			return false
		}
		g.restarts.Add(1)
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

// quarantine abandons w if it is past its time, ends the members of its run, and
// reports whether it did. The instance and its batch are then in quarantine until
// the call returns.
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
	g.busy.Add(-1)
	g.gather.Lock()
	g.pool.Quarantine()
	g.gather.Unlock()
	g.log.Error("worker hangs and is quarantined", "model", g.cfg.Name, "limit", g.cfg.Limits.Run, "quarantined", n)
	g.recheck() // there is memory for another batch again
	for _, r := range w.batch.Requests {
		r.DetachState()
		r.Fail(stream.Errorf(stream.Timeout, "limits.run", "model %s did not answer within %v: its worker is replaced", g.cfg.Name, g.cfg.Limits.Run))
	}
	return true
}

// leaveQuarantine takes an instance out of quarantine whose call has returned.
func (g *Group) leaveQuarantine(w *instance) {
	<-w.watchdogEnded // the watchdog is done with the batch
	g.quarantined.Add(-1)
	if w.batch == nil {
		return
	}
	g.gather.Lock()
	g.pool.Restore(w.batch)
	g.gather.Unlock()
}
