package workers

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"sync/atomic"
	"time"

	"millrace/batching"
	"millrace/internal/codec"
	"millrace/internal/confine"
	"millrace/internal/processors"
	"millrace/stream"
	"millrace/stream/buf"
)

// common is the state shared by the instances of a group.
type common struct {
	cfg         Config
	digest      string // of the model's files
	log         *slog.Logger
	pixels      codec.Limits
	programs    *confine.Programs // Env.Programs
	containers  any               // Env.Containers
	decoding    *buf.Pool         // for the memory of picture decoding
	turns       *processors.Turns // ManagerOptions.Turns
	decoders    chan struct{}     // has a place for each heavy frame that is decoded at once, of all groups
	hooks       Hooks
	model       *stream.Model          // as clients see it; nil until the first instance has started
	computed    *stream.Model          // outputs of the worker, before the stages
	ahead       bool                   // the kind prepares batches ahead
	models      Models                 // finds loaded models; nil in tests without any
	stopBy      *atomic.Int64          // Manager.stopBy
	public      func(netip.Addr) error // Env.Public
	lacks       atomic.Pointer[error]  // Env.Unready
	uses        []Use                  // the models that this model is made of
	forms       []string               // of uses, when the first worker started
	taken       func(*stream.Request)
	shared      shared     // Env.Shared
	process     *Processes // Env.Processes
	wakeRunners func()     // makes all runners look again
	runLent     func(r *runner, by *stream.Caller) (more bool)
	parkIdle    func(r *runner) bool
	lends       bool // may lend idle workers to callers, if their workers are Brief
	// describe is called with the metadata that the first instance returns.
	describe func(*stream.Model) error
}

// instance is one worker of a group with its goroutines, called runners: one, or two for kinds that prepare ahead.
// With two runners, one runs a batch while the other gathers and prepares the next batch, if enough frames wait to
// fill the batch.
type instance struct {
	*common
	index  int // see Env.Instance
	worker Worker
	brief  Brief           // worker, or nil
	up     atomic.Bool     // the worker has started, and was not stopped
	inbox  *batching.Inbox // of a worker with affinity
	ctx    context.Context
	cancel context.CancelFunc

	first  runner
	second *runner // nil for kinds that do not prepare ahead
	// idleRunner is the runner that gathers like an idle worker; nil while the other runner of a kind with Ahead has a
	// batch. Written under the group's gather.
	idleRunner atomic.Pointer[runner]
	inFlight   int          // gathered batches not yet done; under the group's gather
	lastEnded  atomic.Int64 // Instant at which the last run ended
	until      atomic.Int64 // Instant by which the start or stop of the worker must have ended

	gone          atomic.Bool  // abandoned by the watchdog
	hung          atomic.Int32 // abandoned runners still in a call
	stopRequested atomic.Bool

	admission chan struct{} // closed when the started worker may run, or must stop
	admitted  bool          // set before admission is closed: w runs batches, or stops

	warm        atomic.Bool  // has run a batch: the first batch is not measured
	failures    atomic.Int32 // consecutive
	since       atomic.Int64 // Instant when the worker had started
	starts      atomic.Int64 // of the worker
	replacement atomic.Pointer[replacement]
	repairs     repairs
}

func newInstance(c *common, index int) *instance {
	w := &instance{common: c, index: index, admission: make(chan struct{})}
	w.first.init(w)
	w.idleRunner.Store(&w.first)
	if c.ahead {
		w.second = &runner{}
		w.second.init(w)
	}
	w.repairs.changed.L = &w.repairs.mu
	w.repairs.backoff.Min, w.repairs.backoff.Max = 10*time.Millisecond, 5*time.Second
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// runners returns the instance's runners.
func (w *instance) runners() []*runner {
	if w.second == nil {
		return []*runner{&w.first}
	}
	return []*runner{&w.first, w.second}
}

// start makes the worker ready. The first instance of a group calls describe as soon as
// the model's metadata are known, before memory is allocated for it.
func (w *instance) start(ctx context.Context) (err error) {
	w.until.Store(int64(stream.Now().Add(w.cfg.Limits.hangsAfter())))
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Limits.Start)
	defer cancel()
	steps := 0
	defer func() {
		if p := recover(); p != nil {
			err = stream.Errorf(stream.Internal, "", "%s panicked while starting: %v", w.cfg.Kind, p)
			w.log.Error("worker panicked", "model", w.cfg.Name, "panic", p, "stack", string(debug.Stack()))
		}
		if err != nil {
			w.tearDown(steps)
		}
	}()
	kind, ok := w.cfg.kind()
	if !ok {
		return stream.Errorf(stream.NotFound, "source", "%q is not a kind of worker", w.cfg.Kind)
	}
	settings, err := kind.Decode(w.cfg.Params)
	if err != nil {
		return err
	}
	w.worker = kind.New()
	w.brief, _ = w.worker.(Brief)
	w.warm.Store(false)
	env := &Env{
		Name: w.cfg.Name, Instance: w.index, Source: w.cfg.Source, Digest: w.digest, Settings: settings, Log: w.log,
		MaxBatch: w.cfg.Batching.MaxSize, Image: w.cfg.Image, Window: w.cfg.Window, Declared: w.cfg.Declared,
		Models: w.models, Memory: w.decoding, Pixels: w.pixels, Limit: w.cfg.Limits.Run, Done: w.taken,
		Shared: w.shared.get, Processes: w.process, Programs: w.programs, Containers: w.containers,
		Replace: w.replacer(), StopBy: w.mustStopBy,
		Requested: w.cfg.request, Public: w.public, Unready: w.setUnready,
		Step: func(s *stream.Step) {
			if w.hooks.Step != nil {
				w.hooks.Step(s)
			}
		},
	}
	m, err := w.worker.Init(ctx, env)
	if err != nil {
		return w.cfg.ofDeclared(err)
	}
	steps++
	if w.model == nil {
		if err = w.describe(m); err != nil {
			return err
		}
	}
	if w.first.prep == nil { // not a restart
		for _, r := range w.runners() {
			if err = r.makeTools(); err != nil {
				return err
			}
		}
	}
	if err = w.worker.Allocate(ctx); err != nil {
		return fmt.Errorf("allocate: %w", err)
	}
	steps++
	if err = w.worker.Acquire(ctx); err != nil {
		return fmt.Errorf("acquire: %w", err)
	}
	w.up.Store(true)
	now := int64(stream.Now())
	w.lastEnded.Store(now)
	w.since.Store(now)
	return nil
}

// closeTools closes the tools of the runners, made by start.
func (w *instance) closeTools() {
	for _, r := range w.runners() {
		r.prep.close()
	}
}

// mustStopBy implements Env.StopBy.
func (w *instance) mustStopBy() stream.Instant {
	by := w.until.Load()
	if end := w.stopBy.Load(); end != 0 {
		by = min(by, end)
	}
	return stream.Instant(by)
}

func (w *instance) stop() {
	w.until.Store(int64(stream.Now().Add(w.cfg.Limits.hangsAfter())))
	w.up.Store(false)
	w.tearDown(3)
}

// tearDown undoes the given number of steps of the worker's start, the last first. After a panic in a step the next
// step is still undone.
func (w *instance) tearDown(steps int) {
	down := [...]func(){w.worker.Destroy, w.worker.Deallocate, w.worker.Release}
	for steps--; steps >= 0; steps-- {
		w.logPanic(down[steps])
	}
}

func (w *instance) logPanic(f func()) {
	defer func() {
		if p := recover(); p != nil {
			w.log.Error("worker panicked while stopping", "model", w.cfg.Name, "panic", p)
		}
	}()
	f()
}
