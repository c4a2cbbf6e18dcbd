package streams

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"millrace/ingest"
	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/internal/backoff"
	"millrace/internal/routines"
	"millrace/stream"
)

// queueLen is the most results that wait to be written: more than a window, so that a
// video in Every, which waits instead, never loses one.
const queueLen = stream.MaxWindow + 256

// runner runs one server stream. While its model is loaded it has a stream.Stream and a
// source that feeds it; when the model is unloaded it waits until the model is loaded
// again.
type runner struct {
	a       *Adapter
	config  Config
	origin  string  // "config" or "request"
	kept    *Config // its entry in the store, or nil
	ctx     context.Context
	cancel  context.CancelFunc
	queue   chan ending
	done    chan struct{} // closed when all its goroutines have ended
	results fanout        // lines
	preview preview
	sinks   []openSink

	resultsLost atomic.Uint64

	// These are for the goroutine that works only.
	opening func() // frees the place in openLimit; nil before the first opening
	logged  string // the failure that was logged last

	changing sync.Mutex // held while a change is applied and stored; taken before mu, which is not held while a file is written

	mu     sync.Mutex
	now    Config          // config, as requests have changed it
	source *sources.Source // the present one, or the last one
	stream *stream.Stream  // nil while there is none
	idle   *sources.Status // its status while no source runs
	past   Totals          // of earlier sources

	countMu  sync.Mutex // taken with the stream's lock held, as mu must not be
	answered uint64
	errors   uint64
	drops    map[stream.Reason]uint64
	aged     uint64 // see StreamStats
	age      time.Duration
	last     time.Time
}

// ending is a result in flight to the sinks, and the feed that it belongs to.
type ending struct {
	r *stream.Result
	o *feed
}

// openSink is a sink and its name.
type openSink struct {
	name string
	sinks.Sink
}

func newRunner(a *Adapter, c Config, origin string) *runner {
	f := &runner{
		a: a, config: c, now: c, origin: origin,
		queue: make(chan ending, queueLen), done: make(chan struct{}), drops: map[stream.Reason]uint64{},
		idle: &sources.Status{State: sources.Connecting, Since: time.Now()},
	}
	f.ctx, f.cancel = context.WithCancel(a.ctx)
	f.preview.start = func(render func()) bool { return a.run("renderer", render) }
	for _, k := range c.Sinks {
		env := sinks.Env{Stream: c.Name, PublicOnly: a.publicOnly(origin), Log: a.opts.Log}
		f.sinks = append(f.sinks, openSink{sinks.Of(k).Name, sinks.Open(k, env)})
	}
	return f
}

// run starts the sinks, works until the video has ended, and waits for the sinks. After
// that the runner can still be read until it is deleted.
func (f *runner) run() {
	defer f.cancel()
	delivery := routines.New(f.a.panicked)
	delivery.Go("sinks", f.write, nil)
	for _, s := range f.sinks {
		delivery.Go("sink "+s.name, func() { s.Run(f.ctx) }, nil)
	}
	last := f.work()
	close(f.queue) // all its streams have finished, so that nothing is pushed any more
	delivery.Stop()
	delivery.Wait()
	f.setIdle(last)
	f.results.close()
	f.preview.close()
	<-f.ctx.Done()
}

// work continues until the video or the runner ends.
func (f *runner) work() sources.Status {
	pauses := backoff.Backoff{Min: 200 * time.Millisecond, Max: 3 * time.Second}
	for {
		opened, err := f.once()
		switch {
		case f.ctx.Err() != nil:
			return sources.Status{State: sources.Ended}
		case err == nil:
			return sources.Status{State: sources.Ended}
		case errors.Is(err, errFinal):
			return sources.Status{State: sources.Failed, Err: f.lastError()}
		}
		if opened {
			pauses.Reset()
		}
		f.failed(err)
		d := pauses.Next(rand.Float64())
		f.setIdle(sources.Status{State: sources.Waiting, Err: err, Retry: time.Now().Add(d)})
		t := time.NewTimer(d)
		select {
		case <-t.C:
		case <-f.ctx.Done():
			t.Stop()
		}
	}
}

var errFinal = errors.New("the source can never work")

// once opens the model and reads the source until one of them ends. nil means that the
// video has ended.
func (f *runner) once() (opened bool, err error) {
	model, _, err := f.a.backend.Models().Model(f.config.Model, f.config.Version)
	if err != nil {
		return false, err
	}
	if model.Image == nil && !model.Any {
		return false, stream.Errorf(stream.Unsupported, "model", "model %s takes tensors, not pictures", f.config.Model)
	}
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	f.mu.Lock()
	before := f.now
	f.mu.Unlock()
	policy := before.policy()
	o := &feed{f: f, cancel: cancel, ctx: ctx, window: ingest.NewWindow()}
	st, err := f.a.backend.Open(f.config.Model, f.config.Version, stream.Options{Policy: policy, OwnRefusals: true, Protocol: f.a.Name(), Name: f.config.Name}, o)
	if err != nil {
		return false, err
	}
	o.stream, o.every = st, st.Policy().Mode == stream.Every
	src := sources.New(f.sourceOptions(o))
	f.mu.Lock()
	f.source, f.stream, f.idle = src, st, nil
	if next := f.now.policy(); next != policy { // changed since it was read above
		err = st.Update(next)
	}
	if f.now.Paused {
		st.Pause()
	}
	o.base = f.past.Frames
	f.mu.Unlock()

	if err == nil {
		err = src.Run(ctx)
		f.releaseOpening()
	}
	if err == nil {
		o.settle()
	}
	st.Close(stream.SourceEnded)
	<-st.Finished()

	f.mu.Lock()
	f.past.add(src.Status())
	f.stream = nil
	f.mu.Unlock()
	switch why := o.closed(); {
	case why == stream.ByUnload:
		return true, stream.Errorf(stream.Unloaded, "model", "model %s was unloaded: the stream continues when it is loaded again", f.config.Model)
	case why != stream.SourceEnded:
		return true, stream.Errorf(stream.Unavailable, "model", "the stream was closed (%s)", why)
	case err == nil || f.ctx.Err() != nil:
		return true, nil
	}
	return true, errFinal
}

func (f *runner) sourceOptions(o *feed) sources.Options {
	settings, env := f.config.settings(), sources.Env{FPS: f.config.FPS, Loop: f.config.Loop, Memory: f.a.backend.Memory()}
	if f.a.publicOnly(f.origin) {
		env.Allow = sources.Public
	}
	return sources.Options{
		Open: func(ctx context.Context) (sources.Reader, error) {
			return sources.Open(ctx, settings, f.config.Source, env)
		},
		Address: f.config.Source, Frame: o.frame, Unreadable: o.unreadable, Lost: o.lost, Opened: o.opened, Failed: f.failed, Paced: !o.every,
		May: func(ctx context.Context) (err error) {
			if err := settings.Validate(f.config.Source, f.a.publicOnly(f.origin)); err != nil {
				return err
			}
			f.opening, err = f.a.openings.enter(ctx)
			return err
		},
	}
}

// failed logs why the runner waits or has ended, once while the reason stays the same.
// It does not log that models are not loaded while the server starts or shuts down.
func (f *runner) failed(err error) {
	f.releaseOpening()
	st := f.a.backend.State()
	if st.Ready {
		f.a.begun.Store(true)
	}
	if text := err.Error(); f.logged != text && f.a.begun.Load() && !st.Draining {
		f.logged = text
		f.a.opts.Log.Warn("a stream has a problem", "stream", f.config.Name, "error", text)
	}
}

// releaseOpening frees the place in openLimit.
func (f *runner) releaseOpening() {
	if f.opening != nil {
		f.opening()
	}
}

// recovered logs that the source returns frames again.
func (f *runner) recovered() {
	f.releaseOpening()
	if f.logged != "" {
		f.logged = ""
		f.a.opts.Log.Info("a stream runs again", "stream", f.config.Name)
	}
}

func (f *runner) lastError() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.source.Status().Err
}

// setIdle sets the status while no source runs.
func (f *runner) setIdle(s sources.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Since = time.Now()
	if f.source != nil {
		s.Info = f.source.Status().Info
	}
	f.idle = &s
}

// state returns the runner's status, and the stream that runs, or nil.
func (f *runner) state() (sources.Status, *stream.Stream) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.idle != nil {
		return *f.idle, f.stream
	}
	s := f.source.Status()
	if s.State == sources.Ended || s.State == sources.Failed {
		s.State = sources.Running // its last results are in flight
	}
	return s, f.stream
}

func (f *runner) totals() Totals {
	f.mu.Lock()
	t := f.past
	if f.stream != nil {
		t.add(f.source.Status())
	}
	f.mu.Unlock()
	t.ResultsLost, t.WatchersLost = f.resultsLost.Load(), f.results.lost.Load()
	return t
}

// write passes results to the sinks, one after the other.
func (f *runner) write() {
	defer func() {
		for e := range f.queue { // after a panic, results may be left
			e.r.Release()
			e.o.free(e.r)
		}
		for _, s := range f.sinks {
			s.Close()
		}
	}()
	var enc encoder
	for e := range f.queue {
		f.countDelivered(e.r)
		if len(f.sinks) != 0 || f.results.size() != 0 {
			line := enc.line(f.config.Name, e.r)
			f.results.send(line)
			for _, s := range f.sinks {
				s.Write(line)
			}
		}
		partial := e.r.Partial
		f.preview.show(e.r) // releases it
		if !partial {
			e.o.done()
		}
	}
}
