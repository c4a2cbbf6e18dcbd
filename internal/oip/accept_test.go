package oip

import (
	"bytes"
	"reflect"
	"testing"
)

func decode(t interface {
	Helper()
	Fatalf(string, ...any)
}, body string, header int) *InferRequest {
	t.Helper()
	var r InferRequest
	if err := DecodeRequest(&r, []byte(body), header, reusingNone, Limits{}); err != nil {
		t.Fatalf("%v\n%.300s", err, body)
	}
	return &r
}

// reusingNone gives fresh memory, filled so that unwritten bytes show.
func reusingNone(n int) []byte { return bytes.Repeat([]byte{0xa5}, n) }

// TestRequestOfClients reads a request in the form of real clients: spaces, members in any order, nulls, members
// unknown to the protocol.
func TestRequestOfClients(t *testing.T) {
	r := decode(t, ` {
		"model_name": "m", "future": {"a": [1, {"b": null}], "c": "\"]}"},
		"parameters": {"sequence_id": 7, "sequence_start": true, "sequence_end": false, "rate": 0.5, "binary_data_output": true, "t\u00e9l": "\ud83d\ude00/\n"},
		"outputs": [{"name": "a"}, {"name": "b", "parameters": {"binary_data": false, "classification": 3}}, {"name": "c", "parameters": null}],
		"inputs": [
			{"data": [[1, 2, 3] , [4,5 , 6]], "datatype": "INT16", "name": "x", "shape": [2, 3], "extra": [[]]},
			{"name": "empty", "shape": [0, 3], "datatype": "FP32", "data": [ ], "parameters": {"k": "v"}},
			{"name": "rows", "shape": [2, 0], "datatype": "FP32", "data": [[],[]]},
			{"name": "scalar", "shape": [], "datatype": "BOOL", "data": [true]},
			{"parameters": {"content_type": "str"}, "name": "text", "shape": [2, 1], "datatype": "BYTES", "data": [["a\u0000b"], ["é\ud83d\ude00"]]}
		],
		"id": null
	}
	`, -1)
	if r.ID != "" || !r.BinaryOutput || len(r.Inputs) != 5 || len(r.Outputs) != 3 {
		t.Fatalf("%+v", r)
	}
	want := Params{
		{Key: "sequence_id", Kind: Int, Int: 7}, {Key: "sequence_start", Kind: Boolean, Bool: true},
		{Key: "sequence_end", Kind: Boolean}, {Key: "rate", Kind: Float, Float: 0.5},
		{Key: "tél", Kind: String, Str: "😀/\n"},
	}
	if !reflect.DeepEqual(r.Params, want) {
		t.Errorf("parameters %+v", r.Params)
	}
	for name, binary := range map[string]bool{"a": true, "b": false, "c": true, "other": true} {
		if r.WantsBinary(name) != binary {
			t.Errorf("output %s: binary is %v", name, !binary)
		}
	}
	for i, data := range []string{"\x01\x00\x02\x00\x03\x00\x04\x00\x05\x00\x06\x00", "", "", "\x01",
		"\x03\x00\x00\x00a\x00b\x06\x00\x00\x00é😀"} {
		if string(r.Inputs[i].Data) != data {
			t.Errorf("input %d: %q", i, r.Inputs[i].Data)
		}
	}
	if p, ok := r.Inputs[4].Params.Get("content_type"); !ok || p.Value() != "str" {
		t.Errorf("parameters of text: %+v", r.Inputs[4].Params)
	}
}

func TestBinaryIsView(t *testing.T) {
	head := `{"inputs":[{"name":"a","shape":[2],"datatype":"FP16","parameters":{"binary_data_size":4}},` +
		`{"name":"j","shape":[1],"datatype":"UINT8","data":[7]},` +
		`{"name":"b","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":10}}]}`
	body := []byte(head + "wxyz" + "\x00\x00\x00\x00\x02\x00\x00\x00hi")
	var r InferRequest
	if err := DecodeRequest(&r, body, len(head), reusingNone, Limits{}); err != nil {
		t.Fatal(err)
	}
	if &r.Inputs[0].Data[0] != &body[len(head)] || cap(r.Inputs[0].Data) != 4 || string(r.Inputs[0].Data) != "wxyz" {
		t.Errorf("a is %q, not a view", r.Inputs[0].Data)
	}
	first, rest, _ := NextBytes(r.Inputs[2].Data)
	second, rest, ok := NextBytes(rest)
	if len(first) != 0 || string(second) != "hi" || !ok || len(rest) != 0 {
		t.Errorf("b is %q", r.Inputs[2].Data)
	}
	if len(r.Inputs[0].Params) != 0 || r.Inputs[1].Data[0] != 7 {
		t.Errorf("%+v", r.Inputs)
	}
}

// TestReuse decodes different requests into one value: nothing of an earlier request may show.
func TestReuse(t *testing.T) {
	var r InferRequest
	bodies := []string{
		`{"id":"one","parameters":{"a":"x","b":2,"binary_data_output":true},"inputs":[{"name":"x",` +
			`"datatype":"UINT8","shape":[2,1],"parameters":{"p":"q"},"data":[1,2]},{"name":"y","datatype":"INT8",` +
			`"shape":[1],"data":[-1]}],"outputs":[{"name":"o","parameters":{"binary_data":true,"k":1}}]}`,
		`{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}],"outputs":[{"name":"o"},{"name":"p"}]}`,
		`{"parameters":{"a":1,"b":"x"},"inputs":[{"name":"z","datatype":"BYTES","shape":[],"data":[""]},{"name":"x",` +
			`"datatype":"FP32","shape":[0],"data":[]}]}`,
	}
	for range 2 {
		for _, b := range bodies {
			if err := DecodeRequest(&r, []byte(b), -1, reusingNone, Limits{}); err != nil {
				t.Fatal(err)
			}
			got, err := AppendRequest(nil, &r, NeverBinary)
			if err != nil {
				t.Fatal(err)
			}
			want, err := AppendRequest(nil, decode(t, b, -1), NeverBinary)
			if err != nil || string(got) != string(want) {
				t.Errorf("reused %s\nfresh  %s (%v)", got, want, err)
			}
			if DecodeRequest(&r, []byte(`{"id":"bad","inputs":[{"name":"q","shape":[9],`), -1, reusingNone,
				Limits{}) == nil {
				t.Error("accepted half a request")
			}
		}
	}
	r.Reset()
	if r.ID != "" && len(r.Inputs)+len(r.Outputs)+len(r.Params) != 0 {
		t.Errorf("after Reset: %+v", r)
	}
}

func TestRawRequest(t *testing.T) {
	var r InferRequest
	body := make([]byte, 24)
	for _, c := range []struct {
		datatype string
		shape    []int
		want     []int // nil: refused
	}{
		{FP32, []int{2, 3}, []int{2, 3}},
		{FP32, []int{-1, 3}, []int{2, 3}},
		{"UINT17", []int{-1}, nil},
		{FP64, []int{-1}, []int{3}},
		{FP16, []int{2, -1, 2}, []int{2, 3, 2}},
		{FP32, []int{-1, -1}, nil},
		{FP32, []int{5, -1}, nil},
		{FP32, []int{7}, nil},
		{FP32, []int{-2}, nil},
		{FP32, []int{0, -1}, nil},
		{Bytes, []int{1}, []int{1}},
		{Bytes, []int{-1}, []int{1}},
		{Bytes, []int{-1, 1}, []int{1, 1}},
		{Bytes, []int{2}, nil},
	} {
		err := RawRequest(&r, body, "x", c.datatype, c.shape, reusingNone, Limits{})
		if (err == nil) != (c.want != nil) {
			t.Errorf("%s %v: %v", c.datatype, c.shape, err)
			continue
		}
		if err != nil {
			continue
		}
		in := r.Inputs[0]
		if !reflect.DeepEqual(in.Shape, c.want) || in.Name != "x" || !r.WantsBinary("y") {
			t.Errorf("%s %v: %+v", c.datatype, c.shape, r)
		}
		if c.datatype == Bytes {
			if e, rest, ok := NextBytes(in.Data); !ok || len(rest) != 0 || !bytes.Equal(e, body) {
				t.Errorf("element is %v", in.Data)
			}
		} else if &in.Data[0] != &body[0] {
			t.Errorf("%s is not a view", c.datatype)
		}
	}
}
