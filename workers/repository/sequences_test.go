package repository_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "millrace/internal/inferencepb"
	"millrace/internal/onnxfile"
	"millrace/stream"
	"millrace/workers"
	"millrace/workers/repository"
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
		Inputs: []onnxfile.Value{value("x", onnxfile.Float32), value("start", onnxfile.Float32),
			value("end", onnxfile.Float32), value("ready", onnxfile.Float32), value("id", onnxfile.Uint64)},
		Outputs: []onnxfile.Value{value("y", onnxfile.Float32), value("of", onnxfile.Uint64)},
		Nodes: []onnxfile.Node{
			node("Add", "x start", "a"), node("Add", "a end", "b"), node("Mul", "b ready", "y"),
			node("Identity", "id", "of"),
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
  oldest { max_candidate_sequences: 4 max_queue_delay_microseconds: 300 }
  control_input { name: "start" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 10] } }
  control_input { name: "end" control { kind: CONTROL_SEQUENCE_END int32_false_true: [0, 100] } }
  control_input { name: "ready" control { kind: CONTROL_SEQUENCE_READY bool_false_true: [false, true] } }
  control_input { name: "id" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
}`

// The inputs of control_input are hidden from clients, and the bounds of sequences come from the configuration.
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
	if len(m.Inputs) != 1 || m.Inputs[0].Name != "x" || !m.Stateful || m.Sequences.Idle.Seconds() != 5 ||
		m.Params["controls"] != "start=start:0,10; end=end:0,100; ready=ready:0,1; id=id" {
		t.Errorf("%+v", m)
	}
	got := repository.Config(g, nil)
	d := got.GetSequenceBatching()
	if d.GetMaxSequenceIdleMicroseconds() != 5000000 || d.GetOldest().GetMaxQueueDelayMicroseconds() != 300 ||
		len(d.GetControlInput()) != 4 {
		t.Fatalf("%v", got)
	}
	for i, want := range []*pb.ModelSequenceBatching_Control{
		{Kind: pb.ModelSequenceBatching_Control_CONTROL_SEQUENCE_START, Int32FalseTrue: []int32{0, 10}},
		{Kind: pb.ModelSequenceBatching_Control_CONTROL_SEQUENCE_END, Int32FalseTrue: []int32{0, 100}},
		{Kind: pb.ModelSequenceBatching_Control_CONTROL_SEQUENCE_READY, Int32FalseTrue: []int32{0, 1}},
		{Kind: pb.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID},
	} {
		if c := d.ControlInput[i]; c.Name != []string{"start", "end", "ready", "id"}[i] || len(c.Control) != 1 ||
			!proto.Equal(c.Control[0], want) {
			t.Errorf("control %d: %v", i, c)
		}
	}
}

// A kind with optional state keeps the state in sequences; Triton's name of the kind's delay is also accepted.
func TestSequencesOfOtherKinds(t *testing.T) {
	r := newRig(t, map[string]string{
		"m/config.pbtxt": `backend: "identity" max_batch_size: 2 input { name: "x" data_type: TYPE_FP32 dims: [1] } output { name: "y" data_type: TYPE_FP32 dims: [1] }
			sequence_batching { direct {} } parameters { key: "execute_delay_ms" value { string_value: "20" } } parameters { key: "creation_delay_sec" value { string_value: "0" } }`,
	})
	if _, err := r.Load(t.Context(), "m", workers.Load{}); err != nil {
		t.Fatal(err)
	}
	g, err := r.Group("m", "")
	if err != nil {
		t.Fatal(err)
	}
	if m := g.Model(); !m.Stateful || fmt.Sprint(m.Params["delay"]) != "20ms" {
		t.Errorf("%+v", m)
	}
	if got := repository.Config(g, nil); got.GetSequenceBatching() == nil || got.GetMaxBatchSize() != 2 {
		t.Errorf("%v", got)
	}
}

func TestBadSequenceBatching(t *testing.T) {
	for from, to := range map[string][2]string{
		"fp32_false_true: [0, 10]": {"", "control[0]"},
		`name: "start"`:            {`name: "none"`, "none"},
		"oldest {":                 {"iterative_sequence: true oldest {", "iterative_sequence"},
		`name: "x" data`:           {`name: "id" data`, "id"},
	} {
		r := newRig(t, map[string]string{"m/config.pbtxt": strings.Replace(sequenceText, from, to[0], 1),
			"m/1/model.onnx": controlled()})
		if _, err := r.Load(t.Context(), "m", workers.Load{}); err == nil || !strings.Contains(err.Error(), to[1]) ||
			stream.CodeOf(err) == stream.Internal {
			t.Errorf("%s: %v", from, err)
		}
	}
}
