package stream

import (
	"strings"
	"testing"
)

// A picture for a model without input.image is refused: the error names this setting if the input could be a picture,
// and otherwise the inputs.
func TestPictureForTensors(t *testing.T) {
	for i, c := range []struct {
		shapes [][]int
		codec  Codec
		image  bool
	}{
		{[][]int{{3, 224, 224}}, JPEG, true},
		{[][]int{{1, 3, 224, 224}}, PNG, true},
		{[][]int{{-1, -1, 3}}, WebP, true},
		{[][]int{{28, 28, 1}}, JPEG, true},
		{[][]int{{1, 28, 28}}, NV12, true},
		{[][]int{{3, 224, 224}}, Opaque, false},
		{[][]int{{4, 224, 224}}, JPEG, false},
		{[][]int{{3, 224, 224}, {3}}, JPEG, false},
		{[][]int{{224, 224}}, JPEG, false},
		{[][]int{{1, 2, 3}}, JPEG, false},
		{nil, JPEG, false},
	} {
		m := &Model{Name: "m", MaxBatch: 1}
		for _, shape := range c.shapes {
			m.Inputs = append(m.Inputs, TensorSpec{Name: "x", Datatype: Float32, Shape: shape})
		}
		_, _, err := m.Check(&Frame{Codec: c.codec})
		if CodeOf(err) != Unsupported || strings.Contains(err.Error(), "input.image") != c.image ||
			strings.Contains(err.Error(), "metadata of model m") == c.image {
			t.Errorf("%d: %v", i, err)
		}
	}
}
