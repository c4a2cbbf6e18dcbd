package workers

import (
	"errors"
	"maps"
	"slices"
	"time"

	"millrace/internal/buf"
	"millrace/internal/codec"
	"millrace/stream"
	"millrace/workers/tracking"
)

// Gate says which frames of a stream are worth a run. One that looks like the
// frame that was run last is skipped: it is answered at once with that frame's
// result. The zero Gate lets every frame through.
type Gate struct {
	Changed float64       // the share of the picture, 0 to 1, that must have changed for a run; 0 = no gate
	Refresh time.Duration // a run at least so often, by the frames' own times where they differ
}

func (g Gate) validate() error {
	switch {
	case !(g.Changed >= 0 && g.Changed <= 1):
		return stream.Errorf(stream.InvalidArgument, "gate.changed", "%v is no share of the picture: want 0 (no gate) to 1", g.Changed)
	case g.Refresh < 0:
		return stream.Errorf(stream.InvalidArgument, "gate.refresh", "is negative")
	case g.Refresh > 0 && g.Changed == 0:
		return stream.Errorf(stream.InvalidArgument, "gate.refresh", "is set without gate.changed, the share of the picture that must change for a run")
	}
	return nil
}

// What pictures are compared by: their light, at a size that JPEG gives for a
// fraction of its decoding, where a speck of noise is averaged away.
const (
	glanceWidth, glanceHeight = 80, 60
	glanceStep                = 8         // of 255: a smaller difference is noise
	maxKept                   = 256 << 10 // bytes of a result that a stream keeps; frames with a larger one are never skipped
)

type glance [glanceWidth * glanceHeight]byte

// changed is the share of the picture that differs.
func (a *glance) changed(b *glance) float64 {
	n := 0
	for i := range a {
		if d := int(a[i]) - int(b[i]); d >= glanceStep || d <= -glanceStep {
			n++
		}
	}
	return float64(n) / float64(len(a))
}

// sight is the frame of a stream that was run last, and its result.
type sight struct {
	glance        glance
	run           *stream.Request // its result is awaited; nil when it is there, or will not come
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
func (s *sight) begin(r *stream.Request, g *glance, p codec.Placed) {
	s.forget()
	s.glance, s.run = *g, r
	s.seq, s.width, s.height = r.Seq, p.Width, p.Height
	s.captured, s.received = r.CaptureUS, r.Timing.Received
	s.region, s.params, s.flushes = r.Region, r.Params, r.Flushes
}

func (s *sight) forget() {
	lease := s.lease
	s.run, s.outputs, s.lease = nil, nil, nil
	lease.Release()
}

// answers says whether what was found in the frame before is the answer to r,
// provided that the pictures look the same.
func (s *sight) answers(r *stream.Request, p codec.Placed, refresh time.Duration) bool {
	age := s.age(r)
	return s.lease != nil && !r.Must && !r.Discontinuity && s.flushes == r.Flushes &&
		age >= 0 && age < refresh && s.width == p.Width && s.height == p.Height &&
		s.region == r.Region && maps.Equal(s.params, r.Params)
}

// age is how much older than r the frame is: by the client's clock, so that it
// does not matter when a recording is played; by the server's where that one stands still, or is not told.
func (s *sight) age(r *stream.Request) time.Duration {
	if r.CaptureUS == s.captured {
		return r.Timing.Received.Sub(s.received)
	}
	return time.Duration(r.CaptureUS-s.captured) * time.Microsecond
}

// stand says whether frames for a model can be skipped, where there is a gate, and
// describes the model so that they can: one frame of a stream at a time, since a frame is compared
// with one whose result is there. own is the model without what the group adds.
func (g Gate) stand(m, own *stream.Model) error {
	if g.Changed == 0 {
		return nil
	}
	bad := func(format string) error { return stream.Errorf(stream.InvalidArgument, "gate", format, m.Name) }
	switch {
	case own.Image == nil || own.Any || own.Ragged:
		return bad("compares pictures, and model %s takes none")
	case own.Assembly != nil:
		return bad("skips frames, and model %s looks at windows of them: it needs every one")
	case own.Stateful:
		return bad("skips frames, and model %s learns from each of a stream: it needs every one")
	}
	m.Stateful = true
	return nil
}

// errSkipped takes a frame that was answered already out of its batch.
var errSkipped = errors.New("answered with an earlier result")

// fill implements batching.Decode, behind the gate.
func (w *instance) fill(r *stream.Request, dst []byte) error {
	if w.group.cfg.Gate.Changed > 0 && !r.Stream.Options().OneShot && w.skip(r) {
		return errSkipped
	}
	return w.prep.decode(r, dst)
}

// skip answers r with the result of the frame before, if it looks like that one.
// If not, r takes its place.
func (w *instance) skip(r *stream.Request) bool {
	m := w.memory(r)
	if m.last == nil {
		m.last = &sight{}
	}
	s := m.last
	p, err := w.prep.look(r, &w.glance)
	if err != nil {
		return false // decoding it will say what is wrong
	}
	gate := w.group.cfg.Gate
	if !s.answers(r, p, gate.Refresh) || s.glance.changed(&w.glance) >= gate.Changed {
		s.begin(r, &w.glance, p)
		return false
	}
	outputs, contiguous := s.outputs, true
	if w.group.cfg.Track.On { // what stands still is seen again, and keeps its id
		if outputs, err = w.track(r, outputs); err != nil {
			return false
		}
		outputs, contiguous = slices.Clone(outputs), false
		ids := &outputs[len(outputs)-1]
		ids.Data = slices.Clone(ids.Data)
	}
	r.SentWidth, r.SentHeight = p.Width, p.Height
	r.Timing.Started = stream.Now()
	r.SetResultParam("skipped", true)
	r.SetResultParam("source_seq", int64(s.seq))
	if w.group.hooks.Skipped != nil {
		w.group.hooks.Skipped(r)
	}
	r.Finish(outputs, s.lease.Retain(), contiguous)
	return true
}

// keep is told of each answer before it goes out: the frames that look the same
// will get it too.
func (w *instance) keep(r *stream.Request, outputs []stream.Tensor, lease *buf.Buf) {
	m, _ := r.State().(*memory)
	if m == nil || m.last == nil || m.last.run != r {
		return
	}
	s := m.last
	s.run = nil
	if lease.Len() > maxKept {
		return
	}
	if w.group.cfg.Track.On {
		outputs = outputs[:len(outputs)-1] // the ids
	}
	s.outputs, s.lease = slices.Clone(outputs), lease.Retain()
}

// memory is what a group keeps of each of its streams: the state of the streams
// of models that have none of their own.
type memory struct {
	tracker *tracking.Tracker
	last    *sight
}

// memory returns what is kept of r's stream.
func (w *instance) memory(r *stream.Request) *memory {
	m, _ := r.State().(*memory)
	if m == nil {
		m = &memory{}
		r.SetState(m, forget)
	}
	return m
}

func forget(v any) {
	if s := v.(*memory).last; s != nil {
		s.forget()
	}
}
