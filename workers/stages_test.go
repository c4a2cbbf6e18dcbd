package workers_test

import (
	"context"
	"encoding/binary"
	"strings"
	"sync/atomic"
	"testing"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
	"millrace/workers/results/postprocess"
	"millrace/workers/results/tracking"
)

// counting finds one box in each frame, and counts a stream's frames in a state per stream: the height of the box is
// the count.
type counting struct {
	workers.Base
	boxes, scores []byte
}

var counts atomic.Int64 // kept and not released

func init() {
	workers.Register(workers.Kind{Name: "counting", New: func() workers.Worker { return &counting{} }})
	workers.Register(workers.Kind{Name: "finishing", New: func() workers.Worker { return &finishing{} }})
}

// finishing is counting that finishes each request itself.
type finishing struct{ counting }

func (w *finishing) Run(ctx context.Context, b *batching.Batch) error {
	if err := w.counting.Run(ctx, b); err != nil {
		return err
	}
	for i := range b.Requests {
		b.Finish(i, []stream.Tensor{
			{Name: "b", Datatype: stream.Float32, Shape: []int{1, 1, 4}, Data: w.boxes[16*i : 16*i+16]},
			{Name: "s", Datatype: stream.Float32, Shape: []int{1, 1, 1}, Data: w.scores[4*i : 4*i+4]},
		})
	}
	b.Outputs = nil
	return nil
}

func (*counting) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{
		MaxBatch: 4, Stateful: true,
		Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Float32, Shape: []int{3}}},
		Outputs: []stream.TensorSpec{{Name: "b", Datatype: stream.Float32, Shape: []int{1, 4}},
			{Name: "s", Datatype: stream.Float32, Shape: []int{1, 1}}},
	}, nil
}

func (w *counting) Run(_ context.Context, b *batching.Batch) error {
	w.boxes, w.scores = w.boxes[:0], w.scores[:0]
	for _, r := range b.Requests {
		n, kept := r.State().(*int)
		if !kept {
			n = new(int)
			counts.Add(1)
			r.SetState(n, func(any) { counts.Add(-1) })
		}
		*n++
		w.boxes, w.scores = stream.AppendFloat32(w.boxes, 0, 0, 100, 100+float32(*n)), stream.AppendFloat32(w.scores, 1)
	}
	b.Outputs = []stream.Tensor{
		{Name: "b", Datatype: stream.Float32, Shape: []int{b.Rows, 1, 4}, Data: w.boxes},
		{Name: "s", Datatype: stream.Float32, Shape: []int{b.Rows, 1, 1}, Data: w.scores},
	}
	return nil
}

// Stages see the outputs of a worker that leaves outputs to the batch, and of a worker that finishes its requests.
// The states of a stage and of the worker are separate, and both end with the stream.
func TestStageOfAStatefulWorker(t *testing.T) {
	for _, kind := range []string{"counting", "finishing"} {
		t.Run(kind, func(t *testing.T) { stageOf(t, kind) })
	}
}

func stageOf(t *testing.T, kind string) {
	r := newRig(t)
	g := r.load(t, workers.Config{Kind: kind, Parts: []any{
		&postprocess.Config{Boxes: &postprocess.Boxes{Boxes: "b", Scores: "s"}}, &tracking.Settings{Track: true},
	}})
	a := newReplies()
	s, err := g.Open(stream.Options{Policy: stream.Policy{Mode: stream.Every, Window: 8}}, a)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		f := r.frame(t, uint64(i), string(make([]byte, 12)))
		f.Codec, f.CaptureUS = stream.Tensors, int64(1e6+33333*i)
		f.Inputs = []stream.Tensor{{Name: "x", Datatype: stream.Float32, Shape: []int{1, 3}, Data: f.Payload}}
		if err := s.Submit(f); err != nil {
			t.Fatal(err)
		}
		x := a.next(t)
		box, id := x.outputs["boxes"], x.outputs["ids"]
		height := stream.AppendFloat32(nil, 101+float32(i))
		if x.outcome != stream.Answered || !strings.HasSuffix(box, string(height)) {
			t.Fatalf("frame %d: %+v", i, x)
		}
		if want := binary.LittleEndian.AppendUint64(nil, 1); i > 1 && !strings.HasSuffix(id, string(want)) {
			t.Fatalf("frame %d: %q", i, id)
		}
	}
	if counts.Load() != 1 {
		t.Fatalf("%d states", counts.Load())
	}
	s.Close(stream.ByClient)
	<-s.Finished()
	if counts.Load() != 0 {
		t.Fatalf("%d states after the end", counts.Load())
	}
}
