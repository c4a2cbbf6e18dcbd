package servertest

import (
	"context"
	"encoding/binary"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
)

func init() {
	workers.Register(workers.Kind{Name: "summing", New: func() workers.Worker { return &summing{} }})
}

// summing answers with the sum of the inputs of a sequence.
type summing struct{ workers.Base }

func (*summing) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{
		MaxBatch: 8, Stateful: true,
		Inputs:  []stream.TensorSpec{{Name: "INPUT", Datatype: stream.Int32, Shape: []int{1}}},
		Outputs: []stream.TensorSpec{{Name: "OUTPUT", Datatype: stream.Int32, Shape: []int{1}}},
	}, nil
}

func (*summing) Run(_ context.Context, b *batching.Batch) error {
	for i, r := range b.Requests {
		sum, _ := r.State().(uint32)
		sum += binary.LittleEndian.Uint32(r.Inputs[0].Data)
		r.SetState(sum, func(any) {})
		b.Finish(i, []stream.Tensor{{Name: "OUTPUT", Datatype: stream.Int32, Shape: []int{1, 1},
			Data: binary.LittleEndian.AppendUint32(nil, sum)}})
	}
	return nil
}
