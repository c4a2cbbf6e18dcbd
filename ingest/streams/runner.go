package streams

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millrace/ingest/clips"
	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/internal/routines"
	"millrace/internal/video"
	"millrace/stream"
)

// runner runs one server stream: a source and the models for the source's frames. While no model is loaded, the
// source is closed.
type runner struct {
	a       *Adapter
	id      uint64 // unique in a
	name    string
	origin  string  // "config" or "request"
	stored  *Config // entry in the store, or nil
	ctx     context.Context
	cancel  context.CancelFunc
	queue   *endings
	done    chan struct{} // closed after the end of all goroutines
	results fanout        // lines
	preview preview       // of all models
	encoded videoCounts

	clips    *clips.Recorder // nil without a folder of clips
	pictures clips.Pictures
	pictured atomic.Pointer[clips.Clip] // the newest clip with a picture

	models   *routines.Group // goroutines of the models and the subscriptions
	delivery *routines.Group // goroutines of the sinks
	writers  *routines.Group // of clips

	resultsLost atomic.Uint64
	forget      atomic.Bool // the counts end with the stream

	feeds   atomic.Pointer[[]*modelFeed] // of all open models
	joined  chan struct{}                // one slot: a model was opened or failed to open
	giving  sync.Mutex                   // held while a frame is given to the feeds
	current atomic.Pointer[subscription] // the subscription whose frames are given to the models
	frames  atomic.Uint64                // of all subscriptions; also the seq of the next frame
	lost    atomic.Uint64                // frames lost for lack of memory
	rate    rate                         // of frames

	logMu  sync.Mutex
	logged map[string]string // the failure that was logged last, of the source ("") and of each of several models

	resizing sync.Mutex // held while the source is told the needed sizes
	// held while a change is applied and stored; taken before mu, since mu is not held during writes to disk
	changing sync.Mutex
	writing  sync.Mutex // held while a line is written to the sinks and while sinks change; taken before mu

	mu           sync.Mutex
	now          Config          // including changes by requests
	public       publicParts     // the parts of now that come from a request
	consumers    []*consumer     // for each model; a change replaces the slice, with countMu held too
	opened       uint64          // consumers so far
	refused      error           // why the stream does not run; nil = runs
	started      bool            // run has started the goroutines
	over         bool            // the video has ended: no more goroutines start
	sinks        []openSink      // replaced, and not changed
	subscription *subscription   // the present or last subscription
	next         *subscription   // replaces subscription at its first frame or failure; or nil
	stop         func()          // ends subscription and next; nil while no source is read
	readCtx      context.Context // of subscription and next
	idle         *sources.Status
	restarts     uint64 // of ended subscriptions
	skipped      uint64 // pictures, by ended subscriptions
	subscribed   uint64 // subscriptions with packets so far

	countMu sync.Mutex  // taken with a stream's lock held, as mu must not be
	leaving []*consumer // have been removed, and wait for their last results
	gone    counts      // of models that have left
	events  eventCounts
}

// ending is a result in flight to the sinks, with its feed.
type ending struct {
	r *stream.Result
	o *modelFeed
}

type openSink struct {
	name     string
	settings sinks.Settings
	origin   sinkOrigin
	events   bool         // the sink gets events, not results
	removed  *atomic.Bool // the stream goes on without the sink
	cancel   context.CancelFunc
	ctx      context.Context
	sinks.Sink
}

// sinkOrigin says who has made a sink.
type sinkOrigin struct {
	request bool
	public  bool // public addresses only
}

// origins say who makes the parts of a stream.
type origins struct {
	publicSource bool // the source may have public addresses only
	sink         func(sinks.Settings) sinkOrigin
}

// newRunner returns the runner of a stream. With refused, the stream is only shown, with refused as the reason; nil
// lets the stream run.
func newRunner(a *Adapter, c Config, origin string, by origins, refused error) *runner {
	f := &runner{
		a: a, name: c.Name, now: c, origin: origin, done: make(chan struct{}), joined: make(chan struct{}, 1),
		idle: &sources.Status{State: sources.Connecting, Since: time.Now()}, logged: map[string]string{},
		models: routines.New(a.panicked), delivery: routines.New(a.panicked), writers: routines.New(a.panicked),
		public: publicParts{source: by.publicSource},
	}
	f.queue = newEndings(queueLen(len(c.models())))
	f.feeds.Store(new([]*modelFeed))
	f.ctx, f.cancel = context.WithCancel(a.ctx)
	f.startPreview(&f.preview)
	f.startClips()
	for _, m := range c.models() {
		f.consumers = append(f.consumers, f.newConsumer(m))
	}
	f.preview.setSeveral(len(f.consumers) > 1)
	if refused != nil {
		f.refuse(refused)
		return f
	}
	for _, k := range c.Sinks {
		f.sinks = append(f.sinks, f.openSink(k, by.sink(k), nil))
	}
	f.unfollow()
	return f
}

// refuse makes the runner only show its stream, with the reason, without running. A change of the sinks starts the
// stream.
func (f *runner) refuse(why error) {
	f.refused, f.over = why, true
	f.setIdle(sources.Status{State: sources.Failed, Err: why})
	for _, c := range f.consumers {
		c.state = sources.Ended
	}
}

func (f *runner) newConsumer(m ModelConfig) *consumer {
	f.opened++
	c := &consumer{f: f, id: f.opened, ModelConfig: m, state: sources.Connecting, since: time.Now(),
		retire: make(chan struct{}), every: m.Policy.Mode == stream.Every, preview: new(preview),
		rules: f.newRules(m.Model)}
	c.ctx, c.cancel = context.WithCancel(f.ctx)
	f.startPreview(c.preview)
	return c
}

func (f *runner) startPreview(p *preview) {
	p.start, p.changed = func(render func()) bool { return f.a.run("renderer", render) }, f.resize
	p.limits, p.memory = f.a.opts.Pictures(), f.a.backend.Memory()
	v := &p.video
	v.stream, v.ctx, v.memory, v.counts, v.log = f.name, f.ctx, f.a.backend.Memory(), &f.encoded, f.a.opts.Log
	v.take, v.free, v.wake = f.a.holdEncoder, f.a.releaseEncoder, p.wakeRenderer
	v.options = video.EncoderOptions{Hardware: f.a.opts.Hardware, Sandbox: f.a.opts.Sandbox,
		Log: func(line string) { f.a.opts.Log.Debug("ffmpeg", "stream", f.name, "says", line) }}
}

// openSink opens a sink. earlier is the sink in whose place the sink comes, or nil. startSink starts the goroutines.
func (f *runner) openSink(k sinks.Settings, by sinkOrigin, earlier sinks.Sink) openSink {
	removed := new(atomic.Bool)
	s := openSink{name: sinks.KindOf(k).Name, settings: k, events: sinks.SendsEvents(k), origin: by, removed: removed}
	s.ctx, s.cancel = context.WithCancel(f.ctx)
	env := sinks.Env{Stream: f.name, Requested: by.request, Files: f.a.opts.Files, Log: f.a.opts.Log,
		Counts:  func() ([]sinks.ModelCounts, bool) { return f.modelCounts(time.Now()) },
		Removed: func() bool { return removed.Load() || f.forget.Load() }}
	if f.a.opts.Clips != nil {
		env.Picture = f.clipPicture
	}
	if by.public {
		env.Allow = sources.Public
	}
	if h := f.a.opts.History; s.events && h != nil {
		before, _ := earlier.(*eventSink)
		s.Sink = newEventSink(k, env, h, s.name, before)
	} else {
		s.Sink = &countedSink{Sink: sinks.Open(k, env)}
	}
	return s
}

func (f *runner) startSink(s openSink) {
	f.delivery.Go("sink "+s.name, func() { defer s.cancel(); s.Run(s.ctx) }, nil)
	if e, ok := s.Sink.(*eventSink); ok {
		f.delivery.Go("events "+s.name, func() { e.feed(s.ctx) }, nil)
	}
}

// unfollow removes the places in the history of sinks that the stream does not have.
func (f *runner) unfollow() {
	for _, k := range sinks.Kinds() {
		has := slices.ContainsFunc(f.sinks, func(s openSink) bool { return s.events && s.name == k.Name })
		if !has && sinks.MaySendEvents(k) {
			f.a.opts.History.Unfollow(f.name, k.Name)
		}
	}
}

// run starts the sinks, works until the end of the video, and waits for the sinks. Afterwards the runner stays
// readable until deleted.
func (f *runner) run() {
	defer f.cancel()
	if f.refused != nil {
		f.results.close()
		f.closePreviews()
		<-f.ctx.Done()
		return
	}
	f.delivery.Go("sinks", f.write, nil)
	f.mu.Lock()
	f.started = true
	for _, s := range f.sinks {
		f.startSink(s)
	}
	for _, c := range f.consumers {
		f.startConsumer(c)
	}
	f.mu.Unlock()
	last := f.work()
	f.mu.Lock()
	f.over = true
	for _, c := range f.consumers {
		c.cancel()
	}
	f.mu.Unlock()
	f.models.Stop()
	f.models.Wait()
	f.queue.close() // all streams have finished, so nothing is pushed any more
	f.delivery.Stop()
	f.delivery.Wait()
	f.endClips() // after a panic
	f.mu.Lock()
	f.setIdle(last)
	f.mu.Unlock()
	f.results.close()
	f.closePreviews()
	<-f.ctx.Done()
}

func (f *runner) startConsumer(c *consumer) {
	f.models.Go("model", func() { c.run(c.ctx) }, f.cancel)
}

// work continues until the video or the runner ends.
func (f *runner) work() sources.Status {
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

// awaitModels waits until a model is open. At the start of a stream, awaitModels also waits for loading models, so
// that all models get a video from its beginning. awaitModels returns false when the runner ends.
func (f *runner) awaitModels() bool {
	for {
		open, tried := len(*f.feeds.Load()), 0
		var waits *consumer
		f.mu.Lock()
		all := len(f.consumers)
		for _, c := range f.consumers {
			if c.attempted {
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
		if open > 0 && tried == all {
			return true
		}
		select {
		case <-f.joined:
		case <-f.ctx.Done():
		}
	}
}

// needs returns the needed frame sizes: the picture sizes of the models, and the whole picture while somebody
// watches.
func (f *runner) needs() (needs []video.TargetSize) {
	for _, o := range *f.feeds.Load() {
		needs = append(needs, sources.NeedOf(o.stream.Model()))
	}
	if slices.ContainsFunc(f.previews(), (*preview).active) {
		needs = append(needs, video.TargetSize{})
	}
	return needs
}

// list returns the present models.
func (f *runner) list() []*consumer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.consumers
}

// previews returns the preview of all models together and the preview of each model.
func (f *runner) previews() []*preview {
	all := []*preview{&f.preview}
	for _, c := range f.list() {
		all = append(all, c.preview)
	}
	return all
}

func (f *runner) closePreviews() {
	f.pictures.Clear()
	for _, p := range f.previews() {
		p.close()
	}
}

// show passes a result to the previews and releases the result.
func (f *runner) show(c *consumer, r *stream.Result) {
	if c.preview.active() {
		c.preview.show(r.Shared(), 0)
	}
	f.preview.show(r, c.id)
}

// watchedModel returns the model chosen by a watcher; nil = all models.
func (f *runner) watchedModel(model string) (*consumer, error) {
	all := f.list()
	for _, c := range all {
		if c.Model == model {
			return c, nil
		}
	}
	if model == "" {
		return nil, nil
	}
	return nil, stream.Errorf(stream.NotFound, "model", "the stream has no model %.140q: it has %s", model,
		f.settings().modelNames())
}

// settings returns the stream's settings, with the changes of requests.
func (f *runner) settings() Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// resize tells the sources the needed sizes.
func (f *runner) resize() {
	f.resizing.Lock() // the last call must see the newest state
	defer f.resizing.Unlock()
	f.mu.Lock()
	var open []*subscription
	if f.stop != nil {
		open = append(open, f.subscription)
		if f.next != nil {
			open = append(open, f.next)
		}
	}
	f.mu.Unlock()
	if len(open) == 0 {
		return
	}
	if needs := f.needs(); len(needs) > 0 {
		for _, g := range open {
			g.src.Resize(needs)
		}
	}
}

// failed logs the failure of the source or a model, once for each reason. Models that are not loaded at the start or
// shutdown of the server are not logged.
func (f *runner) failed(model string, err error) {
	st := f.a.backend.State()
	if st.Ready {
		f.a.started.Store(true)
	}
	f.logMu.Lock()
	defer f.logMu.Unlock()
	if text := err.Error(); f.logged[model] != text && f.a.started.Load() && !st.Draining {
		f.logged[model] = text
		attrs := append(f.logAttrs(model), "error", text)
		if said := video.OutputOf(err); said != "" {
			attrs = append(attrs, "detail", said)
		}
		f.a.opts.Log.Warn("a stream has a problem", attrs...)
	}
}

// logAttrs returns attributes that name the stream and, of several models, the model.
func (f *runner) logAttrs(model string) []any {
	if model == "" {
		return []any{"stream", f.name}
	}
	return []any{"stream", f.name, "model", model}
}

// recovered logs that the source returns frames again or that a model is open again.
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
	return f.subscription.src.Status().Err
}

// setIdle sets the status while no source is read. f.mu is held.
func (f *runner) setIdle(s sources.Status) {
	s.Since = time.Now()
	if f.idle != nil && f.idle.State == s.State {
		s.Since = f.idle.Since
	}
	if f.subscription != nil {
		s.Info = f.subscription.src.Status().Info
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
	s := f.subscription.src.Status()
	if s.State == sources.Ended || s.State == sources.Failed {
		s.State = sources.Running // the last results are in flight
	}
	return s
}

func (f *runner) totals() Totals {
	t := Totals{Frames: f.frames.Load(), Lost: f.lost.Load(), ResultsLost: f.resultsLost.Load(),
		WatchersLost: f.results.lost.Load(), VideoLost: f.encoded.lost.Load(), Encoded: f.encoded.fragments.Load(),
		EncoderFails: f.encoded.failures.Load()}
	f.mu.Lock()
	defer f.mu.Unlock()
	t.Restarts, t.Skipped = f.restarts, f.skipped
	if f.stop != nil {
		st := f.subscription.src.Status()
		t.Restarts += st.Restarts
		t.Skipped += st.Skipped
	}
	return t
}

// write passes results to the sinks, in order.
func (f *runner) write() {
	defer func() {
		for e, more := f.queue.pop(); more; e, more = f.queue.pop() { // after a panic, results may be left
			e.r.Release()
			e.o.free(e.r)
		}
		f.endClips() // before the end of the sinks, for their lines about the clips
		f.writing.Lock()
		defer f.writing.Unlock()
		for _, s := range f.openSinks() {
			s.Close()
		}
	}()
	var enc sinks.Encoder
	for e, more := f.queue.pop(); more; e, more = f.queue.pop() {
		f.record(e, f.deliver(&enc, e))
		partial := e.r.Partial
		f.show(e.o.c, e.r) // releases e.r
		if !partial {
			e.o.done()
		}
	}
}

// deliver counts a result, writes the result to the watchers and the sinks, and returns its events. Without receivers
// the result is not encoded.
func (f *runner) deliver(enc *sinks.Encoder, e ending) (events []clips.Incident) {
	f.writing.Lock()
	defer f.writing.Unlock()
	to := f.openSinks()
	for v, text := range clips.EventsOf(e.r) {
		events = append(events, f.keepEvent(e.o.c.Model, v, text, to))
	}
	lines := f.results.size() > 0 || slices.ContainsFunc(to, func(s openSink) bool { return !s.events })
	if !lines {
		e.o.c.countDelivered(e.r, nil)
		return events
	}
	line, failed := enc.Line("stream", f.name, e.o.c.Model, e.r)
	e.o.c.countDelivered(e.r, failed)
	f.results.send(line, e.o.c.Model)
	for _, s := range to {
		if !s.events {
			s.Write(line)
		}
	}
	return events
}

func (f *runner) openSinks() []openSink {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sinks
}
