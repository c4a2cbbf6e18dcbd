package graph_test

import (
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"millrace/internal/inferencepb"
	"millrace/stream"
	"millrace/workers/graph"
)

// TestEnsemble runs an ensemble as a model configuration describes it.
func TestEnsemble(t *testing.T) {
	x := newMachine(t)
	x.load("double", "scale", stream.Params{"by": 2.0})
	var c inferencepb.ModelConfig
	if err := prototext.Unmarshal([]byte(`
		name: "twice" platform: "ensemble" max_batch_size: 4
		input [{ name: "IN" data_type: TYPE_FP32 dims: [2] }]
		output [{ name: "OUT" data_type: TYPE_FP32 dims: [2] }]
		ensemble_scheduling { step [
			{ model_name: "double" model_version: -1 input_map { key: "x" value: "IN" } output_map { key: "y" value: "mid" } },
			{ model_name: "double" model_version: 1 input_map { key: "x" value: "mid" } output_map { key: "y" value: "OUT" } }
		] }`), &c); err != nil {
		t.Fatal(err)
	}
	s, err := graph.FromEnsemble(&c)
	if err != nil {
		t.Fatal(err)
	}
	x.graph(*s)
	r := x.infer("g", x.tensors(map[string][]float32{"IN": {1, 2}}))
	defer r.Release()
	if v := output(t, r, "OUT").Float32s(); len(r.Outputs) != 1 || v[0] != 4 || v[1] != 8 {
		t.Errorf("OUT is %v of %d outputs", v, len(r.Outputs))
	}
	for text, want := range map[string]string{
		``: "ensemble_scheduling.step: is missing: an ensemble needs at least one step",
		`ensemble_scheduling { step { input_map { key: "x" value: "a" } } }`:                                                    "ensemble_scheduling.step[0].model_name: is missing",
		`ensemble_scheduling { step { model_name: "m" input_map { key: "x" value: "a" } } }`:                                    "ensemble_scheduling.step[0].output_map: is missing",
		`ensemble_scheduling { step { model_name: "m" model_namespace: "n" } }`:                                                 "ensemble_scheduling.step[0].model_namespace: is set, but models have no namespaces: leave it out",
		`ensemble_scheduling { step { model_name: "m" input_map { key: "x" value: "a" } output_map { key: "y" value: "a" } } }`: "steps.m.input: is part of a circle: each of m waits for the next, and the last for the first",
	} {
		c.Reset()
		if err := prototext.Unmarshal([]byte(text), &c); err != nil {
			t.Fatal(err)
		}
		if _, err := graph.FromEnsemble(&c); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
