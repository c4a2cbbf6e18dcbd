package stream

import (
	"strings"
	"testing"
)

// Optional inputs may be missing; errors name missing required inputs and unknown inputs.
func TestOptional(t *testing.T) {
	spec := func(name string, optional bool) TensorSpec {
		return TensorSpec{Name: name, Datatype: Uint8, Shape: []int{1}, Optional: optional}
	}
	m := &Model{Name: "m", MaxBatch: 4, Inputs: []TensorSpec{spec("gain", true), spec("x", false), spec("bias", true)}}
	for sent, want := range map[string]string{
		"x": "", "x gain": "", "gain x bias": "", "bias x": "",
		"gain":       "missing required input(s) ['x']",
		"gain bias":  "missing required input(s) ['x']",
		"x other":    "unexpected inference input 'other'",
		"x gain one": "unexpected inference input 'one'",
		"one":        "Got input(s) ['one'], but missing required input(s) ['x']",
		"a b c": "unexpected inference input 'a' for model 'm': its inputs are gain, x, " +
			"bias. Got input(s) ['a','b','c']",
		"x x gain x": "expected 3 inputs but got 4 inputs for model 'm': its inputs are gain, x, " +
			"bias. Got input(s) ['x','x','gain','x']",
		"x" + strings.Repeat(" a", 20): "Got input(s) ['x'" + strings.Repeat(",'a'", 15) + ",...]",
	} {
		f := &Frame{Codec: Tensors}
		for _, name := range strings.Fields(sent) {
			f.Inputs = append(f.Inputs, Tensor{Name: name, Datatype: Uint8, Shape: []int{2, 1}, Data: []byte{1, 2}})
		}
		rows, _, err := m.checkTensors(f)
		if want == "" && (err != nil || rows != 2) ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %d rows, %v, want %q", sent, rows, err, want)
		}
	}
}
