package workers

import (
	"slices"

	"millrace/stream"
	"millrace/stream/buf"
	"millrace/stream/window"
)

// Window is the configured window of a model; the zero value means that it has
// none. A Length of 0 is that of the model's input, a Hop of 0 the length.
type Window struct {
	Length int `yaml:"length" unset:"that of the model's shape" min:"1" max:"16777216" help:"samples, rows or pictures that are one input"`
	Hop    int `yaml:"hop" unset:"the length" min:"1" max:"16777216" help:"of them, from the start of a window to that of the next"`
}

// TakeInputs applies the configured window and picture to the model's own input: the
// first dimension becomes the window's length, and those behind it are the picture's
// (TakePictures). The group does so after Init; a worker that must know its final
// shapes sooner does so itself, with what is in its Env. Streams lease what they keep
// for their windows from mem.
func TakeInputs(m *stream.Model, set *stream.ImageSpec, w Window, mem *buf.Pool) error {
	if w == (Window{}) {
		return TakePictures(m, set)
	}
	bad := func(field, format string, args ...any) error {
		return stream.Errorf(stream.InvalidArgument, "window"+field, format, args...)
	}
	switch {
	case m.Any:
		return bad("", "is set, and %s takes anything: it has no input to fill with a window", m.Platform)
	case m.Ragged:
		return bad("", "is set, and model %s takes text", m.Name)
	case len(m.Inputs) != 1:
		return bad("", "is set, and model %s has %d inputs: a window fills one", m.Name, len(m.Inputs))
	case len(m.Inputs[0].Shape) == 0:
		return bad("", "is set, and input %s of model %s has no dimension for it", m.Inputs[0].Name, m.Name)
	}
	in := m.Inputs[0]
	length := in.Shape[0]
	switch {
	case length < 0 && w.Length == 0:
		return bad(".length", "is missing: model %s takes any, its input %s has the shape %v", m.Name, in.Name, in.Shape)
	case length < 0:
		length = w.Length
	case w.Length != 0 && w.Length != length:
		return bad(".length", "is %d, and input %s of model %s has %d (shape %v, without its batch axis)", w.Length, in.Name, m.Name, length, in.Shape)
	}
	m.Inputs = []stream.TensorSpec{{Name: in.Name, Datatype: in.Datatype, Shape: slices.Clone(in.Shape[1:])}}
	if err := TakePictures(m, set); err != nil {
		return err
	}
	shape := append([]int{length}, m.Inputs[0].Shape...)
	if stream.Elements(shape) < 1 {
		return bad("", "is set, and input %s of model %s has the shape %v: all but the length must be fixed", in.Name, m.Name, shape)
	}
	m.Inputs[0].Shape = shape
	if w.Hop == 0 {
		w.Hop = length
	}
	m.Assembly = &window.Window{Length: length, Hop: w.Hop, Memory: mem}
	return nil
}
