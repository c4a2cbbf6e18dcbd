package server_test

import (
	"fmt"
	"strings"
	"testing"

	"millrace/config"
	"millrace/internal/onnxfile"
	"millrace/server"
)

// flat is a model that answers its input x, of shape in, as y, of shape out.
func flat(in, out []any, to ...int64) []byte {
	m := onnxfile.Model{
		Inputs: []onnxfile.Value{{Name: "x", Type: onnxfile.Float32, Dims: in}}, Outputs: []onnxfile.Value{{Name: "y", Type: onnxfile.Float32, Dims: out}},
		Nodes: []onnxfile.Node{{Op: "Identity", Inputs: []string{"x"}, Outputs: []string{"y"}}},
	}
	if to != nil {
		var raw []byte
		for _, n := range to {
			for k := range 8 {
				raw = append(raw, byte(n>>(8*k)))
			}
		}
		m.Initializers = []onnxfile.Tensor{{Name: "to", Type: onnxfile.Int64, Dims: []int64{int64(len(to))}, Raw: raw}}
		m.Nodes = []onnxfile.Node{{Op: "Reshape", Inputs: []string{"x", "to"}, Outputs: []string{"y"}}}
	}
	return m.Bytes()
}

// sums is a model of sequences: y is the sum of x so far, and of the sequence's id, which is a
// string of digits, at its end.
func sums() []byte {
	value := func(name string, of int32) onnxfile.Value {
		return onnxfile.Value{Name: name, Type: of, Dims: []any{"N", 1}}
	}
	node := func(op, in, out string, attrs ...onnxfile.Attr) onnxfile.Node {
		return onnxfile.Node{Op: op, Inputs: strings.Fields(in), Outputs: []string{out}, Attrs: attrs}
	}
	return onnxfile.Model{
		Inputs:  []onnxfile.Value{value("id", onnxfile.String), value("x", onnxfile.Int32), value("before", onnxfile.Int32), value("end", onnxfile.Int32)},
		Outputs: []onnxfile.Value{value("y", onnxfile.Int32), value("after", onnxfile.Int32)},
		Nodes: []onnxfile.Node{
			node("Add", "x before", "after"), node("Cast", "id", "number", onnxfile.Attr{Name: "to", Value: int64(onnxfile.Int32)}),
			node("Mul", "number end", "last"), node("Add", "after last", "y"),
		},
	}.Bytes()
}

// What config.pbtxt declares of inputs and outputs is what clients see: shapes other than the
// file's, labels, the names of a model without a file, and ids of sequences as strings.
func TestDeclaredTensors(t *testing.T) {
	var labels strings.Builder
	for i := range 12 {
		fmt.Fprintf(&labels, "label %d\n", i)
	}
	dir := writeRepository(t, map[string]string{
		"picture/1/model.onnx": string(flat([]any{1, 3, 2, 2}, []any{1, 12, 1, 1}, 1, 12, 1, 1)),
		"picture/names.txt":    labels.String(),
		"picture/config.pbtxt": `platform: "onnxruntime_onnx" max_batch_size: 0
			input { name: "x" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, 2, 2 ] reshape { shape: [ 1, 3, 2, 2 ] } }
			output { name: "y" data_type: TYPE_FP32 dims: [ 12 ] reshape { shape: [ 1, 12, 1, 1 ] } label_filename: "names.txt" }`,
		"rows/1/model.onnx": string(flat([]any{"N", 3, 2}, []any{"N", 6, 1}, -1, 6, 1)),
		"rows/names.txt":    labels.String(),
		"rows/config.pbtxt": `max_batch_size: 4
			input { name: "x" data_type: TYPE_FP32 dims: [ 6 ] reshape { shape: [ 3, 2 ] } }
			output { name: "y" data_type: TYPE_FP32 dims: [ 6 ] reshape { shape: [ 6, 1 ] } label_filename: "names.txt" }`,
		"free/1/model.onnx": string(flat([]any{"A", 1, "B"}, []any{"A", 1, "B"})),
		"free/config.pbtxt": `input { name: "x" data_type: TYPE_FP32 dims: [ -1, -1 ] reshape { shape: [ -1, 1, -1 ] } }
			output { name: "y" data_type: TYPE_FP32 dims: [ -1, -1 ] reshape { shape: [ -1, 1, -1 ] } }`,
		"echo/config.pbtxt": `backend: "identity" max_batch_size: 8
			input { name: "A" data_type: TYPE_STRING dims: [ -1 ] } input { name: "B" data_type: TYPE_INT8 dims: [ 2 ] }
			output { name: "C" data_type: TYPE_STRING dims: [ -1 ] } output { name: "D" data_type: TYPE_INT8 dims: [ 2 ] }`,
		"single/config.pbtxt": `backend: "identity"
			input { name: "A" data_type: TYPE_INT8 dims: [ -1, 2 ] } output { name: "C" data_type: TYPE_INT8 dims: [ -1, 2 ] }`,
		"sums/1/model.onnx": string(sums()),
		"sums/config.pbtxt": `max_batch_size: 8
			input { name: "x" data_type: TYPE_INT32 dims: [ 1 ] } output { name: "y" data_type: TYPE_INT32 dims: [ 1 ] }
			sequence_batching {
				control_input { name: "end" control { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } }
				control_input { name: "id" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } }
				state { input_name: "before" output_name: "after" data_type: TYPE_INT32 dims: [ 1 ] }
			}`,
	})
	s, end := runWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off", Repository: config.Repository{Dir: dir}})
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	tensor := func(name, datatype, shape, data string) string {
		return fmt.Sprintf(`{"name":%q,"datatype":%q,"shape":%s,"data":%s}`, name, datatype, shape, data)
	}
	const twelve, six = `[0,1,2,3,4,5,6,7,8,9,10,11]`, `[[5,0,1,2,3,4],[0,1,2,3,4,5]]`
	for _, c := range []struct{ model, body, want string }{
		{"picture", `{"inputs":[` + tensor("x", "FP32", "[3,2,2]", twelve) + `]}`, `"outputs":[` + tensor("y", "FP32", "[12]", twelve)},
		{"picture", `{"inputs":[` + tensor("x", "FP32", "[3,2,2]", twelve) + `],"outputs":[{"name":"y","parameters":{"classification":2}}]}`,
			tensor("y", "BYTES", "[2]", `["11.000000:11:label 11","10.000000:10:label 10"]`)},
		{"picture", `{"inputs":[` + tensor("x", "FP32", "[1,3,2,2]", twelve) + `]}`, "inputs[0].shape"},
		{"rows", `{"inputs":[` + tensor("x", "FP32", "[2,6]", six) + `]}`, tensor("y", "FP32", "[2,6]", "[5,0,1,2,3,4,0,1,2,3,4,5]")},
		{"rows", `{"inputs":[` + tensor("x", "FP32", "[2,6]", six) + `],"outputs":[{"name":"y","parameters":{"classification":1}}]}`,
			tensor("y", "BYTES", "[2,1]", `["5.000000:0:label 0","5.000000:5:label 5"]`)},
		{"free", `{"inputs":[` + tensor("x", "FP32", "[2,3]", "[1,2,3,4,5,6]") + `]}`, tensor("y", "FP32", "[2,3]", "[1,2,3,4,5,6]")},
		{"free", `{"inputs":[` + tensor("x", "FP32", "[3,1]", "[1,2,3]") + `]}`, tensor("y", "FP32", "[3,1]", "[1,2,3]")},
		{"echo", `{"inputs":[` + tensor("B", "INT8", "[1,2]", "[1,2]") + "," + tensor("A", "BYTES", "[1,3]", `["a","","c"]`) + `],"outputs":[{"name":"D"},{"name":"C"}]}`,
			`"outputs":[` + tensor("D", "INT8", "[1,2]", "[1,2]") + "," + tensor("C", "BYTES", "[1,3]", `["a","","c"]`)},
		{"echo", `{"inputs":[` + tensor("B", "INT8", "[2]", "[1,2]") + "," + tensor("A", "BYTES", "[1]", `["a"]`) + `]}`,
			`"outputs":[` + tensor("C", "BYTES", "[1,1]", `["a"]`) + "," + tensor("D", "INT8", "[1,2]", "[1,2]")},
		{"echo", `{"inputs":[` + tensor("B", "INT16", "[1,2]", "[1,2]") + "," + tensor("A", "BYTES", "[1,1]", `["a"]`) + `]}`, "inputs[0].datatype"},
		{"single", `{"inputs":[` + tensor("A", "INT8", "[1,2]", "[1,2]") + `]}`, tensor("C", "INT8", "[1,2]", "[1,2]")},
		{"sums", `{"parameters":{"sequence_id":"1002","sequence_start":true},"inputs":[` + tensor("x", "INT32", "[1,1]", "[5]") + `]}`, tensor("y", "INT32", "[1,1]", "[5]")},
		{"sums", `{"parameters":{"sequence_id":"17","sequence_start":true},"inputs":[` + tensor("x", "INT32", "[1,1]", "[9]") + `]}`, tensor("y", "INT32", "[1,1]", "[9]")},
		{"sums", `{"parameters":{"sequence_id":"1002"},"inputs":[` + tensor("x", "INT32", "[1,1]", "[6]") + `]}`, tensor("y", "INT32", "[1,1]", "[11]")},
		{"sums", `{"parameters":{"sequence_id":"1002","sequence_end":true},"inputs":[` + tensor("x", "INT32", "[1,1]", "[1]") + `]}`, tensor("y", "INT32", "[1,1]", "[1014]")},
		{"sums", `{"parameters":{"sequence_id":"17","sequence_end":true},"inputs":[` + tensor("x", "INT32", "[1,1]", "[1]") + `]}`, tensor("y", "INT32", "[1,1]", "[27]")},
		{"sums", `{"parameters":{"sequence_id":17,"sequence_start":true},"inputs":[` + tensor("x", "INT32", "[1,1]", "[1]") + `]}`, "parameters.sequence_id"},
		{"sums", `{"parameters":{"sequence_id":"1\u0000","sequence_start":true},"inputs":[` + tensor("x", "INT32", "[1,1]", "[1]") + `]}`, "parameters.sequence_id"},
	} {
		status, text := postJSON(t, "http://"+s.Addr("http")+"/v2/models/"+c.model+"/infer", c.body)
		if !strings.Contains(text, c.want) || (status == 200) != strings.HasSuffix(c.want, "}") {
			t.Errorf("%s: %s\n%d %s, want %s", c.model, c.body, status, text, c.want)
		}
	}
	_, text := get(t, s, "/v2/models/picture")
	if !strings.Contains(text, `"shape":[3,2,2]}`) || !strings.Contains(text, `"shape":[12]}`) {
		t.Errorf("metadata: %s", text)
	}
	_, text = get(t, s, "/v2/models/picture/config")
	for _, want := range []string{`"max_batch_size":0`, `"format":"FORMAT_NCHW","dims":[3,2,2],"reshape":{"shape":[1,3,2,2]}`, `"dims":[12],"label_filename":"names.txt","reshape":{"shape":[1,12,1,1]}`} {
		if !strings.Contains(text, want) {
			t.Errorf("configuration: %s, want %s", text, want)
		}
	}
}
