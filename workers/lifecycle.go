package workers

import (
	"context"
	"log/slog"
	"time"

	"millrace/batching"
	"millrace/internal/codec"
	"millrace/stream"
	"millrace/stream/buf"
)

// newGroup starts a group with one worker and its watchdog; the others are
// added by scale.
func newGroup(ctx context.Context, cfg Config, mem *buf.Pool, pixels codec.Limits, log *slog.Logger, hooks func(*stream.Model) Hooks) (*Group, error) {
	g := &Group{
		common: common{cfg: cfg, log: log, pixels: pixels}, mem: mem, reserved: reservation{mem: mem}, state: StateLoading,
		streams: make(map[*stream.Stream]struct{}), all: make(map[*instance]struct{}), stopping: make(chan struct{}),
	}
	g.describe = g.describeModel
	first := newInstance(&g.common)
	if err := g.startIn(ctx, first); err != nil {
		first.cancel()
		select {
		case <-g.allEnded(): // what it took is free before the next model is loaded
		case <-first.admission: // it hangs
		}
		return nil, err
	}
	if hooks != nil {
		g.hooks = hooks(g.model)
	}
	g.state = StateReady
	g.admit(first, nil)
	g.wg.Go(g.runWatchdog)
	return g, nil
}

// startIn starts the instance's goroutine, which makes the worker ready, and
// waits for that. The goroutine then waits for admission: closed without admission
// it takes the worker down again.
func (g *Group) startIn(ctx context.Context, w *instance) error {
	ready := make(chan error, 1)
	g.wg.Go(func() {
		err := w.start(ctx)
		ready <- err
		if err != nil {
			w.prep.close()
			return
		}
		<-w.admission
		if w.admitted {
			g.loop(w)
			if w.phase.Load() != abandoned { // else the watchdog has started its replacement
				g.removeInstance(w)
			}
			return
		}
		w.stop()
		w.prep.close()
	})
	late := time.NewTimer(g.cfg.Limits.hangsAfter())
	defer late.Stop()
	select {
	case err := <-ready:
		return err
	case <-late.C:
		close(w.admission) // should it come back, it is taken down
		return stream.Errorf(stream.Timeout, "limits.start", "model %s did not start within %v", g.cfg.Name, g.cfg.Limits.Start)
	}
}

// admit lets a started instance run batches, in the place of one that hangs, or of
// none.
func (g *Group) admit(w, hung *instance) {
	if g.model.Affinity {
		w.inbox = g.intake.NewInbox()
	}
	g.registry.Lock()
	g.all[w] = struct{}{}
	if hung != nil { // they count as one; w leaves if hung was asked to
		w.leaving.Store(hung.leaving.Swap(true))
	}
	g.registry.Unlock()
	select {
	case <-g.stopping: // it was not yet in all when stop asked all to leave
		w.leaving.Store(true)
	default:
	}
	w.admitted = true
	close(w.admission)
}

// addWorker provides memory for one more worker and starts it.
func (g *Group) addWorker(ctx context.Context) error {
	n := g.Workers()
	if err := g.provide(n + 1); err != nil {
		return err
	}
	if err := g.startWorker(ctx, nil); err != nil {
		_ = g.provide(n) // less than there is: it is given back
		return err
	}
	return nil
}

// startWorker starts one more worker, whose memory is provided already, or one in the
// place of one that hangs.
func (g *Group) startWorker(ctx context.Context, hung *instance) error {
	w := newInstance(&g.common)
	if err := g.startIn(ctx, w); err != nil {
		w.cancel()
		return err
	}
	g.admit(w, hung)
	return nil
}

// removeWorker has one worker leave, and gives its memory back.
func (g *Group) removeWorker() {
	g.askOneToLeave()
	_ = g.provide(g.Workers()) // less than there is
}

// askOneToLeave has one worker leave when its batch is done.
func (g *Group) askOneToLeave() {
	g.registry.Lock()
	for w := range g.all {
		if w.leaving.CompareAndSwap(false, true) {
			break
		}
	}
	g.registry.Unlock()
	g.idle.wakeAll()
}

// runWatchdog abandons the runs and restarts that take too long and releases what idle
// streams keep, until the group stops.
func (g *Group) runWatchdog() {
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
		g.quarantineHung(now)
		if keeps := g.model.KeepsState(); keeps && now.Sub(swept) > g.cfg.Limits.IdleState/4 {
			swept = now
			g.sweepStates(now)
		}
	}
}

func (g *Group) quarantineHung(now stream.Instant) {
	for _, w := range g.instances() {
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

// replace starts another instance in the place of a hung one, unless too many
// hang already or it was asked to leave.
func (g *Group) replace(w *instance) {
	if w.leaving.Load() || int(g.quarantined.Load()) > g.cfg.Limits.Quarantined {
		g.removeInstance(w)
		return
	}
	// Started beside the hung one, so that the watchdog goes on watching.
	g.wg.Go(func() {
		if err := g.startWorker(w.detached(), w); err != nil {
			g.log.Error("no replacement for a hung worker", "model", g.cfg.Name, "error", err)
		} else {
			g.restarts.Add(1)
		}
		g.removeInstance(w)
	})
}

// detached is a context for the replacement of w, whose own has ended.
func (w *instance) detached() context.Context { return context.WithoutCancel(w.ctx) }

// removeInstance notes that an instance will run no more: it was given up or has left.
// Without any the group fails, unless it is being unloaded.
func (g *Group) removeInstance(w *instance) {
	g.releaseWork(w) // while a swap still finds its inbox
	g.registry.Lock()
	delete(g.all, w)
	failed := len(g.all) == 0 && g.state == StateReady
	if failed {
		g.state, g.reason = StateUnavailable, "its workers failed more often in a row than limits.restarts or limits.quarantined allow; load it again"
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
	for _, s := range g.openStreams() {
		s.ForgetToken(g)
	}
	return partial
}

// unload ends the group: waiting frames end as err, frames in flight complete,
// and the workers are taken down. It returns when all that does not hang is
// gone.
func (g *Group) unload(why stream.CloseReason, err error) {
	g.registry.Lock()
	g.state = StateUnloading
	g.registry.Unlock()
	g.endStreams(why, err)
	g.failPartial(err)
	g.stop()
}

// stop takes the workers down after their present batch. A batch that none of
// them was left to run ends as unavailable.
func (g *Group) stop() {
	g.stopOnce.Do(func() { close(g.stopping) })
	for _, w := range g.instances() {
		w.leaving.Store(true)
	}
	g.idle.wakeAll()
	g.awaitRuns()
	g.failPartial(stream.Errorf(stream.Unavailable, "", "model %s has no worker left", g.cfg.Name))
	g.gather.Lock()
	g.pool.Close()
	g.gather.Unlock()
}

// awaitRuns waits for the workers, giving up those that hang.
func (g *Group) awaitRuns() {
	gone := g.allEnded()
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
				if g.quarantine(w, now) {
					g.removeInstance(w)
				}
			}
			if len(g.instances()) == 0 && g.busy.Load() == 0 {
				return
			}
		}
	}
}

// allEnded is closed when all of the group's goroutines have ended, and its memory is
// given back.
func (g *Group) allEnded() <-chan struct{} {
	c := make(chan struct{})
	go func() { // ends with the last worker, however late: counted as quarantined until then
		g.wg.Wait()
		g.gather.Lock()
		g.reserved.giveBack()
		g.gather.Unlock()
		close(c)
	}()
	return c
}

// moveTo makes the group's streams feed next, tokens and waiting frames with
// them, and takes the group down once its frames in flight are done.
func (g *Group) moveTo(next *Group) {
	g.registry.Lock()
	g.state = StateUnloading
	g.registry.Unlock()
	// No gather here while tokens change queues: each is in exactly one.
	g.gather.Lock()
	for _, s := range g.openStreams() {
		g.moveOne(s, next)
	}
	// Batches that frames are bound to run as they are, before the workers leave.
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
	next.registry.Lock()
	next.streams[s] = struct{}{}
	next.registry.Unlock()
	if !s.Move(next, next.model) {
		next.Detach(s) // it ended meanwhile
		return
	}
	g.Detach(s)
}
