package workers

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"millrace/batching"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/stream/rules"
	"millrace/workers/results"
)

// Group has the workers of one model, version and set of load parameters: the intake for waiting tokens, the
// instances that gather from the intake, the bounded batches, and the limits on instances and batches. The exported
// methods are safe for concurrent use.
//
// Locks, in the order in which they may nest: registry, gather, a stream's own lock, and the lock of parking. The
// stream holds its lock when calling the methods of stream.Queue, so the methods take only the lock of parking and,
// in Detach, registry.
type Group struct {
	common
	mem    *buf.Pool
	intake *batching.Intake
	pool   *batching.Pool // under gather

	gather        sync.Mutex
	reserved      reservation // under gather
	figures       figures     // under gather
	serving       int         // workers that gather or have a batch; under gather
	busy          int         // these with a batch; under gather
	heavyDecoders int         // goroutines that decode heavy frames; under gather
	heavyWait     sync.WaitGroup
	idle          parking
	full          parking // runners waiting for a full batch, while the other runner of the same instance has a batch

	registry sync.Mutex
	streams  map[*stream.Stream]struct{}
	state    string
	reason   string
	all      map[*instance]struct{} // running or restarting

	wg       sync.WaitGroup
	stopping chan struct{}
	stopOnce sync.Once

	// Only the manager uses these, in the turn of the model's changes.
	added    int           // workers that requests have added to the configured number
	files    modelFiles    // state of the files at the load
	sent     *SentFiles    // files of the load request; nil = none
	loadTime time.Duration // duration of the load

	configuredWorkers atomic.Int64 // workers that the configuration sets
	targetWorkers     atomic.Int32 // workers, by the configuration or the last change at run time; some may have failed

	fileRuns fileRuns               // of a model that takes files
	shadow   atomic.Pointer[shadow] // gets copies of the requests; nil = none

	failure         atomic.Pointer[error] // the last failure of a worker; nil = none
	exhausted       atomic.Bool           // a worker has failed more often in a row than limits.restarts allows
	waiting         atomic.Int64
	abandonedTokens atomic.Int64 // finished streams with a queued token, since the last sweep
	quarantined     atomic.Int32
	quarantining    sync.Mutex  // held while a worker is abandoned
	gaveUp          atomic.Bool // the server ends, and does not wait for runs
	ledger          *ledger
	totals          *totals
	dropTotals      sync.Once // all frames have ended
}

var _ stream.Queue = (*Group)(nil)

// describeModel sets the metadata that the configuration decides, and makes the group's pool and intake.
func (g *Group) describeModel(m *stream.Model) error {
	m.Name, m.Version, m.Platform, m.Params = g.cfg.Name, g.cfg.Version, Platform(g.cfg.Kind), g.cfg.Params
	if len(g.cfg.request) > 0 {
		m.Params = maps.Clone(g.cfg.Params)
		if m.Params == nil {
			m.Params = stream.Params{}
		}
		maps.Copy(m.Params, g.cfg.request)
	}
	m.Params = withoutSecrets(g.cfg.Kind, m.Params)
	m.MaxBatch = max(m.MaxBatch, 1)
	if n := g.cfg.Batching.MaxSize; n > 0 {
		switch {
		case m.Axis == stream.NoAxis && n > 1:
			return stream.Errorf(stream.InvalidArgument, "batching.max_size",
				"is %d, and model %s has no batch axis: leave it out", n, m.Name)
		case m.Axis == stream.FixedAxis && n != m.MaxBatch:
			return stream.Errorf(stream.InvalidArgument, "batching.max_size",
				"is %d, and the model's own batch axis is fixed at %d: leave it out", n, m.MaxBatch)
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
	beside := m.Image != nil && !m.Ragged && !m.AcceptsAnyInput
	if beside {
		m.Cost = g.costOf
	}
	g.model = m
	b, err := batching.NewBatcher(string(g.cfg.Batching.Kind), m.MaxBatch, g.cfg.Parts)
	if err != nil {
		return err
	}
	pool, err := batching.NewPool(m, g.mem, g.cfg.Batching.Memory, g.cfg.buffers())
	if err != nil {
		return err
	}
	g.gather.Lock() // a failed load frees the pool, perhaps before the load's worker has returned
	g.pool = pool
	g.gather.Unlock()
	g.intake = batching.NewIntake(m, b, pool, g.cfg.MaxFlows)
	if beside {
		g.intake.SeparateHeavy()
	}
	// Decoding pictures could keep a caller for long.
	g.lends = !g.ahead && !m.Affinity && m.Image == nil && !g.intake.MayWait()
	if n := g.cfg.Cache.Size; n > 0 {
		if m.KeepsState() {
			return stream.Errorf(stream.InvalidArgument, "cache.size",
				"model %s keeps state between frames, so that an equal request may have another result: leave it out",
				m.Name)
		}
		if err := g.reserved.keep(g.cfg); err != nil {
			return err
		}
		m.Cache = stream.NewCache(n)
	}
	n := min(g.cfg.Instances, int(g.targetWorkers.Load()))
	if g.staged() {
		n = 1
	}
	if err := g.setCapacity(n); err != nil || g.cfg.Batching.Memory != batching.Shared {
		return err
	}
	return g.pool.Prime()
}

// withoutSecrets returns the parameters of a model for its metadata, without the secrets of the kind, because clients
// read the metadata.
func withoutSecrets(kind string, params stream.Params) stream.Params {
	k, _ := Lookup(kind)
	t := k.Table()
	secret := func(name string, _ any) bool {
		f, known := t.Find(name)
		return known && f.Secret
	}
	for name, value := range params {
		if secret(name, value) {
			params = maps.Clone(params)
			maps.DeleteFunc(params, secret)
			break
		}
	}
	return params
}

func (g *Group) notOfGraph() error {
	return stream.Errorf(stream.Unsupported, "", "model %s is made of others and has no input, window, output, gate "+
		"or cache settings of its own: set them for a model of its steps", g.cfg.Name)
}

// setCapacity reserves or releases memory to fit the given number of workers and their batches, and sets the number
// of batches. Only the manager calls setCapacity.
func (g *Group) setCapacity(workers int) error {
	g.gather.Lock()
	defer g.gather.Unlock()
	if err := g.reserved.resize(g.cfg, g.computed, workers); err != nil {
		return err
	}
	g.pool.Resize(g.cfg.buffersFor(workers))
	return nil
}

// Workers returns the number of instances, without instances told to stop.
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

// Config returns the configuration of the load with the present number of workers. For a program of several stages,
// with its single worker, the number is the factor for the workers of the stages.
func (g *Group) Config() Config {
	c := g.cfg
	c.Instances = max(g.size(), 1)
	return c
}

// staged reports whether the model is a program of several stages, with one worker for any value of instances.
func (g *Group) staged() bool { return g.model.App != nil && g.model.App.Parts != nil }

// size returns the number of workers; for a program of several stages, the factor for the workers of the stages.
func (g *Group) size() int {
	if g.staged() {
		return int(g.targetWorkers.Load())
	}
	return g.Workers()
}

// LastFailure returns the last unplanned failure of a worker: the error of a replacement, of a failed replacement or
// of an interrupted run; nil = none.
func (g *Group) LastFailure() error {
	if err := g.failure.Load(); err != nil {
		return *err
	}
	return nil
}

func (g *Group) noteFailure(err error) {
	if err != nil {
		g.failure.Store(&err)
	}
}

// Ready reports whether a worker can serve.
func (g *Group) Ready() bool {
	if g.unready() != nil {
		return false
	}
	g.registry.Lock()
	defer g.registry.Unlock()
	return g.state == StateReady && g.hasStarted()
}

// hasStarted reports whether a worker runs that is not being replaced. The caller holds registry.
func (g *Group) hasStarted() bool {
	for w := range g.all {
		if w.up.Load() && !w.gone.Load() {
			return true
		}
	}
	return false
}

// failed reports whether the group itself cannot serve: a group without workers is unavailable.
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

// current returns the statistics of the group alone, without totals.
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
	st.Exhausted = g.exhausted.Load()
	switch {
	case st.State != StateReady:
	case lacks != nil:
		st.State, st.Reason = StateUnavailable, lacks.Error()
	case !g.hasStarted():
		st.State, st.Reason = StateUnavailable, "its workers are being replaced"
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

// Open opens a stream that feeds the group and puts the stream's endings into sink. Errors: InvalidArgument (the
// policy), Overloaded (max_flows), Unloaded, Unavailable.
func (g *Group) Open(opts stream.Options, sink stream.Sink) (*stream.Stream, error) {
	if err := opts.Policy.Validate(); err != nil {
		return nil, err
	}
	if err := g.checkRules(opts.Rules); err != nil {
		return nil, err
	}
	if err := g.intake.Reserve(); err != nil {
		g.sweep()
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

// checkRules returns an error for a stream with rules if the model does not apply rules.
func (g *Group) checkRules(h *rules.Handle) error {
	if h.Rules() == nil || g.model.AppliesRules {
		return nil
	}
	return stream.Errorf(stream.InvalidArgument, "rules",
		"need objects with ids, and model %s has none: set output.track of the model, or leave the rules out",
		g.cfg.Name)
}

// sweep frees the places of streams that finished while their token was queued, if no worker has gathered since.
// sweep waits only a moment for a gathering worker, because the worker may be ending a frame of the caller of Open.
func (g *Group) sweep() {
	if g.abandonedTokens.Load() == 0 {
		return
	}
	var inboxes []*batching.Inbox
	for _, w := range g.instances() {
		if w.inbox != nil {
			inboxes = append(inboxes, w.inbox)
		}
	}
	const wait, waits = 100 * time.Microsecond, 200
	for n := 0; !g.gather.TryLock(); n++ {
		if n == waits {
			return
		}
		time.Sleep(wait)
	}
	defer g.gather.Unlock()
	if n := g.abandonedTokens.Load(); n > 0 { // else another caller has swept meanwhile
		g.intake.Sweep(g, inboxes...)
		g.abandonedTokens.Add(-n) // last: a reader of 0 finds the places
	}
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
		if !g.lend(s.TokenCaller()) {
			g.wake()
		}
		return
	}
	g.intake.Push(s, w.inbox)
	if r := w.idleRunner.Load(); r != nil {
		g.idle.wakeThis(&r.waiter)
	} else if g.full.count.Load() > 0 && g.waiting.Load() >= int64(g.model.MaxBatch) {
		for _, r := range w.runners() {
			g.full.wakeThis(&r.waiter)
		}
	}
}

// wake wakes an idle worker, or a runner that waits for a full batch if enough frames wait.
func (g *Group) wake() {
	if !g.idle.wakeOne() && g.fullWaits() {
		g.full.wakeOne()
	}
}

// fullWaits reports whether a runner waits for a full batch, and enough frames wait to fill the batch. The frames may
// be in streams that no worker can take from now.
func (g *Group) fullWaits() bool {
	return g.full.count.Load() > 0 && g.idle.count.Load() == 0 && g.waiting.Load() >= int64(g.model.MaxBatch)
}

// Admit implements stream.Queue.
func (g *Group) Admit(inPlace bool) error {
	if !inPlace && !g.countWaiting() {
		return stream.Errorf(stream.Overloaded, "queue.max_size",
			"%d frames wait for model %s already: try later, or raise the setting", g.cfg.Queue.MaxSize, g.cfg.Name)
	}
	switch {
	case g.intake.NeedsArrivals():
		g.recheck()
	case g.fullWaits():
		g.intake.NoteArrival()
		g.full.wakeOne()
	}
	return nil
}

// countWaiting counts one more waiting frame, unless the limit is reached.
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
		g.abandonedTokens.Add(1)
	}
	if n >= 0 && g.intake.NeedsArrivals() {
		g.recheck()
	}
}

// recheck makes a worker gather although no token has arrived. With affinity recheck wakes all workers, because only
// one worker may run the stream.
func (g *Group) recheck() {
	g.intake.NoteArrival()
	if g.model.Affinity {
		g.idle.wakeAll()
		if g.fullWaits() {
			g.full.wakeAll()
		}
		return
	}
	g.wake()
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

// lend lends an idle worker to the goroutine of a caller, which may be nil, and reports whether a worker was lent.
func (g *Group) lend(to *stream.Caller) bool {
	if to == nil || !g.lends {
		return false
	}
	w := g.idle.borrow()
	if w == nil {
		return false
	}
	if r := w.runner; r.brief == nil || !r.brief.Brief() || !to.Lend(r) {
		w.handBack()
	}
	return true
}

// next returns the next batch for r, or nil when r has to stop. While waiting, next replaces a worker that has asked
// for replacement.
func (g *Group) next(r *runner) *batching.Batch {
	w := r.instance
	last := g.idle.turns && w.inbox == nil // r is the last in turn
	if last {
		r.turn = g.idle.last.Add(1)
	}
	for {
		if r.ended || !w.awaitRepair() || !w.stopRequested.Load() && !g.replaceUnfit(r) {
			return nil
		}
		seen := g.intake.Arrivals()
		ordinary := w.idleRunner.Load() == r
		if w.stopRequested.Load() && (!ordinary || !g.hasReady()) {
			return nil
		}
		if !ordinary {
			if b := g.nextFull(r); b != nil {
				return b
			}
			g.full.wait(&r.waiter, 0, func() bool { return w.gone.Load() || g.mustLookAgain(w, seen) })
			continue
		}
		if last && g.idle.count.Load() > 0 {
			last = false
			g.passTurn(r, seen)
			continue
		}
		if r.tookAll && seen == r.seen { // nothing to gather
			r.tookAll = false
			g.idle.wait(&r.waiter, 0, func() bool { return g.mustLookAgain(w, seen) })
			continue
		}
		b, wait, err := g.gatherFor(r, seen)
		if err != nil {
			g.log.Error("no batch memory", "model", g.cfg.Name, "error", err)
			if !g.sleep(time.Second) {
				return nil
			}
			continue
		}
		if b != nil {
			return b
		}
		g.idle.wait(&r.waiter, wait, func() bool { return g.mustLookAgain(w, seen) })
	}
}

// gatherFor gathers a batch for r. seen is Intake.Arrivals of before.
func (g *Group) gatherFor(r *runner, seen uint64) (b *batching.Batch, wait time.Duration, err error) {
	g.gather.Lock()
	g.intake.SetFree(g.serving-g.busy, g.serving)
	b, wait, err = g.intake.Gather(stream.Now(), int(g.idle.count.Load())+1, r.inbox)
	more := !g.intake.Idle()
	if b != nil {
		g.batchStarted(r)
	}
	g.startHeavyDecoders()
	g.gather.Unlock()
	if b != nil {
		r.tookAll, r.seen = !more && r.inbox == nil, seen
		g.gathered(r.instance, b, more)
	}
	return b, wait, err
}

// passTurn parks r after a batch, and lets the workers that are parked already gather first. seen is from
// Intake.Arrivals.
func (g *Group) passTurn(r *runner, seen uint64) {
	none := r.tookAll && seen == r.seen
	r.tookAll = false
	g.idle.wait(&r.waiter, 0, func() bool {
		if r.mustLeave() {
			return true
		}
		if !none || g.intake.Arrivals() != seen {
			g.idle.wakeOne() // r itself, if no other worker is parked any more
		}
		return false
	})
}

// nextFull returns a full batch for r, or nil, while the other runner of the instance has a batch. Idle workers come
// first.
func (g *Group) nextFull(r *runner) *batching.Batch {
	g.gather.Lock()
	if r.inFlight == 0 || g.busy < g.serving && r.inbox == nil {
		g.gather.Unlock()
		return nil
	}
	b, err := g.intake.GatherFull(stream.Now(), r.inbox, g.busy >= g.serving)
	more := !g.intake.Idle()
	if b != nil {
		g.batchStarted(r)
	}
	g.startHeavyDecoders()
	g.gather.Unlock()
	if err != nil { // the other runner will report err
		return nil
	}
	if b != nil {
		r.tookAll = false
		g.gathered(r.instance, b, more)
	}
	return b
}

// batchStarted counts a batch that r has gathered. The caller holds gather.
func (g *Group) batchStarted(r *runner) {
	if r.inFlight++; r.inFlight == 1 {
		g.busy++
	}
	if r.second != nil {
		r.idleRunner.Store(nil)
	}
}

// batchEnded counts the end of a batch of r. The caller holds gather.
func (g *Group) batchEnded(r *runner) {
	if r.inFlight--; r.inFlight == 0 {
		g.busy--
		if r.second != nil {
			r.idleRunner.Store(r)
		}
	}
}

// gathered reports that w has gathered b, and whether more frames wait than the frames of b.
func (g *Group) gathered(w *instance, b *batching.Batch, more bool) {
	if more && !g.idle.wakeOne() && w.second != nil {
		g.intake.NoteArrival() // the other runner may just have looked
		if g.fullWaits() {
			g.full.wakeOne()
		}
	}
	if w.inbox != nil {
		for _, r := range b.Requests {
			r.Stream.SetAffinity(g, w)
		}
	}
}

// addServing adds n, which may be negative, to the number of serving workers.
func (g *Group) addServing(n int) {
	g.gather.Lock()
	g.serving += n
	g.gather.Unlock()
}

// mustLookAgain reports whether w must not park: a frame has arrived since Arrivals
// returned seen, or w has to stop.
func (g *Group) mustLookAgain(w *instance, seen uint64) bool {
	return g.intake.Arrivals() != seen || w.mustLeave()
}

// mustLeave reports whether w has to stop or to be replaced.
func (w *instance) mustLeave() bool {
	return w.stopRequested.Load() || w.replacement.Load() != nil || w.repairs.dead.Load()
}

// hasReady reports whether a batch is ready that must be run before a worker stops.
func (g *Group) hasReady() bool {
	g.gather.Lock()
	defer g.gather.Unlock()
	return g.intake.HasReady()
}

// done returns a batch to the pool after its run.
func (g *Group) done(r *runner, b *batching.Batch, t batchTimes) {
	if t.rows > 0 && g.hooks.Batch != nil {
		g.hooks.Batch(t.rows, t.started.Sub(t.begun), t.ended.Sub(t.started))
	}
	if t.rows > 0 && g.hooks.Run != nil {
		g.hooks.Run(BatchRun{Batch: b, Started: t.started, Ended: t.ended, Err: t.err})
	}
	var n answeredTotals
	g.gather.Lock()
	g.batchEnded(r)
	if t.rows > 0 {
		g.figures.add(b, t.rows, &n)
	}
	g.pool.Put(b)
	if t.warm {
		g.intake.Observe(t.ended, t.rows, t.ended.Sub(t.begun))
	}
	// The caller gathers again itself, but not from the inboxes of other workers, and with another batch in flight
	// only a full batch.
	exhausted := g.intake.TakeExhausted() && (g.model.Affinity || g.ahead)
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

// sleep waits for d, and returns false when the group stops.
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

// releaseWork gives the work of a stopping or restarting instance to other workers: the streams in the instance's
// inbox, the memory of the last batch, and the frames that may have woken the instance.
func (g *Group) releaseWork(w *instance) {
	if w.inbox == nil {
		g.recheck()
		return
	}
	for _, s := range g.openStreams() {
		s.ClearAffinity(w)
	}
	g.gather.Lock()
	g.intake.Close(w.inbox) // first, for frames decoded beside the workers now
	g.intake.Redistribute(w.inbox)
	g.gather.Unlock()
	g.intake.NoteArrival()
	g.idle.wakeAll()
}

// takeWork undoes releaseWork: the instance has a worker again.
func (g *Group) takeWork(w *instance) {
	if w.inbox == nil {
		return
	}
	g.gather.Lock()
	defer g.gather.Unlock()
	g.intake.Open(w.inbox)
}
