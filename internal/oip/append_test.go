package oip

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"millrace/stream/coded"
)

func TestAppendString(t *testing.T) {
	for in, want := range map[string]string{
		"":                 `""`,
		"a\"\\/b":          `"a\"\\/b"`,
		"\n\r\t\x00\x1f":   `"\n\r\t\u0000\u001f"`,
		"é\u2028😀\x7f":     `"é\u2028😀\u007f"`,
		"a\xffb\xc3":       "\"a\ufffdb\ufffd\"",
		"\xed\xa0\x80":     "\"\ufffd\ufffd\ufffd\"",
		"\ufffd\u2029 end": "\"\ufffd\\u2029 end\"",
	} {
		if got := string(AppendString(nil, in)); got != want {
			t.Errorf("%q: got %s want %s", in, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		in := string(rapid.SliceOf(rapid.Byte()).Draw(t, "s"))
		out := AppendString([]byte("x"), in)[1:]
		var back string
		if !utf8.Valid(out) || json.Unmarshal(out, &back) != nil {
			t.Fatalf("%q became %q", in, out)
		}
		if want := strings.ToValidUTF8(in, ""); utf8.ValidString(in) && back != want {
			t.Fatalf("%q came back as %q", in, back)
		}
	})
}

// TestResponseText pins the text of a reply.
func TestResponseText(t *testing.T) {
	f := func(vs ...float32) (b []byte) {
		for _, v := range vs {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		return b
	}
	r := InferResponse{ModelName: "m", ModelVersion: "2", ID: "i", Params: Params{{Key: "k", Kind: Float, Float: 2},
		{Key: "n", Kind: Int, Int: -3}, {Key: "b", Kind: Boolean, Bool: true}},
		Outputs: []Tensor{
			{Name: "a", Datatype: FP32, Shape: []int{2, 3},
				Data: f(0, 1, -2.5, 1e-9, 3e30, float32(math.Copysign(0, -1)))},
			{Name: "b", Datatype: FP16, Shape: []int{2}, Data: []byte("abcd"),
				Params: Params{{Key: "p", Kind: String, Str: "q"}}},
			{Name: "c", Datatype: Uint8, Shape: []int{3}, Data: []byte{0, 10, 255}},
			{Name: "d", Datatype: Bool, Shape: []int{2}, Data: []byte{1, 0}},
			{Name: "e", Datatype: Bytes, Shape: []int{1}, Data: AppendBytes(nil, []byte("x\"y"))},
			{Name: "f", Datatype: Int8, Shape: []int{0}},
		}}
	got, err := AppendResponse([]byte(">"), &r, func(i int) bool { return i == 1 })
	want := `>{"model_name":"m","model_version":"2","id":"i","parameters":{"k":2.0,"n":-3,"b":true},"outputs":[` +
		`{"name":"a","datatype":"FP32","shape":[2,3],"data":[0,1,-2.5,1e-09,3e+30,-0]},` +
		`{"name":"b","datatype":"FP16","shape":[2],"parameters":{"binary_data_size":4,"p":"q"}},` +
		`{"name":"c","datatype":"UINT8","shape":[3],"data":[0,10,255]},` +
		`{"name":"d","datatype":"BOOL","shape":[2],"data":[true,false]},` +
		`{"name":"e","datatype":"BYTES","shape":[1],"data":["x\"y"]},` +
		`{"name":"f","datatype":"INT8","shape":[0],"data":[]}]}`
	if err != nil || string(got) != want {
		t.Errorf("%v\ngot  %s\nwant %s", err, got, want)
	}
	parts := BinaryParts(nil, r.Outputs, func(i int) bool { return i == 1 || i == 4 })
	if len(parts) != 2 || string(parts[0]) != "abcd" || len(parts[1]) != 7 {
		t.Errorf("parts %q", parts)
	}
}

func TestResponseRefused(t *testing.T) {
	nan := binary.LittleEndian.AppendUint32(make([]byte, 4), math.Float32bits(float32(math.NaN())))
	inf := binary.LittleEndian.AppendUint64(nil, math.Float64bits(math.Inf(-1)))
	for _, c := range []struct {
		tensor     Tensor
		field, msg string
	}{
		{Tensor{Datatype: FP32, Shape: []int{2}, Data: nan}, "outputs[0].data[1]",
			`"o" is NaN, which JSON does not have`},
		{Tensor{Datatype: FP64, Shape: []int{1}, Data: inf}, "outputs[0].data[0]", "-Inf"},
		{Tensor{Datatype: BF16, Shape: []int{1}, Data: []byte("ab")}, "outputs[0].data[0]", "BF16"},
		{Tensor{Datatype: Bytes, Shape: []int{1}, Data: AppendBytes(nil, []byte{0xff})}, "outputs[0].data[0]", "UTF-8"},
		{Tensor{Datatype: Bytes, Shape: []int{2}, Data: AppendBytes(nil, []byte{0xff})}, "outputs[0].data",
			"broken element"},
		{Tensor{Datatype: FP32, Shape: []int{3}, Data: nan}, "outputs[0].data", "8 bytes"},
		{Tensor{Datatype: FP32, Shape: []int{-1}, Data: nan}, "outputs[0].shape", "negative"},
		{Tensor{Datatype: "FLOAT", Shape: []int{1}, Data: nan}, "outputs[0].datatype", `"FLOAT"`},
		{Tensor{Datatype: Uint8, Data: []byte{1}, Params: Params{{Key: "k"}}}, "outputs[0].parameters.k", "no value"},
		{Tensor{Datatype: Uint8, Data: []byte{1}, Params: Params{{Key: "k", Kind: Float, Float: math.Inf(1)}}},
			"outputs[0].parameters.k", "finite"},
	} {
		c.tensor.Name = "o"
		_, err := AppendResponse(nil, &InferResponse{Outputs: []Tensor{c.tensor}}, nil)
		var e *coded.Error
		if !errors.As(err, &e) || e.Field != c.field || !strings.Contains(e.Msg, c.msg) {
			t.Errorf("got %v; want %s: ...%s...", err, c.field, c.msg)
		}
	}
}

func TestDecodeResponseRefused(t *testing.T) {
	for _, c := range []struct{ body, field, msg string }{
		{`{"error":"x"}`, "outputs", "missing"},
		{`{"outputs":[{"name":"a","datatype":"FP32","shape":[1],"data":["x"]}]}`, "outputs[0].data[0]", "a string"},
		{`{"model_name":5}`, "model_name", "a string"},
		{`{"outputs":[],"outputs":[]}`, "outputs", "twice"},
		{`{"outputs":[]}5`, "", "expected the end"},
		{``, "", "empty"},
	} {
		var r InferResponse
		var e *coded.Error
		err := DecodeResponse(&r, []byte(c.body), -1, reusingNone, Limits{})
		if !errors.As(err, &e) || e.Field != c.field || !strings.Contains(e.Msg, c.msg) {
			t.Errorf("%s: got %v; want %s: ...%s...", c.body, err, c.field, c.msg)
		}
	}
	var r InferResponse
	for _, body := range []string{`{"model_name":"m","model_version":"1","id":"x","outputs":[]}`,
		`{"outputs":[],"id":null,"parameters":null}`} {
		if err := DecodeResponse(&r, []byte(body), -1, reusingNone, Limits{}); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
	if r.ModelName != "" || r.ModelVersion != "" || r.ID != "" {
		t.Errorf("left from the reply before: %+v", r)
	}
}

func read[T any](text []byte) (v T, err error) {
	err = json.Unmarshal(text, &v)
	return v, err
}

func TestMetadata(t *testing.T) {
	server := ServerMetadata{Name: "millrace", Version: "1.0", Extensions: []string{"binary_tensor_data", "a\"b"}}
	if got, err := read[ServerMetadata](AppendServerMetadata(nil, &server)); err != nil ||
		!reflect.DeepEqual(got, server) {
		t.Errorf("%v %+v", err, got)
	}
	model := ModelMetadata{Name: "m", Versions: []string{"1", "2"}, Platform: "onnx",
		Inputs:  []TensorMetadata{{"x", FP32, []int{-1, 3}}, {"y", Bytes, []int{}}},
		Outputs: []TensorMetadata{}}
	if got, err := read[ModelMetadata](AppendModelMetadata(nil, &model)); err != nil || !reflect.DeepEqual(got, model) {
		t.Errorf("%v %+v", err, got)
	}
	if got := string(AppendModelMetadata(nil,
		&ModelMetadata{Name: "n"})); got != `{"name":"n","platform":"","inputs":[],"outputs":[]}` {
		t.Errorf("got %s", got)
	}
	rows := []IndexRow{{"a", "1", "READY", ""}, {"b", "", "UNAVAILABLE", "no \"file\""}}
	if got, err := read[[]IndexRow](AppendIndex(nil, rows)); err != nil || !reflect.DeepEqual(got, rows) {
		t.Errorf("%v %+v", err, got)
	}
	if got := string(AppendIndex(nil, nil)); got != "[]" {
		t.Errorf("got %s", got)
	}
}

func TestElements(t *testing.T) {
	for _, c := range []struct {
		shape []int
		n     int
		bad   string
	}{
		{nil, 1, ""}, {[]int{3, 4}, 12, ""}, {[]int{0, 5}, 0, ""},
		{[]int{2, -1}, 0, "shape[1]"}, {[]int{1 << 32, 1 << 31}, 0, "shape"}, {[]int{math.MaxInt, 2, 0}, 0, "shape"},
		{[]int{math.MaxInt}, math.MaxInt, ""},
	} {
		n, err := Elements(c.shape)
		var e *coded.Error
		if c.bad == "" && (err != nil || n != c.n) || c.bad != "" && (!errors.As(err, &e) || e.Field != c.bad) {
			t.Errorf("%v: %d, %v", c.shape, n, err)
		}
	}
	for datatype, size := range map[string]int{Bool: 1, Uint8: 1, Int8: 1, Uint16: 2, Int16: 2, FP16: 2, BF16: 2,
		Uint32: 4, Int32: 4, FP32: 4, Uint64: 8, Int64: 8, FP64: 8, Bytes: -1, "": 0, "fp32": 0} {
		if SizeOf(datatype) != size {
			t.Errorf("%s: %d", datatype, SizeOf(datatype))
		}
	}
	for _, datatype := range strings.Split(Datatypes, ", ") {
		if same, ok := internDatatype([]byte(datatype)); !ok || same != datatype || SizeOf(datatype) == 0 {
			t.Errorf("%s is not known everywhere", datatype)
		}
	}
}

// TestAllocations pins the allocations for a request and a reply with reused values.
func TestAllocations(t *testing.T) {
	image, _ := imageRequest(",")
	head := `{"id":"a","inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8,` +
		`"k":"v"}}],"outputs":[{"name":"y","parameters":{"binary_data":true}}],"parameters":{"sequence_end":false,` +
		`"s":"t\n"}}`
	nested := fp32("[2,2]", "[[1.5,2],[3,4e-3]]")
	alloc := reusing()
	for name, c := range map[string]struct {
		body   string
		header int
	}{
		"image":  {string(image), -1},
		"binary": {head + "12345678", len(head)},
		"nested": {nested, -1},
		"bytes":  {tensorWith(`"data":["a\nb","c"],"shape":[2],"datatype":"BYTES"`), -1},
	} {
		var r InferRequest
		body := []byte(c.body)
		if n := testing.AllocsPerRun(20, func() {
			if err := DecodeRequest(&r, body, c.header, alloc, Limits{}); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	reply := InferResponse{ModelName: "m", ID: "a", Outputs: []Tensor{
		{Name: "x", Datatype: FP32, Shape: []int{2}, Data: make([]byte, 8)},
		{Name: "y", Datatype: Uint8, Shape: []int{2}, Data: make([]byte, 2)},
		{Name: "z", Datatype: Bytes, Shape: []int{1}, Data: AppendBytes(nil, []byte("text"))},
	}}
	dst, parts := make([]byte, 0, 4096), make([][]byte, 0, 4)
	if n := testing.AllocsPerRun(20, func() {
		out, err := AppendResponse(dst, &reply, NeverBinary)
		if err != nil || len(BinaryParts(parts, reply.Outputs, AlwaysBinary)) != 3 {
			t.Fatal(err, out)
		}
	}); n != 0 {
		t.Errorf("reply: %v allocations", n)
	}
}
