package workers

import (
	"cmp"
	"slices"

	"millrace/stream"
)

// ApplyImage combines the configured picture with the model's own, and derives the fields still unset from the shape
// of the first input. Free dimensions of the shape get the picture's size.
func ApplyImage(m *stream.Model, set *stream.ImageSpec) error {
	if m.Image == nil && set == nil {
		return nil
	}
	s := combined(m.Image, set)
	if len(m.Inputs) != 1 {
		return badPicture("", "is set, but model %s has %d inputs: a picture fills one. Leave it out and send tensors",
			m.Name, len(m.Inputs))
	}
	in := m.Inputs[0]
	if in.Datatype != stream.Uint8 && in.Datatype != stream.Float32 && in.Datatype != stream.Float16 {
		return badPicture("", "is set, but input %s of model %s is %s: pictures become UINT8, FP32 or FP16", in.Name,
			m.Name, in.Datatype)
	}
	if s.Layout == "" {
		s.Layout = layoutOf(in.Shape)
	}
	var height, width, channels int // the axes
	switch {
	case len(in.Shape) != 3 || s.Layout == "":
		return badPicture("", "is set, but input %s of model %s has the shape %v, which is not a picture: want "+
			"[channels, height, width] or [height, width, channels]", in.Name, m.Name, in.Shape)
	case s.Layout == "NCHW":
		channels, height, width = 0, 1, 2
	default:
		height, width, channels = 0, 1, 2
	}
	if s.Color == "" {
		s.Color = "RGB"
		if in.Shape[channels] == 1 {
			s.Color = "GRAY"
		}
	}
	want := 3
	if s.Color == "GRAY" {
		want = 1
	}
	shape := slices.Clone(in.Shape)
	for _, a := range []struct {
		axis  int
		size  *int
		field string
	}{{width, &s.Width, "width"}, {height, &s.Height, "height"}, {channels, &want, "color"}} {
		side := &shape[a.axis]
		switch {
		case *side < 0 && *a.size == 0:
			return badPicture(a.field, "is missing: model %s takes any, its input %s has the shape %v", m.Name,
				in.Name, in.Shape)
		case *side < 0:
			*side = *a.size
		case *a.size == 0:
			*a.size = *side
		case *side != *a.size && a.field == "color":
			return badPicture(a.field, "is %s, but input %s of model %s has %d channels (shape %v, layout %s)",
				s.Color, in.Name, m.Name, *side, in.Shape, s.Layout)
		case *side != *a.size:
			return badPicture(a.field, "is %d, but input %s of model %s has %d (shape %v, layout %s)", *a.size,
				in.Name, m.Name, *side, in.Shape, s.Layout)
		}
	}
	m.Inputs = []stream.TensorSpec{{Name: in.Name, Datatype: in.Datatype, Shape: shape}}
	m.Image = s
	return nil
}

// combined returns own with the fields of set that are not zero.
func combined(own, set *stream.ImageSpec) *stream.ImageSpec {
	var s stream.ImageSpec
	if own != nil {
		s = *own
	}
	if set == nil {
		return &s
	}
	s.Width, s.Height = cmp.Or(set.Width, s.Width), cmp.Or(set.Height, s.Height)
	s.Color, s.Layout, s.Fit = cmp.Or(set.Color, s.Color), cmp.Or(set.Layout, s.Layout), cmp.Or(set.Fit, s.Fit)
	s.Scale, s.Mean, s.Std = cmp.Or(set.Scale, s.Scale), cmp.Or(set.Mean, s.Mean), cmp.Or(set.Std, s.Std)
	return &s
}

// layoutOf returns a picture's layout by the axis with one or three channels, or "" when the layout is ambiguous.
func layoutOf(shape []int) string {
	few := func(n int) bool { return n == 1 || n == 3 }
	switch {
	case len(shape) != 3:
	case few(shape[0]) && !few(shape[2]):
		return "NCHW"
	case few(shape[2]) && !few(shape[0]):
		return "NHWC"
	}
	return ""
}

func badPicture(field, format string, args ...any) error {
	if field != "" {
		field = "." + field
	}
	return stream.Errorf(stream.InvalidArgument, "input.image"+field, format, args...)
}
