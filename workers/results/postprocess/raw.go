package postprocess

import (
	"fmt"
	"slices"
	"strings"

	"millrace/stream"
)

// raw reads one raw output of the model.
type raw struct {
	spec  stream.TensorSpec
	index int // expected index; the name decides
	wide  []float32
}

// read returns the rows of p as numbers, valid until the next call, and the shape of one row.
func (r *raw) read(p *part) (values []float32, shape []int, err error) {
	t, err := r.tensor(p)
	if err != nil {
		return nil, nil, err
	}
	size := len(t.Data) / t.Shape[0]
	return toFloat32(&r.wide, t.Datatype, t.Data[p.row*size:(p.row+p.rows)*size]), t.Shape[1:], nil
}

func (r *raw) tensor(p *part) (*stream.Tensor, error) {
	i := r.index
	if i >= len(p.tensors) || p.tensors[i].Name != r.spec.Name {
		i = slices.IndexFunc(p.tensors, func(t stream.Tensor) bool { return t.Name == r.spec.Name })
		if i < 0 {
			return nil, stream.Errorf(stream.Internal, "outputs."+r.spec.Name, "is missing from the model's outputs")
		}
	}
	t := &p.tensors[i]
	if err := checkRows(t, p); err != nil {
		return nil, err
	}
	if t.Datatype != r.spec.Datatype {
		return nil, stream.Errorf(stream.Internal, "outputs."+t.Name+".datatype", "is %s, but the model declared %s",
			t.Datatype, r.spec.Datatype)
	}
	if !slices.EqualFunc(t.Shape[1:], r.spec.Shape, agree) {
		return nil, stream.Errorf(stream.Internal, "outputs."+t.Name+".shape",
			"is %v, but the model declared %v after the batch axis", t.Shape, r.spec.Shape)
	}
	return t, nil
}

// agree reports whether a dimension is as declared.
func agree(got, declared int) bool { return declared < 0 || got == declared }

// checkRows returns an error unless t is complete and has the rows of p.
func checkRows(t *stream.Tensor, p *part) error {
	if err := t.CheckSize("outputs."); err != nil {
		return stream.Errorf(stream.Internal, "", "the model's outputs: %w", err)
	}
	if len(t.Shape) == 0 || t.Shape[0]-p.row < p.rows {
		return stream.Errorf(stream.Internal, "outputs."+t.Name+".shape", "is %v and does not have the rows %d to %d",
			t.Shape, p.row, p.row+p.rows)
	}
	return nil
}

// finder selects raw outputs of a model, each once.
type finder struct {
	kind   string // of result
	labels string // the file
	model  *stream.Model
	taken  map[string]bool
	names  []string // of classes, from the model's file; nil = none
}

func newFinder(kind, labels string, named []string, m *stream.Model) *finder {
	f := &finder{kind: kind, labels: labels, model: m, taken: map[string]bool{}}
	for _, name := range named {
		f.taken[name] = name != ""
	}
	return f
}

// settingError returns an error about a setting of the kind of result.
func (f *finder) settingError(key, format string, args ...any) error {
	return stream.Errorf(stream.InvalidArgument, "output."+f.kind+"."+key, format, args...)
}

// find returns the output called name, or without a name the only remaining output accepted by fits. want describes
// the accepted outputs.
func (f *finder) find(key, name, want string, fits func(stream.TensorSpec) bool) (*raw, error) {
	r, err := f.findOptional(key, name, want, fits)
	if r == nil && err == nil {
		err = f.settingError(key, "no output of the model is %s: it has %s", want,
			describe(f.model.Outputs)+f.wholeBatch(name,
				fits))
	}
	return r, err
}

// wholeBatch tells the required setting for an output that fits only if the first dimension is not the batch, as in
// the list [n, 7] of the boxes of all pictures.
func (f *finder) wholeBatch(name string, fits func(stream.TensorSpec) bool) string {
	if f.model.Axis != stream.FreeAxis || f.model.MaxBatch <= 1 {
		return ""
	}
	for _, s := range f.model.Outputs {
		whole := s
		whole.Shape = append([]int{-1}, s.Shape...)
		if (name == "" && !f.taken[s.Name] || name == s.Name) && fits(whole) {
			return fmt.Sprintf(", for each picture. If %s is a list of what all pictures of a batch have, set "+
				"batching.max_size: 1", s.Name)
		}
	}
	return ""
}

// findOptional is find for an optional output: nil = absent.
func (f *finder) findOptional(key, name, want string, fits func(stream.TensorSpec) bool) (*raw, error) {
	found := -1
	for i, s := range f.model.Outputs {
		switch {
		case name != "" && s.Name == name:
			if !fits(s) {
				return nil, f.settingError(key, "%s is not %s: the model has %s", name, want, describe(f.model.Outputs)+
					f.wholeBatch(name, fits))
			}
			return &raw{spec: s, index: i}, nil
		case name != "" || f.taken[s.Name] || !fits(s):
		case found >= 0:
			return nil, f.settingError(key, "more than one output is %s: name one. The model has %s", want,
				describe(f.model.Outputs))
		default:
			found = i
		}
	}
	if name != "" {
		return nil, f.settingError(key, "%q is not an output of the model: it has %s", name, describe(f.model.Outputs))
	}
	if found < 0 {
		return nil, nil
	}
	spec := f.model.Outputs[found]
	f.taken[spec.Name] = true
	return &raw{spec: spec, index: found}, nil
}

func describe(specs []stream.TensorSpec) string {
	if len(specs) == 0 {
		return "none"
	}
	list := make([]string, len(specs))
	for i, s := range specs {
		list[i] = fmt.Sprintf("%s %s %v", s.Name, s.Datatype, s.Shape)
	}
	return strings.Join(list, ", ")
}

// size returns the width and height of the model's input in pixels.
func (f *finder) size() (width, height int, err error) {
	if i := f.model.Image; i != nil && i.Width > 0 && i.Height > 0 {
		return i.Width, i.Height, nil
	}
	if len(f.model.Inputs) > 0 && len(f.model.Inputs[0].Shape) == 3 {
		s := f.model.Inputs[0].Shape
		few := func(n int) bool { return n == 1 || n == 3 || n == 4 }
		switch {
		case few(s[0]):
			height, width = s[1], s[2]
		case few(s[2]):
			height, width = s[0], s[1]
		}
	}
	if width <= 0 || height <= 0 {
		return 0, 0, stream.Errorf(stream.InvalidArgument, "output."+f.kind, "needs the size of the model's input, "+
			"which varies or is not a picture: set input.image.width and input.image.height (inputs: %s; outputs: %s)",
			describe(f.model.Inputs), describe(f.model.Outputs))
	}
	return width, height, nil
}

// scale returns the factors from coordinates to pixels of the model's input: the input's size for normalised
// coordinates.
func (f *finder) scale(normalised bool) (x, y float32, err error) {
	if !normalised {
		return 1, 1, nil
	}
	w, h, err := f.size()
	return float32(w), float32(h), err
}

// isFloat reports whether scores and coordinates can be of type d.
func isFloat(d stream.Datatype) bool {
	return d == stream.Float32 || d == stream.Float16 || d == stream.Float64
}

// isWhole reports whether classes can be of type d.
func isWhole(d stream.Datatype) bool {
	return d == stream.Int32 || d == stream.Int64 || d == stream.Uint8 || d == stream.Bool
}
