package graph

import (
	"context"
	"sync"
	"time"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
)

func init() {
	workers.Register(workers.Kind{
		Name:     "graph",
		Platform: "ensemble", // for clients of the Open Inference Protocol
		Doc:      "runs each frame through other models, whose outputs become the inputs of the next",
		New:      func() workers.Worker { return &worker{} },
		Settings: func() any { return new(Settings) },
		Uses:     uses,
		FromEnsemble: func(e workers.Ensemble) (stream.Params, error) {
			s, err := FromEnsemble(e)
			if err != nil {
				return nil, err
			}
			return s.Params(), nil
		},
		Ensemble: func(settings any) workers.Ensemble { return settings.(*Settings).ensemble() },
	})
}

// worker starts the runs of requests. The runs go on in the goroutines of the steps' workers: the goroutine that ends
// a step starts the steps waiting for the step. So a frame in the graph has no goroutine of its own.
type worker struct {
	workers.Base
	env    *workers.Env
	plan   *plan
	pools  []exchanges // by step
	slots  chan struct{}
	most   int // requests of a batch
	taken  []*stream.Request
	cutter cutter
	watch  time.Duration
	stop   chan struct{}
	ended  sync.WaitGroup // of the goroutines

	mu       sync.Mutex
	active   map[*run]struct{}
	flows    map[*stream.Stream]*flow
	canceled []*run
	wake     chan struct{} // canceled has an entry
	idle     chan struct{} // closed when nothing is active and Release waits; or nil
}

// flow is a live stream with frames in the graph.
type flow struct {
	running int
	waiting *stream.Request // the newest request, without a place yet
}

var _ workers.Worker = (*worker)(nil)

// Init implements workers.Worker.
func (w *worker) Init(_ context.Context, env *workers.Env) (*stream.Model, error) {
	w.env = env
	set := env.Settings.(*Settings)
	groups := make([]*workers.Group, len(set.Steps))
	models := make([]*stream.Model, len(set.Steps))
	for i := range set.Steps {
		st := &set.Steps[i]
		g, err := env.Models.Group(st.Model, st.Version)
		if err != nil {
			return nil, stream.Errorf(stream.NotFound, stepField(st.title())+".model", "%w", err)
		}
		groups[i], models[i] = g, g.Model()
	}
	var m *stream.Model
	var err error
	if w.plan, m, err = newPlan(set, models, env.Declared); err != nil {
		return nil, err
	}
	frames := set.Frames
	if frames == 0 {
		frames = rowsOf(groups)
	}
	w.slots, w.most = make(chan struct{}, frames), max(m.MaxBatch, env.MaxBatch)
	w.pools = make([]exchanges, len(w.plan.steps))
	w.watch = env.Limit
	for _, s := range w.plan.steps {
		if t := s.set.Timeout; t > 0 {
			w.watch = min(w.watch, t)
		}
	}
	w.watch = min(max(w.watch/8, time.Millisecond), time.Second)
	w.active, w.flows = make(map[*run]struct{}), make(map[*stream.Stream]*flow)
	w.wake, w.stop = make(chan struct{}, 1), make(chan struct{})
	return m, nil
}

// Acquire implements workers.Worker.
func (w *worker) Acquire(context.Context) error {
	w.ended.Go(w.runWatch)
	w.cutter.init(w.env)
	for _, s := range w.plan.steps {
		if s.boxes >= 0 || s.pixels {
			w.ended.Go(w.cutter.loop)
			break
		}
	}
	return nil
}

// Brief implements workers.Brief: a run waits when few places are left.
func (w *worker) Brief() bool { return cap(w.slots)-len(w.slots) >= w.most }

// Run implements workers.Worker. Run waits for places in the steps, so that newer frames still replace the frames
// waiting in the streams' mailboxes.
func (w *worker) Run(_ context.Context, b *batching.Batch) error {
	w.taken = b.Take(w.taken[:0])
	var late *time.Timer
	for i, r := range w.taken {
		w.taken[i] = nil
		select {
		case w.slots <- struct{}{}:
			w.begin(r)
			continue
		default:
		}
		if late == nil { // sooner than the group considers this call hung
			late = time.NewTimer(w.env.Limit * 3 / 4)
			defer late.Stop()
		}
		select {
		case w.slots <- struct{}{}:
			w.begin(r)
		case <-late.C:
			late.Reset(0) // for the next request
			r.Fail(stream.Errorf(stream.Timeout, "frames",
				"graph %s had no place for the frame within %v: its steps are too slow, or raise the setting",
				w.env.Name, w.env.Limit*3/4))
			r.Unbind()
		}
	}
	return nil
}

// begin starts the run of a request with a place. When a live stream already has its window's frames in the graph,
// the frame waits, and the next frame replaces the waiting frame.
func (w *worker) begin(r *stream.Request) {
	policy := r.Stream.Policy()
	if w.plan.keeps || r.Stream.Options().OneShot || policy.Mode != stream.Latest {
		w.start(r, nil)
		return
	}
	w.mu.Lock()
	f := w.flows[r.Stream]
	if f == nil {
		f = &flow{}
		w.flows[r.Stream] = f
	}
	if f.running < policy.Window {
		f.running++
		w.mu.Unlock()
		w.start(r, f)
		return
	}
	old := f.waiting
	if old != nil && old.Must { // a Must frame is never replaced
		f.running++
		f.waiting = r
		w.mu.Unlock()
		w.start(old, f)
		return
	}
	f.waiting = r
	w.mu.Unlock()
	if old != nil {
		old.Drop(stream.Superseded)
		old.Unbind()
		<-w.slots
	}
}

// finished frees the place of a run whose request has ended.
func (w *worker) finished(n *run) {
	<-w.slots
	w.mu.Lock()
	delete(w.active, n)
	f, next := n.flow, (*stream.Request)(nil)
	if f != nil {
		if next, f.waiting = f.waiting, nil; next == nil {
			if f.running--; f.running == 0 {
				delete(w.flows, n.r.Stream)
			}
		}
	}
	w.signalIdle()
	w.mu.Unlock()
	if next != nil {
		w.start(next, f)
	}
}

// signalIdle tells Release that no run is active. mu is held.
func (w *worker) signalIdle() {
	if w.idle != nil && len(w.active) == 0 && len(w.flows) == 0 {
		close(w.idle)
		w.idle = nil
	}
}

// cancelLater makes the watch end a run whose request was ended by the stream. The caller holds the stream's lock.
func (w *worker) cancelLater(n *run) {
	w.mu.Lock()
	w.canceled = append(w.canceled, n)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// runWatch ends canceled runs and runs past a limit.
func (w *worker) runWatch() {
	tick := time.NewTicker(w.watch)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-w.wake:
			w.mu.Lock()
			canceled := w.canceled
			w.canceled = nil
			w.mu.Unlock()
			for _, n := range canceled {
				n.cancel()
			}
		case <-tick.C:
			now := stream.Now()
			w.mu.Lock()
			active := make([]*run, 0, len(w.active))
			for n := range w.active {
				active = append(active, n)
			}
			w.mu.Unlock()
			for _, n := range active {
				n.expire(now)
			}
		}
	}
}

// Release implements workers.Worker: it waits for the runs.
func (w *worker) Release() {
	w.mu.Lock()
	idle := make(chan struct{})
	w.idle = idle
	w.signalIdle()
	w.mu.Unlock()
	<-idle
	close(w.stop)
	w.cutter.close()
	w.ended.Wait()
	for i := range w.pools {
		w.pools[i].close()
	}
}
