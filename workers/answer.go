package workers

import (
	"millrace/batching"
	"millrace/stream"
)

// answer ends the members that the worker left to the batch's outputs: with
// their rows of them, or with what the stages make of those.
func (w *instance) answer(b *batching.Batch) {
	if b.Outputs == nil || !w.stages.Transforms() {
		b.Split()
		return
	}
	for i, r := range b.Requests {
		if r.Outcome() != stream.Pending {
			continue
		}
		if out, err := w.stages.After(r, b.Outputs, b.Offsets[i]); err != nil {
			b.Fail(i, err)
		} else {
			b.Finish(i, out)
		}
	}
}
