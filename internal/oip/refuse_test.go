package oip

import (
	"errors"
	"strings"
	"testing"

	"millrace/stream/coded"
)

// tensorWith is a request with one tensor with the members.
func tensorWith(members string) string { return `{"inputs":[{"name":"x",` + members + `}]}` }

func fp32(shape, data string) string {
	return tensorWith(`"datatype":"FP32","shape":` + shape + `,"data":` + data)
}

func typed(datatype, data string) string {
	return tensorWith(`"shape":[1],"datatype":"` + datatype + `","data":[` + data + `]`)
}

// TestRefused pins, for every kind of wrong request, the path in the error and a part of the error's text.
func TestRefused(t *testing.T) {
	good := `"datatype":"FP32","shape":[1],"data":[1]`
	binary := func(size string) string {
		return tensorWith(`"datatype":"FP32","shape":[2],"parameters":{"binary_data_size":` + size + `}`)
	}
	for _, c := range []struct {
		name, body string
		raw        string // bytes behind the JSON, with a header length if not ""
		field, msg string
	}{
		{"empty", ``, "", "", "empty"},
		{"space", `  `, "", "", "end of the text"},
		{"byte order mark", "\xef\xbb\xbf{}", "", "", "byte order mark"},
		{"garbage", `hello`, "", "", "hello"},
		{"array", `[]`, "", "", "JSON object"},
		{"null", `null`, "", "", "JSON object"},
		{"unclosed", `{"inputs":[`, "", "inputs[0]", "end of the text"},
		{"no colon", `{"inputs" []}`, "", "", "':'"},
		{"trailing comma", `{"inputs":[],}`, "", "", "key"},
		{"trailing comma in object", `{"id":"a",}`, "", "", "key"},
		{"trailing garbage", tensorWith(good) + `x`, "", "", "expected the end"},
		{"two objects", tensorWith(good) + `{}`, "", "", "expected the end"},
		{"bad literal", `{"id":nul}`, "", "id", "nul"},
		{"id number", `{"id":5}`, "", "id", "a string"},
		{"id twice", `{"id":"a","id":"b"}`, "", "id", "twice"},
		{"id UTF-8", "{\"id\":\"\xff\"}", "", "id", "UTF-8"},
		{"control character", "{\"id\":\"\x01\"}", "", "id", "control character"},
		{"lone surrogate", `{"id":"\ud800"}`, "", "id", "surrogate"},
		{"bad escape", `{"id":"\x"}`, "", "id", "escape"},
		{"short escape", `{"id":"\u12"}`, "", "id", "hexadecimal"},
		{"long id", `{"id":"` + strings.Repeat("a", 2000) + `"}`, "", "id", "at most 1024"},
		{"inputs null", `{"inputs":null}`, "", "inputs", "an array"},
		{"inputs twice", `{"inputs":[{"name":"x",` + good + `}],"inputs":[]}`, "", "inputs", "twice"},
		{"input number", `{"inputs":[5]}`, "", "inputs[0]", "tensor object"},
		{"no name", `{"inputs":[{` + good + `}]}`, "", "inputs[0].name", "missing"},
		{"name empty", `{"inputs":[{"name":"",` + good + `}]}`, "", "inputs[0].name", "empty"},
		{"name number", `{"inputs":[{"name":1,` + good + `}]}`, "", "inputs[0].name", "a string"},
		{"name UTF-8", "{\"inputs\":[{\"name\":\"a\xc3(\"," + good + "}]}", "", "inputs[0].name", "UTF-8"},
		{"name twice", `{"inputs":[{"name":"a",` + good + `},{"name":"a",` + good + `}]}`, "", "inputs[1].name",
			"input 'a' already exists in request"},
		{"no datatype", tensorWith(`"shape":[1],"data":[1]`), "", "inputs[0].datatype", "missing"},
		{"unknown datatype", tensorWith(`"datatype":"fp32","shape":[1],"data":[1]`), "", "inputs[0].datatype",
			`"fp32"`},
		{"no shape", tensorWith(`"datatype":"FP32","data":[1]`), "", "inputs[0].shape", "missing"},
		{"shape number", fp32(`4`, `[1]`), "", "inputs[0].shape", "an array"},
		{"shape twice", tensorWith(`"shape":[1],` + good), "", "inputs[0].shape", "twice"},
		{"negative", fp32(`[1,2,-3]`, `[1]`), "", "inputs[0].shape[2]", "negative"},
		{"fraction", fp32(`[1,2.5]`, `[1]`), "", "inputs[0].shape[1]", "2.5"},
		{"exponent", fp32(`[1e3]`, `[1]`), "", "inputs[0].shape[0]", "1e3"},
		{"leading zero", fp32(`[01]`, `[1]`), "", "inputs[0].shape[0]", "01"},
		{"string dimension", fp32(`["1"]`, `[1]`), "", "inputs[0].shape[0]", "a string"},
		{"huge dimension", fp32(`[9223372036854775808]`, `[1]`), "", "inputs[0].shape[0]", "too large"},
		{"huger dimension", fp32(`[99999999999999999999999]`, `[1]`), "", "inputs[0].shape[0]", "too large"},
		{"overflow", fp32(`[4294967296,4294967296,4]`, `[1]`), "", "inputs[0].shape",
			"causes total element count to exceed maximum size of 9223372036854775807"},
		{"overflow and zero", fp32(`[0,4294967296,4294967296]`, `[]`), "", "inputs[0].shape",
			"causes total element count"},
		{"overflow of bytes", fp32(`[4,1152921504606846978]`, `[1]`), "", "inputs[0].shape",
			"byte size overflow for inputs"},
		{"too many elements", fp32(`[1073741824]`, `[1]`), "", "inputs[0].shape", "at most"},
		{"too many dimensions", fp32(`[`+strings.Repeat("1,", 64)+`1]`, `[1]`), "", "inputs[0].shape", "64 dimensions"},
		{"no data", tensorWith(`"datatype":"FP32","shape":[1]`), "", "inputs[0].data", "missing"},
		{"no data for none", tensorWith(`"datatype":"FP32","shape":[0]`), "", "inputs[0].data", "missing"},
		{"data null", fp32(`[1]`, `null`), "", "inputs[0].data", "an array"},
		{"data twice", tensorWith(`"data":[1],` + good), "", "inputs[0].data", "twice"},
		{"short", fp32(`[3]`, `[1, 2]            `), "", "inputs[0].data", "2 elements; expected 3"},
		{"far too short", fp32(`[100000]`, `[1,2]`), "", "inputs[0].data", "too short"},
		{"none", fp32(`[3]`, `[   ]            `), "", "inputs[0].data", "0 elements; expected 3"},
		{"long", fp32(`[2]`, `[1,2,3]`), "", "inputs[0].data", "more than 2"},
		{"some for none", fp32(`[0]`, `[1]`), "", "inputs[0].data", "no element"},
		{"trailing comma in data", fp32(`[2]`, `[1,]            `), "", "inputs[0].data[1]", "']'"},
		{"two commas", fp32(`[2]`, `[1,,2]`), "", "inputs[0].data[1]", "','"},
		{"no comma", fp32(`[2]`, `[1 2]`), "", "inputs[0].data", "',' or ']'"},
		{"short, data first", tensorWith(`"data":[1,2],"datatype":"FP32","shape":[3]`), "", "inputs[0].data",
			"2 elements; expected 3"},
		{"unclosed data first", `{"inputs":[{"data":[1,2`, "", "inputs[0].data", "end of the text"},
		{"too deep for its shape", fp32(`[2]`, `[[1,2]]`), "", "inputs[0].data[0]", "an array"},
		{"deep in flat", fp32(`[2,2]`, `[1,[2,3]]`), "", "inputs[0].data[1]", "an array"},
		{"scalar nested", fp32(`[]`, `[[1]]`), "", "inputs[0].data", "deeper"},
		{"not rectangular", fp32(`[2,2]`, `[[1,2],[3]]`), "", "inputs[0].data[1]", "1 elements; expected 2"},
		{"row too long", fp32(`[2,2]`, `[[1,2,3],[4]]`), "", "inputs[0].data[0]", "more than 2"},
		{"too few rows", fp32(`[3,1]`, `[[1],[2]]      `), "", "inputs[0].data", "2 elements; expected 3"},
		{"too many rows", fp32(`[2,1]`, `[[1],[2],[3]]`), "", "inputs[0].data", "more than 2 rows"},
		{"flat row", fp32(`[2,2]`, `[[1,2],3,4]`), "", "inputs[0].data[1]", "3"},
		{"deep row", fp32(`[2,2]`, `[[1,2],[[3],4]]`), "", "inputs[0].data[1][0]", "an array"},
		{"10000 deep", `{"inputs":` + strings.Repeat("[", 10000), "", "inputs[0]", "tensor object"},
		{"10000 deep data", fp32(`[1]`, strings.Repeat("[", 10000)), "", "inputs[0].data[0]", "an array"},
		{"10000 deep data first", tensorWith(`"data":` + strings.Repeat("[", 10000)), "", "inputs[0].data",
			"64 levels"},
		{"10000 deep unknown", `{"x":` + strings.Repeat(`{"y":`, 10000), "", "", "64 levels"},
		{"10000 deep in tensor", tensorWith(`"z":` + strings.Repeat("[", 10000)), "", "inputs[0]", "64 levels"},
		{"unknown broken", `{"x":[1,2}`, "", "", "',' or ']'"},
		{"unknown number", `{"x":-}`, "", "", "number"},
		{"string", typed("FP32", `"1"`), "", "inputs[0].data[0]", "a string"},
		{"true", typed("FP32", `true`), "", "inputs[0].data[0]", "true"},
		{"null element", typed("FP32", `null`), "", "inputs[0].data[0]", "null"},
		{"object", typed("FP32", `{}`), "", "inputs[0].data[0]", "an object"},
		{"nan", typed("FP32", `nan`), "", "inputs[0].data[0]", "binary data"},
		{"inf", typed("FP64", `inf`), "", "inputs[0].data[0]", "binary data"},
		{"an integer that is not finite", typed("INT32", `NaN`), "", "inputs[0].data[0]", "binary data"},
		{"hexadecimal", typed("FP64", `0x10`), "", "inputs[0].data[0]", "0x10"},
		{"plus", typed("FP64", `+1`), "", "inputs[0].data[0]", "number"},
		{"point first", typed("FP64", `.5`), "", "inputs[0].data[0]", "number"},
		{"point last", typed("FP64", `5.`), "", "inputs[0].data[0]", "5."},
		{"no exponent", typed("FP64", `5e`), "", "inputs[0].data[0]", "5e"},
		{"zero first", typed("FP64", `05`), "", "inputs[0].data[0]", "05"},
		{"past FP32", typed("FP32", `1e39`), "", "inputs[0].data[0]", "outside of FP32"},
		{"past FP64", typed("FP64", `1e309`), "", "inputs[0].data[0]", "outside of FP64"},
		{"300", typed("UINT8", `300`), "", "inputs[0].data[0]", "outside of UINT8 (0 to 255)"},
		{"256", typed("UINT8", `256`), "", "inputs[0].data[0]", "256"},
		{"-1", typed("UINT8", `-1`), "", "inputs[0].data[0]", "-1"},
		{"1.5 in UINT8", typed("UINT8", `1.5`), "", "inputs[0].data[0]", "integer"},
		{"1e1 in UINT8", typed("UINT8", `1e1`), "", "inputs[0].data[0]", "integer"},
		{"1.5", typed("INT32", `1.5`), "", "inputs[0].data[0]", "integer"},
		{"128", typed("INT8", `128`), "", "inputs[0].data[0]", "INT8 (-128 to 127)"},
		{"-129", typed("INT8", `-129`), "", "inputs[0].data[0]", "INT8"},
		{"2^64", typed("UINT64", `18446744073709551616`), "", "inputs[0].data[0]", "UINT64"},
		{"2^63", typed("INT64", `9223372036854775808`), "", "inputs[0].data[0]", "INT64"},
		{"30 digits", typed("INT64", `100000000000000000000000000000`), "", "inputs[0].data[0]", "INT64"},
		{"1 in BOOL", typed("BOOL", `1`), "", "inputs[0].data[0]", "true or false"},
		{"True", typed("BOOL", `True`), "", "inputs[0].data[0]", "True"},
		{"truely", typed("BOOL", `truely`), "", "inputs[0].data[0]", "truely"},
		{"5 in BYTES", typed("BYTES", `5`), "", "inputs[0].data[0]", "a string"},
		{"BYTES UTF-8", typed("BYTES", "\"\xff\""), "", "inputs[0].data[0]", "valid string"},
		{"BYTES surrogate", typed("BYTES", `"\udc80"`), "", "inputs[0].data[0]", "valid string"},
		{"FP16", typed("FP16", `1`), "", "inputs[0].data", "FP16; send the tensor as binary"},
		{"BF16", typed("BF16", `1`), "", "inputs[0].data", "BF16"},
		{"parameters array", `{"parameters":[]}`, "", "parameters", "an object"},
		{"parameter null", `{"parameters":{"a":null}}`, "", "parameters.a", "null"},
		{"parameter object", `{"parameters":{"a":{}}}`, "", "parameters.a", "an object"},
		{"parameter array", tensorWith(`"parameters":{"a":[1]}`), "", "inputs[0].parameters.a", "an array"},
		{"parameter twice", `{"parameters":{"a":1,"a":2}}`, "", "parameters.a", "twice"},
		{"parameter 2^63", `{"parameters":{"a":9223372036854775808}}`, "", "parameters.a", "64 bits"},
		{"parameter 1e400", `{"parameters":{"a":1e400}}`, "", "parameters.a", "FP64"},
		{"parameter UTF-8", "{\"parameters\":{\"a\":\"\xff\"}}", "", "parameters.a", "UTF-8"},
		{"binary_data_output", `{"parameters":{"binary_data_output":1}}`, "", "parameters.binary_data_output",
			"true or false"},
		{"outputs object", `{"outputs":{}}`, "", "outputs", "an array"},
		{"output without name", `{"outputs":[{}]}`, "", "outputs[0].name", "missing"},
		{"output twice", `{"outputs":[{"name":"a"},{"name":"a"}]}`, "", "outputs[1].name",
			"output 'a' already exists in request"},
		{"binary_data", `{"outputs":[{"name":"a","parameters":{"binary_data":"yes"}}]}`, "",
			"outputs[0].parameters.binary_data", "true or false"},
		{"no header length", binary("8"), "", "inputs[0].parameters.binary_data_size",
			"Inference-Header-Content-Length"},
		{"size of another shape", binary("4"), "12345678", "inputs[0].parameters.binary_data_size", "expected 8"},
		{"size past the body", binary("8"), "1234567", "inputs[0].parameters.binary_data_size", "7 bytes"},
		{"left over", binary("8"), "123456789", "", "1 bytes of binary data are not used"},
		{"left over without tensors", tensorWith(good), "1", "", "not used"},
		{"size negative", binary("-8"), "12345678", "inputs[0].parameters.binary_data_size", "-8"},
		{"size fraction", binary("8.0"), "12345678", "inputs[0].parameters.binary_data_size", "8.0"},
		{"size string", binary(`"8"`), "12345678", "inputs[0].parameters.binary_data_size", "a string"},
		{"size huge", binary(`99999999999999999999`), "12345678", "inputs[0].parameters.binary_data_size", "999"},
		{"size and data", tensorWith(`"parameters":{"binary_data_size":4},` + good), "1234", "inputs[0].data",
			"binary_data_size"},
		{"data and size", tensorWith(good + `,"parameters":{"binary_data_size":4}`), "1234", "inputs[0].data",
			"binary_data_size"},
		{"element past the end", tensorWith(`"datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":6}`),
			"\x03\x00\x00\x00ab", "inputs[0].data[0]", "length of 3"},
		{"element of 4 GiB", tensorWith(`"datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":6}`),
			"\xff\xff\xff\xffab", "inputs[0].data[0]", "length"},
		{"element missing", tensorWith(`"datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":6}`),
			"\x02\x00\x00\x00ab", "inputs[0].data[1]", "0 bytes left"},
		{"element too many", tensorWith(`"datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":6}`),
			"\x01\x00\x00\x00ab", "inputs[0].data", "after"},
	} {
		t.Run(c.name, func(t *testing.T) {
			body, header := []byte(c.body), -1
			if c.raw != "" {
				body, header = []byte(c.body+c.raw), len(c.body)
			}
			var r InferRequest
			err := DecodeRequest(&r, body, header, reusing(), Limits{})
			var e *coded.Error
			if !errors.As(err, &e) {
				t.Fatalf("accepted, or a foreign error: %v", err)
			}
			if e.Field != c.field || !strings.Contains(e.Msg, c.msg) {
				t.Errorf("got  %s: %s\nwant %s: ...%s...", e.Field, e.Msg, c.field, c.msg)
			}
		})
	}
}

func TestRefusedHeaderLength(t *testing.T) {
	body := []byte(typed("FP32", "1"))
	for header, msg := range map[int]string{
		0:             "one raw tensor",
		-2:            "-2",
		len(body) + 1: "but the body has",
		1 << 62:       "but the body has",
		3:             "end of the text",
	} {
		var r InferRequest
		err := DecodeRequest(&r, body, header, reusing(), Limits{})
		if err == nil || !strings.Contains(err.Error(), msg) {
			t.Errorf("header length %d: %v; want ...%s...", header, err, msg)
		}
	}
}

func TestLimits(t *testing.T) {
	two := `{"inputs":[{"name":"abc","datatype":"FP32","shape":[2,2],"data":[1,2,3,4]},{"name":"d",` +
		`"datatype":"FP32","shape":[1],"data":[1]}],"parameters":{"p":1,"q":2}}`
	for _, c := range []struct {
		lim   Limits
		field string
	}{
		{Limits{MaxTensors: 1}, "inputs"},
		{Limits{MaxElements: 3}, "inputs[0].shape"},
		{Limits{MaxName: 2}, "inputs[0].name"},
		{Limits{MaxDepth: 1}, "inputs[0].shape"},
		{Limits{MaxParams: 1}, "parameters"},
	} {
		var r InferRequest
		var e *coded.Error
		err := DecodeRequest(&r, []byte(two), -1, reusing(), c.lim)
		if !errors.As(err, &e) || e.Field != c.field {
			t.Errorf("%+v: %v; want an error about %s", c.lim, err, c.field)
		}
		if err := DecodeRequest(&r, []byte(two), -1, reusing(), Limits{}); err != nil {
			t.Errorf("within the limits: %v", err)
		}
	}
}

func TestNoMemory(t *testing.T) {
	var r InferRequest
	for _, body := range []string{typed("FP32", "1"), typed("BYTES", `"a"`)} {
		err := DecodeRequest(&r, []byte(body), -1, func(int) []byte { return nil }, Limits{})
		if !errors.Is(err, ErrMemory) || !strings.HasPrefix(err.Error(), "inputs[0].data: ") {
			t.Errorf("got %v; want ErrMemory about inputs[0].data", err)
		}
	}
}

// TestMemoryFollowsText makes sure that a small message cannot ask for much.
func TestMemoryFollowsText(t *testing.T) {
	for _, body := range []string{
		fp32(`[268435456]`, `[1]`),
		tensorWith(`"datatype":"BYTES","shape":[268435456],"data":["a"]`),
		tensorWith(`"datatype":"FP64","shape":[50],"data":[1` + strings.Repeat(" ", 200) + `]`),
	} {
		var r InferRequest
		err := DecodeRequest(&r, []byte(body), -1, func(n int) []byte {
			if n > 4*len(body) {
				t.Errorf("asked for %d bytes for a text of %d", n, len(body))
			}
			return make([]byte, n)
		}, Limits{})
		if err == nil {
			t.Error("accepted")
		}
	}
}
