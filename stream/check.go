package stream

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
)

// classSeed is random, so that no client can construct two shapes of the same class: their requests would share a
// batch.
var classSeed = maphash.MakeSeed()

// Check returns an error unless the model takes f. Check also returns the number of batch rows of f, and the class of
// f: frames of one class have equal shapes and can share a batch. The data of every tensor must already fit the
// tensor's shape (Tensor.CheckSize).
func (m *Model) Check(f *Frame) (rows int, class uint64, err error) {
	if f.Call != nil {
		return m.checkCall(f)
	}
	if f.Region != (Region{}) {
		if err = m.checkRegion(f); err != nil {
			return 0, 0, err
		}
	}
	if m.AcceptsAnyInput {
		return m.checkAny(f)
	}
	if f.Codec != Tensors {
		if m.Image == nil {
			if f.Codec == Opaque && m.TakesBytes() {
				return 1, 0, nil
			}
			return 0, 0, m.wantsTensors(f.Codec)
		}
		if !f.Codec.Picture() {
			return 0, 0, Errorf(Unsupported, "codec",
				"model %s takes pictures, not %s: send jpeg, png, webp, rgb24 or nv12", m.Name, f.Codec)
		}
		return 1, 0, nil
	}
	return m.checkTensors(f)
}

// callClass is the class of frames with a Call, which share no batch with other frames.
const callClass = 1

// TakesCalls reports whether the model takes frames with a Call.
func (m *Model) TakesCalls() bool { return m.Calls || m.App != nil }

// checkCall checks a frame with a Call. The payload of such a frame is not an input of the model.
func (m *Model) checkCall(f *Frame) (rows int, class uint64, err error) {
	switch {
	case !m.TakesCalls():
		return 0, 0, Errorf(Unsupported, "", "model %s has no routes: send its inputs, see /v2/models/%s", m.Name,
			m.Name)
	case f.Codec != Opaque || len(f.Inputs) > 0 || f.Region != (Region{}):
		return 0, 0, Errorf(InvalidArgument, "codec", "is %s: the body of a request to a route is opaque", f.Codec)
	}
	return 1, callClass, nil
}

// TakesBytes reports whether the model has a single input, of type BYTES: a frame may be the input's only element.
func (m *Model) TakesBytes() bool { return len(m.Inputs) == 1 && m.Inputs[0].Datatype == Bytes }

// wantsTensors returns the reason for which a model without pictures refuses a frame without tensors.
func (m *Model) wantsTensors(codec Codec) error {
	if input := m.pictureInput(); input != nil && codec.Picture() {
		return Errorf(Unsupported, "codec", "model %s takes tensors, not %s frames: for pictures as its input %s of "+
			"shape %v, set input.image in its configuration", m.Name, codec, input.Name, input.Shape)
	}
	return Errorf(Unsupported, "codec", "model %s takes tensors, not %s frames: see the inputs in the metadata of "+
		"model %s", m.Name, codec, m.Name)
}

// pictureInput returns the only input of the model if the input's shape is that of pictures, with one or three
// channels in front or behind; otherwise nil.
func (m *Model) pictureInput() *TensorSpec {
	if len(m.Inputs) != 1 || len(m.Inputs[0].Shape) < 3 {
		return nil
	}
	dims := m.Inputs[0].Shape[len(m.Inputs[0].Shape)-3:]
	side := func(n int) bool { return n < 0 || n >= 8 }
	channels := func(n int) bool { return n == 1 || n == 3 }
	if channels(dims[0]) && side(dims[1]) && side(dims[2]) || side(dims[0]) && side(dims[1]) && channels(dims[2]) {
		return &m.Inputs[0]
	}
	return nil
}

// checkRegion refuses a region when the frame has no pixels or the model takes no pixels.
func (m *Model) checkRegion(f *Frame) error {
	if !m.AcceptsAnyInput && m.Image != nil && f.Codec.Picture() {
		return nil
	}
	return Errorf(Unsupported, "roi", "needs a picture and a model that takes pictures, but model %s got a frame of "+
		"%s: leave the region out", m.Name, f.Codec)
}

func (m *Model) checkAny(f *Frame) (int, uint64, error) {
	if f.Codec == Tensors && len(f.Inputs) == 0 {
		return 0, 0, Errorf(InvalidArgument, "inputs", "is empty: send at least one tensor")
	}
	return 1, 0, nil
}

func (m *Model) checkTensors(f *Frame) (rows int, class uint64, err error) {
	given := 0
	for i := range m.Inputs {
		spec := &m.Inputs[i]
		t := find(f.Inputs, spec.Name)
		if t == nil && spec.Optional {
			continue
		}
		if t == nil {
			return 0, 0, m.missing(f)
		}
		if t.Datatype != spec.Datatype {
			return 0, 0, Errorf(InvalidArgument, "inputs."+t.Name+".datatype", "is %s, model %s wants %s", t.Datatype,
				m.Name, spec.Datatype)
		}
		n, dims, ok := m.split(t.Shape, spec.Shape)
		if !ok {
			return 0, 0, Errorf(InvalidArgument, "inputs."+t.Name+".shape", "is %v, model %s wants %v (-1 = any)",
				t.Shape, m.Name, m.Shape(spec))
		}
		if given > 0 && n != rows {
			return 0, 0, Errorf(InvalidArgument, "inputs."+t.Name+".shape", "has %d rows, the input before it %d", n,
				rows)
		}
		rows = n
		given++
		for j, d := range dims {
			if spec.Shape[j] < 0 && (!m.Ragged || m.JoinRagged) {
				class = maphash.Comparable(classSeed, [2]uint64{class, uint64(d)}) // over the free dimensions
			}
		}
	}
	if len(f.Inputs) > given {
		return 0, 0, m.unexpected(f)
	}
	if rows > m.MaxBatch {
		return 0, 0, Errorf(InvalidArgument, "inputs.shape",
			"%d rows, model %s takes at most %d at once (batching.max_size)", rows, m.Name, m.MaxBatch)
	}
	if rows < 1 {
		return 0, 0, Errorf(InvalidArgument, "inputs.shape", "has no rows")
	}
	return rows, class, nil
}

// missing returns the error for a frame with missing inputs. When the number of inputs is right, an input has a wrong
// name.
func (m *Model) missing(f *Frame) error {
	if len(f.Inputs) >= len(m.Inputs) {
		return m.unexpected(f)
	}
	var lacks []string
	for i := range m.Inputs {
		if name := m.Inputs[i].Name; !m.Inputs[i].Optional && find(f.Inputs, name) == nil {
			lacks = append(lacks, "'"+name+"'")
		}
	}
	return Errorf(InvalidArgument, "inputs", "expected %d inputs but got %d inputs for model '%s'. Got input(s) "+
		"[%s], but missing required input(s) [%s]. Please provide all required input(s).",
		len(m.Inputs), len(f.Inputs), m.Name, inputsGiven(f), strings.Join(lacks, ","))
}

// unexpected returns the error for a frame with an unknown input or with the same input twice.
func (m *Model) unexpected(f *Frame) error {
	names := make([]string, len(m.Inputs))
	for i := range m.Inputs {
		names[i] = m.Inputs[i].Name
	}
	wanted := strings.Join(names, ", ")
	for i := range f.Inputs {
		if name := f.Inputs[i].Name; !slices.Contains(names, name) {
			return Errorf(InvalidArgument, "inputs",
				"unexpected inference input '%.64s' for model '%s': its inputs are %s. Got input(s) [%s]", name,
				m.Name, wanted, inputsGiven(f))
		}
	}
	return Errorf(InvalidArgument, "inputs", "expected %d inputs but got %d inputs for model '%s': its inputs are "+
		"%s. Got input(s) [%s]", len(m.Inputs), len(f.Inputs), m.Name, wanted, inputsGiven(f))
}

// maxListed is the largest number of a request's inputs named in an error.
const maxListed = 16

// inputsGiven lists the names of a frame's inputs for an error.
func inputsGiven(f *Frame) string {
	var names []string
	for i := range f.Inputs[:min(len(f.Inputs), maxListed)] {
		names = append(names, fmt.Sprintf("'%.64s'", f.Inputs[i].Name))
	}
	if len(f.Inputs) > maxListed {
		names = append(names, "...")
	}
	return strings.Join(names, ",")
}

func find(ts []Tensor, name string) *Tensor {
	for i := range ts {
		if ts[i].Name == name {
			return &ts[i]
		}
	}
	return nil
}

// split separates the batch axis from shape. A shape without batch axis is one row. A model without batch axis takes
// no batch axis, except that a scalar may have the shape [1].
func (m *Model) split(shape, want []int) (rows int, dims []int, ok bool) {
	rows, dims = 1, shape
	if len(shape) == len(want)+1 && (m.Axis != NoAxis || len(want) == 0) {
		rows, dims = shape[0], shape[1:]
	}
	if len(dims) != len(want) {
		return 0, nil, false
	}
	for i, d := range dims {
		if d < 0 || want[i] >= 0 && d != want[i] {
			return 0, nil, false
		}
	}
	return rows, dims, true
}
