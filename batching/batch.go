package batching

import (
	"millrace/internal/buf"
	"millrace/stream"
)

// Batch is what a worker runs: the bound requests and, for a dense model, one
// contiguous tensor per input. It belongs to one worker from Gather until Run
// has returned.
type Batch struct {
	Model    *stream.Model
	Requests []*stream.Request
	Offsets  []int // first row of each request
	Rows     int   // rows in use

	// Inputs are the model's inputs with a batch axis in front: Rows long, or
	// Model.MaxBatch when the axis is fixed. Nil in a ragged batch, whose members
	// bring their own Inputs or Payload.
	Inputs []stream.Tensor
	// Outputs may be set by the worker: dense tensors, row i belonging to row i
	// of Inputs. What it does not answer itself is split from them after Run.
	Outputs []stream.Tensor

	mem  *Memory
	pool *buf.Pool
}

// Row returns the memory of row i of input k, of a dense batch.
func (b *Batch) Row(k, i int) []byte {
	n := b.mem.rowBytes[k]
	return b.mem.data[k][i*n : (i+1)*n : (i+1)*n]
}

// Finish answers request i with outputs, whose data are copied: the worker may
// use their memory again.
func (b *Batch) Finish(i int, outputs []stream.Tensor) {
	r := b.Requests[i]
	n := 0
	for _, t := range outputs {
		n += len(t.Data)
	}
	lease, err := b.pool.Lease(n)
	if err != nil {
		r.Drop(stream.Memory)
		return
	}
	out := make([]stream.Tensor, len(outputs))
	dst := lease.Bytes()
	for k, t := range outputs {
		m := copy(dst, t.Data)
		out[k] = t
		out[k].Data = dst[:m:m]
		dst = dst[m:]
	}
	r.Finish(out, lease, true)
}

// Fail ends request i with an error; its neighbours notice nothing.
func (b *Batch) Fail(i int, err error) { b.Requests[i].Fail(err) }

// FailAll ends every member that has no ending yet.
func (b *Batch) FailAll(err error) {
	for _, r := range b.Requests {
		r.Fail(err)
	}
}
