package streams

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/internal/routines"
	"millrace/internal/video"
	"millrace/stream"
)

// queueLen is the most results that wait to be written: more than a window of each model,
// so that a video in Every, which waits instead, never loses one.
func queueLen(models int) int { return models*stream.MaxWindow + 256 }

// runner runs one server stream: a source and the models that get its frames. While none
// of the models is loaded, the source is closed.
type runner struct {
	a       *Adapter
	id      uint64 // of no other runner of a
	config  Config
	origin  string  // "config" or "request"
	kept    *Config // its entry in the store, or nil
	ctx     context.Context
	cancel  context.CancelFunc
	queue   chan ending
	done    chan struct{} // closed when all its goroutines have ended
	results fanout        // lines
	preview preview       // of all models
	chosen  []preview     // of each of several models
	sinks   []openSink

	resultsLost atomic.Uint64

	consumers []*consumer             // one for each model
	feeds     atomic.Pointer[[]*feed] // of the models that are open
	joined    chan struct{}           // one slot: a model was opened, or could not be

	// These are for the goroutine that reads the source.
	finite bool   // the source has an end, and can wait
	fresh  bool   // no frame was read since the source was opened
	base   uint64 // seq of the source's first frame

	logMu  sync.Mutex
	logged map[string]string // the failure that was logged last, of the source ("") and of each of several models

	resizing sync.Mutex // held while the source is told which sizes are needed
	changing sync.Mutex // held while a change is applied and stored; taken before mu, which is not held while a file is written

	mu     sync.Mutex
	now    Config                // config, as requests have changed it
	source *sources.Subscription // the present one, or the last one
	stop   func()                // ends the reading of source; nil while it is not read
	idle   *sources.Status       // its status while no source runs
	past   Totals                // of earlier sources

	countMu sync.Mutex // taken with a stream's lock held, as mu must not be
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
		a: a, config: c, now: c, origin: origin, done: make(chan struct{}), joined: make(chan struct{}, 1),
		idle: &sources.Status{State: sources.Connecting, Since: time.Now()}, logged: map[string]string{},
	}
	for i, m := range c.models() {
		f.consumers = append(f.consumers, &consumer{f: f, index: i, ModelConfig: m, state: sources.Connecting, since: time.Now()})
	}
	f.queue = make(chan ending, queueLen(len(f.consumers)))
	f.feeds.Store(new([]*feed))
	f.ctx, f.cancel = context.WithCancel(a.ctx)
	if n := len(f.consumers); n > 1 {
		f.chosen = make([]preview, n)
		f.preview.several = true
	}
	for _, p := range f.previews() {
		p.start, p.changed = func(render func()) bool { return a.run("renderer", render) }, f.resize
		p.limits, p.memory = a.opts.Pictures(), a.backend.Memory()
	}
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
	f.mu.Lock()
	f.setIdle(last)
	f.mu.Unlock()
	f.results.close()
	f.closePreviews()
	<-f.ctx.Done()
}

// work continues until the video or the runner ends.
func (f *runner) work() sources.Status {
	ctx, cancel := context.WithCancel(f.ctx)
	models := routines.New(f.a.panicked)
	for _, c := range f.consumers {
		models.Go("model", func() { c.run(ctx) }, f.cancel)
	}
	models.Stop()
	defer models.Wait()
	defer cancel()
	for {
		if !f.awaitModels() {
			return sources.Status{State: sources.Ended}
		}
		over, err := f.read()
		switch {
		case f.ctx.Err() != nil || over && err == nil:
			return sources.Status{State: sources.Ended}
		case over:
			return sources.Status{State: sources.Failed, Err: f.lastError()}
		}
	}
}

// awaitModels waits until a model is open, and at first for those that are being loaded,
// so that all get a video from its beginning. It returns false when the runner ends.
func (f *runner) awaitModels() bool {
	for {
		open, tried := len(*f.feeds.Load()), 0
		var waits *consumer
		f.mu.Lock()
		for _, c := range f.consumers {
			if c.tried {
				tried++
			}
			if c.state == sources.Waiting && waits == nil {
				waits = c
			}
		}
		if open == 0 && waits != nil {
			f.setIdle(sources.Status{State: sources.Waiting, Err: waits.err, Retry: waits.retry})
		}
		f.mu.Unlock()
		if f.ctx.Err() != nil {
			return false
		}
		if open > 0 && tried == len(f.consumers) {
			return true
		}
		select {
		case <-f.joined:
		case <-f.ctx.Done():
		}
	}
}

// read reads the source until it ends, or until no model is open. over says that it is
// not read again; err is nil at the end of the video.
func (f *runner) read() (over bool, err error) {
	ctx, stop := context.WithCancel(f.ctx)
	defer stop()
	src := f.a.hub.Subscribe(f.input(), sources.Options{
		Frame: f.frame, Unreadable: f.unreadable, Lost: f.lost, Opened: f.opened, Failed: func(err error) { f.failed("", err) }, Paced: f.paced(),
	})
	f.mu.Lock()
	f.source, f.stop, f.idle = src, stop, nil
	f.base = f.past.Frames
	if len(*f.feeds.Load()) == 0 { // closed since awaitModels
		stop()
	}
	f.mu.Unlock()
	f.resize()
	err = src.Run(ctx)
	over = ctx.Err() == nil
	if over && err == nil {
		for _, o := range *f.feeds.Load() {
			o.settle()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.past.add(src.Status())
	f.stop = nil
	f.setIdle(sources.Status{State: sources.Waiting})
	return over, err
}

// paced reports whether a video is read in real time: unless all models are in Every.
func (f *runner) paced() bool {
	for _, c := range f.consumers {
		if c.Policy.Mode != stream.Every {
			return true
		}
	}
	return false
}

// feedsChanged says that a model was opened, or that it waits (nil). Without an open
// model the source is closed.
func (f *runner) feedsChanged(c *consumer, o *feed) {
	defer f.resize()
	f.mu.Lock()
	defer f.mu.Unlock()
	feeds := slices.DeleteFunc(slices.Clone(*f.feeds.Load()), func(o *feed) bool { return o.c == c })
	if o != nil {
		feeds = append(feeds, o)
	}
	f.feeds.Store(&feeds)
	if len(feeds) == 0 && f.stop != nil {
		f.stop()
	}
	select {
	case f.joined <- struct{}{}:
	default:
	}
}

// opened is called by the goroutine that reads the source, as are the following.
func (f *runner) opened(i sources.Info) {
	f.finite, f.fresh = i.Ends, true
	for _, o := range *f.feeds.Load() {
		o.fresh = true
	}
}

// frame gives a frame to each model. In Every a video waits for the slowest of them.
func (f *runner) frame(fr stream.Frame) {
	fr.Seq, fr.Arrived = fr.Seq+f.base, stream.Now()
	if f.fresh {
		f.fresh = false
		f.recovered("")
	}
	feeds := *f.feeds.Load()
	f.preview.add(fr)
	for i := range f.chosen {
		f.chosen[i].add(fr)
	}
	for _, o := range feeds {
		fr.Lease.Retain()
		o.frame(fr)
	}
	fr.Lease.Release()
}

func (f *runner) unreadable(fr stream.Frame, err error) {
	fr.Seq, fr.Arrived = fr.Seq+f.base, stream.Now()
	for _, o := range *f.feeds.Load() {
		o.unreadable(fr, err)
	}
}

func (f *runner) lost(stream.Frame) {
	for _, o := range *f.feeds.Load() {
		o.lost()
	}
}

// needs returns the sizes that frames are needed in: those of the models' pictures, and
// the whole picture while somebody watches it.
func (f *runner) needs() (needs []video.Need) {
	for _, o := range *f.feeds.Load() {
		needs = append(needs, sources.NeedOf(o.stream.Model()))
	}
	if slices.ContainsFunc(f.previews(), (*preview).active) {
		needs = append(needs, video.Need{})
	}
	return needs
}

// previews returns those of all models together, and of each.
func (f *runner) previews() []*preview {
	all := []*preview{&f.preview}
	for i := range f.chosen {
		all = append(all, &f.chosen[i])
	}
	return all
}

func (f *runner) closePreviews() {
	for _, p := range f.previews() {
		p.close()
	}
}

// show passes a result to the previews, and releases it.
func (f *runner) show(c *consumer, r *stream.Result) {
	if f.chosen != nil {
		if p := &f.chosen[c.index]; p.active() {
			p.show(shared(r), 0)
		}
	}
	f.preview.show(r, c.index)
}

// shared returns another result with the same outputs, which is released on its own.
func shared(r *stream.Result) *stream.Result {
	own := &stream.Result{Outcome: r.Outcome, Partial: r.Partial, Seq: r.Seq, Outputs: r.Outputs, Width: r.Width, Height: r.Height, Timing: r.Timing, Lease: r.Lease}
	if own.Lease != nil {
		own.Lease.Retain()
	}
	return own
}

// watchedModel returns the index of the model that a watcher has chosen, -1 for all.
func (f *runner) watchedModel(model string) (int, error) {
	for i, c := range f.consumers {
		if c.Model == model {
			return i, nil
		}
	}
	if model == "" {
		return -1, nil
	}
	return 0, stream.Errorf(stream.NotFound, "model", "the stream has no model %.140q: it has %s", model, f.config.modelNames())
}

// resize tells the source which sizes are needed now.
func (f *runner) resize() {
	f.resizing.Lock() // the last call must see the newest state
	defer f.resizing.Unlock()
	f.mu.Lock()
	src, reading := f.source, f.stop != nil
	f.mu.Unlock()
	if !reading {
		return
	}
	if needs := f.needs(); len(needs) > 0 {
		src.Resize(needs)
	}
}

func (f *runner) input() sources.Input {
	return sources.Input{Address: f.config.Source, Settings: f.config.settings(), FPS: f.config.FPS, Loop: f.config.Loop, MaxPixels: f.a.opts.MaxPixels, PublicOnly: f.a.publicOnly(f.origin)}
}

// failed logs why the source or a model fails, once while the reason stays the same. It
// does not log that models are not loaded while the server starts or shuts down.
func (f *runner) failed(model string, err error) {
	st := f.a.backend.State()
	if st.Ready {
		f.a.begun.Store(true)
	}
	f.logMu.Lock()
	defer f.logMu.Unlock()
	if text := err.Error(); f.logged[model] != text && f.a.begun.Load() && !st.Draining {
		f.logged[model] = text
		f.a.opts.Log.Warn("a stream has a problem", append(f.logAttrs(model), "error", text)...)
	}
}

// logAttrs name the stream, and one of several models, in the log.
func (f *runner) logAttrs(model string) []any {
	if model == "" {
		return []any{"stream", f.config.Name}
	}
	return []any{"stream", f.config.Name, "model", model}
}

// recovered logs that the source returns frames again, or that a model is open again.
func (f *runner) recovered(model string) {
	f.logMu.Lock()
	defer f.logMu.Unlock()
	if f.logged[model] != "" {
		delete(f.logged, model)
		f.a.opts.Log.Info("a stream runs again", f.logAttrs(model)...)
	}
}

func (f *runner) lastError() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.source.Status().Err
}

// setIdle sets the status while no source is read. f.mu is held.
func (f *runner) setIdle(s sources.Status) {
	s.Since = time.Now()
	if f.idle != nil && f.idle.State == s.State {
		s.Since = f.idle.Since
	}
	if f.source != nil {
		s.Info = f.source.Status().Info
	}
	f.idle = &s
}

// state returns the runner's status.
func (f *runner) state() sources.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.idle != nil {
		return *f.idle
	}
	s := f.source.Status()
	if s.State == sources.Ended || s.State == sources.Failed {
		s.State = sources.Running // its last results are in flight
	}
	return s
}

func (f *runner) totals() Totals {
	f.mu.Lock()
	t := f.past
	if f.stop != nil {
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
		e.o.c.countDelivered(e.r)
		if len(f.sinks) != 0 || f.results.size() != 0 {
			line := enc.line(f.config.Name, e.o.c.Model, e.r)
			f.results.send(line, e.o.c.Model)
			for _, s := range f.sinks {
				s.Write(line)
			}
		}
		partial := e.r.Partial
		f.show(e.o.c, e.r) // releases it
		if !partial {
			e.o.done()
		}
	}
}
