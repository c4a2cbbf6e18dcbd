package repository_test

import (
	"strings"
	"testing"

	"millrace/internal/onnxfile"
	"millrace/stream"
	"millrace/workers"
)

// controlled is a model whose outputs are (x+start+end)*ready, and id.
func controlled() string {
	value := func(name string, of int32) onnxfile.Value {
		return onnxfile.Value{Name: name, Type: of, Dims: []any{"N", 1}}
	}
	node := func(op, in, out string) onnxfile.Node {
		return onnxfile.Node{Op: op, Inputs: strings.Fields(in), Outputs: []string{out}}
	}
	m := onnxfile.Model{
		Inputs:  []onnxfile.Value{value("x", onnxfile.Float32), value("start", onnxfile.Float32), value("end", onnxfile.Float32), value("ready", onnxfile.Float32), value("id", onnxfile.Uint64)},
		Outputs: []onnxfile.Value{value("y", onnxfile.Float32), value("of", onnxfile.Uint64)},
		Nodes: []onnxfile.Node{
			node("Add", "x start", "a"), node("Add", "a end", "b"), node("Mul", "b ready", "y"), node("Identity", "id", "of"),
		},
	}
	return string(m.Bytes())
}

const sequenceText = `
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [1] }
output { name: "y" data_type: TYPE_FP32 dims: [1] }
sequence_batching {
  max_sequence_idle_microseconds: 5000000
  oldest { max_candidate_sequences: 4 }
  control_input { name: "start" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 10] } }
  control_input { name: "end" control { kind: CONTROL_SEQUENCE_END int32_false_true: [0, 100] } }
  control_input { name: "ready" control { kind: CONTROL_SEQUENCE_READY bool_false_true: [false, true] } }
  control_input { name: "id" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
}`

// The inputs of control_input are not those of clients, and the bounds of sequences are as
// the configuration says.
func TestSequenceBatching(t *testing.T) {
	r := newRig(t, map[string]string{"m/config.pbtxt": sequenceText, "m/1/model.onnx": controlled()})
	_, err := r.Load(t.Context(), "m", workers.Load{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := r.Group("m", "")
	if err != nil {
		t.Fatal(err)
	}
	m := g.Model()
	if len(m.Inputs) != 1 || m.Inputs[0].Name != "x" || !m.Stateful || m.Sequences.Idle.Seconds() != 5 || m.Params["controls"] != "start=start:0,10; end=end:0,100; ready=ready:0,1; id=id" {
		t.Errorf("%+v", m)
	}
}

func TestBadSequenceBatching(t *testing.T) {
	for from, to := range map[string][2]string{
		"fp32_false_true: [0, 10]":              {"", "control[0]"},
		`name: "start"`:                         {`name: "none"`, "none"},
		"oldest { max_candidate_sequences: 4 }": {"iterative_sequence: true", "iterative_sequence"},
		`name: "x" data`:                        {`name: "id" data`, "id"},
	} {
		r := newRig(t, map[string]string{"m/config.pbtxt": strings.Replace(sequenceText, from, to[0], 1), "m/1/model.onnx": controlled()})
		if _, err := r.Load(t.Context(), "m", workers.Load{}); err == nil || !strings.Contains(err.Error(), to[1]) || stream.CodeOf(err) == stream.Internal {
			t.Errorf("%s: %v", from, err)
		}
	}
}
