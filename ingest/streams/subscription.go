package streams

import (
	"context"
	"slices"
	"time"

	"millrace/ingest/clips"
	"millrace/ingest/sources"
	"millrace/stream"
)

// subscription is one subscription to a source. While a stream changes its source, two subscriptions exist: from the
// first frame of the new subscription on, the stream takes no more frames of the old subscription.
type subscription struct {
	f    *runner
	src  *sources.Subscription
	stop context.CancelFunc
	done chan struct{} // closed at the end of the subscription
	err  error         // of src.Run, once done is closed
	over bool          // the subscription ended by itself

	// The goroutine that reads the source owns the following fields.
	finite bool // the source has an end, and can wait
	fresh  bool // no frame was taken since the source was opened
}

// newSubscription subscribes to the source of the present settings. f.mu is held.
func (f *runner) newSubscription() *subscription {
	g := &subscription{f: f, done: make(chan struct{})}
	c := &f.now
	in := sources.Input{Address: c.Source, Settings: c.settings(), FPS: c.FPS, Loop: c.Loop,
		MaxPixels: f.a.opts.MaxPixels, PublicOnly: f.public.source}
	o := sources.Options{
		Frame: g.frame, Unreadable: g.unreadable, Lost: g.lost, Opened: g.opened, Failed: g.failed, Paced: f.paced,
	}
	if f.clips.Enabled() {
		f.subscribed++
		n := f.subscribed << 32
		o.Packet = func(p sources.Fragment) {
			p.Opening |= n // another camera may have been opened earlier
			f.clips.Packet(p)
		}
	}
	g.src = f.a.hub.Subscribe(in, o)
	return g
}

// start reads the source in a new goroutine until the source or ctx ends. start returns false when the runner has
// ended.
func (g *subscription) start(ctx context.Context) bool {
	ctx, g.stop = context.WithCancel(ctx)
	return g.f.models.Go("reading", func() {
		defer g.stop()
		defer close(g.done)
		g.err = g.src.Run(ctx)
		g.over = ctx.Err() == nil
	}, func() { g.f.cancel() })
}

// read reads the source until the source ends or no model is open. over means that the source is not read again; err
// is nil at the end of the video.
func (f *runner) read() (over bool, err error) {
	ctx, stop := context.WithCancel(f.ctx)
	defer stop()
	f.mu.Lock()
	g := f.newSubscription()
	f.subscription, f.stop, f.readCtx, f.idle = g, stop, ctx, nil
	f.current.Store(g)
	if len(*f.feeds.Load()) == 0 { // closed since awaitModels
		stop()
	}
	f.mu.Unlock()
	f.resize()
	if !g.start(ctx) {
		close(g.done)
	}
	for {
		<-g.done
		if next := f.successor(g); next != nil {
			g = next
			continue
		}
		if g.over && g.err == nil {
			for _, o := range *f.feeds.Load() {
				if o.settle() {
					f.endObjects(o)
				}
			}
		}
		over = g.over && ctx.Err() == nil
		if f.finish(g, over) {
			return over, g.err
		}
	}
}

// finish marks g as the last subscription. finish returns false when the source was changed since g ended.
func (f *runner) finish(g *subscription, over bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next != nil || f.subscription != g {
		return false
	}
	if over {
		f.clips.Lost(clips.CutStopped)
	} else {
		f.clips.Lost(clips.CutReconnected)
	}
	f.over = f.over || over // a change of the source begins anew from here on
	f.addEnded(g)
	f.stop = nil
	f.setIdle(sources.Status{State: sources.Waiting})
	return true
}

// addEnded adds the counts of an ended subscription to the totals. f.mu is held.
func (f *runner) addEnded(g *subscription) {
	st := g.src.Status()
	f.restarts += st.Restarts
	f.skipped += st.Skipped
}

// successor returns the subscription that replaces an ended subscription, or nil.
func (f *runner) successor(ended *subscription) *subscription {
	f.mu.Lock()
	next := f.next
	f.mu.Unlock()
	if next != nil {
		next.replacePrevious()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.subscription == ended {
		return nil
	}
	return f.subscription
}

// replaceReading opens the source of changed settings beside the present source. f.mu is held.
func (f *runner) replaceReading() {
	if f.stop == nil {
		return // the source will be opened with the present settings
	}
	if f.next != nil {
		f.next.stop()
	}
	f.next = f.newSubscription()
	f.next.start(f.readCtx)
}

// replacePrevious replaces the previous subscription by g.
func (g *subscription) replacePrevious() {
	f := g.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next != g {
		return
	}
	old := f.subscription
	f.subscription, f.next = g, nil
	f.current.Store(g)
	f.addEnded(old)
	old.stop()
}

// take reports whether the stream takes a frame of g; the mutex giving is then held. A live source about to replace
// another source does not wait for a frame of the other source.
func (g *subscription) take() bool {
	f := g.f
	if g.finite || f.current.Load() == g {
		f.giving.Lock()
	} else if !f.giving.TryLock() {
		return false
	}
	if f.current.Load() != g {
		g.replacePrevious()
	}
	if f.current.Load() != g { // g was replaced
		f.giving.Unlock()
		return false
	}
	if g.fresh {
		g.fresh = false
		for _, o := range *f.feeds.Load() {
			o.fresh = true
		}
	}
	return true
}

// number counts a frame and returns its seq.
func (f *runner) number() uint64 {
	f.rate.count(time.Now())
	return f.frames.Add(1) - 1
}

// The goroutine that reads the source calls opened and the following methods.
func (g *subscription) opened(i sources.Info) {
	g.finite, g.fresh = i.Ends, true
	g.f.clips.Opened(i.Ends)
}

// failed reports a failure. A source that fails to open also replaces the previous source, so that the stream shows
// the failure.
func (g *subscription) failed(err error) {
	g.replacePrevious()
	if g.f.current.Load() == g {
		g.f.clips.Lost(clips.CutReconnected)
		g.f.failed("", err)
	}
}

// frame gives a frame to each model. In mode Every a video waits for the slowest model.
func (g *subscription) frame(fr stream.Frame) {
	f, fresh := g.f, g.fresh
	if !g.take() {
		fr.Lease.Release()
		return
	}
	defer f.giving.Unlock()
	fr.Seq, fr.Arrived = f.number(), stream.Now()
	if fresh {
		f.recovered("")
	}
	feeds := *f.feeds.Load()
	f.preview.add(fr)
	if f.clips.Enabled() {
		f.pictures.Add(fr, len(feeds))
	}
	for _, c := range f.list() {
		c.preview.add(fr)
	}
	for _, o := range feeds {
		fr.Lease.Retain()
		o.frame(fr, g.finite)
	}
	fr.Lease.Release()
}

func (g *subscription) unreadable(fr stream.Frame, err error) {
	if !g.take() {
		return
	}
	defer g.f.giving.Unlock()
	fr.Seq, fr.Arrived = g.f.number(), stream.Now()
	for _, o := range *g.f.feeds.Load() {
		o.unreadable(fr, err)
	}
}

func (g *subscription) lost(stream.Frame) {
	if !g.take() {
		return
	}
	defer g.f.giving.Unlock()
	g.f.number()
	g.f.lost.Add(1)
	for _, o := range *g.f.feeds.Load() {
		o.dropForMemory()
	}
}

// paced reports whether a video is read in real time: unless all models are in Every.
func (f *runner) paced() bool {
	return slices.ContainsFunc(f.list(), func(c *consumer) bool { return !c.every })
}

// feedsChanged records that a model was opened, or waits (o is nil). Without an open model the source is closed. A
// model that replaces other models does so at once.
func (f *runner) feedsChanged(c *consumer, o *modelFeed) {
	defer f.resize()
	f.giving.Lock() // keeps a frame from reaching both a model and its replacement
	defer f.giving.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	before := c.replaces
	if o != nil {
		c.settle()
	}
	feeds := slices.DeleteFunc(slices.Clone(*f.feeds.Load()), func(x *modelFeed) bool {
		return x.c == c || o != nil && slices.Contains(before, x.c) && x.c.retired()
	})
	if o != nil && !c.retired() {
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
