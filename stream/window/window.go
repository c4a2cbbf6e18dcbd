// Package window cuts windows, which may overlap, out of what a stream sends, so that a
// client sends each sample once. It implements stream.Assembly.
//
// It owns what is kept of a stream for windows that are not complete. It must not know
// of the stream's lock, mailbox or order of results.
package window

import (
	"slices"

	"millrace/stream"
	"millrace/stream/buf"
)

// Window makes windows of a model's streams. They are counted in samples, in rows of a
// tensor or in pictures, by the model's one input: FP32 [Length] or [Length, channels]
// takes PCM (and rows), [Length, features...] takes rows, and a model with an Image
// takes pictures, [Length] of them.
type Window struct {
	Length int       // of a window, >= 1: the input's first dimension
	Hop    int       // from the start of a window to that of the next, >= 1
	Memory *buf.Pool // for what is kept of a stream for its next window
}

var _ stream.Assembly = (*Window)(nil)

// NewAssembler implements stream.Assembly.
func (w *Window) NewAssembler(m *stream.Model, oneShot bool) stream.Assembler {
	return &cutter{model: m, window: w, oneShot: oneShot}
}

// sameWindows reports whether windows cut for a can be used by b.
func sameWindows(a, b *stream.Model) bool {
	v, _ := a.Assembly.(*Window)
	w, _ := b.Assembly.(*Window)
	if v == nil || w == nil || v.Length != w.Length || v.Hop != w.Hop || (a.Image == nil) != (b.Image == nil) {
		return false
	}
	x, y := &a.Inputs[0], &b.Inputs[0]
	return a.Image != nil || x.Name == y.Name && x.Datatype == y.Datatype && slices.Equal(x.Shape, y.Shape)
}
