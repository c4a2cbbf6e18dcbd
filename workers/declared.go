package workers

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"millrace/stream"
	"millrace/stream/coded"
)

// Declared are inputs and outputs for a check of the model when the model is loaded; without any, the model's own
// inputs and outputs apply. A kind whose models have no tensors of their own, such as identity, takes the tensors
// from here.
type Declared struct {
	Inputs, Outputs []Tensor
	Batch           bool // the shapes leave the batch axis out
	Single          bool // requests have one row, and no batch axis: the shapes are complete
}

// Tensor is a declared input or output.
type Tensor struct {
	stream.TensorSpec // without a Datatype: any
	// Reshape is the shape that the model computes with, without the batch axis if the declaration omits the axis;
	// clients use Shape. nil = the same.
	Reshape []int
	Format  string // FORMAT_NCHW or FORMAT_NHWC, for clients that prepare pictures; "" = none
	// Labels are the names of the elements of a row of an output, from the file that
	// LabelFile names in the model's folder.
	Labels    []string
	LabelFile string
}

// Tensors declare inputs and outputs in a configuration file.
type Tensors struct {
	Inputs  []string `yaml:"inputs" example:"x FP32 -1 4" unset:"the model's own" advanced:"yes" help:"inputs that the model must have (identity: has), each NAME DATATYPE DIMENSIONS as in the model's metadata; with batching.max_size the first dimension is the batch, -1"`
	Outputs []string `yaml:"outputs" example:"y FP32 -1 4" unset:"the model's own" advanced:"yes" help:"outputs that the model must have; the outputs of identity are the inputs, in the same order"`
}

// declared returns the declarations. With batch their first dimension is the batch axis.
func (t Tensors) declared(batch bool) (d Declared, err error) {
	d.Batch = batch && len(t.Inputs)+len(t.Outputs) > 0
	for _, side := range []struct {
		name string
		from []string
		to   *[]Tensor
	}{{"inputs", t.Inputs, &d.Inputs}, {"outputs", t.Outputs, &d.Outputs}} {
		for i, text := range side.from {
			bad := func(what string) (Declared, error) {
				return d, stream.Errorf(stream.InvalidArgument, fmt.Sprintf("tensors.%s[%d]", side.name, i),
					"%.140q %s: want NAME DATATYPE DIMENSIONS, such as x FP32 -1 4", text, what)
			}
			words := strings.Fields(text)
			if len(words) < 2 {
				return bad("is not a tensor")
			}
			out := Tensor{TensorSpec: stream.TensorSpec{Name: words[0], Datatype: stream.Datatype(words[1]),
				Shape: []int{}}}
			if out.Datatype != stream.Bytes && out.Datatype.Size() == 0 {
				return bad(fmt.Sprintf("has the datatype %q, which is not known", words[1]))
			}
			for _, dim := range words[2:] {
				n, err := strconv.Atoi(dim)
				if err != nil || n < -1 || n == 0 || n > 1<<31 {
					return bad(fmt.Sprintf("has the dimension %q, which is not a number from 1, nor -1 for any", dim))
				}
				out.Shape = append(out.Shape, n)
			}
			if d.Batch {
				if len(out.Shape) == 0 || out.Shape[0] != -1 {
					return bad("has no -1 in front, which is the batch of batching.max_size")
				}
				out.Shape = out.Shape[1:]
			}
			*side.to = append(*side.to, out)
		}
	}
	return d, nil
}

// check compares the declarations with a model's inputs and outputs. All inputs have to
// be declared, and any of the outputs.
func (d Declared) check(m *stream.Model) error {
	for _, side := range []struct {
		name     string
		has      []stream.TensorSpec
		declared []Tensor
	}{{"input", m.Inputs, d.Inputs}, {"output", m.Outputs, d.Outputs}} {
		if len(side.declared) == 0 || m.AcceptsAnyInput {
			continue
		}
		for i, want := range side.declared {
			at := fmt.Sprintf("%s[%d]", side.name, i)
			k := slices.IndexFunc(side.has, func(s stream.TensorSpec) bool { return s.Name == want.Name })
			if k < 0 {
				return stream.Errorf(stream.InvalidArgument, at+".name", "%q is not one of the model's: %s", want.Name,
					namesOf(side.has))
			}
			s := &side.has[k]
			if m.Image != nil && side.name == "input" && want.Datatype == stream.Bytes && len(want.Shape) == 1 {
				continue // clients may send a picture as a string
			}
			if want.Datatype != "" && want.Datatype != s.Datatype {
				return stream.Errorf(stream.InvalidArgument, at+".data_type",
					"of %s is %s, and that of the model is %s", want.Name, want.Datatype, s.Datatype)
			}
			shape := m.Shape(s)
			if len(shape) == len(want.Shape)+1 && (d.Batch || m.Axis == stream.FreeAxis) {
				shape = shape[1:]
			}
			if !slices.EqualFunc(shape, want.Shape, func(a, b int) bool { return a == b || a == -1 || b == -1 }) {
				return stream.Errorf(stream.InvalidArgument, at+".dims", "of %s are %v, and those of the model are %v",
					want.Name, want.Shape, shape)
			}
		}
		for _, s := range side.has {
			if side.name == "input" && !slices.ContainsFunc(side.declared, func(d Tensor) bool {
				return d.Name == s.Name
			}) {
				return stream.Errorf(stream.InvalidArgument, "input", "lacks %s, which the model needs", s.Name)
			}
		}
	}
	return nil
}

func namesOf(specs []stream.TensorSpec) string {
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.Name
	}
	return strings.Join(names, ", ")
}

// ofDeclared returns err with the setting that declares a tensor instead of the field of config.pbtxt.
func (c *Config) ofDeclared(err error) error {
	if len(c.Tensors.Inputs)+len(c.Tensors.Outputs) == 0 {
		return err
	}
	return coded.RenameFunc(err, func(field string) string {
		for _, side := range []string{"input", "output"} {
			if rest, ok := strings.CutPrefix(field, side); ok && (rest == "" || rest[0] == '[') {
				rest, _, _ = strings.Cut(rest, ".")
				return "tensors." + side + "s" + rest
			}
		}
		return field
	})
}
