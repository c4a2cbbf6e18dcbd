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
	"millrace/stream/rules"
)

// consumer is one of the models of a stream. While the model is loaded, the consumer has a stream.Stream for the
// source's frames; while the model is unloaded, the consumer waits without affecting other models.
type consumer struct {
	f  *runner
	id uint64 // unique in the runner
	ModelConfig
	preview *preview // of this model's results only
	every   bool     // Policy.Mode
	rules   *keptRules

	ctx    context.Context // ends the consumer
	cancel context.CancelFunc
	// closed on removal of the consumer, whose goroutine then ends once all its frames are answered
	retire   chan struct{}
	replaces []*consumer // retired as soon as this consumer is settled; guarded by runner.mu

	// runner.mu guards the following fields and Policy. The mode of Policy does not change.
	feed      *modelFeed // nil while the model is not open
	state     sources.State
	since     time.Time
	err       error     // why the consumer waits; nil while the model is open
	retry     time.Time // time of the next attempt to open the model; zero unless waiting
	attempted bool      // the model was open once, or an attempt failed

	// These are guarded by runner.countMu.
	counts
	countsAdded bool // the counts were added to the stream's; further endings count there
}

// counts count the endings of a model's frames. See StreamStats.
type counts struct {
	answered uint64
	errors   uint64
	drops    map[stream.Reason]uint64
	aged     uint64
	age      time.Duration
	last     time.Time
	failure  error // error of the newest result or error passed to the sinks; nil for a result
}

// run keeps the model open until ctx ends.
func (c *consumer) run(ctx context.Context) {
	defer c.cancel()
	defer c.addCounts()
	pauses := backoff.Backoff{Min: 200 * time.Millisecond, Max: 3 * time.Second}
	for {
		opened, err := c.openUntilClosed(ctx)
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

// end removes the model from the stream. The consumer ends once its frames are answered. runner.mu is held.
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

// addCounts adds the counts of a removed model to the stream's counts.
func (c *consumer) addCounts() {
	if !c.retired() {
		return
	}
	c.rules.keep(c.f, c.Model, false) // the stream no longer lists the model
	c.f.countMu.Lock()
	defer c.f.countMu.Unlock()
	if !slices.ContainsFunc(c.f.consumers, func(o *consumer) bool { return o.preview == c.preview }) {
		c.preview.close()
	}
	c.f.preview.setSeveral(len(c.f.consumers) > 1, c.id)
	c.f.leaving = slices.DeleteFunc(slices.Clone(c.f.leaving), func(o *consumer) bool { return o == c })
	c.f.gone.add(&c.counts)
	c.countsAdded = true
}

// tally returns the counts for an ending. A result may reach the sinks after its model has left. runner.countMu is
// held.
func (c *consumer) tally() *counts {
	if c.countsAdded {
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

// logName is the model's name in the log: "" if the stream has only one model.
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

// settle records that the model is open or has failed to open, and retires the models in c.follows. f.mu is held.
func (c *consumer) settle() {
	c.attempted = true
	c.endFollowed()
}

// endFollowed retires the models in c.follows. f.mu is held.
func (c *consumer) endFollowed() {
	for _, o := range c.replaces {
		o.end()
	}
	c.replaces = nil
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

// openUntilClosed opens the model and returns the reason for its later closing.
func (c *consumer) openUntilClosed(ctx context.Context) (opened bool, err error) {
	f := c.f
	model, _, err := f.a.backend.Models().Model(c.Model, c.Version)
	if err != nil {
		return false, err
	}
	if err := takesPictures(c.Model, model); err != nil {
		return false, err
	}
	f.mu.Lock()
	policy, now := c.Policy, f.now
	f.mu.Unlock()
	if model.AppliesRules {
		if err := f.a.checkRules(now); err != nil {
			return false, err
		}
	}
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	o := &modelFeed{f: f, c: c, cancel: cancel, ctx: own, window: ingest.NewWindow(), fresh: true}
	st, err := f.a.backend.Open(c.Model, c.Version, stream.Options{Policy: policy, OwnRefusals: true,
		Rules: c.rulesFor(model), Protocol: f.a.Name(), Name: f.name}, o)
	if err != nil {
		return false, err
	}
	o.stream, o.every = st, st.Policy().Mode == stream.Every
	f.mu.Lock()
	c.feed, c.state, c.since, c.err, c.retry = o, sources.Running, time.Now(), nil, time.Time{}
	if c.Policy != policy { // changed after the read above
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
		err = stream.Errorf(stream.Unloaded, "model",
			"model %s was unloaded: the stream continues when it is loaded again", c.Model)
	default:
		err = stream.Errorf(stream.Unavailable, "model", "the stream was closed (%s)", why)
	}
	f.mu.Lock()
	c.feed = nil
	f.mu.Unlock()
	return true, err
}

// rulesFor returns the rules for the stream to a model. The rules of a stream with several models are for the models
// with tracks; without such a model, each model gets the rules, and refuses the rules.
func (c *consumer) rulesFor(model *stream.Model) *rules.Handle {
	if model.AppliesRules {
		return c.rules.Handle
	}
	for _, o := range c.f.list() {
		if m, _, err := c.f.a.backend.Models().Model(o.Model, o.Version); err == nil && m.AppliesRules {
			return nil
		}
	}
	return c.rules.Handle
}

// count counts the ending of a frame. failed is the error of encoding the result; receivers then get this error.
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

// countDelivered counts a result or an error passed to the sinks. failed is as for count. Parts of a result do not
// count.
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
