//go:build !notracing

package spans

import (
	"encoding/binary"
	"math"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"millrace/stream"
)

// why is the set of rules that keep a frame.
type why uint8

// The rules.
const (
	sampled why = 1 << iota
	slow
	dropped
	failed
	gated
)

// rules are the names of the rules, by their bits.
var rules = [...]string{"sampled", "slow", "dropped", "failed", "gated"}

// names returns the names of the rules in w.
func (w why) names() []string {
	out := make([]string, 0, len(rules))
	for i, name := range rules {
		if w&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}

// first returns the index of the rule shown for a frame: a tail rule before the sampler.
func (w why) first() int {
	for _, i := range [...]int{3, 1, 4, 2} {
		if w&(1<<i) != 0 {
			return i
		}
	}
	return 0
}

// allowance is the number of frames that a rule may still keep in this second; the tracer's goroutine refills every
// allowance once a second. So an exhausted rule costs one load for each frame, and no clock reading.
type allowance struct {
	remaining atomic.Int64
	size      int64 // 0 = the rule is off
	over      atomic.Uint64
}

func (a *allowance) fill() { a.remaining.Store(a.size) }

func (a *allowance) take() bool {
	if a.remaining.Load() > 0 && a.remaining.Add(-1) >= 0 {
		return true
	}
	a.over.Add(1)
	return false
}

// sampler is the head sampler: its decision does not depend on the frame's processing.
type sampler struct {
	kind      string
	bound     atomic.Uint64 // of a trace id, by the ratio
	ratio     atomic.Uint64 // the bits of the ratio in force
	rate      allowance
	remote    sdktrace.Sampler
	perSecond allowance
}

func newSampler(c *Config, remote sdktrace.Sampler) *sampler {
	s := &sampler{kind: c.Sampler, remote: remote}
	s.setRatio(*c.Ratio)
	s.rate.size, s.perSecond.size = int64(c.Rate), int64(c.MaxRate)
	return s
}

func (s *sampler) setRatio(ratio float64) {
	s.ratio.Store(math.Float64bits(ratio))
	bound := uint64(ratio * (1 << 63))
	if ratio >= 1 {
		bound = math.MaxUint64
	}
	s.bound.Store(bound)
}

func (s *sampler) fill() {
	s.rate.fill()
	s.perSecond.fill()
}

// keeps decides for a frame with a root span called name.
func (s *sampler) keeps(c *stream.TraceContext, name string) bool {
	return s.wants(c, name) && s.perSecond.take()
}

func (s *sampler) wants(c *stream.TraceContext, name string) bool {
	if c.Decision == stream.Debug {
		return true
	}
	switch s.kind {
	case "rate":
		return s.rate.take()
	case "jaeger-remote":
		return s.remote.ShouldSample(sdktrace.SamplingParameters{TraceID: trace.TraceID(c.Trace), Name: name,
			Kind: trace.SpanKindServer}).Decision == sdktrace.RecordAndSample
	case "parent":
		if c.Decision != stream.Undecided {
			return c.Decision == stream.Sampled
		}
	}
	return binary.BigEndian.Uint64(c.Trace[8:])>>1 < s.bound.Load() // as the SDK's sampler by ratio does
}

// tail are the tail rules.
type tail struct {
	threshold                    stream.Instant // of slow; 0 = off
	slow, dropped, failed, gated allowance
}

func (t *tail) set(c *Config) {
	n := int64(c.TailRate)
	for _, r := range []struct {
		a  *allowance
		on bool
	}{{&t.slow, *c.Slow > 0}, {&t.dropped, *c.Dropped}, {&t.failed, *c.Failed}, {&t.gated, *c.Gated}} {
		if r.on {
			r.a.size = n
		}
	}
	t.threshold = stream.Instant(*c.Slow)
}

func (t *tail) fill() {
	for _, a := range []*allowance{&t.slow, &t.dropped, &t.failed, &t.gated} {
		a.fill()
	}
}

// keeps returns the rules that keep an ended request. The batch of a failed request may still be running and writing
// Gated.
func (t *tail) keeps(r *stream.Request) why {
	o := r.Outcome()
	w := t.ended(o)
	if o == stream.Dropped {
		return w
	}
	if o == stream.Answered && r.Gated && t.gated.size > 0 && t.gated.take() {
		w |= gated
	}
	if t.threshold > 0 && r.Timing.Done > r.Timing.Received+t.threshold && t.slow.take() {
		w |= slow
	}
	return w
}

// ended returns the rule that keeps a frame for its outcome alone, or 0.
func (t *tail) ended(o stream.Outcome) why {
	switch {
	case o == stream.Dropped && t.dropped.size > 0 && t.dropped.take():
		return dropped
	case o == stream.Failed && t.failed.size > 0 && t.failed.take():
		return failed
	}
	return 0
}
