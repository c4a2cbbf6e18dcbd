// Package identity is the worker kind that returns each frame as its result, for
// benchmarks of everything else. It copies a payload only when its lease has no room
// for the length in front of the payload.
package identity

import (
	"context"
	"encoding/binary"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
)

func init() {
	workers.Register(workers.Kind{
		Name: "identity",
		Doc:  "returns each frame as its result",
		New:  func() workers.Worker { return &worker{} },
	})
}

type worker struct{ workers.Base }

// Init implements workers.Worker.
func (*worker) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{Any: true, Ragged: true, MaxBatch: 16}, nil
}

// Run implements workers.Worker. Tensors are returned unchanged; the bytes of a frame
// are returned as one BYTES tensor named output, of shape [1].
func (*worker) Run(_ context.Context, b *batching.Batch) error {
	for i, r := range b.Requests {
		if b.After != nil { // stages make other outputs of these
			out := r.Inputs
			if r.Codec != stream.Tensors {
				out = []stream.Tensor{bytesOf(r)}
			}
			b.Finish(i, out)
			continue
		}
		if r.Codec == stream.Tensors {
			r.Finish(r.Inputs, r.TakeLease(), false)
			continue
		}
		answer(r)
	}
	return nil
}

var one = []int{1}

// answer returns the frame as a BYTES element. It writes the length in front of the
// payload if the lease has room, and copies both otherwise.
func answer(r *stream.Request) {
	lease := r.TakeLease()
	if lease != nil && lease.Len() == len(r.Payload) {
		if head, ok := lease.Prepend(4); ok {
			binary.LittleEndian.PutUint32(head, uint32(len(r.Payload)))
			r.FinishSingle(stream.Tensor{Name: "output", Datatype: stream.Bytes, Shape: one, Data: lease.Bytes()}, lease, true)
			return
		}
	}
	r.FinishSingle(bytesOf(r), nil, false)
	lease.Release()
}

// bytesOf is a copy of what the frame holds, as an output.
func bytesOf(r *stream.Request) stream.Tensor {
	data := append(binary.LittleEndian.AppendUint32(nil, uint32(len(r.Payload))), r.Payload...)
	return stream.Tensor{Name: "output", Datatype: stream.Bytes, Shape: one, Data: data}
}
