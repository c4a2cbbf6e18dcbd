package events

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"

	"millrace/stream"
	"millrace/workers/results"
)

func init() { results.RegisterPlain(results.Add, "events", newStage) }

// Output is the name of the output with a frame's events: one JSON object for each Event.
const Output = "events"

// stage applies rules in one worker. The stage is part of each model that tracks objects, and does nothing for streams
// without rules.
type stage struct {
	engines results.Slot
	frame   Frame
	data    []byte
	out     []stream.Tensor
	shape   []int // of events; shared by results, so a different shape needs a new slice
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
	e := &stage{engines: env.Slot()}
	return results.Stage{After: e.after}, true, nil
}

// after adds the events of a frame.
func (s *stage) after(r *stream.Request, in results.Outputs) ([]stream.Tensor, error) {
	given, err := in.Frame(r)
	if err != nil {
		return nil, err
	}
	e, err := s.engine(r)
	if err != nil || e == nil {
		return given, err
	}
	if err := s.read(r, given, e); err != nil {
		return nil, err
	}
	found, err := e.Update(&s.frame)
	if err != nil {
		return nil, err
	}
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
	s.out = append(append(s.out[:0], given...), stream.Tensor{Name: Output, Datatype: stream.Bytes, Shape: s.shape,
		Data: s.data})
	return s.out, nil
}

// engine returns the engine of the request's stream with the present rules, or nil for a stream without rules.
func (s *stage) engine(r *stream.Request) (*Engine, error) {
	handle := r.Stream.Rules()
	e, _ := s.engines.Get(r).(*Engine)
	switch now := handle.Rules(); {
	case now == nil && e == nil:
		return nil, nil
	case now == nil:
		s.engines.Set(r, nil, nil)
		handle.Keep(nil)
		return nil, nil
	case e == nil:
		e = New(now, r.Stream.Options().Name, r.Stream.Model().Name)
		if kept := handle.Kept(); kept != nil {
			if err := e.Restore(kept); err != nil {
				return nil, stream.Errorf(stream.Internal, "rules", "%w", err)
			}
		}
		s.engines.Set(r, e, func(any) { handle.Keep(e.Save()) })
	case e.Rules() != now:
		e.Change(now)
	}
	return e, nil
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
	s.frame.Time, s.frame.Width, s.frame.Height = r.Time(), r.SentWidth, r.SentHeight
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
