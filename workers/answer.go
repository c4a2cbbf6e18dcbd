package workers

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers/postprocess"
	"millrace/workers/tracking"
)

// answer ends the members that the worker left to the batch's outputs: with
// their rows of them, or with what the configuration makes of those.
func (w *instance) answer(b *batching.Batch) {
	if w.results == nil || b.Outputs == nil {
		b.Split()
		return
	}
	for i, r := range b.Requests {
		if r.Outcome() != stream.Pending {
			continue
		}
		if out, err := w.result(b, i); err != nil {
			b.Fail(i, err)
		} else {
			b.Finish(i, out)
		}
	}
}

// result is the answer to member i, valid until the next call.
func (w *instance) result(b *batching.Batch, i int) (out []stream.Tensor, err error) {
	defer func() { // outputs that it cannot bear fail one member
		if x := recover(); x != nil {
			err = stream.Errorf(stream.Internal, "output", "turning the outputs of model %s into results panicked: %v", b.Model.Name, x)
		}
	}()
	r := b.Requests[i]
	at := postprocess.Place{X: r.MapX, Y: r.MapY, Width: r.SentWidth, Height: r.SentHeight}
	out, err = w.results.Decode(b.Outputs, b.Offsets[i], r.Rows, at)
	if err == nil && w.group.cfg.Track.On {
		out, err = w.track(r, out)
	}
	return out, err
}

// tracked is the name of the output with the boxes' ids.
const tracked = "ids"

// mayTrack says whether the boxes of a model can be followed, and describes the
// model that does so: one frame of a stream at a time, in order.
func mayTrack(m *stream.Model, kind string) error {
	switch {
	case kind != "boxes" && kind != "yolo":
		return stream.Errorf(stream.InvalidArgument, "output.track", "follows boxes: name them with output.boxes or output.yolo")
	case m.Stateful:
		return stream.Errorf(stream.InvalidArgument, "output.track", "model %s keeps a state of its own for each stream, and a stream has one", m.Name)
	}
	m.Stateful = true
	m.Outputs = append(slices.Clone(m.Outputs), stream.TensorSpec{Name: tracked, Datatype: stream.Int64, Shape: []int{-1}})
	return nil
}

// track adds the ids of a result's boxes. The tracker is the stream's state; a
// request that belongs to no stream has nothing to follow, and gets zeros.
func (w *instance) track(r *stream.Request, out []stream.Tensor) ([]stream.Tensor, error) {
	if r.Rows != 1 {
		return nil, stream.Errorf(stream.InvalidArgument, "inputs.shape", "has %d rows: frames whose boxes are followed go one by one", r.Rows)
	}
	i := slices.IndexFunc(out, func(t stream.Tensor) bool { return t.Name == "boxes" })
	if i < 0 {
		return nil, stream.Errorf(stream.Internal, "output.track", "the result has no boxes")
	}
	w.boxes = w.boxes[:0]
	for data := out[i].Data; len(data) >= 16; data = data[16:] {
		at := func(k int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(data[4*k:])) }
		w.boxes = append(w.boxes, tracking.Box{X1: at(0), Y1: at(1), X2: at(2), Y2: at(3)})
	}
	w.judge(out)
	w.ids = w.ids[:0]
	if r.Stream.Options().OneShot {
		w.ids = append(w.ids, make([]byte, 8*len(w.boxes))...)
	} else {
		m := w.memory(r)
		if m.tracker == nil {
			m.tracker = tracking.New(w.group.cfg.Track.Config)
		}
		for _, id := range m.tracker.Update(clock(r), w.boxes) {
			w.ids = binary.LittleEndian.AppendUint64(w.ids, uint64(id))
		}
	}
	w.out = append(w.out[:0], out...)
	w.out = append(w.out, stream.Tensor{Name: tracked, Datatype: stream.Int64, Shape: []int{1, len(w.boxes)}, Data: w.ids})
	return w.out, nil
}

// clock is a frame's own time: the client's, or when it came.
func clock(r *stream.Request) time.Duration {
	if r.CaptureUS == 0 { // the client told none
		return time.Duration(r.Timing.Received)
	}
	return time.Duration(r.CaptureUS) * time.Microsecond
}

// judge adds what the result says of the boxes: scores, and classes where it has
// them.
func (w *instance) judge(out []stream.Tensor) {
	for _, t := range out {
		switch {
		case t.Name == "scores" && t.Datatype == stream.Float32 && len(t.Data) == 4*len(w.boxes):
			for i := range w.boxes {
				w.boxes[i].Score = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
			}
		case t.Name == "classes" && t.Datatype == stream.Int64 && len(t.Data) == 8*len(w.boxes):
			for i := range w.boxes {
				w.boxes[i].Class = int32(binary.LittleEndian.Uint64(t.Data[8*i:]))
			}
		}
	}
}
