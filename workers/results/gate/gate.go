// Package gate answers frames that look like the one of their stream that was run
// last with the result of that one.
package gate

import (
	"maps"
	"slices"
	"time"

	"millrace/internal/codec"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers/results"
)

// Settings say which frames of a stream are worth a run. The zero value lets every
// frame run.
type Settings struct {
	Changed float64       `yaml:"changed" unset:"every frame runs" min:"0" max:"1" help:"share of the picture that must change for a run; a frame with less gets the last result again"`
	Refresh time.Duration `yaml:"refresh" default:"1s" help:"a run at least so often, by the frames' own times where they differ"`
}

// On says whether there is a gate.
func (s Settings) On() bool { return s.Changed != 0 }

// Validate refuses settings of a gate that there is not.
func (s Settings) Validate() error {
	if s.Refresh > 0 && s.Changed == 0 {
		return stream.Errorf(stream.InvalidArgument, "gate.refresh", "is set without gate.changed, the share of the picture that must change for a run")
	}
	return nil
}

// Stage is the gate, in the section gate.
var Stage = results.NewKind("gate", newGate)

// Pictures are compared by their light, at a size that JPEG gives for a fraction of
// its decoding, where a speck of noise is averaged away.
const (
	thumbWidth, thumbHeight = 80, 60
	noise                   = 8         // of 255: a smaller difference is none
	maxKept                 = 256 << 10 // bytes of a result that a stream keeps; frames with a larger one are never skipped
)

type thumbnail [thumbWidth * thumbHeight]byte

// changed is the share of the picture that differs.
func (a *thumbnail) changed(b *thumbnail) float64 {
	n := 0
	for i := range a {
		if d := int(a[i]) - int(b[i]); d >= noise || d <= -noise {
			n++
		}
	}
	return float64(n) / float64(len(a))
}

// gate is the gate of one worker.
type gate struct {
	settings  Settings
	env       *results.Env
	lastRuns  results.Slot
	thumbnail thumbnail // of the frame at hand
}

// newGate makes the gate of a worker, unless frames for its model cannot be skipped.
func newGate(s Settings, env *results.Env) (results.Stage, error) {
	bad := func(format string) (results.Stage, error) {
		return results.Stage{}, stream.Errorf(stream.InvalidArgument, "gate", format, env.Model.Name)
	}
	switch m := env.Worker; {
	case m.Image == nil || m.Any || m.Ragged:
		return bad("compares pictures, and model %s takes none")
	case m.Assembly != nil:
		return bad("skips frames, and model %s looks at windows of them: it needs every one")
	case m.Stateful:
		return bad("skips frames, and model %s learns from each of a stream: it needs every one")
	}
	g := &gate{settings: s, env: env, lastRuns: env.Slot()}
	return results.Stage{Before: g.before, Answered: g.answered}, nil
}

// before answers r with the result of the frame that was run last, if it looks like
// that one. If not, r takes its place.
func (g *gate) before(r *stream.Request) (a results.Answer, ok bool) {
	if r.Codec == stream.Tensors || r.Stream.Options().OneShot {
		return a, false
	}
	last, _ := g.lastRuns.Get(r).(*lastRun)
	if last == nil {
		last = &lastRun{}
		g.lastRuns.Set(r, last, func(v any) { v.(*lastRun).forgetResult() })
	}
	p, err := g.env.Look(r, codec.Target{Width: thumbWidth, Height: thumbHeight, Color: codec.Gray}, g.thumbnail[:])
	if err != nil {
		return a, false // decoding it will say what is wrong
	}
	if !last.canAnswer(r, p, g.settings.Refresh) || last.thumbnail.changed(&g.thumbnail) >= g.settings.Changed {
		last.begin(r, &g.thumbnail, p)
		return a, false
	}
	r.SentWidth, r.SentHeight = p.Width, p.Height
	r.SetResultParam("skipped", true)
	r.SetResultParam("source_seq", int64(last.seq))
	return results.Answer{Outputs: last.outputs, Lease: last.lease.Retain()}, true
}

// answered keeps the outputs of a frame for those that look the same.
func (g *gate) answered(r *stream.Request, outputs []stream.Tensor, lease *buf.Buf) {
	last, _ := g.lastRuns.Get(r).(*lastRun)
	if last == nil || last.awaited != r {
		return
	}
	last.awaited = nil
	if lease.Len() <= maxKept {
		last.outputs, last.lease = slices.Clone(outputs), lease.Retain()
	}
}

// lastRun is the frame of a stream that was run last, and its result.
type lastRun struct {
	thumbnail     thumbnail
	awaited       *stream.Request // its result is awaited; nil when it is there, or will not come
	seq           uint64
	captured      int64 // microseconds of the client's clock
	received      stream.Instant
	width, height int
	region        stream.Region
	params        stream.Params
	flushes       uint64

	outputs []stream.Tensor
	lease   *buf.Buf // of outputs; nil while there is no result
}

// begin puts a frame that is about to run in the place of the one before.
func (l *lastRun) begin(r *stream.Request, t *thumbnail, p codec.Placed) {
	l.forgetResult()
	l.thumbnail, l.awaited = *t, r
	l.seq, l.width, l.height = r.Seq, p.Width, p.Height
	l.captured, l.received = r.CaptureUS, r.Timing.Received
	l.region, l.params, l.flushes = r.Region, r.Params, r.Flushes
}

func (l *lastRun) forgetResult() {
	lease := l.lease
	l.awaited, l.outputs, l.lease = nil, nil, nil
	lease.Release()
}

// canAnswer says whether the result is the answer to r too, provided that the
// pictures look the same.
func (l *lastRun) canAnswer(r *stream.Request, p codec.Placed, refresh time.Duration) bool {
	age := l.age(r)
	return l.lease != nil && !r.Must && !r.Discontinuity && l.flushes == r.Flushes &&
		age >= 0 && age < refresh && l.width == p.Width && l.height == p.Height &&
		l.region == r.Region && maps.Equal(l.params, r.Params)
}

// age is how much older than r the frame is: by the client's clock, so that it
// does not matter when a recording is played; by the server's where the client's
// stands still or is not told.
func (l *lastRun) age(r *stream.Request) time.Duration {
	if r.CaptureUS == l.captured {
		return r.Timing.Received.Sub(l.received)
	}
	return time.Duration(r.CaptureUS-l.captured) * time.Microsecond
}
