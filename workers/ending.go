package workers

import (
	"context"
	"time"

	"millrace/batching"
	"millrace/stream"
)

// watch gives up the runs and restarts that take too long and releases what idle
// streams keep, until the group stops.
func (g *Group) watch() {
	tick := time.NewTicker(min(max(g.cfg.Limits.Run/8, 5*time.Millisecond), time.Second))
	defer tick.Stop()
	swept := stream.Now()
	for {
		select {
		case <-g.stopping:
			return
		case <-tick.C:
		}
		now := stream.Now()
		g.reapHung(now)
		if keeps := g.model.KeepsState(); keeps && now.Sub(swept) > g.cfg.Limits.IdleState/4 {
			swept = now
			g.sweepStates(now)
		}
	}
}

func (g *Group) reapHung(now stream.Instant) {
	for _, w := range g.instances() {
		if w.giveUp(now) {
			g.replace(w)
		}
	}
}

func (g *Group) sweepStates(now stream.Instant) {
	for _, s := range g.list() {
		s.DropIdleState(now.Add(-g.cfg.Limits.IdleState))
	}
}

func (g *Group) instances() []*instance {
	g.reg.Lock()
	defer g.reg.Unlock()
	out := make([]*instance, 0, len(g.all))
	for w := range g.all {
		out = append(out, w)
	}
	return out
}

func (g *Group) list() []*stream.Stream {
	g.reg.Lock()
	defer g.reg.Unlock()
	out := make([]*stream.Stream, 0, len(g.streams))
	for s := range g.streams {
		out = append(out, s)
	}
	return out
}

// replace starts another instance in the place of a hung one, unless too many
// hang already or it was told to leave.
func (g *Group) replace(w *instance) {
	if w.leave.Load() || int(g.quarantined.Load()) > g.cfg.Limits.Quarantined {
		g.lost(w)
		return
	}
	// Started beside the hung one, so that the watchdog goes on watching.
	g.wg.Go(func() {
		if err := g.join(w.detached(), w); err != nil {
			g.log.Error("no replacement for a hung worker", "model", g.cfg.Name, "error", err)
		} else {
			g.restarts.Add(1)
		}
		g.lost(w)
	})
}

// detached is a context for the replacement of w, whose own has ended.
func (w *instance) detached() context.Context { return context.WithoutCancel(w.ctx) }

// lost notes that an instance is gone for good: given up, or told to leave.
// Without any the group fails, unless it is being unloaded.
func (g *Group) lost(w *instance) {
	g.handOver(w) // while a swap still finds its inbox
	g.reg.Lock()
	delete(g.all, w)
	failed := len(g.all) == 0 && g.state == StateReady
	if failed {
		g.state, g.reason = StateUnavailable, "its workers failed more often in a row than limits.restarts or limits.quarantined allow; load it again"
	}
	g.reg.Unlock()
	if failed {
		err := stream.Errorf(stream.Unavailable, "", "model %s has no worker left", g.cfg.Name)
		g.endStreams(stream.ByError, err)
		g.failPartial(err)
	}
}

// handOver leaves to the others what an instance that goes, or is down for a
// while, would have done: the streams at home there, the memory of its last
// batch, and the work it may have been woken for.
func (g *Group) handOver(w *instance) {
	if w.inbox == nil {
		g.rouse()
		return
	}
	for _, s := range g.list() {
		s.ClearAffinity(w)
	}
	g.gather.Lock()
	g.intake.Redistribute(w.inbox)
	g.gather.Unlock()
	g.intake.NoteArrival()
	g.wakeAll()
}

func (g *Group) endStreams(why stream.CloseReason, err error) {
	for _, s := range g.list() {
		s.CloseWith(why, err)
	}
}

// failPartial ends the frames that were bound to a batch which did not run.
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
}

// drain empties the queue, with gather held.
func (g *Group) drain() (partial []*batching.Batch) {
	partial = g.intake.Drain(g.inboxes()...)
	for _, s := range g.list() {
		s.ForgetToken(g)
	}
	return partial
}

// unload ends the group: waiting frames end as err, frames in flight complete,
// and the workers are taken down. It returns when all that does not hang is
// gone.
func (g *Group) unload(why stream.CloseReason, err error) {
	g.reg.Lock()
	g.state = StateUnloading
	g.reg.Unlock()
	g.endStreams(why, err)
	g.failPartial(err)
	g.stop()
}

// stop takes the workers down after their present batch. A batch that none of
// them was left to run ends as unavailable.
func (g *Group) stop() {
	g.stopOnce.Do(func() { close(g.stopping) })
	for _, w := range g.instances() {
		w.leave.Store(true)
	}
	g.wakeAll()
	g.awaitRuns()
	g.failPartial(stream.Errorf(stream.Unavailable, "", "model %s has no worker left", g.cfg.Name))
	g.gather.Lock()
	g.pool.Close()
	g.gather.Unlock()
}

// awaitRuns waits for the workers, giving up those that hang.
func (g *Group) awaitRuns() {
	gone := g.ended()
	tick := time.NewTicker(min(max(g.cfg.Limits.Run/8, 5*time.Millisecond), time.Second))
	defer tick.Stop()
	// A worker that hangs while it starts or is taken down is in no run that could
	// be given up: it must not hold the manager's queue for ever.
	limit := stream.Now().Add(g.cfg.Limits.Run + g.cfg.Limits.Start)
	for {
		select {
		case <-gone:
			return
		case <-tick.C:
			now := stream.Now()
			if now > limit {
				g.log.Error("a worker neither starts nor ends and is left behind", "model", g.cfg.Name)
				return
			}
			for _, w := range g.instances() {
				if w.giveUp(now) {
					g.lost(w)
				}
			}
			if len(g.instances()) == 0 && g.busy.Load() == 0 {
				return
			}
		}
	}
}

// ended is closed when all of the group's goroutines have ended, and its memory is
// given back.
func (g *Group) ended() <-chan struct{} {
	c := make(chan struct{})
	go func() { // ends with the last worker, however late: counted as quarantined until then
		g.wg.Wait()
		g.giveBack()
		close(c)
	}()
	return c
}

// moveTo makes the group's streams feed next, tokens and waiting frames with
// them, and takes the group down once its frames in flight are done.
func (g *Group) moveTo(next *Group) {
	g.reg.Lock()
	g.state = StateUnloading
	g.reg.Unlock()
	// No gather here while tokens change queues: each is in exactly one.
	g.gather.Lock()
	for _, s := range g.list() {
		g.moveOne(s, next)
	}
	// What is bound already goes as it is, before the workers leave.
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
	if err := next.intake.Reserve(); err != nil {
		s.CloseWith(stream.ByUnload, err)
		return
	}
	next.reg.Lock()
	next.streams[s] = struct{}{}
	next.reg.Unlock()
	if !s.Move(next, next.model) {
		next.Detach(s) // it ended meanwhile
		return
	}
	g.Detach(s)
}

// Stats reads the group.
func (g *Group) Stats() GroupStats {
	g.gather.Lock()
	size, free := g.pool.Size(), g.pool.Free()
	g.gather.Unlock()
	st := GroupStats{
		Model: g.model, Busy: int(g.busy.Load()), Quarantined: int(g.quarantined.Load()), Flows: g.intake.Flows(),
		Waiting: int(g.waiting.Load()), Buffers: size, BuffersFree: free, Restarts: g.restarts.Load(), Batches: g.batches.Load(),
	}
	g.reg.Lock()
	defer g.reg.Unlock()
	st.State, st.Reason, st.Workers = g.state, g.reason, len(g.all)
	for s := range g.streams {
		if !s.Options().OneShot {
			st.Streams++
		}
	}
	return st
}
