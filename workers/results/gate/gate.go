// Package gate answers a frame that looks like the last run frame of the stream with the result of the last run
// frame.
package gate

import (
	"maps"
	"slices"
	"time"

	"millrace/internal/codec"
	"millrace/internal/setting"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers/results"
)

// Settings select the frames of a stream to run. The zero value runs every frame.
type Settings struct {
	Changed float64       `yaml:"changed" unset:"every frame runs" min:"0" max:"1" advanced:"yes" example:"0.02" help:"share of the picture that must change for a run; a frame with a smaller change gets the last result again"`
	Refresh time.Duration `yaml:"refresh" default:"1s" advanced:"yes" help:"longest time between two runs, by the frames' own times when frames have times"`
}

// On reports whether the gate is on.
func (s Settings) On() bool { return s.Changed != 0 }

// Validate refuses all other settings while the gate is off.
func (s Settings) Validate() error {
	// Refresh may be a filled-in default
	f, _ := setting.TableOf("gate", &s).Find("gate.refresh")
	if s.Changed == 0 && s.Refresh > 0 && f.String() != f.Default {
		return stream.Errorf(stream.InvalidArgument, "gate.refresh",
			"is set without gate.changed, the share of the picture that must change for a run")
	}
	return nil
}

func init() { results.Register(results.Reuse, "gate", newGate) }

// Pictures are compared by brightness, at a small size: JPEG needs only a part of the decoding, and single noisy
// pixels are averaged.
const (
	thumbWidth, thumbHeight = 80, 60
	noise                   = 8 // of 255: smaller differences do not count
	// bytes of a result kept by a stream; after a larger result the next frame runs
	maxKept = 256 << 10
)

type thumbnail [thumbWidth * thumbHeight]byte

// changed returns the changed share of the picture.
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
	thumbnail thumbnail // of the current frame
}

// newGate makes the gate of a worker, unless frames of the model cannot be skipped.
func newGate(s Settings, env *results.Env) (results.Stage, error) {
	bad := func(format string) (results.Stage, error) {
		return results.Stage{}, stream.Errorf(stream.InvalidArgument, "gate", format, env.Model.Name)
	}
	switch m := env.Worker; {
	case m.Image == nil || m.AcceptsAnyInput || m.Ragged:
		return bad("compares pictures, but model %s takes none")
	case m.Assembly != nil:
		return bad("skips frames, but model %s takes windows of frames and needs every one")
	case m.Stateful:
		return bad("skips frames, but model %s keeps state per stream and needs every one")
	}
	g := &gate{settings: s, env: env, lastRuns: env.Slot()}
	return results.Stage{Before: g.before, Answered: g.answered}, nil
}

// before answers r with the result of the last run frame, if r looks like the last run frame. Otherwise r becomes the
// last run frame.
func (g *gate) before(r *stream.Request) (a results.Answer, ok bool) {
	if r.Codec == stream.Tensors || r.Stream.Options().OneShot {
		return a, false
	}
	last, _ := g.lastRuns.Get(r).(*lastRun)
	if last == nil {
		last = &lastRun{}
		g.lastRuns.Set(r, last, func(v any) { v.(*lastRun).releaseResult() })
	}
	p, err := g.env.Picture(r, codec.Target{Width: thumbWidth, Height: thumbHeight, Color: codec.Gray}, g.thumbnail[:])
	if err != nil {
		return a, false // preparing the frame will return the error
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

// answered keeps the outputs of a frame for later frames with the same look.
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

// lastRun is the last run frame of a stream, with the result.
type lastRun struct {
	thumbnail     thumbnail
	awaited       *stream.Request // the request with an awaited result, or nil
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

// begin replaces the frame by a frame that will run.
func (l *lastRun) begin(r *stream.Request, t *thumbnail, p codec.Placed) {
	l.releaseResult()
	l.thumbnail, l.awaited = *t, r
	l.seq, l.width, l.height = r.Seq, p.Width, p.Height
	l.captured, l.received = r.CaptureUS, r.Timing.Received
	l.region, l.params, l.flushes = r.Region, r.Params, r.Flushes
}

func (l *lastRun) releaseResult() {
	lease := l.lease
	l.awaited, l.outputs, l.lease = nil, nil, nil
	lease.Release()
}

// canAnswer reports whether the result also fits r, provided that the pictures look the same.
func (l *lastRun) canAnswer(r *stream.Request, p codec.Placed, refresh time.Duration) bool {
	age := l.age(r)
	return l.lease != nil && !r.Must && !r.Discontinuity && l.flushes == r.Flushes &&
		age >= 0 && age < refresh && l.width == p.Width && l.height == p.Height &&
		l.region == r.Region && maps.Equal(l.params, r.Params)
}

// age returns how much older than r the frame is: by the client's clock, so that the playback speed of a recording
// does not matter, or by the server's clock if the client's clock stands still or is not given.
func (l *lastRun) age(r *stream.Request) time.Duration {
	if r.CaptureUS == l.captured {
		return r.Timing.Received.Sub(l.received)
	}
	return time.Duration(r.CaptureUS-l.captured) * time.Microsecond
}
