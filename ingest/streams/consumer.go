package streams

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"millrace/ingest"
	"millrace/ingest/sources"
	"millrace/internal/backoff"
	"millrace/stream"
)

// consumer is one of the models of a stream. While the model is loaded, it has a
// stream.Stream that gets the frames of the source; when the model is unloaded, it waits
// until it is loaded again. It does not concern the other models.
type consumer struct {
	f  *runner
	id uint64 // of no other consumer of the runner
	ModelConfig
	preview *preview // of its results only
	every   bool     // Policy.Mode

	ctx     context.Context // ends it
	cancel  context.CancelFunc
	retire  chan struct{} // closed when it is removed: it ends once its frames are answered
	follows []*consumer   // are retired as soon as this one is settled; guarded by runner.mu

	// These are guarded by runner.mu, as is Policy, whose mode does not change.
	feed  *feed // nil while the model is not open
	state sources.State
	since time.Time
	err   error     // why it waits; nil while the model is open
	retry time.Time // when it is opened again; zero unless it waits
	tried bool      // it was open once, or could not be opened

	// These are guarded by runner.countMu.
	counts
	hasLeft bool // the counts were added to those of the stream, which further endings are added to
}

// counts are those of the endings of a model's frames. See StreamStats.
type counts struct {
	answered uint64
	errors   uint64
	drops    map[stream.Reason]uint64
	aged     uint64
	age      time.Duration
	last     time.Time
	failure  error // of the newest result or error that was passed to the sinks, if it is an error
}

// run keeps the model open until ctx ends.
func (c *consumer) run(ctx context.Context) {
	defer c.cancel()
	defer c.left()
	pauses := backoff.Backoff{Min: 200 * time.Millisecond, Max: 3 * time.Second}
	for {
		opened, err := c.once(ctx)
		if ctx.Err() != nil || c.retired() {
			c.set(sources.Ended, nil, time.Time{})
			return
		}
		if opened {
			pauses.Reset()
		}
		c.f.failed(c.logName(), err)
		d := pauses.Next(rand.Float64())
		c.set(sources.Waiting, err, time.Now().Add(d))
		c.f.feedsChanged(c, nil)
		t := time.NewTimer(d)
		select {
		case <-t.C:
		case <-c.retire:
			t.Stop()
			c.set(sources.Ended, nil, time.Time{})
			return
		case <-ctx.Done():
			t.Stop()
		}
	}
}

// end removes the model from the stream: it ends once its frames are answered. runner.mu
// is held.
func (c *consumer) end() {
	if !c.retired() {
		close(c.retire)
	}
}

// retired reports whether the model was removed from the stream.
func (c *consumer) retired() bool {
	select {
	case <-c.retire:
		return true
	default:
		return false
	}
}

// left adds the counts of a model that was removed to those of the stream.
func (c *consumer) left() {
	if !c.retired() {
		return
	}
	c.f.countMu.Lock()
	defer c.f.countMu.Unlock()
	if !slices.ContainsFunc(c.f.consumers, func(o *consumer) bool { return o.preview == c.preview }) {
		c.preview.close()
	}
	c.f.preview.setSeveral(len(c.f.consumers) > 1, c.id)
	c.f.leaving = slices.DeleteFunc(slices.Clone(c.f.leaving), func(o *consumer) bool { return o == c })
	c.f.gone.add(&c.counts)
	c.hasLeft = true
}

// tally returns the counts for an ending: a result may be passed to the sinks after its model has left. runner.countMu is held.
func (c *consumer) tally() *counts {
	if c.hasLeft {
		return &c.f.gone
	}
	return &c.counts
}

// add adds the counts of endings.
func (n *counts) add(o *counts) {
	n.answered += o.answered
	n.errors += o.errors
	n.aged += o.aged
	n.age += o.age
	for why, d := range o.drops {
		if n.drops == nil {
			n.drops = map[stream.Reason]uint64{}
		}
		n.drops[why] += d
	}
	if o.last.After(n.last) {
		n.last = o.last
	}
}

// logName is the name under which problems of the model are logged: "" if the stream has
// no other.
func (c *consumer) logName() string {
	if len(c.f.list()) == 1 {
		return ""
	}
	return c.Model
}

// set sets the state of the model.
func (c *consumer) set(s sources.State, err error, retry time.Time) {
	tried := err != nil && !c.loading()
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.state, c.since, c.retry = s, time.Now(), retry
	if tried {
		c.settle()
	}
	if err != nil {
		c.err = err
	}
}

// settle says that the model was opened, or could not be: the models that c follows are
// retired. f.mu is held.
func (c *consumer) settle() {
	c.tried = true
	c.endFollowed()
}

// endFollowed retires the models that c follows. f.mu is held.
func (c *consumer) endFollowed() {
	for _, o := range c.follows {
		o.end()
	}
	c.follows = nil
}

// loading reports whether the model is being loaded.
func (c *consumer) loading() bool {
	for _, e := range c.f.a.backend.Models().Index() {
		if e.Name == c.Model && e.State == "LOADING" {
			return true
		}
	}
	return false
}

// once opens the model, and returns why it was closed.
func (c *consumer) once(ctx context.Context) (opened bool, err error) {
	f := c.f
	model, _, err := f.a.backend.Models().Model(c.Model, c.Version)
	if err != nil {
		return false, err
	}
	if err := takesPictures(c.Model, model); err != nil {
		return false, err
	}
	f.mu.Lock()
	policy := c.Policy
	f.mu.Unlock()
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	o := &feed{f: f, c: c, cancel: cancel, ctx: own, window: ingest.NewWindow(), fresh: true}
	st, err := f.a.backend.Open(c.Model, c.Version, stream.Options{Policy: policy, OwnRefusals: true, Protocol: f.a.Name(), Name: f.name}, o)
	if err != nil {
		return false, err
	}
	o.stream, o.every = st, st.Policy().Mode == stream.Every
	f.mu.Lock()
	c.feed, c.state, c.since, c.err, c.retry = o, sources.Running, time.Now(), nil, time.Time{}
	if c.Policy != policy { // changed since it was read above
		err = st.Replace(c.Policy)
	}
	if f.now.Paused {
		st.Pause()
	}
	f.mu.Unlock()
	if err == nil {
		if len(f.list()) > 1 {
			f.recovered(c.Model)
		}
		f.feedsChanged(c, o)
		select {
		case <-own.Done():
		case <-c.retire:
			f.feedsChanged(c, nil)
			o.settle() // in a pause, until the stream is resumed
		}
	}
	st.Close(stream.SourceEnded)
	<-st.Finished()
	switch why := o.closed(); {
	case err != nil:
	case why == stream.ByUnload:
		err = stream.Errorf(stream.Unloaded, "model", "model %s was unloaded: the stream continues when it is loaded again", c.Model)
	default:
		err = stream.Errorf(stream.Unavailable, "model", "the stream was closed (%s)", why)
	}
	f.mu.Lock()
	c.feed = nil
	f.mu.Unlock()
	return true, err
}

// count counts the ending of a frame. failed is why a result could not be encoded: its receivers get an error.
func (c *consumer) count(r *stream.Result, failed error) {
	c.f.countMu.Lock()
	defer c.f.countMu.Unlock()
	c.countLocked(r, failed)
}

func (c *consumer) countLocked(r *stream.Result, failed error) {
	n := c.tally()
	switch {
	case r.Outcome == stream.Failed || failed != nil:
		n.errors++
	case r.Outcome == stream.Answered:
		n.answered++
	default:
		if n.drops == nil {
			n.drops = map[stream.Reason]uint64{}
		}
		n.drops[r.Reason]++
	}
}

// countDelivered counts a result or an error that is passed to the sinks. failed is as for count. Parts of a result are not counted.
func (c *consumer) countDelivered(r *stream.Result, failed error) {
	if r.Partial {
		return
	}
	now := stream.Now()
	c.f.countMu.Lock()
	defer c.f.countMu.Unlock()
	c.countLocked(r, failed)
	n := c.tally()
	if n.failure = cmp.Or(failed, r.Err); r.Outcome != stream.Answered || failed != nil {
		return
	}
	n.aged++
	n.age += now.Sub(r.Timing.Received)
	n.last = now.Wall()
}
