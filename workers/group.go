package workers

import (
	"sync"
	"sync/atomic"
	"time"

	"millrace/batching"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers/results"
)

// Group is the workers that share a model, its version and its load parameters:
// the intake that tokens wait in, the instances that gather from it, the bounded
// batches, and the limits on both. Its exported methods are safe for concurrent
// use.
//
// Locks, in the order in which they may nest: registry, gather, a stream's own, that
// of parking. A stream's lock is held when the Endpoint methods are called, so those
// take none but parking's and, in Detach, registry.
type Group struct {
	common
	mem    *buf.Pool
	intake *batching.Intake
	pool   *batching.Pool // under gather

	gather   sync.Mutex
	reserved reservation // under gather
	idle     parking

	registry sync.Mutex
	streams  map[*stream.Stream]struct{}
	state    string
	reason   string
	all      map[*instance]struct{} // running or restarting

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

// describe fills in the metadata what the configuration decides, and makes what
// depends on it.
func (g *Group) describeModel(m *stream.Model) error {
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
	b, err := batching.NewBatcher(string(g.cfg.Batching.Kind), m.MaxBatch, g.cfg.Parts)
	if err != nil {
		return err
	}
	if g.pool, err = batching.NewPool(m, g.mem, g.cfg.Batching.Memory, g.cfg.buffers()); err != nil {
		return err
	}
	g.intake = batching.NewIntake(m, b, g.pool, g.cfg.MaxFlows)
	return g.provide(g.cfg.Instances)
}

// provide reserves the memory of so many workers and their batches, or gives back
// what is more, and lets there be as many batches. Only the manager calls it.
func (g *Group) provide(workers int) error {
	g.gather.Lock()
	defer g.gather.Unlock()
	if err := g.reserved.resize(g.cfg, g.computed, workers); err != nil {
		return err
	}
	g.pool.Resize(g.cfg.buffersFor(workers))
	return nil
}

// Workers returns how many instances there are that are not leaving.
func (g *Group) Workers() int {
	g.registry.Lock()
	defer g.registry.Unlock()
	n := 0
	for w := range g.all {
		if !w.leaving.Load() {
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
	g.registry.Lock()
	defer g.registry.Unlock()
	return g.state == StateReady && len(g.all) > 0
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
	g.registry.Lock()
	defer g.registry.Unlock()
	st.State, st.Reason, st.Workers = g.state, g.reason, len(g.all)
	for s := range g.streams {
		if !s.Options().OneShot {
			st.Streams++
		}
	}
	return st
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
	g.registry.Lock()
	defer g.registry.Unlock()
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
		g.idle.wakeOne()
		return
	}
	g.intake.Push(s, w.inbox)
	g.idle.wakeThis(&w.waiter)
}

// Waiting implements stream.Endpoint.
func (g *Group) Waiting(n int) {
	g.waiting.Add(int64(n))
	if n >= 0 && g.intake.AsksForArrivals() {
		g.recheck()
	}
}

// recheck has a worker look whether there is something to do, although no token
// has come: all of them where only one of them may do it.
func (g *Group) recheck() {
	g.intake.NoteArrival()
	if g.model.Affinity {
		g.idle.wakeAll()
		return
	}
	g.idle.wakeOne()
}

// Ended implements stream.Endpoint.
func (g *Group) Ended(r *stream.Request) {
	if g.hooks.Ended != nil {
		g.hooks.Ended(r)
	}
}

// Detach implements stream.Endpoint.
func (g *Group) Detach(s *stream.Stream) {
	g.intake.Unreserve()
	g.registry.Lock()
	delete(g.streams, s)
	g.registry.Unlock()
}

func (g *Group) instances() []*instance {
	g.registry.Lock()
	defer g.registry.Unlock()
	out := make([]*instance, 0, len(g.all))
	for w := range g.all {
		out = append(out, w)
	}
	return out
}

func (g *Group) openStreams() []*stream.Stream {
	g.registry.Lock()
	defer g.registry.Unlock()
	out := make([]*stream.Stream, 0, len(g.streams))
	for s := range g.streams {
		out = append(out, s)
	}
	return out
}

// next returns the next batch for w, or nil when it is to leave.
func (g *Group) next(w *instance) *batching.Batch {
	for {
		seen := g.intake.Arrivals()
		if w.leaving.Load() && !g.hasReady() {
			return nil
		}
		g.gather.Lock()
		b, wait, err := g.intake.Gather(stream.Now(), int(g.idle.count.Load())+1, w.inbox)
		more := b != nil && g.idle.count.Load() > 0 && !g.intake.Idle()
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
				g.idle.wakeOne() // more work waits than this worker takes
			}
			if w.inbox != nil {
				for _, r := range b.Requests {
					r.Stream.SetAffinity(g, w)
				}
			}
			g.busy.Add(1)
			return b
		}
		g.idle.wait(&w.waiter, wait, func() bool { return g.intake.Arrivals() != seen || w.leaving.Load() })
	}
}

// hasReady says whether a batch waits that must not be left behind.
func (g *Group) hasReady() bool {
	g.gather.Lock()
	defer g.gather.Unlock()
	return g.intake.HasReady()
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
		g.recheck()
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

// releaseWork leaves to the others what an instance that leaves or restarts
// would have done: the streams in its inbox, the memory of its last
// batch, and the work it may have been woken for.
func (g *Group) releaseWork(w *instance) {
	if w.inbox == nil {
		g.recheck()
		return
	}
	for _, s := range g.openStreams() {
		s.ClearAffinity(w)
	}
	g.gather.Lock()
	g.intake.Redistribute(w.inbox)
	g.gather.Unlock()
	g.intake.NoteArrival()
	g.idle.wakeAll()
}
