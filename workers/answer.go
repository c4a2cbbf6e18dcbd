package workers

import (
	"millrace/batching"
	"millrace/stream"
	"millrace/workers/postprocess"
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
	return w.results.Decode(b.Outputs, b.Offsets[i], r.Rows, at)
}
