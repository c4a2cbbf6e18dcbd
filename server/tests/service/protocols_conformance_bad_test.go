package service_test

import (
	"fmt"
	"strconv"
	"strings"

	"millrace/stream/coded"
)

// badCases are infer requests that are refused or fail.
func badCases() []conforming {
	const a, b = `{"name":"INPUT0","datatype":"INT32","shape":[1,2],"data":[1,2]}`,
		`{"name":"INPUT1","datatype":"INT32","shape":[1,2],"data":[10,20]}`
	inputs := func(list string) string { return `{"inputs":[` + list + `]}` }
	second := func(members string) string { return inputs(a + `,{` + members + `}`) }
	with := func(name, value string) string { return `{"parameters":{"` + name + `":` + value + `},` + pair + `}` }
	input := func(params string) string {
		return inputs(`{"name":"x","datatype":"INT8","shape":[1],"data":[1],"parameters":{` + params + `}}`)
	}
	output := func(list string) string { return `{` + pair + `,"outputs":[` + list + `]}` }
	data := func(name, model, body, want string) conforming {
		return conforming{name, []protocolCall{{call: "infer", model: model, body: body, want: want, differs: "data"}}}
	}
	long := strings.Repeat("n", 1025)
	var many, manyOutputs, manyParameters []string
	for i := range 1100 {
		many = append(many, fmt.Sprintf(`{"name":"x%d","datatype":"INT8","shape":[1],"data":[1]}`, i))
		manyOutputs = append(manyOutputs, fmt.Sprintf(`{"name":"x%d"}`, i))
		manyParameters = append(manyParameters, fmt.Sprintf(`"p%d":1`, i))
	}
	out := []conforming{
		// Models and versions.
		inferring("no such model", "nobody", `{`+pair+`}`,
			"!not_found Request for unknown model: 'nobody' is not found"),
		inferring("no such version", "add/v9", `{`+pair+`}`,
			"!not_found Request for unknown model: 'add' version 9 is not found"),
		inferring("a version that is no number", "add/vx", `{`+pair+`}`, "!not_found "),
		inferring("a slash in the name", "\x00a/b", `{`+pair+`}`, "!not_found 'a/b'"),
		inferring("an escape in the name", "a%2fb", `{`+pair+`}`, "!not_found 'a%2fb'"),
		inferring("dots for a name", "\x00...", `{`+pair+`}`, "!not_found '...'"),
		inferring("a space in the name", "a b", `{`+pair+`}`, "!not_found 'a b'"),
		inferring("a name that is not ASCII", "\u00e4\u6f22\U0001f600", `{`+pair+`}`,
			"!not_found '\u00e4\u6f22\U0001f600'"),
		inferring("a name with a new line", "a\nb", `{`+pair+`}`, "!not_found "),
		inferring("a long name", long[:1000], `{`+pair+`}`, "!not_found "),
		// Inputs.
		inferring("no inputs", "add", `{"inputs":[]}`, "!invalid_argument inputs: expected 2 inputs but got 0 "+
			"inputs for model 'add'. Got input(s) [], but missing required input(s) ['INPUT0','INPUT1']."),
		inferring("no member inputs", "add", `{}`, "!invalid_argument inputs: expected 2 inputs but got 0 inputs "+
			"for model 'add'. Got input(s) [], but missing required input(s) ['INPUT0','INPUT1']."),
		inferring("one input too few", "add", inputs(a), "!invalid_argument inputs: expected 2 inputs but got 1 "+
			"inputs for model 'add'. Got input(s) ['INPUT0'], but missing required input(s) ['INPUT1']."),
		inferring("one input too many", "add",
			inputs(a+","+b+`,{"name":"c","datatype":"INT32","shape":[1,2],"data":[1,2]}`), "!invalid_argument inputs"),
		inferring("an input twice", "add", inputs(a+","+a), "!invalid_argument inputs[1].name: "),
		inferring("an unknown input", "add", inputs(a+`,{"name":"c","datatype":"INT32","shape":[1,2],"data":[1,2]}`),
			"!invalid_argument unexpected inference input 'c' for model 'add': its inputs are INPUT0, INPUT1. Got "+
				"input(s) ['INPUT0','c']"),
		inferring("an input without a name", "add", second(`"datatype":"INT32","shape":[1,2],"data":[1,2]`),
			"!invalid_argument inputs[1].name: is missing or empty"),
		inferring("an empty name", "add", second(`"name":"","datatype":"INT32","shape":[1,2],"data":[1,2]`),
			"!invalid_argument inputs[1].name: is missing or empty"),
		inferring("a long name of an input", "add",
			second(`"name":"`+long+`","datatype":"INT32","shape":[1,2],"data":[1,2]`),
			"!invalid_argument inputs[1].name: has 1025 bytes"),
		inferring("too many inputs", "echo", inputs(strings.Join(many, ",")),
			"!invalid_argument inputs: has more than "),
		inferring("an input without a datatype", "add", second(`"name":"INPUT1","shape":[1,2],"data":[1,2]`),
			"!invalid_argument inputs[1].datatype: is missing"),
		inferring("an empty datatype", "add", second(`"name":"INPUT1","datatype":"","shape":[1,2],"data":[1,2]`),
			"!invalid_argument inputs[1].datatype: is missing"),
		inferring("no such datatype", "add", second(`"name":"INPUT1","datatype":"FP99","shape":[1,2],"data":[1,2]`),
			`!invalid_argument inputs[1].datatype: is "FP99"`),
		inferring("a datatype in small letters", "add",
			second(`"name":"INPUT1","datatype":"int32","shape":[1,2],"data":[1,2]`),
			`!invalid_argument inputs[1].datatype: is "int32"`),
		inferring("another datatype", "add", second(`"name":"INPUT1","datatype":"INT64","shape":[1,2],"data":[1,2]`),
			"!invalid_argument inputs[1].datatype: "),
		inferring("another shape", "add", second(`"name":"INPUT1","datatype":"INT32","shape":[1,3],"data":[1,2,3]`),
			"!invalid_argument inputs[1].shape: "),
		inferring("more dimensions", "add", second(`"name":"INPUT1","datatype":"INT32","shape":[1,1,2],"data":[1,2]`),
			"!invalid_argument inputs[1].shape: "),
		inferring("fewer dimensions", "flat", inputs(`{"name":"x","datatype":"FP32","shape":[],"data":[1]}`),
			"!invalid_argument inputs[0].shape: "),
		inferring("rows differ", "add", second(`"name":"INPUT1","datatype":"INT32","shape":[2,2],"data":[1,2,3,4]`),
			"!invalid_argument rows"),
		inferring("too many rows", "text", inputs(`{"name":"x","datatype":"BYTES","shape":[5,2],"data":["","","","",`+
			`"","","","","",""]}`), "!invalid_argument max_size"),
		inferring("no rows", "text", inputs(`{"name":"x","datatype":"BYTES","shape":[0,2],"data":[]}`),
			"!invalid_argument rows"),
		inferring("a negative dimension", "echo", inputs(`{"name":"x","datatype":"INT8","shape":[2,-1],"data":[1]}`),
			"!invalid_argument inputs[0].shape[1]: is -1"),
		inferring("dimensions that overflow", "echo",
			inputs(`{"name":"x","datatype":"INT8","shape":[4294967296,4294967296,4],"data":[1]}`),
			"!invalid_argument inputs[0].shape: "),
		inferring("dimensions that overflow, and zero", "echo",
			inputs(`{"name":"x","datatype":"INT8","shape":[0,4294967296,4294967296],"data":[1]}`),
			"!invalid_argument inputs[0].shape: "),
		inferring("bytes that overflow", "echo",
			inputs(`{"name":"x","datatype":"FP64","shape":[9223372036854775807],"data":[1]}`),
			"!invalid_argument inputs[0].shape: "),
		inferring("too many elements", "echo",
			inputs(`{"name":"x","datatype":"INT8","shape":[1073741824],"data":[1]}`),
			"!invalid_argument inputs[0].shape: "),
		inferring("too many dimensions", "echo",
			inputs(`{"name":"x","datatype":"INT8","shape":[`+strings.Repeat("1,", 64)+`1],"data":[1]}`),
			"!invalid_argument inputs[0].shape: has more than 64 dimensions"),
		// Data.
		data("data that are too short", "echo", inputs(`{"name":"x","datatype":"INT32","shape":[3],"data":[1,2]}`),
			"!invalid_argument inputs[0]."),
		data("data that are too long", "echo", inputs(`{"name":"x","datatype":"INT32","shape":[3],"data":[1,2,3,4]}`),
			"!invalid_argument inputs[0]."),
		data("data for no elements", "echo", inputs(`{"name":"x","datatype":"INT32","shape":[0],"data":[1]}`),
			"!invalid_argument inputs[0]."),
		data("no data", "echo", inputs(`{"name":"x","datatype":"INT32","shape":[3]}`), "!invalid_argument inputs[0]."),
		data("data of no bytes", "echo", inputs(`{"name":"x","datatype":"INT32","shape":[3],"hex":""}`),
			"!invalid_argument inputs[0]."),
		data("data of a part of an element", "echo",
			inputs(`{"name":"x","datatype":"INT32","shape":[1],"hex":"0000"}`), "!invalid_argument inputs[0]."),
		data("a number past UINT8", "echo", inputs(`{"name":"x","datatype":"UINT8","shape":[2],"data":[0,256]}`),
			"!invalid_argument 256"),
		data("a number past INT8", "echo", inputs(`{"name":"x","datatype":"INT8","shape":[2],"data":[0,-129]}`),
			"!invalid_argument -129"),
		data("a number past INT16", "echo", inputs(`{"name":"x","datatype":"INT16","shape":[1],"data":[32768]}`),
			"!invalid_argument 32768"),
		data("FP16 as numbers", "echo", inputs(`{"name":"x","datatype":"FP16","shape":[1],"data":[1]}`),
			"!invalid_argument FP16"),
		data("BF16 as numbers", "echo", inputs(`{"name":"x","datatype":"BF16","shape":[1],"data":[1]}`),
			"!invalid_argument BF16"),
		data("an element past the end", "echo",
			inputs(`{"name":"x","datatype":"BYTES","shape":[1],"hex":"030000006162"}`),
			"!invalid_argument inputs[0].data[0]: "),
		data("an element of 4 GiB", "echo", inputs(`{"name":"x","datatype":"BYTES","shape":[1],"hex":"ffffffff6162"}`),
			"!invalid_argument inputs[0].data[0]: "),
		data("an element that is missing", "echo",
			inputs(`{"name":"x","datatype":"BYTES","shape":[2],"hex":"020000006162"}`),
			"!invalid_argument inputs[0].data[1]: "),
		data("an element too many", "echo", inputs(`{"name":"x","datatype":"BYTES","shape":[1],"hex":"010000006162"}`),
			"!invalid_argument inputs[0].data: "),
		// Outputs.
		inferring("no such output", "add", output(`{"name":"OUTPUT0"},{"name":"OUTPUT2"}`),
			`!invalid_argument outputs[1].name: model add has no output "OUTPUT2"`),
		inferring("no such output of any model", "echo",
			`{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1]}],"outputs":[{"name":"y"}]}`,
			`!invalid_argument outputs[0].name: model echo has no output "y"`),
		inferring("an output twice", "add", output(`{"name":"OUTPUT0"},{"name":"OUTPUT0"}`),
			"!invalid_argument outputs[1].name: "),
		inferring("an output without a name", "add", output(`{}`), "!invalid_argument outputs[0].name: is missing"),
		inferring("too many outputs", "add", output(strings.Join(manyOutputs, ",")),
			"!invalid_argument outputs: has more than "),
		// Parameters.
		inferring("too many parameters", "add", `{"parameters":{`+strings.Join(manyParameters, ",")+`},`+pair+`}`,
			"!invalid_argument parameters: has more than "),
		inferring("a long id", "add", `{"id":"`+long+`",`+pair+`}`, "!invalid_argument id: has 1025 bytes"),
		inferring("a number past INT64", "add", with("a", "9223372036854775808"), "!invalid_argument parameters.a: "),
		inferring("priority below 0", "add", with("priority", "-1"),
			`!invalid_argument parameters.priority: "-1" is not`),
		inferring("priority by name", "add", with("priority", `"high"`), "!invalid_argument parameters.priority: "),
		inferring("time-out below 0", "add", with("timeout", "-1"), "!invalid_argument parameters.timeout: "),
		inferring("time-out with a fraction", "add", with("timeout", "1.5"), "!invalid_argument parameters.timeout: "),
		inferring("time-out as text", "add", with("timeout", `"1"`), "!invalid_argument parameters.timeout: "),
		inferring("a reserved parameter", "add", with("triton_x", "1"), "!unsupported parameters.triton_x: "),
		{"binary output that is no bool", []protocolCall{{call: "infer", model: "add",
			only: "JSON, events, typed, raw, typed stream, raw stream", body: with("binary_data_output", "1"),
			want: "!invalid_argument parameters.binary_data_output: is 1; expected true or false"}}},
		{"binary output as text", []protocolCall{{call: "infer", model: "add",
			only: "JSON, events, typed, raw, typed stream, raw stream", body: with("binary_data_output", `"x"`),
			want: "!invalid_argument parameters.binary_data_output: is a string; expected true or false"}}},
		inferring("an unknown parameter of an input", "echo", input(`"scale":1`),
			"!invalid_argument inputs[0].parameters.scale: "),
		inferring("another content type", "echo", input(`"content_type":"base64"`),
			"!invalid_argument inputs[0].parameters.content_type: "),
		inferring("an unknown parameter of an output", "add", output(`{"name":"OUTPUT0","parameters":{"top":1}}`),
			"!invalid_argument outputs[0].parameters.top: "),
		inferring("no classes", "add", output(`{"name":"OUTPUT0","parameters":{"classification":0}}`),
			"!invalid_argument outputs[0].parameters.classification: "),
		inferring("classes as text", "add", output(`{"name":"OUTPUT0","parameters":{"classification":"3"}}`),
			"!invalid_argument outputs[0].parameters.classification: "),
		inferring("classes of text", "text", `{"inputs":[{"name":"x","datatype":"BYTES","shape":[1,2],"data":["a",`+
			`"b"]}],"outputs":[{"name":"y","parameters":{"classification":1}}]}`,
			"!invalid_argument outputs[0].parameters.classification: "),
		inferring("an unknown region", "echo", `{"inputs":[{"name":"x","datatype":"INT8","shape":[1],`+
			`"parameters":{"shared_memory_region":"none","shared_memory_byte_size":1}}]}`,
			"!not_found inputs[0].parameters.shared_memory_region: "),
		inferring("a region that is no text", "echo", `{"inputs":[{"name":"x","datatype":"INT8","shape":[1],`+
			`"parameters":{"shared_memory_region":1,"shared_memory_byte_size":1}}]}`,
			"!invalid_argument inputs[0].parameters.shared_memory_region: "),
		inferring("an offset below 0", "echo", `{"inputs":[{"name":"x","datatype":"INT8","shape":[1],`+
			`"parameters":{"shared_memory_region":"none","shared_memory_byte_size":1,"shared_memory_offset":-1}}]}`,
			"!invalid_argument inputs[0].parameters.shared_memory_offset: "),
		// Sequences.
		inferring("a sequence of a model without state", "add", with("sequence_id", "7"),
			"!invalid_argument parameters.sequence_id: model add keeps no state"),
		inferring("the start of no sequence", "add", with("sequence_start", "true"),
			"!invalid_argument parameters.sequence_id: is missing"),
		inferring("the end of no sequence", "add", with("sequence_end", "true"),
			"!invalid_argument parameters.sequence_id: is missing"),
		inferring("a start that is no bool", "add", with("sequence_start", "1"),
			"!invalid_argument parameters.sequence_start: "),
		inferring("a sequence below 0", "sum", strings.Replace(with("sequence_id", "-1"), "INPUT0", "INPUT", 1),
			"!invalid_argument parameters.sequence_id: "),
		inferring("a sequence with a fraction", "sum", with("sequence_id", "1.5"),
			"!invalid_argument parameters.sequence_id: "),
		inferring("a sequence with a long name", "sum", with("sequence_id", `"`+strings.Repeat("s", 129)+`"`),
			"!invalid_argument parameters.sequence_id: "),
		inferring("a sequence that has not begun", "sum", `{"parameters":{"sequence_id":77},`+
			`"inputs":[{"name":"INPUT","datatype":"INT32","shape":[1,1],"data":[1]}]}`,
			"!invalid_argument parameters.sequence_"),
		// Failing models.
		inferring("the model fails", "wrong", inputs(`{"name":"x","datatype":"FP32","shape":[1],"data":[-1]}`),
			"!internal a fault of the server: its log has the details"),
		inferring("the outputs do not fit together", "wrong",
			inputs(`{"name":"x","datatype":"FP32","shape":[1],"data":[-2]}`),
			"!internal the result cannot be sent: outputs[0].data: \"y\" has 4 bytes"),
		{"a decoupled model", []protocolCall{{call: "infer", model: "count", only: "JSON, binary, mixed, typed, raw",
			want: "!unsupported model count may answer a request more than once",
			body: inputs(`{"name":"IN","datatype":"INT32","shape":[1],"data":[7]},{"name":"DELAY",` +
				`"datatype":"UINT32","shape":[1],"data":[0]},{"name":"WAIT","datatype":"UINT32","shape":[1],"data":[0]}`)}}},
		{"a decoupled model that fails", []protocolCall{{call: "stream", model: "count",
			want: "!invalid_argument inputs[1].shape: ",
			body: inputs(`{"name":"IN","datatype":"INT32","shape":[1],"data":[7]},{"name":"DELAY",` +
				`"datatype":"UINT32","shape":[2],"data":[0,0]},{"name":"WAIT","datatype":"UINT32","shape":[1],` +
				`"data":[0]}`)}}},
	}
	for i, code := range coded.Codes {
		out = append(out, inferring("the model fails with "+string(code), "wrong",
			inputs(fmt.Sprintf(`{"name":"x","datatype":"FP32","shape":[1],"data":[%d]}`, i)),
			"!"+string(code)+" inputs[0].data: is "+strconv.Itoa(i)))
	}
	return out
}

// badCalls are refused calls other than infer.
func badCalls() []conforming {
	var out []conforming
	bad := func(call, model, body, want string) {
		out = append(out, conforming{fmt.Sprintf("%s %s %.40s", call, model, body),
			[]protocolCall{{call: call, model: model, body: body, want: want}}})
	}
	for _, call := range []string{"ModelMetadata", "ModelConfig", "ModelStatistics"} {
		bad(call, "nobody", "", "!not_found Request for unknown model: 'nobody' is not found")
		bad(call, "add/v9", "", "!not_found Request for unknown model: 'add' version 9 is not found")
		bad(call, "\x00a/b", "", "!not_found 'a/b'")
		bad(call, "a%b", "", "!not_found 'a%b'")
	}
	bad("RepositoryIndex", "other", "", "!invalid_argument ")
	for _, call := range []string{"RepositoryModelLoad", "RepositoryModelUnload"} {
		bad(call, "nobody", "", "!not_found ")
		bad(call, "\u00e4", "", "!not_found ")
	}
	for name, want := range map[string]string{
		" ":           "invalid_argument model: Model name cannot be empty",
		"a/../b":      "invalid_argument model name must not contain path traversal characters",
		"/etc/passwd": "invalid_argument model name must not contain path traversal characters",
		`a\b`:         "invalid_argument model name must not contain path traversal characters",
		"model..1":    "not_found failed to poll from model repository",
		"nobody":      "not_found failed to load 'nobody', failed to poll from model repository: ",
	} {
		bad("RepositoryModelLoad", "\x00"+name, "", "!"+want)
	}
	bad("RepositoryModelUnload", "\x00a/b", "", "!not_found ")
	load := func(model, body, want string) { bad("RepositoryModelLoad", model, body, want) }
	load("add", `{"parameters":{"bach_size":2}}`, "!invalid_argument parameters.bach_size: ")
	load("add", `{"parameters":{"batching.max_size":-3}}`, "!invalid_argument parameters.batching.max_size: ")
	load("add", `{"parameters":{"config":1}}`, "!invalid_argument parameters.config: ")
	load("add", `{"parameters":{"config":"{"}}`, "!invalid_argument parameters.config: ")
	load("add", `{"parameters":{"config":"{\"colour\":1}"}}`, "!invalid_argument parameters.config: ")
	load("spare", `{"parameters":{"config":"{\"backend\":\"identity\",\"instance_group\":[{\"count\":-1}]}"}}`,
		"!invalid_argument ")
	load("spare", `{"parameters":{"config":"{\"backend\":\"identity\",\"max_batch_size\":-1}"}}`, "!invalid_argument ")
	load("spare", `{"parameters":{"config":"{\"backend\":\"pytorch\"}"}}`, "!unsupported ")
	load("spare", `{"parameters":{"config":"{\"backend\":\"identity\",\"name\":\"other\"}"}}`, "!invalid_argument ")
	load("spare", `{"parameters":{"config":"{}","file:../1/model.onnx":"YQ=="}}`,
		"!invalid_argument parameters.file:../1/model.onnx: ")
	load("spare", `{"parameters":{"config":"{}","file:/1/model.onnx":"YQ=="}}`,
		"!invalid_argument parameters.file:/1/model.onnx: ")
	load("spare", `{"parameters":{"config":"{}","file:":"YQ=="}}`, "!invalid_argument parameters.file:: ")
	load("spare", `{"parameters":{"config":"{}","file:1/model.onnx":"!"}}`,
		"!invalid_argument parameters.file:1/model.onnx: ")
	load("spare", `{"parameters":{"config":"{}","file:1/model.onnx":1}}`,
		"!invalid_argument parameters.file:1/model.onnx: ")
	load("two-configs", "", "!invalid_argument leave one of the files out")
	load("unknown-key", "", "!invalid_argument instanses")
	load("unknown-field", "", "!invalid_argument instanse_group")
	load("half-written", "", "!invalid_argument ")
	load("no-file", "", "!not_found ")
	load("circle", "", "!invalid_argument is part of a circle")
	load("missing-step", "", "!not_found nobody")
	load("shapes-differ", "", "!invalid_argument steps.sum.input.INPUT: ")
	unload := func(body, want string) { bad("RepositoryModelUnload", "add", body, want) }
	unload(`{"parameters":{"dependents":true}}`, "!invalid_argument parameters.dependents: ")
	unload(`{"parameters":{"unload_dependents":1}}`, "!invalid_argument parameters.unload_dependents: ")
	bad("SystemSharedMemoryStatus", "none", "", "!not_found ")
	register := func(region, body, want string) { bad("SystemSharedMemoryRegister", region, body, want) }
	register("b", `{"key":"/none-`+sharedKey+`","byte_size":8}`, "!not_found key: ")
	register("b", `{"key":"/../etc/passwd","byte_size":8}`, "!invalid_argument key: ")
	register("b", `{"key":"..","byte_size":8}`, "!invalid_argument key: ")
	register("b", `{"key":"","byte_size":8}`, "!invalid_argument key: ")
	register("b", `{"key":"/`+sharedKey+`","byte_size":0}`, "!invalid_argument byte_size: ")
	register("b", `{"key":"/`+sharedKey+`","byte_size":65}`, "!invalid_argument byte_size: ")
	register("b", `{"key":"/`+sharedKey+`","offset":60,"byte_size":8}`, "!invalid_argument byte_size: ")
	register("b", `{"key":"/`+sharedKey+`","offset":18446744073709551615,"byte_size":18446744073709551615}`,
		"!invalid_argument byte_size: ")
	register(strings.Repeat("r", 257), `{"key":"/`+sharedKey+`","byte_size":8}`, "!invalid_argument name: ")
	bad("CudaSharedMemoryStatus", "none", "", "!not_found ")
	out = append(out, conforming{"CUDA memory",
		[]protocolCall{{call: "CudaSharedMemoryRegister", model: "c", body: "{}",
			want: "!unsupported no CUDA shared memory"}}})
	log := func(body, want string) { bad("LogSettings", "", body, want) }
	log(`{"log_colour":true}`, "!invalid_argument log_colour: ")
	log(`{"log_info":1}`, "!invalid_argument log_info: ")
	log(`{"log_verbose_level":"high"}`, "!invalid_argument log_verbose_level: ")
	log(`{"log_errors":false}`, "!invalid_argument log_errors: ")
	log(`{"log_file":"/tmp/x"}`, "!unsupported log_file: ")
	log(`{"log_format":"short"}`, "!invalid_argument log_format: ")
	trace := func(model, body, want string) { bad("TraceSetting", model, body, want) }
	trace("", `{"trace_rate":"often"}`, "!invalid_argument trace_rate: ")
	trace("", `{"trace_rate":"0"}`, "!invalid_argument trace_rate: ")
	trace("", `{"trace_rate":["1","2"]}`, "!invalid_argument trace_rate: has 2 values")
	trace("", `{"trace_level":"LOUD"}`, "!invalid_argument trace_level: ")
	trace("", `{"trace_count":"5"}`, "!unsupported trace_count: ")
	trace("", `{"trace_file":"/tmp/x"}`, "!unsupported trace_file: ")
	trace("", `{"trace_colour":"x"}`, "!invalid_argument trace_colour: ")
	trace("add", `{"trace_rate":"9"}`, "!unsupported all models")
	trace("nobody", `{"trace_rate":"9"}`, "!not_found nobody")
	return out
}
