package window

import (
	"slices"

	"millrace/stream"
)

// count returns how many samples, rows or pictures f adds to the windows of m.
func count(m *stream.Model, f *stream.Frame) (int, error) {
	if m.Image != nil || f.Region != (stream.Region{}) { // a region of anything else is refused
		_, _, err := m.Check(f)
		return 1, err
	}
	in := &m.Inputs[0]
	sample := 0
	switch f.Codec {
	case stream.PCM16:
		sample = 2
	case stream.PCMFloat:
		sample = 4
	case stream.Tensors:
		return rows(m, f.Inputs)
	}
	switch {
	case sample == 0:
		return 0, stream.Errorf(stream.Unsupported, "codec",
			"model %s takes samples and rows, not %s frames: send pcm16, pcmf32 or tensors", m.Name, f.Codec)
	case in.Datatype != stream.Float32 || len(in.Shape) > 2:
		return 0, stream.Errorf(stream.Unsupported, "codec",
			"model %s takes no audio: its input %s is %s %v. Send tensors of n rows", m.Name, in.Name, in.Datatype,
			in.Shape)
	}
	sample *= stream.Elements(in.Shape[1:])
	if n := len(f.Payload); n == 0 || n%sample != 0 {
		return 0, stream.Errorf(stream.InvalidArgument, "frame",
			"has %d bytes, and one sample of %s has %d for model %s: send whole samples", n, f.Codec, sample, m.Name)
	}
	return len(f.Payload) / sample, nil
}

func rows(m *stream.Model, ts []stream.Tensor) (int, error) {
	in := &m.Inputs[0]
	if len(ts) != 1 || ts[0].Name != in.Name {
		return 0, stream.Errorf(stream.InvalidArgument, "inputs",
			"want one tensor, %q, of rows for the windows of model %s", in.Name, m.Name)
	}
	t := &ts[0]
	if t.Datatype != in.Datatype {
		return 0, stream.Errorf(stream.InvalidArgument, "inputs."+t.Name+".datatype", "is %s, model %s wants %s",
			t.Datatype, m.Name, in.Datatype)
	}
	if len(t.Shape) != len(in.Shape) || t.Shape[0] < 1 || !slices.Equal(t.Shape[1:], in.Shape[1:]) {
		want := append([]int{-1}, in.Shape[1:]...)
		return 0, stream.Errorf(stream.InvalidArgument, "inputs."+t.Name+".shape",
			"is %v, model %s wants rows, %v, which it cuts into windows of %d (-1 = any)", t.Shape, m.Name, want,
			in.Shape[0])
	}
	// checked by adapters, but perhaps not by programs that embed the server
	if err := t.CheckSize("inputs."); err != nil {
		return 0, err
	}
	return t.Shape[0], nil
}
