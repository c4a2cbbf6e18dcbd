// Package window cuts windows, with or without overlap, from a stream's input, so that a client sends each sample
// once. Package window implements stream.Assembly.
//
// The package owns a stream's input for incomplete windows, and must not know the stream's lock, mailbox or order of
// results.
package window

import (
	"slices"

	"millrace/stream"
	"millrace/stream/buf"
)

// Window makes windows for a model's streams. The model's only input determines the unit of the window: FP32 [Length]
// or [Length, channels] takes PCM (and rows), counted in samples; [Length, features...] takes rows of a tensor; a
// model with an Image takes [Length] pictures.
type Window struct {
	Length int       // of a window, >= 1: the input's first dimension
	Hop    int       // distance between the starts of successive windows, >= 1
	Memory *buf.Pool // for a stream's input for the next window
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
