package service_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"millrace/batching"
	"millrace/stream"
	"millrace/stream/coded"
	"millrace/workers"
)

func init() {
	workers.Register(workers.Kind{Name: "adding", New: func() workers.Worker { return &adding{} }})
	workers.Register(workers.Kind{Name: "failing", New: func() workers.Worker { return &failing{} }})
}

// adding returns the sum and the difference of its inputs. The first output has labels.
type adding struct{ workers.Base }

func (*adding) Init(context.Context, *workers.Env) (*stream.Model, error) {
	spec := func(name string) stream.TensorSpec {
		return stream.TensorSpec{Name: name, Datatype: stream.Int32, Shape: []int{2}}
	}
	return &stream.Model{
		Inputs: []stream.TensorSpec{spec("INPUT0"), spec("INPUT1")}, Outputs: []stream.TensorSpec{spec("OUTPUT0"),
			spec("OUTPUT1")},
		MaxBatch: 4, Labels: map[string][]string{"OUTPUT0": {"left", "right"}},
	}, nil
}

func (*adding) Run(_ context.Context, b *batching.Batch) error {
	x, y := b.Inputs[0].Data, b.Inputs[1].Data
	var sum, difference []byte
	for i := 0; i < 8*b.Rows; i += 4 {
		p, q := binary.LittleEndian.Uint32(x[i:]), binary.LittleEndian.Uint32(y[i:])
		sum, difference = binary.LittleEndian.AppendUint32(sum, p+q), binary.LittleEndian.AppendUint32(difference, p-q)
	}
	shape := []int{b.Rows, 2}
	b.Outputs = []stream.Tensor{{Name: "OUTPUT0", Datatype: stream.Int32, Shape: shape, Data: sum},
		{Name: "OUTPUT1", Datatype: stream.Int32, Shape: shape, Data: difference}}
	return nil
}

// failing returns its input x as y: flat and scalar have no batch axis, and text has a batch axis. wrong fails as the
// number in x selects: with each error code, without a code, or by invalid outputs.
type failing struct {
	workers.Base
	model string
}

func (w *failing) Init(_ context.Context, env *workers.Env) (*stream.Model, error) {
	w.model = env.Name
	m := &stream.Model{Axis: stream.NoAxis, MaxBatch: 1, Ragged: true}
	spec := stream.TensorSpec{Datatype: stream.Float32, Shape: []int{-1}}
	switch w.model {
	case "scalar":
		spec.Shape = []int{}
	case "text":
		spec.Datatype, spec.Shape, m.Axis, m.MaxBatch = stream.Bytes, []int{2}, stream.FreeAxis, 4
	}
	spec.Name = "x"
	m.Inputs = []stream.TensorSpec{spec}
	spec.Name = "y"
	m.Outputs = []stream.TensorSpec{spec}
	return m, nil
}

func (w *failing) Run(_ context.Context, b *batching.Batch) error {
	for i, r := range b.Requests {
		x := r.Inputs[0]
		if w.model == "wrong" {
			switch n := int(math.Float32frombits(binary.LittleEndian.Uint32(x.Data))); n {
			case -1:
				return errors.New("out of order")
			case -2:
				b.Finish(i, []stream.Tensor{{Name: "y", Datatype: stream.Float32, Shape: []int{1, 2},
					Data: make([]byte, 4)}})
				continue
			default:
				b.Fail(i, stream.Errorf(coded.Codes[n], "inputs.x.data", "is %d, which this model does not take", n))
				continue
			}
		}
		shape := x.Shape
		if w.model != "text" { // inside of the server, every output has an axis of rows
			shape = append([]int{1}, shape...)
		}
		b.Finish(i, []stream.Tensor{{Name: "y", Datatype: x.Datatype, Shape: shape,
			Data: append([]byte(nil), x.Data...)}})
	}
	return nil
}

// repositoryFiles are the model repository of the cases. The name of a bad model names its fault.
var repositoryFiles = map[string]string{
	"versions/1/.keep": "", "versions/3/.keep": "", "versions/config.yaml": "source: identity\nversions: {all: true}\n",
	"spare/1/.keep": "", "spare/config.yaml": "source: identity\n",
	"two-configs/1/.keep": "", "two-configs/config.yaml": "source: identity\n",
	"two-configs/config.pbtxt": "backend: \"identity\"",
	"unknown-key/config.yaml":  "source: identity\ninstanses: 2\n",
	"unknown-field/1/.keep":    "", "unknown-field/config.pbtxt": "backend: \"identity\" instanse_group: 2",
	"half-written/1/model.onnx": "\x08\x07\x12", "half-written/config.pbtxt": "backend: \"onnxruntime\"",
	"no-file/1/.keep": "", "no-file/config.pbtxt": "backend: \"onnxruntime\"",
	"circle/config.yaml": "source: graph\nsteps:\n- {model: add, name: a, input: {INPUT0: b0, INPUT1: b1}, " +
		"output: {OUTPUT0: a0, OUTPUT1: a1}}\n- {model: add, name: b, input: {INPUT0: a0, INPUT1: a1}, output: " +
		"{OUTPUT0: b0, OUTPUT1: b1}}\n",
	"missing-step/config.yaml":  "source: graph\nsteps:\n- {model: nobody}\n",
	"shapes-differ/config.yaml": "source: graph\nsteps:\n- {model: add}\n- {model: sum, input: {INPUT: OUTPUT0}}\n",
	"twice/config.yaml": "source: graph\nsteps:\n- {model: add, name: once}\n- {model: add, name: again, " +
		"input: {INPUT0: OUTPUT0, INPUT1: OUTPUT1}, output: {OUTPUT0: Y, OUTPUT1: Z}}\noutputs: [Y, Z]\n",
}

// inferring is a case with one infer request.
func inferring(name, model, body, want string) conforming {
	return conforming{name, []protocolCall{{call: "infer", model: model, body: body, want: want}}}
}

// of makes the body of a request with the input x.
func of(datatype, shape, data string) string {
	return fmt.Sprintf(`{"inputs":[{"name":"x","datatype":%q,"shape":%s,"data":%s}]}`, datatype, shape, data)
}

func inHex(datatype, shape, data string) string {
	return fmt.Sprintf(`{"inputs":[{"name":"x","datatype":%q,"shape":%s,"hex":%q}]}`, datatype, shape, data)
}

// pair is the inputs of model add.
const pair = `"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1,2],"data":[1,2]},{"name":"INPUT1",` +
	`"datatype":"INT32","shape":[1,2],"data":[10,20]}]`

const (
	added      = "OUTPUT0 INT32[1 2]=11,22"
	subtracted = "OUTPUT1 INT32[1 2]=-9,-18"
)

// goodCases are successful requests.
func goodCases(t *testing.T) []conforming {
	t.Helper()
	out := []conforming{
		inferring("BOOL", "echo", of("BOOL", "[3]", "[true,false,true]"), "echo/1: x BOOL[3]=1,0,1"),
		inferring("INT8", "echo", of("INT8", "[3]", "[-128,0,127]"), "echo/1: x INT8[3]=-128,0,127"),
		inferring("INT16", "echo", of("INT16", "[2]", "[-32768,32767]"), "echo/1: x INT16[2]=-32768,32767"),
		inferring("INT32", "echo", of("INT32", "[2]", "[-2147483648,2147483647]"),
			"echo/1: x INT32[2]=-2147483648,2147483647"),
		inferring("INT64", "echo", of("INT64", "[2]", "[-9223372036854775808,9223372036854775807]"),
			"echo/1: x INT64[2]=-9223372036854775808,9223372036854775807"),
		inferring("UINT8", "echo", of("UINT8", "[2]", "[0,255]"), "echo/1: x UINT8[2]=0,255"),
		inferring("UINT16", "echo", of("UINT16", "[2]", "[0,65535]"), "echo/1: x UINT16[2]=0,65535"),
		inferring("UINT32", "echo", of("UINT32", "[2]", "[0,4294967295]"), "echo/1: x UINT32[2]=0,4294967295"),
		inferring("UINT64", "echo", of("UINT64", "[2]", "[0,18446744073709551615]"),
			"echo/1: x UINT64[2]=0,18446744073709551615"),
		inferring("FP32", "echo", of("FP32", "[4]", "[0.1,-0.0,1e-45,3.4028235e38]"),
			"echo/1: x FP32[4]=0.1,-0,1e-45,3.4028235e+38"),
		inferring("FP64", "echo", of("FP64", "[3]", "[0.1,-5e-324,1.7976931348623157e308]"),
			"echo/1: x FP64[3]=0.1,-5e-324,1.7976931348623157e+308"),
		inferring("BYTES", "echo", of("BYTES", "[4]", `["","a","\u00e4\ud83d\ude00","\"\\\n"]`),
			`echo/1: x BYTES[4]="","a","ä😀","\"\\\n"`),
		inferring("BYTES that are not UTF-8", "echo", inHex("BYTES", "[1]", "02000000ff00"),
			`echo/1: x BYTES[1]="\xff\x00"`),
		inferring("FP16", "echo", inHex("FP16", "[2]", "003c00c0"), "echo/1: x FP16[2]=3c00,c000"),
		inferring("BF16", "echo", inHex("BF16", "[2]", "803f00c0"), "echo/1: x BF16[2]=3f80,c000"),
		inferring("not finite", "echo", of("FP32", "[3]", "[NaN,Infinity,-Infinity]"),
			"echo/1: x FP32[3]=NaN,+Inf,-Inf"),
		inferring("not finite FP64", "echo", of("FP64", "[3]", "[NaN,Infinity,-Infinity]"),
			"echo/1: x FP64[3]=NaN,+Inf,-Inf"),
		inferring("nested data", "echo", of("INT32", "[2,1,2]", "[[[1,2]],[[3,4]]]"), "echo/1: x INT32[2 1 2]=1,2,3,4"),
		inferring("no elements", "echo", of("FP32", "[2,0,3]", "[]"), "echo/1: x FP32[2 0 3]="),
		inferring("no elements of text", "echo", of("BYTES", "[0]", "[]"), "echo/1: x BYTES[0]="),
		inferring("no elements, no axis", "flat", of("FP32", "[0]", "[]"), "flat/1: y FP32[0]="),
		inferring("a scalar", "scalar", of("FP32", "[]", "[1.5]"), "scalar/1: y FP32[]=1.5"),
		inferring("a scalar for any model", "echo", of("INT8", "[]", "[7]"), "echo/1: x INT8[]=7"),
		inferring("no batch axis", "flat", of("FP32", "[3]", "[1,2,3]"), "flat/1: y FP32[3]=1,2,3"),
		inferring("text", "text", of("BYTES", "[2,2]", `["a","bc","d",""]`), `text/1: y BYTES[2 2]="a","bc","d",""`),
		inferring("an axis added", "add", `{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[2],"data":[1,2]},`+
			`{"name":"INPUT1","datatype":"INT32","shape":[2],"data":[10,20]}]}`, "add/1: "+added+"; "+subtracted),
		inferring("four rows", "add", `{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[4,2],"data":[1,2,3,4,`+
			`5,6,7,8]},{"name":"INPUT1","datatype":"INT32","shape":[4,2],"data":[1,1,1,1,1,1,1,1]}]}`,
			"add/1: OUTPUT0 INT32[4 2]=2,3,4,5,6,7,8,9; OUTPUT1 INT32[4 2]=0,1,2,3,4,5,6,7"),
		inferring("inputs in another order", "add", `{"inputs":[{"name":"INPUT1","datatype":"INT32","shape":[1,2],`+
			`"data":[10,20]},{"name":"INPUT0","datatype":"INT32","shape":[1,2],"data":[1,2]}]}`,
			"add/1: "+added+"; "+subtracted),
		inferring("id", "add", `{"id":"a \"\u00e4\"",`+pair+`}`, `add/1 id=a "ä": `+added+"; "+subtracted),
		inferring("an empty id", "add", `{"id":"",`+pair+`}`, "add/1: "+added+"; "+subtracted),
		inferring("a version", "add/v1", `{`+pair+`}`, "add/1: "+added+"; "+subtracted),
		inferring("one output", "add", `{`+pair+`,"outputs":[{"name":"OUTPUT1"}]}`, "add/1: "+subtracted),
		inferring("outputs in another order", "add", `{`+pair+`,"outputs":[{"name":"OUTPUT1"},{"name":"OUTPUT0"}]}`,
			"add/1: "+subtracted+"; "+added),
		inferring("no outputs named", "add", `{`+pair+`,"outputs":[]}`, "add/1: "+added+"; "+subtracted),
		inferring("classification", "add", `{`+pair+`,"outputs":[{"name":"OUTPUT0","parameters":{"classification":1}`+
			`},{"name":"OUTPUT1","parameters":{"classification":5}}]}`,
			`add/1: OUTPUT0 BYTES[1 1]="22:1:right"; OUTPUT1 BYTES[1 2]="-9:0","-18:1"`),
		inferring("classification of what is not finite", "flat", `{"inputs":[{"name":"x","datatype":"FP32",`+
			`"shape":[3],"data":[NaN,1,Infinity]}],"outputs":[{"name":"y","parameters":{"classification":3}}]}`,
			`flat/1: y BYTES[3]="+Inf:2","1.000000:1","NaN:0"`),
		inferring("parameters", "echo", `{"id":"7","parameters":{"a":1,"b":-2.5,"c":"x","d":true,`+
			`"e":9223372036854775807},"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1]}]}`,
			"echo/1 id=7: x INT8[1]=1"),
		inferring("priority and time-out", "add", `{"parameters":{"priority":1,"timeout":60000000},`+pair+`}`,
			"add/1: "+added+"; "+subtracted),
		inferring("a low priority", "add", `{"parameters":{"priority":4294967297,"timeout":0},`+pair+`}`,
			"add/1: "+added+"; "+subtracted),
		inferring("flags of a sequence that is none", "add",
			`{"parameters":{"sequence_start":false,"sequence_end":false},`+pair+`}`, "add/1: "+added+"; "+subtracted),
		inferring("hints of other clients", "echo", `{"inputs":[{"name":"x","datatype":"BYTES","shape":[1],`+
			`"parameters":{"content_type":"str"},"data":["a"]}]}`, `echo/1: x BYTES[1]="a"`),
		inferring("an unknown empty final response", "add",
			`{"parameters":{"triton_enable_empty_final_response":false},`+pair+`}`, "add/1: "+added+"; "+subtracted),
		inferring("a model with several versions", "versions", of("INT8", "[1]", "[1]"), "versions/3: x INT8[1]=1"),
		inferring("an older version", "versions/v1", of("INT8", "[1]", "[1]"), "versions/1: x INT8[1]=1"),
		inferring("a stateful model without a sequence", "sum", strings.Replace(of("INT32", "[1,1]", "[5]"), `"x"`,
			`"INPUT"`, 1), "sum/1: OUTPUT INT32[1 1]=5"),
		{"several answers", []protocolCall{{call: "stream", model: "count",
			body: `{"inputs":[{"name":"IN","datatype":"INT32","shape":[2],"data":[7,8]},{"name":"DELAY",` +
				`"datatype":"UINT32","shape":[2],"data":[0,0]},{"name":"WAIT","datatype":"UINT32","shape":[1],` +
				`"data":[0]}]}`,
			want: "count/1: OUT INT32[1]=7; IDX UINT32[1]=0 | count/1: OUT INT32[1]=8; IDX UINT32[1]=1"}}},
		{"no answers", []protocolCall{{call: "stream", model: "count", body: `{"inputs":[{"name":"IN",` +
			`"datatype":"INT32","shape":[0],"data":[]},{"name":"DELAY","datatype":"UINT32","shape":[0],"data":[]},` +
			`{"name":"WAIT","datatype":"UINT32","shape":[1],"data":[0]}]}`, want: ""}}},
		{"one of several answers", []protocolCall{{call: "stream", model: "count",
			body: `{"id":"9","inputs":[{"name":"IN","datatype":"INT32","shape":[1],"data":[7]},{"name":"DELAY",` +
				`"datatype":"UINT32","shape":[1],"data":[0]},{"name":"WAIT","datatype":"UINT32","shape":[1],` +
				`"data":[0]}],"outputs":[{"name":"IDX"}]}`, want: "count/1 id=9: IDX UINT32[1]=0"}}},
	}
	for _, id := range []string{"7", `"seven"`, "18446744073709551615"} {
		next := func(value int, flags, want string) protocolCall {
			return protocolCall{call: "infer", model: "sum", want: "sum/1: OUTPUT INT32[1 1]=" + want,
				body: fmt.Sprintf(`{"parameters":{"sequence_id":%s%s},"inputs":[{"name":"INPUT","datatype":"INT32",`+
					`"shape":[1,1],"data":[%d]}]}`, id, flags, value)}
		}
		out = append(out, conforming{"sequence " + id, []protocolCall{
			next(1, `,"sequence_start":true`, "1"), next(2, "", "3"),
			next(3, `,"sequence_start":false,"sequence_end":false`, "6"), next(4, `,"sequence_start":true`, "4"),
			next(5, `,"sequence_end":true`, "9"),
		}})
	}
	return append(out, sharedMemory())
}

// sharedMemory is a case that writes a tensor to shared memory and reads the tensor from the region.
func sharedMemory() conforming {
	at := `"parameters":{"shared_memory_region":"r","shared_memory_offset":16,"shared_memory_byte_size":8}`
	return conforming{"shared memory", []protocolCall{
		{call: "SystemSharedMemoryRegister", model: "r", body: fmt.Sprintf(`{"key":"/%s","byte_size":64}`, sharedKey),
			want: "{}"},
		{call: "infer", model: "echo", body: `{"inputs":[{"name":"x","datatype":"INT32","shape":[2],"data":[5,6]}],` +
			`"outputs":[{"name":"x",` + at + `}]}`,
			want: "echo/1: x INT32[2]="},
		{call: "infer", model: "echo", body: `{"inputs":[{"name":"x","datatype":"INT32","shape":[2],` + at + `}]}`,
			want: "echo/1: x INT32[2]=5,6"},
		{call: "SystemSharedMemoryStatus", model: "r",
			want: fmt.Sprintf(`{"regions":{"r":{"byte_size":"64","key":"/%s","name":"r"}}}`, sharedKey)},
		{call: "SystemSharedMemoryStatus", want: `"r"`},
		{call: "SystemSharedMemoryRegister", model: "r", body: fmt.Sprintf(`{"key":"/%s","byte_size":8}`, sharedKey),
			want: "!conflict name: "},
		{call: "infer", model: "echo", body: `{"inputs":[{"name":"x","datatype":"INT32","shape":[2],` +
			`"parameters":{"shared_memory_region":"r","shared_memory_offset":60,"shared_memory_byte_size":8}}]}`,
			want: "!invalid_argument inputs[0].parameters.shared_memory_byte_size: "},
		{call: "infer", model: "echo", body: `{"inputs":[{"name":"x","datatype":"INT32","shape":[2],` +
			`"parameters":{"shared_memory_region":"r","shared_memory_byte_size":4}}]}`,
			want: "!invalid_argument inputs[0].parameters.shared_memory_byte_size: "},
		{call: "infer", model: "echo", body: `{"inputs":[{"name":"x","datatype":"INT32","shape":[2],` +
			`"parameters":{"shared_memory_region":"r"}}]}`,
			want: "!invalid_argument inputs[0].parameters.shared_memory_byte_size: is missing"},
		{call: "infer", model: "echo", body: `{"inputs":[{"name":"x","datatype":"INT32","shape":[2],"data":[1,2],` +
			`"parameters":{"shared_memory_byte_size":8}}]}`,
			want: "!invalid_argument inputs[0].parameters.shared_memory_region: is missing"},
		{call: "infer", model: "echo", body: `{"inputs":[{"name":"x","datatype":"INT32","shape":[2],"data":[1,2]}],` +
			`"outputs":[{"name":"x","parameters":{"shared_memory_region":"r","shared_memory_byte_size":4}}]}`,
			want: "!invalid_argument outputs[0].parameters.shared_memory_byte_size: is 4"},
		{call: "infer", model: "echo", body: `{"inputs":[{"name":"x","datatype":"BYTES","shape":[1],` +
			`"parameters":{"shared_memory_region":"r","shared_memory_offset":16,"shared_memory_byte_size":8}}]}`,
			want: "!invalid_argument inputs[0].data: "},
		{call: "SystemSharedMemoryUnregister", model: "r", want: "{}"},
		{call: "SystemSharedMemoryUnregister", model: "r", want: "{}"},
		{call: "SystemSharedMemoryStatus", model: "r", want: "!not_found "},
		{call: "infer", model: "echo", body: `{"inputs":[{"name":"x","datatype":"INT32","shape":[2],` + at + `}]}`,
			want: "!not_found inputs[0].parameters.shared_memory_region: "},
		{call: "SystemSharedMemoryStatus", want: "{}"},
	}}
}

// callCases are successful calls other than infer. Each case undoes its changes.
func callCases() []conforming {
	one := func(name, call, model, body, want string) conforming {
		return conforming{name, []protocolCall{{call: call, model: model, body: body, want: want}}}
	}
	load := func(model, body, want string) protocolCall {
		return protocolCall{call: "RepositoryModelLoad", model: model, body: body, want: want}
	}
	unload := func(model, want string) protocolCall {
		return protocolCall{call: "RepositoryModelUnload", model: model, want: want}
	}
	metadata := func(model, want string) protocolCall {
		return protocolCall{call: "ModelMetadata", model: model, want: want}
	}
	return []conforming{
		one("live", "ServerLive", "", "", `{"live":true}`),
		one("ready", "ServerReady", "", "", `{"ready":true}`),
		{"server metadata", []protocolCall{{call: "ServerMetadata",
			want: `"extensions":["classification", ... "name":"millrace"`, differs: "extensions"}}},
		one("model ready", "ModelReady", "add", "", `{"ready":true}`),
		one("version ready", "ModelReady", "versions/v1", "", `{"ready":true}`),
		one("metadata", "ModelMetadata", "add", "", `{"inputs":[{"datatype":"INT32","name":"INPUT0","shape":["-1",`+
			`"2"]},{"datatype":"INT32","name":"INPUT1","shape":["-1","2"]}],"name":"add",`+
			`"outputs":[{"datatype":"INT32","name":"OUTPUT0","shape":["-1","2"]},{"datatype":"INT32",`+
			`"name":"OUTPUT1","shape":["-1","2"]}],"platform":"adding","versions":["1"]}`),
		one("metadata without an axis", "ModelMetadata", "flat", "", `"shape":["-1"]`),
		one("metadata of a scalar", "ModelMetadata", "scalar", "", `{"inputs":[{"datatype":"FP32","name":"x"}]`),
		one("metadata of a version", "ModelMetadata", "versions/v1", "", `"versions":["1","3"]`),
		one("configuration", "ModelConfig", "add", "", `"max_batch_size":4 ... "name":"add"`),
		one("configuration of a version", "ModelConfig", "versions/v3", "", `"name":"versions" ... "version_policy":`),
		one("index", "RepositoryIndex", "", "", `{"name":"add","state":"READY","version":"1"} ... "circle" ... `+
			`{"name":"versions","state":"READY","version":"3"}`),
		one("index of what is ready", "RepositoryIndex", "", `{"ready":true}`,
			`{"name":"add","state":"READY","version":"1"}`),
		{"load and unload", []protocolCall{
			{call: "ModelReady", model: "spare", want: "!not_found Request for unknown model", overGRPC: "{}",
				differs: "ready"},
			load("spare", "", "{} endpoint=spare"), metadata("spare", `"name":"spare"`),
			load("spare", `{"parameters":{}}`, "{} endpoint=spare"),
			load("spare", `{"parameters":{"instances":2}}`, "{} endpoint=spare"), unload("spare", "{} endpoint=spare"),
			metadata("spare", "!not_found Request for unknown model: 'spare' is not found"),
			unload("spare", "{} endpoint=spare"),
		}},
		{"load of a kind with parameters", []protocolCall{
			load("delay", `{"parameters":{"fixed":"1ms"}}`, "{} endpoint=delay"),
			load("delay", `{"parameters":{"fixed":"2ms"}}`, "{} endpoint=delay-0"),
			metadata("delay-0", `"name":"delay-0"`), unload("delay-0", "{} endpoint=delay-0"),
			unload("delay", "{} endpoint=delay"),
		}},
		{"load with a configuration", []protocolCall{
			load("spare", `{"parameters":{"config":"{\"backend\":\"identity\",\"instance_group\":[{\"count\":2}]}"}}`,
				"{} endpoint=spare"), {call: "ModelConfig", model: "spare", want: `"count":2`},
			{call: "RepositoryModelUnload", model: "spare", body: `{"parameters":{"unload_dependents":true}}`,
				want: "{} endpoint=spare"},
		}},
		{"load of a graph", []protocolCall{load("twice", "", "{} endpoint=twice"), metadata("twice", `"name":"Y"`),
			unload("twice", "{} endpoint=twice")}},
		{"statistics", []protocolCall{
			load("delay", `{"parameters":{"fixed":"1us"}}`, "{} endpoint=delay"),
			{call: "ModelStatistics", model: "delay", want: `"name":"delay"`},
			unload("delay", "{} endpoint=delay"),
		}},
		one("statistics of all", "ModelStatistics", "", "", `"name":"add" ... "name":"versions"`),
		one("statistics of a version", "ModelStatistics", "versions/v1", "", `"name":"versions","version":"1"`),
		{"settings of the log", []protocolCall{
			{call: "LogSettings", body: "{}", want: `"log_error":{"bool_param":true}`},
			{call: "LogSettings", body: `{"log_info":true,"log_warning":true}`, want: `"log_info":{"bool_param":true}`},
			{call: "LogSettings", body: `{"log_verbose_level":2}`, want: `"log_verbose_level":{"uint32_param":1}`},
			{call: "LogSettings", body: `{"log_verbose_level":0,"log_info":false,"log_warning":false}`,
				want: `"log_info":{"bool_param":false} ... "log_warning":{"bool_param":false}`},
		}},
		{"settings of traces", []protocolCall{
			{call: "TraceSetting", body: `{"trace_rate":"100"}`, want: `"trace_rate":{"value":["100"]}`},
			{call: "TraceSetting", model: "add", want: `"trace_rate":{"value":["100"]}`},
			{call: "TraceSetting", body: `{"trace_level":["OFF"]}`, want: `"trace_level":{"value":["OFF"]}`},
			{call: "TraceSetting", body: `{"trace_level":null,"trace_rate":null}`,
				want: `"trace_mode":{"value":["opentelemetry"]}`},
		}},
		one("no CUDA regions", "CudaSharedMemoryStatus", "", "", "{}"),
		one("unregister all of CUDA", "CudaSharedMemoryUnregister", "", "", "{}"),
		one("unregister all", "SystemSharedMemoryUnregister", "", "", "{}"),
	}
}
