// Package walkertest has a model for tests of tracks and rules: the model sees a person that walks.
package walkertest

import (
	"context"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
	"millrace/workers/results/postprocess"
	"millrace/workers/results/tracking"
)

// Register registers the kind walker, once in a test binary, and returns the model people of the kind, with tracks.
func Register() workers.Config {
	workers.Register(workers.Kind{Name: "walker", New: func() workers.Worker { return walker{} }})
	return workers.Config{Name: "people", Kind: "walker", Parts: []any{
		&postprocess.Config{Boxes: &postprocess.Boxes{Boxes: "b", Scores: "s"}}, &tracking.Settings{Track: true}}}
}

// walker finds a box whose middle is as far to the right as the picture is bright.
type walker struct{ workers.Base }

func (walker) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{
		MaxBatch: 1, Image: &stream.ImageSpec{Width: 16, Height: 16, Color: "GRAY", Layout: "NHWC"},
		Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{16, 16, 1}}},
		Outputs: []stream.TensorSpec{{Name: "b", Datatype: stream.Float32, Shape: []int{1, 4}},
			{Name: "s", Datatype: stream.Float32, Shape: []int{1, 1}}},
	}, nil
}

func (walker) Run(_ context.Context, b *batching.Batch) error {
	x := float32(b.Inputs[0].Data[0]) / 16
	b.Outputs = []stream.Tensor{
		{Name: "b", Datatype: stream.Float32, Shape: []int{1, 1, 4}, Data: stream.AppendFloat32(nil, x-2, 4, x+2, 12)},
		{Name: "s", Datatype: stream.Float32, Shape: []int{1, 1, 1}, Data: stream.AppendFloat32(nil, 1)},
	}
	return nil
}
