package service_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace/config"
	"millrace/internal/inferencepb"
	"millrace/internal/onnxfile"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/stream"
)

// flat is a model that returns its input x, of shape in, as y, of shape out.
func flat(in, out []any, to ...int64) []byte {
	m := onnxfile.Model{
		Inputs:  []onnxfile.Value{{Name: "x", Type: onnxfile.Float32, Dims: in}},
		Outputs: []onnxfile.Value{{Name: "y", Type: onnxfile.Float32, Dims: out}},
		Nodes:   []onnxfile.Node{{Op: "Identity", Inputs: []string{"x"}, Outputs: []string{"y"}}},
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

// sums is a model of sequences: y is the sum of x so far, plus, at the end, the sequence's id, a string of digits.
func sums() []byte {
	value := func(name string, of int32) onnxfile.Value {
		return onnxfile.Value{Name: name, Type: of, Dims: []any{"N", 1}}
	}
	node := func(op, in, out string, attrs ...onnxfile.Attr) onnxfile.Node {
		return onnxfile.Node{Op: op, Inputs: strings.Fields(in), Outputs: []string{out}, Attrs: attrs}
	}
	return onnxfile.Model{
		Inputs: []onnxfile.Value{value("id", onnxfile.String), value("x", onnxfile.Int32),
			value("before", onnxfile.Int32), value("end", onnxfile.Int32)},
		Outputs: []onnxfile.Value{value("y", onnxfile.Int32), value("after", onnxfile.Int32)},
		Nodes: []onnxfile.Node{
			node("Add", "x before", "after"),
			node("Cast", "id", "number", onnxfile.Attr{Name: "to", Value: int64(onnxfile.Int32)}),
			node("Mul", "number end", "last"), node("Add", "after last", "y"),
		},
	}.Bytes()
}

// Clients see the inputs and outputs that config.pbtxt declares: shapes other than the file's, labels, names for a
// model without a file, and sequence ids as strings.
func TestDeclaredTensors(t *testing.T) {
	var labels strings.Builder
	for i := range 12 {
		fmt.Fprintf(&labels, "label %d\n", i)
	}
	dir := servertest.WriteRepository(t, map[string]string{
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
		"same/config.yaml": "source: identity\nbatching: {max_size: 4}\ntensors: {inputs: [A BYTES -1 2], " +
			"outputs: [\"C BYTES -1 2\"]}\n",
		"vector/config.yaml": "source: identity\ntensors: {inputs: [A INT8 -1], outputs: [C INT8 -1]}\n",
		"sums/1/model.onnx":  string(sums()),
		"sums/config.pbtxt": `max_batch_size: 8
			input { name: "x" data_type: TYPE_INT32 dims: [ 1 ] } output { name: "y" data_type: TYPE_INT32 dims: [ 1 ] }
			sequence_batching {
				control_input { name: "end" control { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } }
				control_input { name: "id" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } }
				state { input_name: "before" output_name: "after" data_type: TYPE_INT32 dims: [ 1 ] }
			}`,
	})
	s, end := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off",
		Repository: config.Repository{Dir: dir}})
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
		{"picture", `{"inputs":[` + tensor("x", "FP32", "[3,2,2]", twelve) + `]}`,
			`"outputs":[` + tensor("y", "FP32", "[12]", twelve)},
		{"picture", `{"inputs":[` + tensor("x", "FP32", "[3,2,2]", twelve) +
			`],"outputs":[{"name":"y","parameters":{"classification":2}}]}`,
			tensor("y", "BYTES", "[2]", `["11.000000:11:label 11","10.000000:10:label 10"]`)},
		{"picture", `{"inputs":[` + tensor("x", "FP32", "[1,3,2,2]", twelve) + `]}`, "inputs[0].shape"},
		{"rows", `{"inputs":[` + tensor("x", "FP32", "[2,6]", six) + `]}`,
			tensor("y", "FP32", "[2,6]", "[5,0,1,2,3,4,0,1,2,3,4,5]")},
		{"rows", `{"inputs":[` + tensor("x", "FP32", "[2,6]", six) +
			`],"outputs":[{"name":"y","parameters":{"classification":1}}]}`,
			tensor("y", "BYTES", "[2,1]", `["5.000000:0:label 0","5.000000:5:label 5"]`)},
		{"free", `{"inputs":[` + tensor("x", "FP32", "[2,3]", "[1,2,3,4,5,6]") + `]}`,
			tensor("y", "FP32", "[2,3]", "[1,2,3,4,5,6]")},
		{"free", `{"inputs":[` + tensor("x", "FP32", "[3,1]", "[1,2,3]") + `]}`,
			tensor("y", "FP32", "[3,1]", "[1,2,3]")},
		{"echo", `{"inputs":[` + tensor("B", "INT8", "[1,2]", "[1,2]") + "," + tensor("A", "BYTES", "[1,3]",
			`["a","","c"]`) + `],"outputs":[{"name":"D"},{"name":"C"}]}`,
			`"outputs":[` + tensor("D", "INT8", "[1,2]", "[1,2]") + "," + tensor("C", "BYTES", "[1,3]",
				`["a","","c"]`)},
		{"echo", `{"inputs":[` + tensor("B", "INT8", "[2]", "[1,2]") + "," + tensor("A", "BYTES", "[1]", `["a"]`) +
			`]}`,
			`"outputs":[` + tensor("C", "BYTES", "[1,1]", `["a"]`) + "," + tensor("D", "INT8", "[1,2]", "[1,2]")},
		{"echo", `{"inputs":[` + tensor("B", "INT16", "[1,2]", "[1,2]") + "," + tensor("A", "BYTES", "[1,1]",
			`["a"]`) + `]}`, "inputs[0].datatype"},
		{"single", `{"inputs":[` + tensor("A", "INT8", "[1,2]", "[1,2]") + `]}`, tensor("C", "INT8", "[1,2]", "[1,2]")},
		{"same", `{"inputs":[` + tensor("A", "BYTES", "[2,2]", `["a","b","c","d"]`) + `]}`,
			tensor("C", "BYTES", "[2,2]", `["a","b","c","d"]`)},
		{"same", `{"inputs":[` + tensor("A", "BYTES", "[5,2]", `["a","b","c","d","e","f","g","h","i","j"]`) + `]}`,
			"inputs.shape"},
		{"vector", `{"inputs":[` + tensor("A", "INT8", "[20]",
			"[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]") + `]}`,
			tensor("C", "INT8", "[20]", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]")},
		{"sums", `{"parameters":{"sequence_id":"1002","sequence_start":true},"inputs":[` + tensor("x", "INT32",
			"[1,1]", "[5]") + `]}`, tensor("y", "INT32", "[1,1]", "[5]")},
		{"sums", `{"parameters":{"sequence_id":"17","sequence_start":true},"inputs":[` + tensor("x", "INT32", "[1,1]",
			"[9]") + `]}`, tensor("y", "INT32", "[1,1]", "[9]")},
		{"sums", `{"parameters":{"sequence_id":"1002"},"inputs":[` + tensor("x", "INT32", "[1,1]", "[6]") + `]}`,
			tensor("y", "INT32", "[1,1]", "[11]")},
		{"sums", `{"parameters":{"sequence_id":"1002","sequence_end":true},"inputs":[` + tensor("x", "INT32", "[1,1]",
			"[1]") + `]}`, tensor("y", "INT32", "[1,1]", "[1014]")},
		{"sums", `{"parameters":{"sequence_id":"17","sequence_end":true},"inputs":[` + tensor("x", "INT32", "[1,1]",
			"[1]") + `]}`, tensor("y", "INT32", "[1,1]", "[27]")},
		{"sums", `{"parameters":{"sequence_id":17,"sequence_start":true},"inputs":[` + tensor("x", "INT32", "[1,1]",
			"[1]") + `]}`, "parameters.sequence_id"},
		{"sums", `{"parameters":{"sequence_id":"1\u0000","sequence_start":true},"inputs":[` + tensor("x", "INT32",
			"[1,1]", "[1]") + `]}`, "parameters.sequence_id"},
	} {
		status, text := servertest.PostJSON(t, "http://"+s.Addr("http")+"/v2/models/"+c.model+"/infer", c.body)
		if !strings.Contains(text, c.want) || (status == 200) != strings.HasSuffix(c.want, "}") {
			t.Errorf("%s: %s\n%d %s, want %s", c.model, c.body, status, text, c.want)
		}
	}
	_, text := servertest.Get(t, s, "/v2/models/picture")
	if !strings.Contains(text, `"shape":[3,2,2]}`) || !strings.Contains(text, `"shape":[12]}`) {
		t.Errorf("metadata: %s", text)
	}
	_, text = servertest.Get(t, s, "/v2/models/picture/config")
	for _, want := range []string{`"max_batch_size":0`,
		`"format":"FORMAT_NCHW","dims":[3,2,2],"reshape":{"shape":[1,3,2,2]}`,
		`"dims":[12],"label_filename":"names.txt","reshape":{"shape":[1,12,1,1]}`} {
		if !strings.Contains(text, want) {
			t.Errorf("configuration: %s, want %s", text, want)
		}
	}
}

// An ensemble with max_batch_size 0 and dims of one row takes and returns tensors without the batch axis of its
// models, as Triton's ensembles do. With the batch axis in dims, tensors have the batch axis.
func TestEnsembleWithoutBatchAxis(t *testing.T) {
	const step = `ensemble_scheduling { step { model_name: %q input_map { key: %q value: "x" } output_map { key: %q ` +
		`value: "y" } } }`
	declare := func(dims string) string {
		return `platform: "ensemble" input { name: "x" data_type: TYPE_FP32 dims: [ ` + dims +
			` ] } output { name: "y" data_type: TYPE_FP32 dims: [ ` + dims + ` ] } `
	}
	dir := servertest.WriteRepository(t, map[string]string{
		"rows/config.pbtxt": `backend: "identity" max_batch_size: 8 input { name: "A" data_type: TYPE_FP32 dims: [ ` +
			`-1 ] } output { name: "B" data_type: TYPE_FP32 dims: [ -1 ] }`,
		"flat/config.pbtxt": `backend: "identity" max_batch_size: 0 input { name: "A" data_type: TYPE_FP32 dims: [ ` +
			`-1 ] } output { name: "B" data_type: TYPE_FP32 dims: [ -1 ] }`,
		"one/config.pbtxt":  declare("-1") + fmt.Sprintf(step, "rows", "A", "B"),
		"two/config.pbtxt":  declare("-1") + fmt.Sprintf(step, "one", "x", "y"),
		"axis/config.pbtxt": declare("-1, -1") + fmt.Sprintf(step, "rows", "A", "B"),
		"many/config.pbtxt": "max_batch_size: 8 " + declare("-1") + fmt.Sprintf(step, "rows", "A", "B"),
		"mixed/config.pbtxt": declare("-1") + `ensemble_scheduling {
			step { model_name: "flat" input_map { key: "A" value: "x" } output_map { key: "B" value: "mid" } }
			step { model_name: "rows" input_map { key: "A" value: "mid" } output_map { key: "B" value: "y" } } }`,
	})
	s, end := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off",
		Repository: config.Repository{Dir: dir}})
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct{ model, metadata, shape, want string }{
		{"one", "[-1]", "[3]", "[3]"},
		{"one", "[-1]", "[1,3]", "inputs[0].shape"},
		{"two", "[-1]", "[3]", "[3]"},
		{"mixed", "[-1]", "[3]", "[3]"},
		{"axis", "[-1,-1]", "[1,3]", "[1,3]"},
		{"many", "[-1,-1]", "[3,1]", "[3,1]"},
	} {
		if _, text := servertest.Get(t, s, "/v2/models/"+c.model); strings.Count(text, `"shape":`+c.metadata) != 2 {
			t.Errorf("metadata of %s: %s, want %s", c.model, text, c.metadata)
		}
		status, text := servertest.PostJSON(t, "http://"+s.Addr("http")+"/v2/models/"+c.model+"/infer",
			`{"inputs":[{"name":"x","datatype":"FP32","shape":`+c.shape+`,"data":[1,2,3]}]}`)
		want := `"outputs":[{"name":"y","datatype":"FP32","shape":` + c.want + `,"data":[1,2,3]}]`
		if c.want[0] != '[' {
			want = c.want
		}
		if !strings.Contains(text, want) || (status == 200) != (c.want[0] == '[') {
			t.Errorf("%s of %s: %d %s, want %s", c.model, c.shape, status, text, want)
		}
	}
}

// A model of kind repeat is decoupled only with model_transaction_policy; otherwise the model answers infer, once.
func TestRepeatOnce(t *testing.T) {
	dir := servertest.WriteRepository(t, map[string]string{
		"several/config.pbtxt": `backend: "repeat" model_transaction_policy { decoupled: true }`,
		"once/config.pbtxt":    `backend: "repeat"`,
		"never/config.yaml":    "source: repeat\ndecoupled: false\ncount: 2\n",
	})
	s, end := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off",
		Repository: config.Repository{Dir: dir, Mode: config.LoadExplicit, Load: []string{"several", "once"}}})
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct{ path, in, want string }{
		{"once/infer", "[7]", `"outputs":[{"name":"OUT","datatype":"INT32","shape":[1],"data":[7]},{"name":"IDX",` +
			`"datatype":"UINT32","shape":[1],"data":[0]}]`},
		{"once/infer", "[7,8]", "decoupled: false"},
		{"several/infer", "[7]", "doesn't support models with decoupled transaction policy"},
	} {
		n := strings.Count(c.in, ",") + 1
		body := fmt.Sprintf(`{"inputs":[{"name":"IN","datatype":"INT32","shape":[%d],"data":%s},{"name":"DELAY",`+
			`"datatype":"UINT32","shape":[%d],"data":%s},{"name":"WAIT","datatype":"UINT32","shape":[1],"data":[0]}]}`,
			n, c.in, n, c.in)
		if status, text := servertest.PostJSON(t, "http://"+s.Addr("http")+"/v2/models/"+c.path,
			body); !strings.Contains(text,
			c.want) || (status == 200) != (c.want[0] == '"') {
			t.Errorf("%s of %s: %d %s, want %s", c.path, c.in, status, text, c.want)
		}
	}
	for name, decoupled := range map[string]bool{"several": true, "once": false} {
		if _, text := servertest.Get(t, s, "/v2/models/"+name+"/config"); strings.Contains(text,
			`"decoupled":true`) != decoupled {
			t.Errorf("configuration of %s: %s", name, text)
		}
	}
	if status, text := servertest.PostJSON(t, "http://"+s.Addr("http")+"/v2/repository/models/never/load",
		""); status != 400 ||
		!strings.Contains(text, "count: is 2") {
		t.Errorf("load of never: %d %s", status, text)
	}
}

// A model for pictures accepts a picture as an element of BYTES, over REST and gRPC; so does an ensemble that begins
// with the model, and the ensemble may declare its input as BYTES.
func TestPictureAsString(t *testing.T) {
	dir := servertest.WriteRepository(t, map[string]string{
		"see/1/model.onnx": string(flat([]any{"N", 2, 2, 3}, []any{"N", 12}, -1, 12)),
		"see/config.yaml":  "input: {image: {color: RGB, layout: NHWC}}",
		"whole/names.txt":  strings.Repeat("name\n", 12),
		"whole/config.pbtxt": `platform: "ensemble" max_batch_size: 4
			input { name: "INPUT" data_type: TYPE_STRING dims: [ 1 ] } output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 12 ] label_filename: "names.txt" }
			ensemble_scheduling { step { model_name: "see" input_map { key: "x" value: "INPUT" } output_map { key: "y" value: "OUTPUT" } } }`,
	})
	s, end := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0",
		Repository: config.Repository{Dir: dir}})
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	img := image.NewRGBA(image.Rect(0, 0, 2, 2))
	for i := range img.Pix {
		img.Pix[i] = 255
	}
	img.SetRGBA(1, 0, color.RGBA{10, 20, 30, 255})
	var picture bytes.Buffer
	if err := png.Encode(&picture, img); err != nil {
		t.Fatal(err)
	}
	pixels := stream.AppendFloat32(nil, 255, 255, 255, 10, 20, 30, 255, 255, 255, 255, 255, 255)
	element := func(b []byte) []byte { return append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...) }
	services := servertest.GRPC(t, s)
	for _, c := range []struct {
		model, in, out string
		shape          []int64
		data           []byte
		want           string // of the error
	}{
		{"see", "x", "y", []int64{1}, element(picture.Bytes()), ""},
		{"see", "x", "y", []int64{1, 1}, element(picture.Bytes()), ""},
		{"whole", "INPUT", "OUTPUT", []int64{1, 1}, element(picture.Bytes()), ""},
		{"see", "x", "y", []int64{2}, append(element(picture.Bytes()), element(picture.Bytes())...), "inputs[0].shape"},
		{"see", "x", "y", []int64{0}, nil, "inputs[0].shape"},
		{"see", "x", "y", []int64{1}, element([]byte("no picture")), "inputs[0].data"},
		{"see", "x", "y", []int64{1}, element(nil), "inputs[0].data"},
		{"see", "x", "y", []int64{1}, element(picture.Bytes()[:50]), "inputs[0].data"},
		{"see", "other", "y", []int64{1}, element(picture.Bytes()), "'other'"},
	} {
		got, err := services.ModelInfer(t.Context(), &inferencepb.ModelInferRequest{
			ModelName: c.model, RawInputContents: [][]byte{c.data},
			Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{{Name: c.in, Datatype: "BYTES", Shape: c.shape}},
		})
		if c.want != "" && (status.Code(err) != codes.InvalidArgument && status.Code(err) != codes.Unimplemented ||
			!strings.Contains(err.Error(), c.want)) {
			t.Errorf("gRPC, %s of %v: %v, want %q", c.model, c.shape, err, c.want)
		}
		if c.want == "" && (err != nil || !bytes.Equal(got.RawOutputContents[0], pixels) ||
			got.Outputs[0].Name != c.out) {
			t.Errorf("gRPC, %s of %v: %v, %v", c.model, c.shape, got, err)
		}
		shape, _ := json.Marshal(c.shape)
		head := fmt.Sprintf(`{"inputs":[{"name":%q,"datatype":"BYTES","shape":%s,`+
			`"parameters":{"binary_data_size":%d}}]}`, c.in, shape, len(c.data))
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+s.Addr("http")+"/v2/models/"+c.model+
			"/infer", strings.NewReader(head+string(c.data)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Inference-Header-Content-Length", fmt.Sprint(len(head)))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		want := c.want
		if want == "" {
			want = `"data":[255,255,255,10,20,30,255,255,255,255,255,255]`
		}
		if (resp.StatusCode == 200) != (c.want == "") || !strings.Contains(strings.ReplaceAll(string(text), `\"`, `"`),
			want) {
			t.Errorf("REST, %s of %v: %d %s (%v), want %q", c.model, c.shape, resp.StatusCode, text, err, want)
		}
	}
}
