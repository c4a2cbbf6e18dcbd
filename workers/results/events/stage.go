package events

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"millrace/stream"
	"millrace/stream/rules"
	"millrace/workers/results"
)

func init() { results.RegisterPlain(results.Add, "events", newStage) }

// stage applies rules in one worker. The stage is part of each model that tracks objects, and does nothing for streams
// without rules.
type stage struct {
	sources results.Slot
	age     time.Duration // the longest time without a box before an id ends
	frame   Frame
	data    []byte
	out     []stream.Tensor
	shape   []int // of events; shared by results, so a different shape needs a new slice
}

// source is the state of a stream. A stream that has lost its state has lost its tracker, too: the ids of a new tracker
// are other objects.
type source struct{ number uint64 } // rises

var newestSource atomic.Uint64

// applied is the engine of a handle.
type applied struct {
	*Engine
	source *source         // of the engine's objects
	last   *stream.Request // with the events of the last Update, or nil
}

// repeatLost repeats the events of the last Update if its frame has no answer.
func (a *applied) repeatLost() {
	if a.last != nil && a.last.Outcome() != stream.Answered {
		a.Repeat()
	}
	a.last = nil
}

// Finish implements rules.Engine. The results of all frames were delivered.
func (a *applied) Finish() []Event {
	a.repeatLost()
	return a.Engine.Finish()
}

// newStage returns no stage for a model without tracked objects.
func newStage(env *results.Env) (s results.Stage, on bool, err error) {
	has := func(name string, t stream.Datatype) bool {
		return slices.ContainsFunc(env.Model.Outputs, func(o stream.TensorSpec) bool {
			return o.Name == name && o.Datatype == t
		})
	}
	if !env.Decoded || !has("boxes", stream.Float32) || !has("ids", stream.Int64) {
		return s, false, nil
	}
	env.Model.AppliesRules = true
	e := &stage{sources: env.Slot(), age: env.MaxAge}
	return results.Stage{After: e.after}, true, nil
}

var wallNow = time.Now // replaced in tests

// after adds the events of a frame.
func (s *stage) after(r *stream.Request, in results.Outputs) (out []stream.Tensor, err error) {
	given, err := in.Frame(r)
	handle := r.Stream.Rules()
	if err != nil || handle == nil {
		return given, err
	}
	from := s.source(r)
	handle.Use(func(live *rules.Live) {
		now := handle.Rules()
		a, _ := live.Engine.(*applied)
		switch {
		case now == nil:
			out = given
			live.Clear()
			return
		case r.Outcome() != stream.Pending || a != nil && from.number < a.source.number:
			out = given // a later frame may have come before: after a hang of this frame's run, or of another stream
			return
		case a == nil:
			a = &applied{Engine: Continue(now, r.Stream.Options().Name, live)}
			live.Engine = a
		}
		a.Take(live)
		out, err = s.apply(a, now, from, r, given)
	})
	return out, err
}

// source returns the state of the request's stream.
func (s *stage) source(r *stream.Request) *source {
	from, _ := s.sources.Get(r).(*source)
	if from == nil {
		from = &source{newestSource.Add(1)}
		s.sources.Set(r, from, nil)
	}
	return from
}

// apply applies the rules to the objects of a frame. The result also has the events of a frame before without an
// answer.
func (s *stage) apply(a *applied, now *rules.Rules, from *source, r *stream.Request, given []stream.Tensor) (
	[]stream.Tensor, error) {
	e := a.Engine
	a.repeatLost()
	if a.source != from {
		e.Begin(s.age)
		a.source = from
	}
	if e.Rules() != now {
		e.Change(now)
	}
	if err := s.read(r, given, e); err != nil {
		return nil, err
	}
	found, err := e.Update(&s.frame)
	if err != nil {
		return nil, err
	}
	a.last = r
	s.data = s.data[:0]
	for i := range found {
		at := len(s.data)
		s.data = append(s.data, 0, 0, 0, 0)
		text, err := json.Marshal(&found[i])
		if err != nil {
			return nil, stream.Errorf(stream.Internal, "rules", "an event cannot be written: %w", err)
		}
		s.data = append(s.data, text...)
		binary.LittleEndian.PutUint32(s.data[at:], uint32(len(text)))
	}
	if len(s.shape) == 0 || s.shape[1] != len(found) {
		s.shape = []int{1, len(found)}
	}
	s.out = append(append(s.out[:0], given...), stream.Tensor{Name: rules.Output, Datatype: stream.Bytes,
		Shape: s.shape, Data: s.data})
	return s.out, nil
}

// read reads the objects of a frame from the outputs of the stages before.
func (s *stage) read(r *stream.Request, given []stream.Tensor, e *Engine) error {
	var boxes, ids, scores, classes, labels []byte
	for i := range given {
		t := &given[i]
		switch {
		case t.Name == "boxes" && t.Datatype == stream.Float32:
			boxes = t.Data
		case t.Name == "ids" && t.Datatype == stream.Int64:
			ids = t.Data
		case t.Name == "scores" && t.Datatype == stream.Float32:
			scores = t.Data
		case t.Name == "classes" && t.Datatype == stream.Int64:
			classes = t.Data
		case t.Name == "labels" && t.Datatype == stream.Bytes:
			labels = t.Data
		}
	}
	n := len(ids) / 8
	if len(boxes) != 16*n || len(scores) != 4*n || len(classes) != 8*n && classes != nil {
		return stream.Errorf(stream.Internal, "rules", "the result has %d ids and boxes, scores or classes of another "+
			"number", n)
	}
	s.frame.Time, s.frame.Received = r.Time(), time.Duration(r.Timing.Received)
	// Unlike Received.Wall, the time follows steps of the server's clock, as the readers of counts do.
	s.frame.Wall = wallNow().Add(-stream.Now().Sub(r.Timing.Received))
	if !r.Timed() {
		s.frame.Time = time.Duration(r.Timing.Received.Wall().UnixNano())
	}
	s.frame.Width, s.frame.Height = r.SentWidth, r.SentHeight
	s.frame.Objects = s.frame.Objects[:0]
	for i := range n {
		o := Object{Track: int64(binary.LittleEndian.Uint64(ids[8*i:])), Score: float32At(scores, i),
			X1: float32At(boxes, 4*i), Y1: float32At(boxes, 4*i+1), X2: float32At(boxes, 4*i+2),
			Y2: float32At(boxes, 4*i+3)}
		if classes != nil {
			o.Class = int32(binary.LittleEndian.Uint64(classes[8*i:]))
		}
		if len(labels) >= 4 {
			size := min(4+int(binary.LittleEndian.Uint32(labels)), len(labels))
			e.Name(o.Class, labels[4:size])
			labels = labels[size:]
		}
		s.frame.Objects = append(s.frame.Objects, o)
	}
	return nil
}

func float32At(data []byte, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
}
