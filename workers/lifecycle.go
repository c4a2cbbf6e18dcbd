package workers

import (
	"context"
	"math"
	"time"

	"millrace/batching"
	"millrace/stream"
)

// newGroup starts a group with one worker and the watchdog. The manager adds the other n-1 workers. Memory is
// reserved for n workers, but at most for cfg.Instances.
func (m *Manager) newGroup(ctx context.Context, cfg Config, n int, files modelFiles) (*Group, error) {
	o, ledger := &m.opts, &m.ledger
	g := &Group{
		files: files,
		common: common{
			cfg: cfg, digest: files.digest, log: o.Log, pixels: o.Pixels, programs: o.Programs, public: o.Public,
			containers: o.Containers,
			decoding:   o.Memory, turns: o.Turns, decoders: m.decoders, models: m, stopBy: &m.stopBy, uses: cfg.Uses(),
			ahead: cfg.ahead(),
		},
		mem: o.Memory, reserved: reservation{mem: o.Memory}, state: StateLoading,
		streams: make(map[*stream.Stream]struct{}), all: make(map[*instance]struct{}), stopping: make(chan struct{}),
		ledger: ledger, totals: ledger.use(cfg.Name, cfg.Version),
	}
	g.targetWorkers.Store(int32(n))
	g.idle.turns = cfg.Order == takeTurns
	if err := g.checkUses(); err != nil {
		ledger.drop(g.totals, g, stream.Now())
		return nil, err
	}
	g.forms = g.formsOf()
	g.describe, g.taken, g.wakeRunners, g.process = g.describeModel, g.addTaken, g.wakeAll, &g.totals.processes
	g.runLent, g.parkIdle = g.runInCaller, g.parkIfIdle
	first := newInstance(&g.common, 0)
	if err := g.startIn(ctx, first); err != nil {
		first.cancel()
		g.closePool()
		select {
		case <-g.allEnded(): // the next model is loaded after the memory is free
		case <-first.admission: // the worker hangs
		}
		ledger.drop(g.totals, g, stream.Now())
		return nil, err
	}
	if o.Hooks != nil {
		g.hooks = o.Hooks(g.model)
	}
	g.state = StateReady
	ledger.add(g.totals, g)
	g.admit(first, nil)
	g.wg.Go(g.runWatchdog)
	return g, nil
}

// startIn starts the instance's goroutine, which makes the worker ready, and waits for the worker. The goroutine then
// waits for admission: when the channel is closed and w is not admitted, the goroutine stops the worker.
func (g *Group) startIn(ctx context.Context, w *instance) error {
	ready := make(chan error, 1)
	g.wg.Go(func() {
		err := w.start(ctx)
		ready <- err
		if err != nil {
			w.closeTools()
			return
		}
		<-w.admission
		if w.admitted {
			g.loop(w)
			if !w.gone.Load() { // otherwise the watchdog has started its replacement
				g.removeInstance(w)
			}
			return
		}
		w.stop()
		w.closeTools()
	})
	late := time.NewTimer(g.cfg.Limits.hangsAfter())
	defer late.Stop()
	select {
	case err := <-ready:
		return err
	case <-late.C:
		close(w.admission) // a worker that still starts is stopped
		return stream.Errorf(stream.Timeout, "limits.start", "model %s did not start within %v", g.cfg.Name,
			g.cfg.Limits.Start)
	}
}

// admit lets a started instance run batches, in place of the instance hung unless hung is nil.
func (g *Group) admit(w, hung *instance) {
	if g.model.Affinity {
		w.inbox = g.intake.NewInbox()
	}
	g.registry.Lock()
	g.all[w] = struct{}{}
	if hung != nil { // w and hung count as one; w stops if hung was told to stop
		w.stopRequested.Store(hung.stopRequested.Swap(true))
	}
	g.registry.Unlock()
	select {
	case <-g.stopping: // w was not yet in all when stop told all instances to stop
		w.stopRequested.Store(true)
	default:
	}
	w.admitted = true
	g.addServing(1)
	close(w.admission)
}

// addWorker reserves memory for one more worker and starts the worker.
func (g *Group) addWorker(ctx context.Context) error {
	n := g.Workers()
	if err := g.setCapacity(n + 1); err != nil {
		return err
	}
	if err := g.startWorker(ctx, nil); err != nil {
		_ = g.setCapacity(n) // a smaller capacity cannot fail
		return err
	}
	return nil
}

// startWorker starts one more worker with already reserved memory, or the replacement of the hung worker.
func (g *Group) startWorker(ctx context.Context, hung *instance) error {
	index := g.freeIndex()
	if hung != nil {
		index = hung.index
	}
	w := newInstance(&g.common, index)
	if err := g.startIn(ctx, w); err != nil {
		w.cancel()
		return err
	}
	g.admit(w, hung)
	return nil
}

// removeWorker stops one worker and releases the worker's memory.
func (g *Group) removeWorker() {
	g.requestOneStop()
	_ = g.setCapacity(g.Workers()) // a smaller capacity cannot fail
}

// freeIndex returns the smallest index not used by an instance.
func (g *Group) freeIndex() int {
	used := map[int]bool{}
	for _, w := range g.instances() {
		used[w.index] = true
	}
	i := 0
	for used[i] {
		i++
	}
	return i
}

// requestOneStop tells the worker with the highest index to stop after its batch.
func (g *Group) requestOneStop() {
	var last *instance
	for _, w := range g.instances() {
		if !w.stopRequested.Load() && (last == nil || w.index > last.index) {
			last = w
		}
	}
	if last != nil {
		last.stopRequested.Store(true)
	}
	g.wakeAll()
}

// wakeAll makes all runners look again.
func (g *Group) wakeAll() {
	g.idle.wakeAll()
	g.full.wakeAll()
}

// runWatchdog abandons the runs and restarts that take too long and releases the state
// of idle streams, until the group stops.
func (g *Group) runWatchdog() {
	tick := time.NewTicker(g.cfg.Limits.watchInterval())
	defer tick.Stop()
	swept := stream.Now()
	for {
		select {
		case <-g.stopping:
			return
		case <-tick.C:
		}
		now := stream.Now()
		g.quarantineHung(now)
		if keeps := g.model.KeepsState(); keeps && now.Sub(swept) > g.cfg.Limits.IdleState/4 {
			swept = now
			g.sweepStates(now)
		}
	}
}

func (g *Group) quarantineHung(now stream.Instant) {
	for _, w := range g.instances() {
		w.interrupt(now)
		if g.quarantine(w, now) {
			g.replace(w)
		}
	}
}

func (g *Group) sweepStates(now stream.Instant) {
	for _, s := range g.openStreams() {
		s.DropIdleState(now.Add(-g.cfg.Limits.IdleState))
	}
}

// replace starts another instance in place of a hung instance, unless too many instances hang already or w was told
// to stop.
func (g *Group) replace(w *instance) {
	if w.stopRequested.Load() || int(g.quarantined.Load()) > g.cfg.Limits.Quarantined {
		g.removeInstance(w)
		return
	}
	// The replacement starts in its own goroutine, so that the watchdog keeps checking.
	g.wg.Go(func() {
		if err := g.startWorker(w.detached(), w); err != nil {
			g.log.Error("no replacement for a hung worker", "model", g.cfg.Name, "error", err)
		} else {
			g.totals.restarts.Add(1)
		}
		g.removeInstance(w)
	})
}

// detached returns a context for the replacement of w, whose own context has ended.
func (w *instance) detached() context.Context { return context.WithoutCancel(w.ctx) }

// removeInstance records that an abandoned or stopped instance will not run any more. When no instance is left, the
// group fails, unless the group is being unloaded.
func (g *Group) removeInstance(w *instance) {
	g.releaseWork(w) // before w leaves g.all, so that a swap still finds the inbox of w
	if w.inbox != nil {
		g.gather.Lock()
		g.intake.Redistribute(w.inbox) // of a stream gathered meanwhile by a runner
		g.gather.Unlock()
		g.recheck()
	}
	g.registry.Lock()
	delete(g.all, w)
	failed := len(g.all) == 0 && g.state == StateReady
	if failed {
		g.state, g.reason = StateUnavailable,
			"its workers failed more often in a row than limits.restarts or limits.quarantined allow; load it again"
	}
	g.registry.Unlock()
	if failed {
		err := stream.Errorf(stream.Unavailable, "", "model %s has no worker left", g.cfg.Name)
		g.endStreams(stream.ByError, err)
		g.failPartial(err)
	}
}

func (g *Group) endStreams(why stream.CloseReason, err error) {
	for _, s := range g.openStreams() {
		s.CloseWith(why, err)
	}
}

// failPartial ends the frames bound to batches that did not run.
func (g *Group) failPartial(err error) {
	g.gather.Lock()
	partial := g.drain()
	g.gather.Unlock()
	for _, b := range partial {
		b.FailAll(err)
		g.gather.Lock()
		g.pool.Put(b)
		g.gather.Unlock()
	}
	g.gather.Lock()
	decoded := g.intake.RemoveDecoded()
	g.gather.Unlock()
	for _, r := range decoded {
		r.Fail(err)
		r.Unbind()
	}
}

// drain empties the queue. The caller holds gather.
func (g *Group) drain() (partial []*batching.Batch) {
	partial = g.intake.Drain(g.inboxes()...)
	for _, s := range g.openStreams() {
		s.ForgetToken(g)
	}
	return partial
}

// unload ends the group: waiting frames end with err, frames in flight complete, and the workers are stopped. unload
// returns when all goroutines have ended, except hung goroutines.
func (g *Group) unload(why stream.CloseReason, err error) {
	g.registry.Lock()
	g.state = StateUnloading
	g.registry.Unlock()
	g.endStreams(why, err)
	g.failPartial(err)
	g.stop()
}

// errGivenUp ends the frames that are not answered when the time for the shutdown is over.
var errGivenUp = stream.Errorf(stream.Draining, "drain", "the server has shut down before the model answered")

// giveUp ends all frames of the group now, also frames in flight: the server ends, and the clients must get the
// ending while still connected. The calls of the workers may go on.
func (g *Group) giveUp() {
	g.registry.Lock()
	g.state = StateUnloading
	g.registry.Unlock()
	g.gaveUp.Store(true)
	g.endStreams(stream.ByDrain, errGivenUp)
	g.failPartial(errGivenUp)
	for _, w := range g.instances() {
		if g.quarantine(w, math.MaxInt64) {
			g.removeInstance(w)
		}
	}
}

// stop stops the workers after their current batch. Requests of a batch without a worker end as unavailable.
func (g *Group) stop() {
	g.gather.Lock() // so that no goroutine starts to decode later
	g.stopOnce.Do(func() { close(g.stopping) })
	g.gather.Unlock()
	g.heavyWait.Wait() // the workers run the decoded frames
	for _, w := range g.instances() {
		w.stopRequested.Store(true)
	}
	g.wakeAll()
	g.awaitRuns()
	g.failPartial(stream.Errorf(stream.Unavailable, "", "model %s has no worker left", g.cfg.Name))
	g.closePool()
	g.dropTotals.Do(func() {
		g.ledger.drop(g.totals, g, stream.Now())
		if g.hooks.Closed != nil {
			g.hooks.Closed()
		}
	})
}

// closePool frees the batches that are not in use.
func (g *Group) closePool() {
	g.gather.Lock()
	defer g.gather.Unlock()
	if g.pool != nil {
		g.pool.Close()
	}
}

// awaitRuns waits until the workers have ended, and abandons hung workers.
func (g *Group) awaitRuns() {
	ended := g.allEnded()
	tick := time.NewTicker(g.cfg.Limits.watchInterval())
	defer tick.Stop()
	// A worker that hangs in its start or stop is in no run to abandon, and the manager's queue must not wait
	// forever.
	limit := stream.Now().Add(g.cfg.Limits.runBound(g.ahead) + g.cfg.Limits.Start)
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
			now := stream.Now()
			if now > limit {
				g.log.Error("a worker hangs while it starts or stops, and is no longer waited for", "model", g.cfg.Name)
				return
			}
			for _, w := range g.instances() {
				w.interrupt(now)
				if g.quarantine(w, now) {
					g.removeInstance(w)
				}
			}
			if len(g.instances()) == 0 {
				return
			}
		}
	}
}

// allEnded returns a channel that is closed when all of the group's goroutines have ended and the group's memory has
// been released.
func (g *Group) allEnded() <-chan struct{} {
	c := make(chan struct{})
	go func() { // ends with the last worker; a hung worker counts as quarantined
		g.wg.Wait()
		g.gather.Lock()
		g.reserved.release()
		g.gather.Unlock()
		close(c)
	}()
	return c
}

// moveTo makes the group's streams, with their tokens and waiting frames, feed next,
// and stops the group once its frames in flight have ended.
func (g *Group) moveTo(next *Group) {
	g.registry.Lock()
	g.state = StateUnloading
	g.registry.Unlock()
	// gather is held while tokens change queues, so that each token is in exactly one queue.
	g.gather.Lock()
	for _, s := range g.openStreams() {
		g.moveOne(s, next)
	}
	// Batches with bound frames run unchanged before the workers stop.
	g.intake.AddReady(g.drain()...)
	g.gather.Unlock()
	g.stop()
}

func (g *Group) inboxes() (out []*batching.Inbox) {
	for _, w := range g.instances() {
		if w.inbox != nil {
			out = append(out, w.inbox)
		}
	}
	return out
}

func (g *Group) moveOne(s *stream.Stream, next *Group) {
	switch opts := s.Options(); {
	case opts.Version != "" && opts.Version != next.cfg.Version:
		s.CloseWith(stream.ByUnload, stream.Errorf(stream.Unloaded, "version", "%s of model %s was unloaded",
			opts.Version, g.cfg.Name))
		return
	case opts.Sequence: // the stream's state cannot be moved
		s.CloseWith(stream.ByUnload, stream.Errorf(stream.Unloaded, "",
			"model %s was replaced, which ends its sequences: start the sequence again", g.cfg.Name))
		return
	}
	err := next.checkRules(s.Rules())
	if err == nil {
		err = next.intake.Reserve()
	}
	if err != nil {
		s.CloseWith(stream.ByUnload, err)
		return
	}
	next.registry.Lock()
	next.streams[s] = struct{}{}
	next.registry.Unlock()
	if !s.Move(next, next.model) {
		next.Detach(s) // the stream has ended in between
		return
	}
	g.Detach(s)
}
