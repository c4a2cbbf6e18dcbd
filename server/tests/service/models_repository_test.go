package service_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/config"
	"millrace/internal/inferencepb"
	"millrace/internal/onnxfile"
	"millrace/internal/servertest"
	"millrace/server"
)

// The setting name is the name in the metadata of both protocols.
func TestNameOfTheServer(t *testing.T) {
	for set, want := range map[string]string{"": "millrace", "triton": "triton"} {
		s, stop := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Name: set})
		if _, text := servertest.Get(t, s, "/v2"); !strings.HasPrefix(text, `{"name":"`+want+`"`) {
			t.Error(text)
		}
		if m, err := servertest.GRPC(t, s).ServerMetadata(t.Context(),
			&inferencepb.ServerMetadataRequest{}); err != nil ||
			m.Name != want {
			t.Error(m, err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

// A model of the repository that fails to load fails the start, as with Triton; with exit_on_error off the server
// serves the others, and the index has the reason.
func TestUnloadableModelOfTheRepository(t *testing.T) {
	dir := servertest.WriteRepository(t, map[string]string{"good/config.pbtxt": `backend: "identity"`,
		"bad/config.pbtxt": `backend: "nothing"`})
	cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: "off", Repository: config.Repository{Dir: dir}}
	s, err := server.New(cfg)
	if err == nil {
		err = s.Run(context.Background())
	}
	if err == nil || !strings.Contains(err.Error(), `"nothing"`) {
		t.Fatal(err)
	}
	cfg.Repository.Exit = new(bool)
	s, stop := servertest.RunWith(t, cfg)
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	code, text := servertest.PostJSON(t, "http://"+s.Addr("http")+"/v2/repository/index", "")
	if code != 200 || !strings.Contains(text,
		`{"name":"bad","version":"","state":"UNAVAILABLE","reason":"backend: \"nothing\"`) ||
		!strings.Contains(text, `{"name":"good","version":"1","state":"READY"`) {
		t.Error(code, text)
	}
	if code, text := servertest.Get(t, s, "/v2/models/good/ready"); code != 200 {
		t.Error(code, text)
	}
}

// A model of Triton's sequence batching gets the position of each request in its sequence: the output is
// (x+start+end)*ready, where start is 10 and end 100, and id.
func TestControlInputs(t *testing.T) {
	value := func(name string, of int32) onnxfile.Value {
		return onnxfile.Value{Name: name, Type: of, Dims: []any{"N", 1}}
	}
	node := func(op, in, out string) onnxfile.Node {
		return onnxfile.Node{Op: op, Inputs: strings.Fields(in), Outputs: []string{out}}
	}
	m := onnxfile.Model{
		Inputs: []onnxfile.Value{value("x", onnxfile.Float32), value("start", onnxfile.Float32),
			value("end", onnxfile.Float32), value("ready", onnxfile.Float32), value("id", onnxfile.Int32)},
		Outputs: []onnxfile.Value{value("y", onnxfile.Float32), value("of", onnxfile.Int32)},
		Nodes: []onnxfile.Node{node("Add", "x start", "a"), node("Add", "a end", "b"), node("Mul", "b ready", "y"),
			node("Identity", "id", "of")},
	}
	dir := servertest.WriteRepository(t, map[string]string{"m/1/model.onnx": string(m.Bytes()), "m/config.pbtxt": `
max_batch_size: 4
sequence_batching {
  max_sequence_idle_microseconds: 60000000
  control_input { name: "start" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 10] } }
  control_input { name: "end" control { kind: CONTROL_SEQUENCE_END fp32_false_true: [0, 100] } }
  control_input { name: "ready" control { kind: CONTROL_SEQUENCE_READY fp32_false_true: [0, 1] } }
  control_input { name: "id" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT32 } }
}`})
	s, stop := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off",
		Repository: config.Repository{Dir: dir}})
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct{ params, want string }{
		{`"sequence_id":7,"sequence_start":true`, `"data":[11]`},
		{`"sequence_id":8,"sequence_start":true`, `"data":[8]`},
		{`"sequence_id":7`, `"data":[1]`},
		{`"sequence_id":7,"sequence_end":true`, `"data":[101]`},
		{`"sequence_id":7`, "START"},
		{`"sequence_id":9,"sequence_start":true,"sequence_end":true`, `"data":[111]`},
		{`"triton_enable_empty_final_response":false`, `"data":[111]`}, // alone: its own start and end
		{`"sequence_id":"word","sequence_start":true`, "does not fit"},
		{`"sequence_id":4294967296,"sequence_start":true`, "does not fit"},
	} {
		_, text := servertest.PostJSON(t, "http://"+s.Addr("http")+"/v2/models/m/infer", `{"parameters":{`+c.params+
			`},"inputs":[{"name":"x","datatype":"FP32","shape":[1,1],"data":[1]}]}`)
		if !strings.Contains(text, c.want) {
			t.Errorf("%s: %s, want %s", c.params, text, c.want)
		}
	}
}

// An unreadable version does not fail the start when another version is served.
func TestStartWithBadVersion(t *testing.T) {
	small := string(onnxfile.Identity(onnxfile.Float32, "N", 2))
	dir := servertest.WriteRepository(t, map[string]string{"m/config.yaml": "versions: {all: true}",
		"m/1/model.onnx": small,
		"m/2/model.onnx": "torn", "m/3/empty": ""})
	s, stop := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off",
		Repository: config.Repository{Dir: dir}})
	for version, want := range map[string]int{"1": 200, "2": 404, "3": 404} {
		if code, text := servertest.Get(t, s, "/v2/models/m/versions/"+version); code != want {
			t.Errorf("version %s: %d %s", version, code, text)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A graph that enters a polled repository before its model is loaded once the model exists, and the reason is logged
// once.
func TestPolledGraphBeforeItsModel(t *testing.T) {
	dir := servertest.WriteRepository(t, map[string]string{"a_graph/config.pbtxt": `
		platform: "ensemble"
		input { name: "x" data_type: TYPE_FP32 dims: [ 2 ] }
		output { name: "y" data_type: TYPE_FP32 dims: [ 2 ] }
		ensemble_scheduling { step { model_name: "b_model" input_map { key: "x" value: "x" } output_map { key: "x" value: "y" } } }`})
	logs := filepath.Join(t.TempDir(), "log")
	cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: "off",
		Repository: config.Repository{Dir: dir, Mode: config.LoadPoll, Poll: 10 * time.Millisecond}}
	cfg.Log.File = logs
	s, stop := servertest.RunWith(t, cfg)
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	time.Sleep(100 * time.Millisecond) // several looks
	if err := os.Mkdir(filepath.Join(dir, "b_model"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "b_model", "config.pbtxt"), []byte(`backend: "identity"`),
		0o600); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		code, text := servertest.Get(t, s, "/v2/models/a_graph/ready")
		if code == 200 {
			break
		}
		if time.Now().After(end) {
			t.Fatal(code, text)
		}
	}
	text, err := os.ReadFile(logs)
	// the model may be seen half written
	if n := strings.Count(string(text), "a model of the repository cannot be loaded"); n < 1 || n > 2 {
		t.Errorf("%d lines, %v: %s", n, err, text)
	}
}
