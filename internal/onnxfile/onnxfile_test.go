package onnxfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/testneeds"
)

// python checks and reads a model with ONNX's own code, including the weights and attributes, and infers the shapes
// of the outputs anew.
const python = `
import json, sys
try:
    import onnx
    from onnx import numpy_helper, shape_inference
except ImportError as e:
    sys.exit("onnx cannot be imported, which this test needs (Debian: apt install python3-onnx): %s" % e)
m = onnx.load(sys.argv[1])
onnx.checker.check_model(m, full_check=True)
def dims(v):
    return [d.dim_param if d.HasField("dim_param") else d.dim_value if d.HasField("dim_value") else None for d in v.type.tensor_type.shape.dim]
declared = {v.name: [v.type.tensor_type.elem_type, dims(v)] for v in list(m.graph.input) + list(m.graph.output)}
weights = {t.name: [str(numpy_helper.to_array(t).dtype), list(numpy_helper.to_array(t).shape), float(abs(numpy_helper.to_array(t)).max())] for t in m.graph.initializer}
attrs = [[n.op_type, n.domain] + [[a.name, onnx.helper.get_attribute_value(a)] for a in n.attribute] for n in m.graph.node]
for v in m.graph.output:
    v.type.tensor_type.ClearField("shape")
m = shape_inference.infer_shapes(m, check_type=True, strict_mode=True)
print(json.dumps({"ir": m.ir_version, "opsets": {o.domain: o.version for o in m.opset_import}, "declared": declared, "weights": weights,
    "attrs": attrs, "inferred": {v.name: dims(v) for v in m.graph.output}}, default=lambda b: b.decode()))
`

type read struct {
	IR       int64
	Opsets   map[string]int64
	Declared map[string][2]any
	Weights  map[string][3]any
	Attrs    [][]any
	Inferred map[string][]any
}

func check(t *testing.T, model []byte) (r read) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.onnx")
	if err := os.WriteFile(path, model, 0o600); err != nil {
		t.Fatal(err)
	}
	// Debian's, whatever else is first in the path.
	out, err := exec.Command(testneeds.Python(t, "onnx"), "-c", python, path).Output()
	if err != nil {
		if e, ok := err.(*exec.ExitError); ok {
			err = fmt.Errorf("%w: %s", err, e.Stderr)
		}
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return r
}

func TestModelsAreValid(t *testing.T) {
	for _, c := range []struct {
		name               string
		model              []byte
		declared, inferred string
		weights            int
	}{
		{"identity", Identity(Int8, "N", int64(4), 2), "map[x:[3 [N 4 2]] y:[3 [N 4 2]]]", "map[y:[N 4 2]]", 0},
		{"identity, an axis without a name", Identity(Float16, "", 3), "map[x:[10 [<nil> 3]] y:[10 [<nil> 3]]]",
			"map[y:[unk__0 3]]", 0},
		{"identity of a scalar", Identity(Bool), "map[x:[9 []] y:[9 []]]", "map[y:[]]", 0},
		{"mlp", MLP(6, 300, 4, 3), "map[x:[1 [N 6]] y:[1 [N 4]]]", "map[y:[N 4]]", 6},
		{"mlp of one layer", MLP(6, 300, 4, 1), "map[x:[1 [N 6]] y:[1 [N 4]]]", "map[y:[N 4]]", 2},
		{"cnn", CNN(64, 48), "map[image:[1 [N 3 48 64]] scores:[1 [N 10]]]", "map[scores:[N 10]]", 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := check(t, c.model)
			if got := fmt.Sprint(r.Declared); got != c.declared {
				t.Errorf("declared %s, want %s", got, c.declared)
			}
			if got := fmt.Sprint(r.Inferred); got != c.inferred {
				t.Errorf("inferred %s, want %s", got, c.inferred)
			}
			if r.IR != DefaultIR || fmt.Sprint(r.Opsets) != fmt.Sprintf("map[:%d]", DefaultOpset) {
				t.Errorf("versions %d and %v", r.IR, r.Opsets)
			}
			if len(r.Weights) != c.weights {
				t.Errorf("%d weights, want %d", len(r.Weights), c.weights)
			}
			for name, w := range r.Weights {
				if most := w[2].(float64); w[0] != "float32" || most < 0.01 || most > 2 {
					t.Errorf("weights %s are %v", name, w)
				}
			}
		})
	}
}

func TestEverythingIsWritten(t *testing.T) {
	r := check(t, Model{
		IR: 7, Opset: 13, Domain: "example",
		Inputs:  []Value{{"x", Float32, []any{1, 2}}},
		Outputs: []Value{{"y", Float32, []any{1, 2}}, {"z", Int64, []any{2}}},
		Initializers: []Tensor{{Name: "c", Type: Int64, Dims: []int64{2}, Raw: []byte{1, 0, 0, 0, 0, 0, 0, 0, 254, 255,
			255, 255, 255, 255, 255, 255}}},
		Nodes: []Node{
			{Op: "Strange", Domain: "example", Inputs: []string{"x"}, Outputs: []string{"s"}, Attrs: []Attr{
				{"i", int64(-3)}, {"f", float32(0.5)}, {"s", "word"}, {"l", []int64{1, -1}}, {"e", ""}}},
			{Op: "Identity", Inputs: []string{"x"}, Outputs: []string{"y"}},
			{Op: "Identity", Inputs: []string{"c"}, Outputs: []string{"z"}},
		},
	}.Bytes())
	if r.IR != 7 || fmt.Sprint(r.Opsets) != "map[:13 example:1]" {
		t.Errorf("versions %d and %v", r.IR, r.Opsets)
	}
	if got := fmt.Sprint(r.Attrs[0]); got != "[Strange example [i -3] [f 0.5] [s word] [l [1 -1]] [e ]]" {
		t.Errorf("the first node reads %s", got)
	}
	if got := fmt.Sprint(r.Weights); got != "map[c:[int64 [2] 2]]" {
		t.Errorf("the constants read %s", got)
	}
}

func TestSameModelEachTime(t *testing.T) {
	if !bytes.Equal(CNN(32, 32), CNN(32, 32)) || !bytes.Equal(MLP(4, 8, 2, 2), MLP(4, 8, 2, 2)) {
		t.Error("two models of the same size differ")
	}
}

func TestWhatHasNoEncodingPanics(t *testing.T) {
	for want, m := range map[string]Model{
		`value "x": a dimension of float64`: {Inputs: []Value{{"x", Float32, []any{1.5}}}},
		`attribute "a": int is none`:        {Nodes: []Node{{Op: "Relu", Attrs: []Attr{{"a", 1}}}}},
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, want) {
					t.Errorf("%q, want %q", text, want)
				}
			}()
			m.Bytes()
		}()
	}
}
