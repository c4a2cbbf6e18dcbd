package motion

import (
	"context"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
)

func init() {
	workers.Register(workers.Kind{
		Name:     "motion",
		Doc:      "boxes of moving objects, per stream",
		New:      func() workers.Worker { return &worker{} },
		Settings: func() any { return new(Settings) },
	})
}

// maxBatch is small because the frames of a batch run in sequence.
const maxBatch = 8

// worker detects in frames of any number of streams. A background is the state of a stream; the worker has the
// settings and scratch memory.
type worker struct {
	workers.Base
	set     Settings
	search  search
	single  *background // for one-shot requests
	outputs [2]stream.Tensor
	data    [2][]byte
	shapes  [MaxBoxes + 1][3]int // by number of boxes; never changed, because results share shapes
}

var _ workers.Worker = (*worker)(nil)

// Init implements workers.Worker.
func (w *worker) Init(_ context.Context, env *workers.Env) (*stream.Model, error) {
	set := *env.Settings.(*Settings)
	w.set = set
	return &stream.Model{
		Platform: "motion",
		Inputs:   []stream.TensorSpec{{Name: "image", Datatype: stream.Uint8, Shape: []int{set.Height, set.Width, 1}}},
		Outputs: []stream.TensorSpec{
			{Name: "boxes", Datatype: stream.Float32, Shape: []int{-1, 4}},
			{Name: "scores", Datatype: stream.Float32, Shape: []int{-1}},
		},
		Image: &stream.ImageSpec{Width: set.Width, Height: set.Height, Color: "GRAY", Layout: "NHWC",
			Fit: "stretch"},
		Stateful: true,
		MaxBatch: maxBatch,
	}, nil
}

// Allocate allocates the scratch memory.
func (w *worker) Allocate(context.Context) error {
	w.search = newSearch(w.set)
	w.data = [2][]byte{make([]byte, 0, MaxBoxes*16), make([]byte, 0, MaxBoxes*4)}
	w.outputs = [2]stream.Tensor{{Name: "boxes", Datatype: stream.Float32}, {Name: "scores", Datatype: stream.Float32}}
	for n := range w.shapes {
		w.shapes[n] = [3]int{1, n, 4}
	}
	return nil
}

// Deallocate frees the memory of Allocate.
func (w *worker) Deallocate() { w.search, w.single, w.data = search{}, nil, [2][]byte{} }

// Run processes the frames in sequence.
func (w *worker) Run(_ context.Context, b *batching.Batch) error {
	for i, r := range b.Requests {
		if r.Rows != 1 {
			b.Fail(i, stream.Errorf(stream.InvalidArgument, "inputs.image.shape",
				"has %d rows: send the frames of a stream one by one", r.Rows))
			continue
		}
		gray := b.Row(0, b.Offsets[i])
		w.answer(r, w.search.detect(w.background(r, len(gray)), gray))
		b.Finish(i, w.outputs[:])
	}
	return nil
}

// background returns the background of the request's stream. A one-shot request gets an empty background, because
// earlier requests came from other callers.
func (w *worker) background(r *stream.Request, pixels int) *background {
	if r.Stream.Options().OneShot {
		if w.single == nil {
			w.single = newBackground(pixels)
		}
		w.single.frames = 0
		return w.single
	}
	seen, _ := r.State().(*background)
	if seen == nil || len(seen.mean) != pixels {
		seen = newBackground(pixels)
		r.SetState(seen, nil)
	}
	return seen
}

// answer writes boxes as tensors, in pixels of the frame as sent. An input
// sent as a tensor was not resized: its boxes are in the model's pixels.
func (w *worker) answer(r *stream.Request, boxes []Box) {
	x, y := r.MapX, r.MapY
	if r.SentWidth == 0 {
		x, y = [2]float64{1, 0}, [2]float64{1, 0}
	}
	at := func(v float32, m [2]float64, size int) float32 {
		p := float64(v)*m[0] + m[1]
		if size > 0 {
			p = min(max(p, 0), float64(size))
		}
		return float32(p)
	}
	list, scores := w.data[0][:0], w.data[1][:0]
	for _, b := range boxes {
		list = stream.AppendFloat32(list, at(b.X1, x, r.SentWidth), at(b.Y1, y, r.SentHeight),
			at(b.X2, x, r.SentWidth), at(b.Y2, y, r.SentHeight))
		scores = stream.AppendFloat32(scores, b.Score)
	}
	shape := w.shapes[len(boxes)][:]
	w.outputs[0].Shape, w.outputs[0].Data = shape, list
	w.outputs[1].Shape, w.outputs[1].Data = shape[:2:2], scores
}
