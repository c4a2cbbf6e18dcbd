package workers

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"millrace/batching"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers/results"
)

// Group is the workers that share a model, its version and its load parameters: the
// intake in which tokens wait, the instances that gather from it, the bounded batches,
// and the limits on both. Its exported methods are safe for concurrent use.
//
// Locks, in the order in which they may nest: registry, gather, a stream's own, and the
// one of parking. A stream's lock is held when the methods of stream.Queue are called,
// so that those take none but parking's and, in Detach, registry.
type Group struct {
	common
	mem    *buf.Pool
	intake *batching.Intake
	pool   *batching.Pool // under gather

	gather   sync.Mutex
	reserved reservation // under gather
	figures  figures     // under gather
	busy     int         // workers with a batch; under gather
	idle     parking

	registry sync.Mutex
	streams  map[*stream.Stream]struct{}
	state    string
	reason   string
	all      map[*instance]struct{} // running or restarting

	wg       sync.WaitGroup
	stopping chan struct{}
	stopOnce sync.Once

	// Only the manager uses these, in the turn of the model's changes.
	added int           // workers that requests have added to the configured ones
	files modelFiles    // when it was loaded
	sent  *SentFiles    // that it was loaded from; nil = none
	took  time.Duration // to load it

	shadow atomic.Pointer[shadow] // gets copies of its requests; nil = none

	waiting     atomic.Int64
	left        atomic.Int64 // streams that have finished while their token was queued, since the last sweep
	quarantined atomic.Int32
	ledger      *ledger
	totals      *totals
	dropTotals  sync.Once // all frames have ended
}

var _ stream.Queue = (*Group)(nil)

// describeModel sets the metadata that the configuration decides, and makes the pool
// and the intake for them.
func (g *Group) describeModel(m *stream.Model) error {
	m.Name, m.Version, m.Platform, m.Params = g.cfg.Name, g.cfg.Version, Platform(g.cfg.Kind), g.cfg.Params
	if len(g.cfg.request) > 0 {
		m.Params = maps.Clone(g.cfg.Params)
		if m.Params == nil {
			m.Params = stream.Params{}
		}
		maps.Copy(m.Params, g.cfg.request)
	}
	m.MaxBatch = max(m.MaxBatch, 1)
	if n := g.cfg.Batching.MaxSize; n > 0 {
		switch {
		case m.Axis == stream.NoAxis && n > 1:
			return stream.Errorf(stream.InvalidArgument, "batching.max_size", "is %d, and model %s has no batch axis: leave it out", n, m.Name)
		case m.Axis == stream.FixedAxis && n != m.MaxBatch:
			return stream.Errorf(stream.InvalidArgument, "batching.max_size", "is %d, and the model's own batch axis is fixed at %d: leave it out", n, m.MaxBatch)
		}
		m.MaxBatch = n
	}
	m.Policy, m.Queue = g.cfg.Policy.WithDefaults(m.Policy), g.cfg.Queue
	m.Sequences = g.cfg.Sequences
	if g.uses != nil && (g.cfg.Image != nil || g.cfg.Window != Window{} || g.cfg.Cache.Size > 0) {
		return g.notOfGraph()
	}
	if err := ApplyInputs(m, g.cfg.Image, g.cfg.Window, g.mem); err != nil {
		return err
	}
	if err := g.cfg.Declared.check(m); err != nil {
		return g.cfg.ofDeclared(err)
	}
	for _, out := range g.cfg.Declared.Outputs {
		if out.Labels != nil {
			if m.Labels == nil {
				m.Labels = map[string][]string{}
			}
			m.Labels[out.Name] = out.Labels
		}
	}
	g.computed = m
	chain, m, err := results.New(g.cfg.Parts, m, results.Tools{})
	if err != nil {
		return err
	}
	if g.uses != nil && chain != nil {
		return g.notOfGraph()
	}
	m.Counts = &g.totals.frames
	g.model = m
	b, err := batching.NewBatcher(string(g.cfg.Batching.Kind), m.MaxBatch, g.cfg.Parts)
	if err != nil {
		return err
	}
	if g.pool, err = batching.NewPool(m, g.mem, g.cfg.Batching.Memory, g.cfg.buffers()); err != nil {
		return err
	}
	g.intake = batching.NewIntake(m, b, g.pool, g.cfg.MaxFlows)
	if n := g.cfg.Cache.Size; n > 0 {
		if m.KeepsState() {
			return stream.Errorf(stream.InvalidArgument, "cache.size", "model %s keeps state between frames, so that an equal request may have another result: leave it out", m.Name)
		}
		if err := g.reserved.keep(g.cfg); err != nil {
			return err
		}
		m.Cache = stream.NewCache(n)
	}
	return g.setCapacity(g.cfg.Instances)
}

func (g *Group) notOfGraph() error {
	return stream.Errorf(stream.Unsupported, "", "model %s is made of others and has no input, window, output, gate or cache settings of its own: set them for a model of its steps", g.cfg.Name)
}

// setCapacity reserves or releases memory until it is right for that many workers and
// their batches, and sets the number of batches. Only the manager calls it.
func (g *Group) setCapacity(workers int) error {
	g.gather.Lock()
	defer g.gather.Unlock()
	if err := g.reserved.resize(g.cfg, g.computed, workers); err != nil {
		return err
	}
	g.pool.Resize(g.cfg.buffersFor(workers))
	return nil
}

// Workers returns how many instances there are, without those that have been told to
// stop.
func (g *Group) Workers() int {
	g.registry.Lock()
	defer g.registry.Unlock()
	n := 0
	for w := range g.all {
		if !w.stopRequested.Load() {
			n++
		}
	}
	return n
}

// Model returns the group's metadata.
func (g *Group) Model() *stream.Model { return g.model }

// Config returns the configuration that the group was loaded with.
func (g *Group) Config() Config { return g.cfg }

// Ready reports whether a worker can serve.
func (g *Group) Ready() bool { return !g.failed() && g.unready() == nil }

// failed reports whether the group itself cannot serve: without workers it is unavailable.
func (g *Group) failed() bool {
	g.registry.Lock()
	defer g.registry.Unlock()
	return g.state != StateReady
}

// Stats returns a snapshot of the group.
func (g *Group) Stats() GroupStats {
	st := g.current(stream.Now())
	g.totals.read(&st)
	return st
}

// current returns the group's own part of its statistics.
func (g *Group) current(now stream.Instant) GroupStats {
	g.gather.Lock()
	size, free, busy := g.pool.Size(), g.pool.Free(), g.busy
	g.gather.Unlock()
	st := GroupStats{
		Model: g.model, Busy: busy, Quarantined: int(g.quarantined.Load()), PlacesUsed: g.intake.PlacesUsed(),
		Waiting: int(g.waiting.Load()), Buffers: size, BuffersFree: free,
		Oldest: g.oldest(now),
	}
	st.CacheResults, st.CacheBytes = g.model.Cache.Size()
	lacks := g.unready()
	g.registry.Lock()
	defer g.registry.Unlock()
	st.State, st.Reason, st.Workers = g.state, g.reason, len(g.all)
	if st.State == StateReady && lacks != nil {
		st.State, st.Reason = StateUnavailable, lacks.Error()
	}
	for s := range g.streams {
		if !s.Options().OneShot {
			st.Streams++
		}
	}
	return st
}

// oldest returns how long the oldest frame has waited.
func (g *Group) oldest(now stream.Instant) (age time.Duration) {
	if g.waiting.Load() <= 0 {
		return 0
	}
	for _, s := range g.openStreams() {
		if s.WaitingFrames() == 0 {
			continue
		}
		if head, ok := s.Head(); ok {
			age = max(age, now.Sub(head.Received))
		}
	}
	return age
}

// Open opens a stream that feeds the group and puts its endings into sink. Errors:
// InvalidArgument (the policy), Overloaded (max_flows), Unloaded, Unavailable.
func (g *Group) Open(opts stream.Options, sink stream.Sink) (*stream.Stream, error) {
	if err := opts.Policy.Validate(); err != nil {
		return nil, err
	}
	if err := g.intake.Reserve(); err != nil {
		if !g.sweep() {
			return nil, err
		}
		if err = g.intake.Reserve(); err != nil {
			return nil, err
		}
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

// sweep frees the places of streams that have finished while their token was queued, for which
// no worker has gathered since. It reports whether there were any. It does not wait for a
// worker that gathers, which may be ending a frame of a caller of Open.
func (g *Group) sweep() bool {
	if g.left.Load() == 0 {
		return false
	}
	var inboxes []*batching.Inbox
	for _, w := range g.instances() {
		if w.inbox != nil {
			inboxes = append(inboxes, w.inbox)
		}
	}
	if !g.gather.TryLock() {
		return false
	}
	defer g.gather.Unlock()
	g.left.Store(0)
	g.intake.Sweep(g, inboxes...)
	return true
}

func (g *Group) notReady() error {
	if g.state == StateUnavailable {
		return stream.Errorf(stream.Unavailable, "", "model %s has no worker left: %s", g.cfg.Name, g.reason)
	}
	return stream.Errorf(stream.Unloaded, "", "model %s is being unloaded", g.cfg.Name)
}

// Enqueue implements stream.Queue.
func (g *Group) Enqueue(s *stream.Stream, affinity any) {
	w, _ := affinity.(*instance)
	if w == nil || w.inbox == nil {
		g.intake.Push(s, nil)
		g.idle.wakeOne()
		return
	}
	g.intake.Push(s, w.inbox)
	g.idle.wakeThis(&w.waiter)
}

// Admit implements stream.Queue.
func (g *Group) Admit(inPlace bool) error {
	if !inPlace && !g.countWaiting() {
		return stream.Errorf(stream.Overloaded, "queue.max_size", "%d frames wait for model %s already: try later, or raise the setting", g.cfg.Queue.MaxSize, g.cfg.Name)
	}
	if g.intake.NeedsArrivals() {
		g.recheck()
	}
	return nil
}

// countWaiting counts one more waiting frame, unless as many wait as may.
func (g *Group) countWaiting() bool {
	most := int64(g.cfg.Queue.MaxSize)
	if most == 0 {
		g.waiting.Add(1)
		return true
	}
	for {
		n := g.waiting.Load()
		if n >= most {
			return false
		}
		if g.waiting.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// AddWaiting implements stream.Queue.
func (g *Group) AddWaiting(n int) {
	g.waiting.Add(int64(n))
	if n == 0 {
		g.left.Add(1)
	}
	if n >= 0 && g.intake.NeedsArrivals() {
		g.recheck()
	}
}

// recheck makes a worker gather although no token has arrived. With affinity it wakes
// all workers, since only one of them may run the stream.
func (g *Group) recheck() {
	g.intake.NoteArrival()
	if g.model.Affinity {
		g.idle.wakeAll()
		return
	}
	g.idle.wakeOne()
}

// Ended implements stream.Queue.
func (g *Group) Ended(r *stream.Request) {
	if s := g.shadow.Load(); s != nil {
		s.copy(r)
	}
	if g.hooks.Ended != nil {
		g.hooks.Ended(r)
	}
}

// Detach implements stream.Queue.
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

// next returns the next batch for w, or nil when w has to stop.
func (g *Group) next(w *instance) *batching.Batch {
	for {
		seen := g.intake.Arrivals()
		if w.stopRequested.Load() && !g.hasReady() {
			return nil
		}
		if w.tookAll && seen == w.seen { // there is nothing to gather
			w.tookAll = false
			g.idle.wait(&w.waiter, 0, func() bool { return g.mustLookAgain(w, seen) })
			continue
		}
		g.gather.Lock()
		b, wait, err := g.intake.Gather(stream.Now(), int(g.idle.count.Load())+1, w.inbox)
		more := !g.intake.Idle()
		if b != nil {
			g.busy++
		}
		g.gather.Unlock()
		if err != nil {
			g.log.Error("no batch memory", "model", g.cfg.Name, "error", err)
			if !g.sleep(time.Second) {
				return nil
			}
			continue
		}
		if b != nil {
			w.tookAll, w.seen = !more && w.inbox == nil, seen
			if more {
				g.idle.wakeOne() // more frames wait than this worker takes
			}
			if w.inbox != nil {
				for _, r := range b.Requests {
					r.Stream.SetAffinity(g, w)
				}
			}
			return b
		}
		g.idle.wait(&w.waiter, wait, func() bool { return g.mustLookAgain(w, seen) })
	}
}

// mustLookAgain reports whether w must not park: a frame has arrived since Arrivals
// returned seen, or w has to stop.
func (g *Group) mustLookAgain(w *instance, seen uint64) bool {
	return g.intake.Arrivals() != seen || w.stopRequested.Load()
}

// hasReady reports whether a batch is ready that must be run before a worker stops.
func (g *Group) hasReady() bool {
	g.gather.Lock()
	defer g.gather.Unlock()
	return g.intake.HasReady()
}

// done returns a batch to the pool after its run.
func (g *Group) done(b *batching.Batch, t batchTimes) {
	if t.rows > 0 && g.hooks.Batch != nil {
		g.hooks.Batch(t.rows, t.started.Sub(t.begun), t.ended.Sub(t.started))
	}
	if t.rows > 0 && g.hooks.Run != nil {
		g.hooks.Run(BatchRun{Batch: b, Started: t.started, Ended: t.ended, Err: t.err})
	}
	var n answered
	g.gather.Lock()
	g.busy--
	if t.rows > 0 {
		g.figures.add(b, t.rows, &n)
	}
	g.pool.Put(b)
	if t.warm {
		g.intake.Observe(t.ended, t.rows, t.ended.Sub(t.begun))
	}
	// The caller gathers again itself, but not from the inboxes of other workers.
	exhausted := g.intake.TakeExhausted() && g.model.Affinity
	g.gather.Unlock()
	if t.rows > 0 {
		g.totals.ran.add(n, t.rows, t.begun, t.started, t.ran, t.ended, t.err == nil)
	}
	if exhausted {
		g.recheck()
	}
}

// batchTimes are the times of one run. All fields are zero when nothing was run.
type batchTimes struct {
	rows                  int
	begun, started, ended stream.Instant
	ran                   stream.Instant // the worker has returned
	warm                  bool
	err                   error
}

// sleep waits for d. It returns false when the group stops.
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

// releaseWork makes what an instance that stops or restarts would have done available
// to other workers: the streams in its inbox, the memory of its last batch, and the
// frames for which it may have been woken.
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
