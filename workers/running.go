package workers

import (
	"errors"
	"math"
	"math/rand/v2"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers/results"
)

// loop runs batches on w until the group stops, w is told to stop, or it is abandoned.
func (g *Group) loop(w *instance) {
	defer w.cancel()
	defer w.closeTools()
	defer func() {
		if !w.gone.Load() { // not counted yet by the watchdog
			g.addServing(-1)
		}
	}()
	if w.second != nil {
		ended := make(chan struct{})
		g.wg.Go(func() {
			defer close(ended)
			g.serve(w.second)
		})
		g.serve(&w.first)
		<-ended
	} else {
		g.serve(&w.first)
	}
	switch {
	case !w.up.Load():
	case w.gone.Load():
		w.stop()
	default:
		g.shutDown(&w.first)
	}
}

// serve runs batches until the instance ends.
func (g *Group) serve(r *runner) {
	for {
		if b := g.next(r); b == nil || !g.run(r, b) {
			return
		}
	}
}

// run prepares and runs one batch, and reports whether the instance can run another batch.
func (g *Group) run(r *runner, b *batching.Batch) (serves bool) {
	stages := r.stages
	if b.Calls() {
		stages, b.Stages, b.After = nil, nil, nil
	}
	if stages != nil {
		b.Stages = stages
	}
	b.Recycles = g.lends && stages == nil && r.brief != nil
	if stages.Transforms() {
		b.After = func(i int, outputs []stream.Tensor) ([]stream.Tensor, error) {
			return stages.After(b.Requests[i], outputs, results.AllRows)
		}
	}
	if !b.Prepare(r.decode) {
		g.done(r, b, batchTimes{})
		return true
	}
	if b.RunStarted == 0 { // otherwise another worker has counted the batch, and returned the batch without a begin
		g.totals.batches[b.Cause].Add(1)
		g.totals.rows.Add(uint64(b.Rows))
		g.totals.capacity.Add(uint64(g.model.MaxBatch))
	}
	for answered := 0; ; {
		if serves, again := g.attempt(r, b, &answered); !again {
			return serves
		}
	}
}

// attempt runs a prepared batch. again reports that the worker was replaced before the worker had begun the batch, or
// before all requests of the batch were answered; answered counts the answered requests.
func (g *Group) attempt(r *runner, b *batching.Batch, answered *int) (serves, again bool) {
	worker, ok := r.enter()
	if !ok {
		g.giveBack(r, b)
		return false, false
	}
	t := batchTimes{begun: b.Gathered, started: b.Gathered, rows: b.Rows, warm: r.warm.Load()}
	if !b.Ragged() || r.second != nil { // a ragged batch needs no preparation: this avoids a clock read
		t.started = stream.Now()
	}
	b.RunStarted = t.started
	for _, q := range b.Requests {
		q.Timing.Started = t.started
	}
	b.Extend = r.extend
	r.beginWatched(b, t.started.Add(g.cfg.Limits.runBound(g.ahead)))
	if r.gone.Load() {
		defer r.endRun()
		if r.endWatched() { // abandoned before the begin
			g.giveBack(r, b)
		} else {
			g.leaveQuarantine(r)
		}
		return false, false
	}
	err, panicked := r.call(b)
	if at, ok := g.lastAnswer(r, b); ok && err == nil && at >= t.started {
		t.ran = at
	} else {
		t.ran = stream.Now()
	}
	interrupted := r.wasInterrupted()
	kept := r.endWatched()
	r.endRun()
	if !kept {
		g.leaveQuarantine(r)
		return false, false
	}
	if errors.Is(err, ErrNotStarted) && !panicked {
		if n := countAnswered(b); n > *answered {
			*answered = n
			r.succeeded()
		}
		if !g.repair(r, worker, err) {
			g.giveBack(r, b)
			return false, false
		}
		g.keepWith(r.instance, b)
		return true, true
	}
	if interrupted && err != nil && !panicked {
		err = g.interruptedRun(b)
	}
	broken := panicked || errors.Is(err, ErrBroken)
	if len(b.Requests) == 0 { // the worker has taken them
		g.done(r, b, batchTimes{})
		return !broken || g.repair(r, worker, err), false
	}
	g.end(r, b, t, err, panicked)
	if broken {
		return g.repair(r, worker, err), false
	}
	r.succeeded()
	return true, false
}

// lastAnswer returns when a Brief worker has given its last answer, immediately before the return of the run, and
// avoids a clock read. ok is false when the worker is not Brief or has not answered the last request.
func (g *Group) lastAnswer(r *runner, b *batching.Batch) (at stream.Instant, ok bool) {
	n := len(b.Requests)
	if n == 0 || !g.lends || r.brief == nil || b.Requests[n-1].Outcome() != stream.Answered {
		return 0, false
	}
	return b.Requests[n-1].Timing.Done, true
}

func countAnswered(b *batching.Batch) (n int) {
	for _, q := range b.Requests {
		if q.Outcome() == stream.Answered {
			n++
		}
	}
	return n
}

// end answers the requests of a batch after its run.
func (g *Group) end(r *runner, b *batching.Batch, t batchTimes, err error, panicked bool) {
	if r.second != nil { // the batch may have waited in the worker for the previous batch
		t.started = min(max(b.RunStarted, stream.Instant(r.lastEnded.Load())), t.ran)
		t.begun = min(max(t.begun, stream.Instant(r.lastEnded.Load())), t.started)
	}
	transforms := b.After != nil
	if transforms {
		for _, q := range b.Requests {
			if q.Outcome() == stream.Pending {
				q.Timing.Ran = t.ran
			}
		}
	}
	t.ended, t.err = t.ran, err
	if err != nil || b.Pending() { // otherwise the worker has answered all requests: this avoids a clock read
		g.answerPending(r, b, err, panicked)
		t.ended = stream.Now()
	}
	r.lastEnded.Store(int64(t.ran))
	g.done(r, b, t)
	r.warm.Store(true)
}

// answerPending answers the requests that a run has left without an ending.
func (g *Group) answerPending(r *runner, b *batching.Batch, err error, panicked bool) {
	switch {
	case err != nil:
		if panicked {
			for _, q := range b.Requests {
				q.DetachState() // the state may be changed only in part
			}
		}
		b.FailAll(err)
	default:
		stages := r.stages
		if b.Calls() {
			stages = nil
		}
		answer(b, stages)
	}
}

// giveBack lets another worker run a batch that the instance has not begun. When no worker is left, the requests end
// with the group.
func (g *Group) giveBack(r *runner, b *batching.Batch) {
	g.gather.Lock()
	g.batchEnded(r)
	g.intake.AddReady(b)
	g.gather.Unlock()
	g.idle.wakeOne()
	g.failWithoutWorkers() // the batches of the group have ended before
}

// keepWith lets the streams of a batch stay with w, which will run the batch after the worker's replacement. Requests
// with a lost state fail.
func (g *Group) keepWith(w *instance, b *batching.Batch) {
	for _, q := range b.Requests {
		if err := q.Stream.LostState(); err != nil {
			q.Fail(err)
		}
		if w.inbox != nil {
			q.Stream.SetAffinity(g, w)
		}
	}
}

// shutDown stops the worker, and reports whether the instance was not abandoned while stopping.
func (g *Group) shutDown(r *runner) (kept bool) {
	r.beginWatched(nil, stream.Now().Add(g.cfg.Limits.hangsAfter()))
	r.stop()
	if kept = r.endWatched(); !kept {
		g.leaveQuarantine(r)
	}
	return kept
}

// restart replaces a worker broken by cause, with a longer wait after each failure in a row; a replacement without a
// cause is planned, and is no failure. restart reports whether the instance has a worker again.
func (g *Group) restart(r *runner, cause error) bool {
	w := r.instance
	g.noteFailure(cause)
	if !g.holds(w) {
		g.addServing(-1)
		defer g.addServing(1)
	}
	if stream.Now().Sub(stream.Instant(w.since.Load())) >= steady {
		w.succeeded()
	}
	if !g.shutDown(r) {
		return false
	}
	g.releaseWork(w)
	for planned := cause == nil; ; planned = false {
		if planned {
			g.log.Debug("worker is replaced as planned", "model", g.cfg.Name)
		} else if w.failed() > g.cfg.Limits.Restarts {
			g.exhausted.Store(true)
			g.log.Error("worker abandoned after too many restarts", "model", g.cfg.Name, "restarts",
				g.cfg.Limits.Restarts)
			return false
		}
		if !planned && !g.sleep(g.pauseAfter(w, cause, rand.Float64())) && !g.holds(w) {
			return false
		}
		g.totals.restarts.Add(1)
		r.beginWatched(nil, stream.Now().Add(g.cfg.Limits.hangsAfter()))
		err := w.start(w.ctx)
		if !r.endWatched() {
			g.leaveQuarantine(r)
			return false
		}
		if err == nil {
			g.takeWork(w)
			return true
		}
		g.noteFailure(err)
		g.log.Error("worker did not restart", "model", g.cfg.Name, "error", err)
	}
}

// holds reports whether a runner of w has a batch that waits for the worker's start.
func (g *Group) holds(w *instance) bool {
	g.gather.Lock()
	defer g.gather.Unlock()
	return w.inFlight > 0
}

// interruptedRun returns the error of a run interrupted by the watchdog. The state of the batch's streams is lost,
// because the run may have changed the state in part.
func (g *Group) interruptedRun(b *batching.Batch) error {
	for _, q := range b.Requests {
		q.DetachState()
	}
	err := stream.Errorf(stream.Timeout, "limits.run", "model %s did not answer within %v: the run was ended",
		g.cfg.Name, g.cfg.Limits.Run)
	g.noteFailure(err)
	g.log.Warn("run ended at its limit", "model", g.cfg.Name, "limit", g.cfg.Limits.Run)
	return err
}

// quarantine abandons w if the time of a run or restart of w has passed, ends the requests of the runs of w, and
// reports whether w was abandoned. The instance and the batches then stay in quarantine until the calls return.
func (g *Group) quarantine(w *instance, now stream.Instant) bool {
	g.quarantining.Lock()
	defer g.quarantining.Unlock()
	if w.gone.Load() {
		return false
	}
	var hung []*runner
	for _, r := range w.runners() {
		if r.abandon(now) {
			hung = append(hung, r)
			w.gone.Store(true) // the other runner ends its own later work
		}
	}
	if len(hung) == 0 {
		return false
	}
	for _, r := range w.runners() {
		if r.abandon(math.MaxInt64) { // the worker as a whole is given up
			hung = append(hung, r)
		}
	}
	w.cancel()
	g.addServing(-1)
	w.hung.Store(int32(len(hung)))
	n := g.quarantined.Add(1)
	w.repairs.mu.Lock() // so that no runner begins to wait without seeing w.gone
	w.repairs.changed.Broadcast()
	w.repairs.mu.Unlock()
	g.wakeAll()
	for _, r := range hung {
		g.endHung(r, n)
	}
	return true
}

// endHung ends the requests of an abandoned runner.
func (g *Group) endHung(r *runner, quarantined int32) {
	defer close(r.watchdogEnded)
	if r.batch == nil {
		g.noteFailure(stream.Errorf(stream.Timeout, "limits.start",
			"a worker of model %s did not stop or start again within %v", g.cfg.Name, g.cfg.Limits.hangsAfter()))
		g.log.Error("worker hangs while it stops or starts again, and is quarantined", "model", g.cfg.Name, "limit",
			g.cfg.Limits.hangsAfter(), "quarantined", quarantined)
		return
	}
	g.gather.Lock()
	g.batchEnded(r)
	g.pool.Quarantine()
	g.gather.Unlock()
	hangs := stream.Errorf(stream.Timeout, "limits.run", "model %s did not answer within %v: its worker is replaced",
		g.cfg.Name, g.cfg.Limits.Run)
	if g.gaveUp.Load() {
		hangs = errGivenUp
		g.log.Warn("requests that a model has not answered end with the server", "model", g.cfg.Name, "requests",
			len(r.batch.Requests), "setting", "drain")
	} else {
		g.log.Error("worker hangs and is quarantined", "model", g.cfg.Name, "limit", g.cfg.Limits.Run, "quarantined",
			quarantined)
		g.noteFailure(hangs)
	}
	g.recheck() // another batch can be made now
	for _, q := range r.batch.Requests {
		q.DetachState()
		q.Fail(hangs)
	}
	if g.hooks.Run != nil && len(r.batch.Requests) > 0 { // otherwise the worker has taken the requests
		g.hooks.Run(BatchRun{Batch: r.batch, Started: r.batch.Requests[0].Timing.Started, Ended: stream.Now(),
			Err: hangs})
	}
	for _, q := range r.batch.Requests {
		q.NotifyUnbound() // the call may return much later, or never
	}
}

// leaveQuarantine ends the quarantine of a runner whose call has returned; the last runner ends the quarantine of the
// instance.
func (g *Group) leaveQuarantine(r *runner) {
	<-r.watchdogEnded // the watchdog no longer uses the batch
	if r.hung.Add(-1) == 0 {
		g.quarantined.Add(-1)
	}
	if r.batch == nil {
		return
	}
	g.gather.Lock()
	g.pool.Restore(r.batch)
	g.gather.Unlock()
}
