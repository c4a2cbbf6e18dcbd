package graph_test

import (
	"testing"

	"millrace/stream"
	"millrace/workers"
	"millrace/workers/graph"
)

// TestEnsemble runs an ensemble of a model configuration.
func TestEnsemble(t *testing.T) {
	x := newMachine(t)
	x.load("double", "scale", stream.Params{"by": 2.0})
	s, err := graph.FromEnsemble(workers.Ensemble{Outputs: []string{"OUT"}, Steps: []workers.EnsembleStep{
		{Model: "double", Input: map[string]string{"x": "IN"}, Output: map[string]string{"y": "mid"}},
		{Model: "double", Version: "1", Input: map[string]string{"x": "mid"}, Output: map[string]string{"y": "OUT"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	x.graph(*s)
	r := x.infer("g", x.tensors(map[string][]float32{"IN": {1, 2}}))
	defer r.Release()
	if v := output(t, r, "OUT").Float32s(); len(r.Outputs) != 1 || v[0] != 4 || v[1] != 8 {
		t.Errorf("OUT is %v of %d outputs", v, len(r.Outputs))
	}
	circle := workers.EnsembleStep{Model: "m", Input: map[string]string{"x": "a"}, Output: map[string]string{"y": "a"}}
	const want = "steps.m.input: is part of a circle: each of m waits for the next, and the last for the first"
	if _, err := graph.FromEnsemble(workers.Ensemble{Steps: []workers.EnsembleStep{circle}}); err == nil ||
		err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
