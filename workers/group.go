package workers

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"millrace/batching"
	"millrace/internal/buf"
	"millrace/internal/codec"
	"millrace/stream"
	"millrace/workers/results"
)

// Group is the workers that share a model, its version and its load parameters:
// the intake that tokens wait in, the instances that steal from it, the bounded
// batches, and the limits on both. Its exported methods are safe for concurrent
// use.
//
// Locks, in the order in which they may nest: reg, gather, a stream's own, park.
// A stream's lock is held when the Endpoint methods are called, so those take
// none but park and reg's leaf set.
type Group struct {
	cfg      Config
	model    *stream.Model // as clients see it
	computed *stream.Model // what the worker computes, before the stages behind it
	log      *slog.Logger
	mem      *buf.Pool
	pixels   codec.Limits
	hooks    Hooks
	intake   *batching.Intake
	pool     *batching.Pool // under gather

	gather   sync.Mutex
	reserved int64 // bytes of the budget, under gather

	park   sync.Mutex
	parked []*instance // LIFO: the last to stop is the warmest
	parkN  atomic.Int32

	reg     sync.Mutex
	streams map[*stream.Stream]struct{}
	state   string
	reason  string
	all     map[*instance]struct{} // running or restarting

	wg       sync.WaitGroup
	stopping chan struct{}
	stopOnce sync.Once

	waiting     atomic.Int64
	busy        atomic.Int32
	quarantined atomic.Int32
	restarts    atomic.Uint64
	batches     atomic.Uint64
}

var _ stream.Endpoint = (*Group)(nil)

// newGroup starts a group with one worker and its watchdog; the others are
// added by scale.
func newGroup(ctx context.Context, cfg Config, mem *buf.Pool, pixels codec.Limits, log *slog.Logger, hooks func(*stream.Model) Hooks) (*Group, error) {
	g := &Group{
		cfg: cfg, log: log, mem: mem, pixels: pixels, state: StateLoading,
		streams: make(map[*stream.Stream]struct{}), all: make(map[*instance]struct{}), stopping: make(chan struct{}),
	}
	first := g.newInstance()
	if err := g.startIn(ctx, first); err != nil {
		first.cancel()
		select {
		case <-g.ended(): // what it took is free before the next model is loaded
		case <-first.admission: // it hangs
		}
		return nil, err
	}
	if hooks != nil {
		g.hooks = hooks(g.model)
	}
	g.state = StateReady
	g.admit(first, nil)
	g.wg.Go(g.watch)
	return g, nil
}

// complete fills in the metadata what the configuration decides, and makes what
// depends on it.
func (g *Group) complete(m *stream.Model) error {
	m.Name, m.Version, m.Platform = g.cfg.Name, g.cfg.Version, g.cfg.Kind
	m.MaxBatch = max(m.MaxBatch, 1)
	if n := g.cfg.Batching.MaxSize; n > 0 {
		if m.Fixed && n != m.MaxBatch {
			return stream.Errorf(stream.InvalidArgument, "batching.max_size", "is %d, and the model's own batch axis is fixed at %d: leave it out", n, m.MaxBatch)
		}
		m.MaxBatch = n
	}
	m.Policy = g.cfg.Policy.WithDefaults(m.Policy)
	if err := TakeInputs(m, g.cfg.Image, g.cfg.Window, g.mem); err != nil {
		return err
	}
	g.computed = m
	_, m, err := results.New(g.cfg.Parts, m, results.Tools{})
	if err != nil {
		return err
	}
	g.model = m
	b, err := batching.NewBatcher(g.cfg.Batching.Kind, m.MaxBatch, g.cfg.Parts)
	if err != nil {
		return err
	}
	if g.pool, err = batching.NewPool(m, g.mem, g.cfg.Batching.Memory, g.cfg.buffers()); err != nil {
		return err
	}
	g.intake = batching.NewIntake(m, b, g.pool, g.cfg.MaxFlows)
	return g.provide(g.cfg.Instances)
}

func (g *Group) newInstance() *instance {
	w := &instance{group: g, wake: make(chan struct{}, 1), timer: time.NewTimer(time.Hour), admission: make(chan struct{}), given: make(chan struct{})}
	w.timer.Stop()
	w.back.Min, w.back.Max = 10*time.Millisecond, 5*time.Second
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
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
			w.loop()
			if w.phase.Load() != gone { // else whoever gave it up sees to it, with its replacement
				g.lost(w)
			}
			return
		}
		w.stop()
		w.prep.close()
	})
	late := time.NewTimer(g.cfg.Limits.late())
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
	g.reg.Lock()
	g.all[w] = struct{}{}
	if hung != nil { // they count as one, and who was told to leave goes
		w.leave.Store(hung.leave.Swap(true))
	}
	g.reg.Unlock()
	select {
	case <-g.stopping: // it may have been too late to be told
		w.leave.Store(true)
	default:
	}
	w.admitted = true
	close(w.admission)
}

// add provides memory for one more worker and starts it.
func (g *Group) add(ctx context.Context) error {
	n := g.Workers()
	if err := g.provide(n + 1); err != nil {
		return err
	}
	if err := g.join(ctx, nil); err != nil {
		_ = g.provide(n) // less than there is: it is given back
		return err
	}
	return nil
}

// join starts one more worker, whose memory is provided already, or one in the
// place of one that hangs.
func (g *Group) join(ctx context.Context, hung *instance) error {
	w := g.newInstance()
	if err := g.startIn(ctx, w); err != nil {
		w.cancel()
		return err
	}
	g.admit(w, hung)
	return nil
}

// remove has one worker leave, and gives its memory back.
func (g *Group) remove() {
	g.removeOne()
	_ = g.provide(g.Workers()) // less than there is
}

// removeOne tells one worker to leave, once its batch is done.
func (g *Group) removeOne() {
	g.reg.Lock()
	for w := range g.all {
		if w.leave.CompareAndSwap(false, true) {
			break
		}
	}
	g.reg.Unlock()
	g.wakeAll()
}

// Workers returns how many instances there are that are not leaving.
func (g *Group) Workers() int {
	g.reg.Lock()
	defer g.reg.Unlock()
	n := 0
	for w := range g.all {
		if !w.leave.Load() {
			n++
		}
	}
	return n
}

// Model returns the group's metadata.
func (g *Group) Model() *stream.Model { return g.model }

// Config returns the configuration that the group was loaded with.
func (g *Group) Config() Config { return g.cfg }

// Ready says whether a worker can serve.
func (g *Group) Ready() bool {
	g.reg.Lock()
	defer g.reg.Unlock()
	return g.state == StateReady && len(g.all) > 0
}

// Open opens a stream that feeds the group and answers to sink. Errors:
// InvalidArgument (the policy), Overloaded (max_flows), Unloaded, Unavailable.
func (g *Group) Open(opts stream.Options, sink stream.Sink) (*stream.Stream, error) {
	if err := opts.Policy.Validate(); err != nil {
		return nil, err
	}
	if err := g.intake.Reserve(); err != nil {
		return nil, err
	}
	s := stream.New(g.model, g, sink, opts)
	g.reg.Lock()
	defer g.reg.Unlock()
	if g.state != StateReady {
		g.intake.Unreserve()
		return nil, g.notReady()
	}
	g.streams[s] = struct{}{}
	return s, nil
}

func (g *Group) notReady() error {
	if g.state == StateUnavailable {
		return stream.Errorf(stream.Unavailable, "", "model %s has no worker left: %s", g.cfg.Name, g.reason)
	}
	return stream.Errorf(stream.Unloaded, "", "model %s is being unloaded", g.cfg.Name)
}

// Enqueue implements stream.Endpoint.
func (g *Group) Enqueue(s *stream.Stream, home any) {
	w, _ := home.(*instance)
	if w == nil || w.inbox == nil {
		g.intake.Push(s, nil)
		g.wake()
		return
	}
	g.intake.Push(s, w.inbox)
	g.wakeThis(w)
}

// Waiting implements stream.Endpoint.
func (g *Group) Waiting(n int) {
	g.waiting.Add(int64(n))
	if n >= 0 && g.intake.AsksForArrivals() {
		g.rouse()
	}
}

// rouse has a worker look whether there is something to do, although no token
// has come: all of them where only one of them may do it.
func (g *Group) rouse() {
	g.intake.NoteArrival()
	if g.model.Affinity {
		g.wakeAll()
		return
	}
	g.wake()
}

// Ended implements stream.Endpoint.
func (g *Group) Ended(r *stream.Request) {
	if g.hooks.Ended != nil {
		g.hooks.Ended(r)
	}
}

func (g *Group) skipped(r *stream.Request) {
	if g.hooks.Skipped != nil {
		g.hooks.Skipped(r)
	}
}

// Detach implements stream.Endpoint.
func (g *Group) Detach(s *stream.Stream) {
	g.intake.Unreserve()
	g.reg.Lock()
	delete(g.streams, s)
	g.reg.Unlock()
}

// next returns the next batch for w, or nil when it is to leave.
func (g *Group) next(w *instance) *batching.Batch {
	for {
		seen := g.intake.Arrivals()
		if w.leave.Load() && !g.hasReady() {
			return nil
		}
		g.gather.Lock()
		b, wait, err := g.intake.Gather(stream.Now(), int(g.parkN.Load())+1, w.inbox)
		more := b != nil && g.parkN.Load() > 0 && !g.intake.Idle()
		g.gather.Unlock()
		if err != nil {
			g.log.Error("no batch memory", "model", g.cfg.Name, "error", err)
			if !g.sleep(time.Second) {
				return nil
			}
			continue
		}
		if b != nil {
			if more {
				g.wake() // pass the baton
			}
			if w.inbox != nil {
				for _, r := range b.Requests {
					r.Stream.SetAffinity(g, w)
				}
			}
			g.busy.Add(1)
			return b
		}
		g.rest(w, seen, wait)
	}
}

// hasReady says whether a batch waits that must not be left behind.
func (g *Group) hasReady() bool {
	g.gather.Lock()
	defer g.gather.Unlock()
	return g.intake.HasReady()
}

// rest parks w until there may be work again. What arrived since seen was read
// is noticed, since it is compared after w can be woken.
func (g *Group) rest(w *instance, seen uint64, wait time.Duration) {
	g.park.Lock()
	g.parked = append(g.parked, w)
	w.parked.Store(true)
	g.parkN.Add(1)
	g.park.Unlock()
	if g.intake.Arrivals() != seen || w.leave.Load() {
		g.unpark(w)
		return
	}
	if wait <= 0 {
		<-w.wake
	} else {
		w.timer.Reset(wait)
		select {
		case <-w.wake:
		case <-w.timer.C:
		}
		w.timer.Stop()
	}
	g.unpark(w)
}

// unpark takes w out of the parked ones if it was not woken.
func (g *Group) unpark(w *instance) {
	if !w.parked.Load() {
		return
	}
	g.park.Lock()
	w.parked.Store(false)
	for i := len(g.parked) - 1; i >= 0; i-- {
		if g.parked[i] == w {
			g.parked = append(g.parked[:i], g.parked[i+1:]...)
			g.parkN.Add(-1)
			break
		}
	}
	g.park.Unlock()
}

// wake wakes one parked worker.
func (g *Group) wake() {
	if g.parkN.Load() == 0 {
		return
	}
	g.park.Lock()
	n := len(g.parked)
	if n == 0 {
		g.park.Unlock()
		return
	}
	w := g.parked[n-1]
	w.parked.Store(false)
	g.parked = g.parked[:n-1]
	g.parkN.Add(-1)
	g.park.Unlock()
	w.signal()
}

func (g *Group) wakeThis(w *instance) {
	g.unpark(w)
	w.signal()
}

// wakeAll wakes all that are parked now.
func (g *Group) wakeAll() {
	g.park.Lock()
	all := g.parked
	g.parked = nil
	g.parkN.Store(0)
	for _, w := range all {
		w.parked.Store(false)
	}
	g.park.Unlock()
	for _, w := range all {
		w.signal()
	}
}

func (w *instance) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// done takes a batch back after its run.
func (g *Group) done(b *batching.Batch, t batchTimes) {
	g.busy.Add(-1)
	if t.rows > 0 && g.hooks.Batch != nil {
		g.hooks.Batch(t.rows, t.started.Sub(t.begun), t.ended.Sub(t.started))
	}
	g.gather.Lock()
	g.pool.Put(b)
	if t.warm && t.rows > 0 {
		g.intake.Observe(t.ended, t.rows, t.ended.Sub(t.begun))
	}
	// The caller looks for work itself, but not in the inboxes of the others.
	exhausted := g.intake.TakeExhausted() && g.model.Affinity
	g.gather.Unlock()
	if exhausted {
		g.rouse()
	}
}

// batchTimes are the moments of one run. Without rows nothing was run.
type batchTimes struct {
	rows                  int
	begun, started, ended stream.Instant
	warm                  bool
}

// sleep waits for d; false when the group stops.
func (g *Group) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-g.stopping:
		return false
	}
}
