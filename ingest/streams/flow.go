package streams

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"millrace/ingest/sources"
	"millrace/internal/backoff"
	"millrace/internal/video"
	"millrace/stream"
)

// queueLen bounds the results that wait to be written: more than a window, so
// that a video in Every, which is held up instead, never loses one.
const queueLen = stream.MaxWindow + 256

// flow is one stream at work. While its model is loaded it has a stream.Stream
// and a source that feeds it; when the model is unloaded it waits for its return.
type flow struct {
	a      *Adapter
	config Config
	origin string  // "config" or "request"
	kept   *Config // what the keeper has of it; nil = nothing
	ctx    context.Context
	cancel context.CancelFunc
	queue  chan ending
	gone   chan struct{} // nothing of it is left
	hub    hub           // lines
	film   film
	file   *file    // nil = none
	hook   *webhook // nil = none
	made   time.Time

	resultsLost atomic.Uint64

	// Of the goroutine that works.
	opening func() // gives the place at the gate back; nil before the first opening
	trouble string // the failure that was logged last

	mu     sync.Mutex
	policy stream.Policy
	paused bool
	source *sources.Source // of now, or the last one
	stream *stream.Stream  // while there is one
	idle   *sources.Status // what it does while no source runs
	past   Totals          // of the sources before

	tally    sync.Mutex // taken with the stream's lock held, as mu must not be
	answered uint64
	errors   uint64
	drops    map[stream.Reason]uint64
	aged     uint64 // see StreamStats
	age      time.Duration
	last     time.Time
}

// ending is a result on its way to the sinks, and where it came from.
type ending struct {
	r *stream.Result
	o *outlet
}

func newFlow(a *Adapter, c Config, policy stream.Policy, origin string) *flow {
	f := &flow{
		a: a, config: c, policy: policy, origin: origin, paused: c.Paused, made: time.Now(),
		queue: make(chan ending, queueLen), gone: make(chan struct{}), drops: map[stream.Reason]uint64{},
		idle: &sources.Status{State: sources.Connecting, Since: time.Now()},
	}
	f.ctx, f.cancel = context.WithCancel(a.ctx)
	f.film.start = func(paint func()) bool { return a.run("painter", paint) }
	if c.Sinks.File != "" {
		f.file = newFile(c.Sinks.File, c.Sinks.MaxSize)
	}
	if c.Sinks.Webhook != "" {
		f.hook = newWebhook(c.Name, c.Sinks, a.publicOnly(origin))
	}
	return f
}

// run is the flow's life. When the video is over, the flow stays to be looked at
// until it is deleted.
func (f *flow) run() {
	defer f.cancel()
	var sinks sync.WaitGroup
	sinks.Go(func() { f.a.safely("sinks", f.write) })
	if f.hook != nil {
		sinks.Go(func() { f.a.safely("webhook", func() { f.hook.run(f.ctx) }) })
	}
	last := f.work()
	close(f.queue) // all its streams have finished: nobody pushes any more
	sinks.Wait()
	f.rest(last)
	f.hub.close()
	f.film.close()
	<-f.ctx.Done()
}

// work goes on until the video is over, or the flow is.
func (f *flow) work() sources.Status {
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
		f.rest(sources.Status{State: sources.Waiting, Err: err, Retry: time.Now().Add(d)})
		t := time.NewTimer(d)
		select {
		case <-t.C:
		case <-f.ctx.Done():
			t.Stop()
		}
	}
}

var errFinal = errors.New("the source can never work")

// once opens the model and reads the source until one of them ends. nil means
// that the video is over.
func (f *flow) once() (opened bool, err error) {
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
	policy := f.policy
	f.mu.Unlock()
	o := &outlet{f: f, cancel: cancel, ctx: ctx, room: make(chan struct{}, 1)}
	st, err := f.a.backend.Open(f.config.Model, f.config.Version, stream.Options{Policy: policy}, o)
	if err != nil {
		return false, err
	}
	o.stream, o.every = st, st.Policy().Mode == stream.Every
	src := sources.New(f.sourceOptions(o))
	f.mu.Lock()
	f.source, f.stream, f.idle = src, st, nil
	if f.policy != policy { // changed since it was read above
		err = st.Update(f.policy)
	}
	if f.paused {
		st.Pause()
	}
	o.base = f.past.Frames
	f.mu.Unlock()

	if err == nil {
		err = src.Run(ctx)
		f.opened()
	}
	if err == nil {
		o.settle()
	}
	st.Close(stream.SourceEnded)
	<-st.Finished()

	f.mu.Lock()
	s := src.Status()
	f.past.Frames, f.past.Lost, f.past.Restarts = f.past.Frames+s.Frames, f.past.Lost+s.Lost, f.past.Restarts+s.Restarts
	f.stream = nil
	f.mu.Unlock()
	switch why := o.closed(); {
	case why == stream.ByUnload:
		return true, stream.Errorf(stream.Unloaded, "model", "model %s was unloaded: the stream goes on when it is loaded again", f.config.Model)
	case why != "" && why != stream.SourceEnded:
		return true, stream.Errorf(stream.Unavailable, "model", "the stream was closed (%s)", why)
	case err == nil || f.ctx.Err() != nil:
		return true, nil
	}
	return true, errFinal
}

func (f *flow) sourceOptions(o *outlet) sources.Options {
	so := sources.Options{
		Video:  video.Options{URL: f.config.Source, FPS: f.config.FPS, Width: f.config.Width, Loop: f.config.Loop},
		Memory: f.a.backend.Memory(), Frame: o.frame, Lost: o.lost, Opened: o.opened, Failed: f.failed, Paced: !o.every,
	}
	so.May = func(ctx context.Context) (err error) {
		if err := f.a.traceable(f.config, f.origin); err != nil {
			return err
		}
		f.opening, err = f.a.openings.enter(ctx)
		return err
	}
	if f.config.Transport != "" {
		so.Video.InputArgs = []string{"-rtsp_transport", f.config.Transport}
	}
	if f.a.publicOnly(f.origin) {
		so.Video.Allow = sources.Public
	}
	return so
}

// failed logs why the flow waits or has ended, once for as long as it stays the
// same. That models come and go when the server starts and ends is no news.
func (f *flow) failed(err error) {
	f.opened()
	st := f.a.backend.State()
	if st.Ready {
		f.a.begun.Store(true)
	}
	if text := err.Error(); f.trouble != text && f.a.begun.Load() && !st.Draining {
		f.trouble = text
		f.a.opts.Log.Warn("a stream has a problem", "stream", f.config.Name, "error", text)
	}
}

// opened gives the place at the gate back.
func (f *flow) opened() {
	if f.opening != nil {
		f.opening()
	}
}

// recovered logs that the source gives frames again.
func (f *flow) recovered() {
	f.opened()
	if f.trouble != "" {
		f.trouble = ""
		f.a.opts.Log.Info("a stream runs again", "stream", f.config.Name)
	}
}

func (f *flow) lastError() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.source.Status().Err
}

// rest says what the flow does while no source runs.
func (f *flow) rest(s sources.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Since = time.Now()
	if f.source != nil {
		s.Info = f.source.Status().Info
	}
	f.idle = &s
}

// state says what the flow does, and the stream that runs, if one does.
func (f *flow) state() (sources.Status, *stream.Stream) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.idle != nil {
		return *f.idle, f.stream
	}
	s := f.source.Status()
	if s.State == sources.Ended || s.State == sources.Failed {
		s.State = sources.Running // its last results are on their way
	}
	return s, f.stream
}

func (f *flow) totals() Totals {
	f.mu.Lock()
	t := f.past
	if f.stream != nil {
		s := f.source.Status()
		t.Frames, t.Lost, t.Restarts = t.Frames+s.Frames, t.Lost+s.Lost, t.Restarts+s.Restarts
	}
	f.mu.Unlock()
	t.ResultsLost, t.WatchersLost = f.resultsLost.Load(), f.hub.lost.Load()
	if f.file != nil {
		t.FileErrors = f.file.failed.Load()
	}
	if h := f.hook; h != nil {
		t.WebhookSent, t.WebhookRetries, t.WebhookLost = h.sent.Load(), h.retries.Load(), h.lost.Load()
	}
	return t
}

// write hands results to the sinks, one after the other.
func (f *flow) write() {
	defer func() {
		for e := range f.queue { // only after a panic is anything left
			e.r.Release()
			e.o.free(e.r)
		}
		if f.file != nil {
			f.file.close()
		}
		if f.hook != nil {
			f.hook.close()
		}
	}()
	var enc encoder
	for e := range f.queue {
		f.given(e.r)
		if f.file != nil || f.hook != nil || f.hub.size() > 0 {
			line := enc.line(f.config.Name, e.r)
			f.hub.send(line)
			if f.file != nil {
				if err := f.file.write(line); err != nil {
					f.a.opts.Log.Error("a result is not in its file", "stream", f.config.Name, "error", err)
				}
			}
			if f.hook != nil {
				f.hook.push(line)
			}
		}
		partial := e.r.Partial
		f.film.show(e.r) // releases it
		if !partial {
			e.o.done()
		}
	}
}
