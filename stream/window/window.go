// Package window cuts windows, which may overlap, out of what a stream sends, so
// that a client sends each sample once. It implements stream.Assembly.
//
// It owns what is kept of a stream for windows that are not complete. It must not
// know of the stream's lock, mailbox or order of results.
package window

import (
	"slices"

	"millrace/stream"
	"millrace/stream/buf"
)

// Window says that a model looks at windows of its streams. What is counted is
// samples, rows of a tensor or pictures, whatever the model's one input is: FP32
// [Length] or [Length, channels] takes PCM (and rows), [Length, features...] takes
// rows, and a model with an Image takes pictures, its input being [Length] of them.
type Window struct {
	Length int       // of a window, >= 1: the input's first dimension
	Hop    int       // from the start of a window to that of the next, >= 1
	Memory *buf.Pool // of what is kept of a stream for its next window
}

var _ stream.Assembly = (*Window)(nil)

// NewAssembler implements stream.Assembly.
func (w *Window) NewAssembler(m *stream.Model, oneShot bool) stream.Assembler {
	return &cutter{model: m, window: w, oneShot: oneShot}
}

// same says whether what was cut for a is right for b.
func same(a, b *stream.Model) bool {
	v, _ := a.Assembly.(*Window)
	w, _ := b.Assembly.(*Window)
	if v == nil || w == nil || v.Length != w.Length || v.Hop != w.Hop || (a.Image == nil) != (b.Image == nil) {
		return false
	}
	x, y := &a.Inputs[0], &b.Inputs[0]
	return a.Image != nil || x.Name == y.Name && x.Datatype == y.Datatype && slices.Equal(x.Shape, y.Shape)
}
