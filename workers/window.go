package workers

import (
	"slices"

	"millrace/stream"
	"millrace/stream/buf"
	"millrace/stream/window"
)

// Window is the configured window of a model; the zero value means none. Length 0 means the length of the model's
// input, Hop 0 means the window's length.
type Window struct {
	Length int `yaml:"length" unset:"that of the model's shape" min:"1" max:"16777216" advanced:"yes" help:"number of samples, rows or pictures in a window"`
	Hop    int `yaml:"hop" unset:"the length" min:"1" max:"16777216" advanced:"yes" help:"number of samples, rows or pictures between the starts of two windows"`
}

// ApplyInputs applies the configured window and picture to the model's own input: the first dimension becomes the
// window's length, and the other dimensions the picture's (ApplyImage). The group calls ApplyInputs after Init; a
// worker that needs its final shapes earlier calls ApplyInputs itself, with the values of its Env. Streams lease the
// memory of their windows from mem.
func ApplyInputs(m *stream.Model, set *stream.ImageSpec, w Window, mem *buf.Pool) error {
	if w == (Window{}) {
		return ApplyImage(m, set)
	}
	bad := func(field, format string, args ...any) error {
		return stream.Errorf(stream.InvalidArgument, "window"+field, format, args...)
	}
	switch {
	case m.AcceptsAnyInput:
		return bad("", "is set, but %s takes anything: it has no input to fill with a window", m.Platform)
	case m.Ragged:
		return bad("", "is set, but model %s takes text", m.Name)
	case len(m.Inputs) != 1:
		return bad("", "is set, but model %s has %d inputs: a window fills one", m.Name, len(m.Inputs))
	case len(m.Inputs[0].Shape) == 0:
		return bad("", "is set, but input %s of model %s has no dimension for it", m.Inputs[0].Name, m.Name)
	}
	in := m.Inputs[0]
	length := in.Shape[0]
	switch {
	case length < 0 && w.Length == 0:
		return bad(".length", "is missing: model %s takes any, its input %s has the shape %v", m.Name, in.Name,
			in.Shape)
	case length < 0:
		length = w.Length
	case w.Length != 0 && w.Length != length:
		return bad(".length", "is %d, but input %s of model %s has %d (shape %v, without its batch axis)", w.Length,
			in.Name, m.Name, length, in.Shape)
	}
	m.Inputs = []stream.TensorSpec{{Name: in.Name, Datatype: in.Datatype, Shape: slices.Clone(in.Shape[1:])}}
	if err := ApplyImage(m, set); err != nil {
		return err
	}
	shape := append([]int{length}, m.Inputs[0].Shape...)
	if stream.Elements(shape) < 1 {
		return bad("", "is set, but input %s of model %s has the shape %v: all but the length must be fixed", in.Name,
			m.Name, shape)
	}
	m.Inputs[0].Shape = shape
	if w.Hop == 0 {
		w.Hop = length
	}
	m.Assembly = &window.Window{Length: length, Hop: w.Hop, Memory: mem}
	return nil
}
