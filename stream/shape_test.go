package stream_test

import (
	"fmt"
	"testing"

	"millrace/stream"
)

// Requests and answers have the shapes of the metadata: the model takes requests of those shapes, and answers are
// trimmed.
func TestShapesOfMetadata(t *testing.T) {
	spec := func(unbatched bool, dims ...int) stream.TensorSpec {
		return stream.TensorSpec{Name: "x", Datatype: stream.Float32, Shape: dims, Unbatched: unbatched}
	}
	for _, c := range []struct {
		axis      stream.BatchAxis
		max       int
		spec      stream.TensorSpec
		shape     string
		from, to  []int // an output inside the server, and in the answer
		ok, wrong [][]int
	}{
		{stream.FreeAxis, 8, spec(false, 16), "[-1 16]", []int{2, 16}, []int{2, 16}, [][]int{{3, 16}, {16}},
			[][]int{{9, 16}, {0, 16}}},
		{stream.FreeAxis, 1, spec(false, 16), "[-1 16]", []int{1, 16}, []int{1, 16}, [][]int{{1, 16}, {16}},
			[][]int{{2, 16}}},
		{stream.FixedAxis, 1, spec(false, 16), "[1 16]", []int{1, 16}, []int{1, 16}, [][]int{{1, 16}, {16}},
			[][]int{{2, 16}}},
		{stream.FixedAxis, 4, spec(false, 2), "[4 2]", []int{4, 2}, []int{4, 2}, [][]int{{4, 2}, {1, 2}, {2}},
			[][]int{{5, 2}}},
		{stream.FixedAxis, 1, spec(true, -1, 4), "[-1 4]", []int{1, 3, 4}, []int{3, 4}, nil, nil},
		{stream.NoAxis, 1, spec(false, -1), "[-1]", []int{1, 3}, []int{3}, [][]int{{3}, {1}}, [][]int{{1, 3}, {}}},
		{stream.NoAxis, 1, spec(false, -1, 4), "[-1 4]", []int{1, 3, 4}, []int{3, 4}, [][]int{{3, 4}},
			[][]int{{1, 3, 4}, {4}}},
		{stream.NoAxis, 1, spec(false), "[]", []int{1}, []int{}, [][]int{{}, {1}}, [][]int{{2}, {1, 1}}},
	} {
		m := &stream.Model{Name: "m", Axis: c.axis, MaxBatch: c.max, Inputs: []stream.TensorSpec{c.spec},
			Outputs: []stream.TensorSpec{c.spec}}
		if got := fmt.Sprint(m.Shape(&c.spec)); got != c.shape {
			t.Errorf("%v of axis %d is %s, want %s", c.spec, c.axis, got, c.shape)
		}
		out := []stream.Tensor{{Name: "x", Shape: c.from}}
		if m.TrimRows(out); fmt.Sprint(out[0].Shape) != fmt.Sprint(c.to) {
			t.Errorf("%v of %s is answered as %v", c.from, c.shape, out[0].Shape)
		}
		for i, shape := range append(append([][]int{}, c.ok...), c.wrong...) {
			_, _, err := m.Check(&stream.Frame{Codec: stream.Tensors,
				Inputs: []stream.Tensor{{Name: "x", Datatype: stream.Float32, Shape: shape}}})
			if (err == nil) != (i < len(c.ok)) {
				t.Errorf("%v for %s: %v", shape, c.shape, err)
			}
		}
	}
	m, shape, out := &stream.Model{Axis: stream.NoAxis}, []int{1, 2}, make([]stream.Tensor, 1)
	if n := testing.AllocsPerRun(100, func() { out[0].Shape = shape; m.TrimRows(out) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
