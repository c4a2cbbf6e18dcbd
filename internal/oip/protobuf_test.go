package oip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"millrace/internal/inferencepb"
	"millrace/stream/coded"
)

type (
	pbRequest = inferencepb.ModelInferRequest
	pbInput   = inferencepb.ModelInferRequest_InferInputTensor
	pbOutput  = inferencepb.ModelInferRequest_InferRequestedOutputTensor
	pbParam   = inferencepb.InferParameter
	pbTyped   = inferencepb.InferTensorContents
)

func pbBool(v bool) *pbParam {
	return &pbParam{ParameterChoice: &inferencepb.InferParameter_BoolParam{BoolParam: v}}
}
func pbInt(v int64) *pbParam {
	return &pbParam{ParameterChoice: &inferencepb.InferParameter_Int64Param{Int64Param: v}}
}
func pbUint(v uint64) *pbParam {
	return &pbParam{ParameterChoice: &inferencepb.InferParameter_Uint64Param{Uint64Param: v}}
}
func pbText(v string) *pbParam {
	return &pbParam{ParameterChoice: &inferencepb.InferParameter_StringParam{StringParam: v}}
}
func pbFloat(v float64) *pbParam {
	return &pbParam{ParameterChoice: &inferencepb.InferParameter_DoubleParam{DoubleParam: v}}
}

// typedInput has the contents of a datatype.
func typedInput(datatype string, n int64, c *pbTyped) *pbRequest {
	return &pbRequest{Inputs: []*pbInput{{Name: "x", Datatype: datatype, Shape: []int64{n}, Contents: c}}}
}

// protoSeeds are messages, right and wrong.
var protoSeeds = []*pbRequest{
	{ModelName: "m", ModelVersion: "2", Id: "a", Parameters: map[string]*pbParam{"b": pbBool(true), "i": pbInt(-5),
		"u": pbUint(7), "s": pbText("é"), "f": pbFloat(1.5)},
		Inputs: []*pbInput{{Name: "x", Datatype: "UINT8", Shape: []int64{1, 3},
			Parameters: map[string]*pbParam{"k": pbInt(1)}}, {Name: "y", Datatype: "BYTES", Shape: []int64{2}}},
		Outputs:          []*pbOutput{{Name: "o", Parameters: map[string]*pbParam{"classification": pbInt(3)}}},
		RawInputContents: [][]byte{{1, 2, 3}, {1, 0, 0, 0, 'a', 0, 0, 0, 0}}},
	{Inputs: []*pbInput{{Name: "x", Datatype: "FP16", Shape: []int64{2}},
		{Name: "y", Datatype: "BF16", Shape: []int64{}}}, RawInputContents: [][]byte{{1, 2, 3, 4}, {5, 6}}},
	{Inputs: []*pbInput{{Name: "x", Datatype: "FP32", Shape: []int64{2},
		Parameters: map[string]*pbParam{"shared_memory_region": pbText("r")}},
		{Name: "y", Datatype: "UINT8", Shape: []int64{1}}}, RawInputContents: [][]byte{{1}}},
	{Inputs: []*pbInput{{Name: "x", Datatype: "FP32", Shape: []int64{0}},
		{Name: "y", Datatype: "BYTES", Shape: []int64{0, 4}}}},
	typedInput("BOOL", 3, &pbTyped{BoolContents: []bool{true, false, true}}),
	typedInput("INT8", 2, &pbTyped{IntContents: []int32{-128, 127}}),
	typedInput("INT16", 2, &pbTyped{IntContents: []int32{-32768, 32767}}),
	typedInput("INT32", 2, &pbTyped{IntContents: []int32{math.MinInt32, math.MaxInt32}}),
	typedInput("INT64", 2, &pbTyped{Int64Contents: []int64{math.MinInt64, math.MaxInt64}}),
	typedInput("UINT8", 2, &pbTyped{UintContents: []uint32{0, 255}}),
	typedInput("UINT16", 2, &pbTyped{UintContents: []uint32{0, 65535}}),
	typedInput("UINT32", 2, &pbTyped{UintContents: []uint32{0, math.MaxUint32}}),
	typedInput("UINT64", 2, &pbTyped{Uint64Contents: []uint64{0, math.MaxUint64}}),
	typedInput("FP32", 3, &pbTyped{Fp32Contents: []float32{1, -2.5, float32(math.Inf(1))}}),
	typedInput("FP64", 3, &pbTyped{Fp64Contents: []float64{1, -2.5, math.Inf(-1)}}),
	typedInput("BYTES", 3, &pbTyped{BytesContents: [][]byte{[]byte("a"), {}, []byte("\xff\x00")}}),
}

// protoRefused are messages with the field of their error and a part of its text.
var protoRefused = []struct {
	request     *pbRequest
	field, text string
}{
	{&pbRequest{Id: strings.Repeat("x", 1025)}, "id", "at most 1024"},
	{&pbRequest{Inputs: []*pbInput{{Datatype: "FP32"}}}, "inputs[0].name", "missing"},
	{&pbRequest{Inputs: []*pbInput{{Name: "x"}}}, "inputs[0].datatype", "missing"},
	{&pbRequest{Inputs: []*pbInput{{Name: "x", Datatype: "FLOAT"}}}, "inputs[0].datatype", "expected one of BOOL"},
	{&pbRequest{Inputs: []*pbInput{{Name: "x", Datatype: "FP32", Shape: []int64{2, -1}}}}, "inputs[0].shape[1]",
		"negative"},
	{&pbRequest{Inputs: []*pbInput{{Name: "x", Datatype: "FP32", Shape: []int64{1 << 40, 1 << 40}}}},
		"inputs[0].shape", "causes total element count"},
	{&pbRequest{Inputs: []*pbInput{{Name: "x", Datatype: "FP32", Shape: []int64{1 << 40}}}}, "inputs[0].shape",
		"at most"},
	{&pbRequest{Inputs: []*pbInput{{Name: "x", Datatype: "FP32", Shape: make([]int64, 65)}}}, "inputs[0].shape",
		"64 dimensions"},
	{&pbRequest{Inputs: []*pbInput{{Name: "x", Datatype: "UINT8", Shape: []int64{1}},
		{Name: "x", Datatype: "UINT8", Shape: []int64{1}}}, RawInputContents: [][]byte{{1}, {1}}}, "inputs[1].name",
		"input 'x' already exists in request, as tensor 0"},
	{&pbRequest{ModelName: "m", Inputs: []*pbInput{{Name: "x", Datatype: "UINT8", Shape: []int64{2}}},
		RawInputContents: [][]byte{{1}}}, "inputs[0].data",
		"input byte size mismatch for input 'x' for model 'm'. Expected 2, got 1 "},
	{&pbRequest{Inputs: []*pbInput{{Name: "x", Datatype: "UINT8", Shape: []int64{1}}},
		RawInputContents: [][]byte{{1}, {2}}}, "raw_input_contents", "has 2 items; expected 1"},
	{&pbRequest{Inputs: []*pbInput{{Name: "x", Datatype: "UINT8", Shape: []int64{1}},
		{Name: "y", Datatype: "UINT8", Shape: []int64{1}}}, RawInputContents: [][]byte{{1}}}, "raw_input_contents",
		"has 1 items; expected 2"},
	{&pbRequest{Inputs: []*pbInput{{Name: "x", Datatype: "BYTES", Shape: []int64{1}}},
		RawInputContents: [][]byte{{9, 0, 0, 0, 1}}}, "inputs[0].data[0]", "length of 9"},
	{&pbRequest{Inputs: []*pbInput{{Name: "x", Datatype: "FP32", Shape: []int64{1},
		Contents: &pbTyped{Fp32Contents: []float32{1}}}}, RawInputContents: [][]byte{{1}}}, "inputs[0].contents",
		"raw_input_contents"},
	{&pbRequest{Inputs: []*pbInput{{Name: "x", Datatype: "FP32", Shape: []int64{1},
		Contents:   &pbTyped{Fp32Contents: []float32{1}},
		Parameters: map[string]*pbParam{"shared_memory_region": pbText("r")}}}}, "inputs[0].contents",
		"shared_memory_region"},
	{typedInput("FP16", 1, &pbTyped{Fp32Contents: []float32{1}}), "inputs[0].contents.fp32_contents",
		"FP16 in raw_input_contents"},
	{typedInput("INT32", 1, &pbTyped{Fp32Contents: []float32{1}}), "inputs[0].contents.fp32_contents",
		"INT32 in int_contents"},
	{typedInput("INT8", 2, &pbTyped{IntContents: []int32{1, 128}}), "inputs[0].contents.int_contents[1]",
		"is 128, which is outside of INT8 (-128 to 127)"},
	{typedInput("INT16", 1, &pbTyped{IntContents: []int32{-32769}}), "inputs[0].contents.int_contents[0]", "is -32769"},
	{typedInput("UINT8", 1, &pbTyped{UintContents: []uint32{256}}), "inputs[0].contents.uint_contents[0]",
		"UINT8 (0 to 255)"},
	{typedInput("FP32", 2, &pbTyped{Fp32Contents: []float32{1}}), "inputs[0].contents.fp32_contents",
		"has 1 elements; expected 2"},
	{typedInput("FP32", 2, nil), "inputs[0].contents", "expected 2 elements here"},
	{&pbRequest{Inputs: []*pbInput{{Name: "x", Datatype: "UINT8"}}, Outputs: []*pbOutput{{}}}, "outputs[0].name",
		"missing"},
	{&pbRequest{Outputs: []*pbOutput{{Name: "o"}, {Name: "o"}}}, "outputs[1].name",
		"output 'o' already exists in request, as output 0"},
	{&pbRequest{Parameters: map[string]*pbParam{"k": {}}}, "parameters.k", "no value"},
	{&pbRequest{Parameters: map[string]*pbParam{"k": pbUint(math.MaxUint64)}}, "parameters.k", "18446744073709551615"},
}

func marshal(t testing.TB, m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDecodeProtoRefuses(t *testing.T) {
	for _, c := range protoRefused {
		var r InferRequest
		err := DecodeProto(&r, exact(marshal(t, c.request)), makeBytes, Limits{SharedMemory: true})
		var e *coded.Error
		if !errors.As(err, &e) || e.Code != coded.InvalidArgument || e.Field != c.field ||
			!strings.Contains(e.Msg, c.text) {
			t.Errorf("%v: got %v, want %s: ... %s", c.request, err, c.field, c.text)
		}
	}
}

func makeBytes(n int) []byte { return make([]byte, n) }

// TestDecodeProtoShares checks that raw contents, and FP32 in one piece, are not copied.
func TestDecodeProtoShares(t *testing.T) {
	never := func(int) []byte { t.Error("memory was asked for"); return nil }
	for _, m := range []*pbRequest{protoSeeds[0], typedInput("FP32", 3, &pbTyped{Fp32Contents: []float32{1, 2, 3}})} {
		body := marshal(t, m)
		var r InferRequest
		if err := DecodeProto(&r, body, never, Limits{}); err != nil {
			t.Fatal(err)
		}
		before := r.Inputs[0].Data[0]
		for i := range body {
			body[i] ^= 0xff
		}
		if r.Inputs[0].Data[0] != before^0xff {
			t.Error("the data are a copy")
		}
	}
}

func TestDecodeProtoWithoutMemory(t *testing.T) {
	var r InferRequest
	err := DecodeProto(&r, marshal(t, typedInput("INT8", 1, &pbTyped{IntContents: []int32{1}})), func(int) []byte {
		return nil
	}, Limits{})
	if !errors.Is(err, ErrMemory) {
		t.Error(err)
	}
}

// TestDecodeProtoAllocates pins that a repeated request allocates nothing.
func TestDecodeProtoAllocates(t *testing.T) {
	body := marshal(t, &pbRequest{ModelName: "m", Id: "a",
		Inputs:           []*pbInput{{Name: "x", Datatype: "UINT8", Shape: []int64{1, 3}}},
		RawInputContents: [][]byte{{1, 2, 3}}})
	var r InferRequest
	if n := testing.AllocsPerRun(100, func() {
		if err := DecodeProto(&r, body, makeBytes, Limits{}); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzDecodeProto compares DecodeProto with the generated message: both accept and refuse the
// same bytes, and read the same content.
func FuzzDecodeProto(f *testing.F) {
	for _, m := range protoSeeds {
		f.Add(marshal(f, m))
	}
	for _, c := range protoRefused {
		f.Add(marshal(f, c.request))
	}
	// Elements that are not packed, a group, a field of another type, a later value.
	tensor := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "x")
	tensor = protowire.AppendString(protowire.AppendTag(tensor, 2, protowire.BytesType), "INT16")
	tensor = protowire.AppendVarint(protowire.AppendTag(tensor, 3, protowire.VarintType), 2)
	contents := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 1<<40|7)
	contents = append(contents, contents...)
	tensor = protowire.AppendBytes(protowire.AppendTag(tensor, 5, protowire.BytesType), contents)
	body := protowire.AppendBytes(protowire.AppendTag(nil, 5, protowire.BytesType), tensor)
	body = append(body, 0x53, 0x08, 0x01, 0x54, 0x08, 0x01, 0x0a, 0x01, 'm', 0x0a, 0x01, 'n')
	f.Add(body)
	var r InferRequest
	f.Fuzz(func(t *testing.T, body []byte) {
		err := DecodeProto(&r, exact(body), makeBytes, Limits{SharedMemory: true})
		if err != nil {
			checkError(t, err)
		}
		var m pbRequest
		broken := proto.Unmarshal(body, &m) != nil
		if broken && err == nil {
			t.Fatal("accepted what is no message")
		}
		if broken || err != nil && strings.HasSuffix(err.Error(), "is given twice; expected it once") {
			return
		}
		want, ok := fromGenerated(&m)
		if !ok {
			if err == nil {
				t.Fatalf("accepted, but should not be: %v", &m)
			}
			return
		}
		if err != nil {
			t.Fatalf("refused with %v, but is right: %v", err, &m)
		}
		checkTensors(t, r.Inputs)
		compareRequests(t, &r, want)
	})
}

// fromGenerated turns a generated message into a request, and reports whether the message is valid.
func fromGenerated(m *pbRequest) (*InferRequest, bool) {
	const most, name = 64, 1024
	long := func(s string) bool { return len(s) > name }
	r := &InferRequest{ModelName: m.ModelName, ModelVersion: m.ModelVersion, ID: m.Id}
	ok := !long(m.ModelName) && !long(m.ModelVersion) && !long(m.Id)
	params := func(from map[string]*pbParam) (out Params) {
		ok = ok && len(from) <= most
		for k, v := range from {
			p := Param{Key: k}
			switch v := v.ParameterChoice.(type) {
			case *inferencepb.InferParameter_BoolParam:
				p.Kind, p.Bool = Boolean, v.BoolParam
			case *inferencepb.InferParameter_Int64Param:
				p.Kind, p.Int = Int, v.Int64Param
			case *inferencepb.InferParameter_StringParam:
				p.Kind, p.Str = String, v.StringParam
			case *inferencepb.InferParameter_DoubleParam:
				p.Kind, p.Float = Float, v.DoubleParam
			case *inferencepb.InferParameter_Uint64Param:
				p.Kind, p.Int = Int, int64(v.Uint64Param)
			}
			ok = ok && p.Kind != 0 && !long(k) && (p.Kind != Int || v.GetUint64Param() <= math.MaxInt64)
			out = append(out, p)
		}
		return out
	}
	r.Params = params(m.Parameters)
	ok = ok && len(m.Inputs) <= most && len(m.Outputs) <= most && len(m.RawInputContents) <= most
	raws := m.RawInputContents
	for i, in := range m.Inputs {
		x := Tensor{Name: in.Name, Datatype: in.Datatype, Params: params(in.Parameters)}
		for _, d := range in.Shape {
			x.Shape = append(x.Shape, int(d))
		}
		n, err := Elements(x.Shape)
		ok = ok && in.Name != "" && !long(in.Name) && SizeOf(in.Datatype) != 0 && len(in.Shape) <= most &&
			err == nil && n <= 1<<28
		ok = ok && !slices.ContainsFunc(m.Inputs[:i], func(o *pbInput) bool { return o.Name == in.Name })
		if !ok {
			return nil, false
		}
		_, shared := x.Params.Get("shared_memory_region")
		given := in.Contents != nil && proto.Size(in.Contents) > 0
		if given && (shared || len(m.RawInputContents) > 0) {
			return nil, false
		}
		switch {
		case shared:
		case len(m.RawInputContents) > 0:
			if len(raws) == 0 {
				return nil, false
			}
			x.Data, raws = raws[0], raws[1:]
			if size := SizeOf(x.Datatype); size > 0 {
				ok = ok && len(x.Data) == n*size
			} else {
				_, msg := checkBytes(x.Data, n)
				ok = ok && msg == ""
			}
		default:
			var count int
			x.Data, count = typedData(x.Datatype, in.Contents)
			ok = ok && count == n
		}
		r.Inputs = append(r.Inputs, x)
	}
	ok = ok && len(raws) == 0
	for i, o := range m.Outputs {
		ok = ok && o.Name != "" && !long(o.Name) && !slices.ContainsFunc(m.Outputs[:i], func(p *pbOutput) bool {
			return p.Name == o.Name
		})
		r.Outputs = append(r.Outputs, RequestedOutput{Name: o.Name, Params: params(o.Parameters)})
	}
	return r, ok
}

// typedData returns the elements of contents and their number; -1 for elements of another type, or out of range.
func typedData(datatype string, c *pbTyped) (data []byte, n int) {
	le := binary.LittleEndian
	lens := []int{0, len(c.GetBoolContents()), len(c.GetIntContents()), len(c.GetInt64Contents()),
		len(c.GetUintContents()), len(c.GetUint64Contents()), len(c.GetFp32Contents()), len(c.GetFp64Contents()),
		len(c.GetBytesContents())}
	want := protoFieldOf(datatype)
	for i, l := range lens {
		if l > 0 && i != int(want) {
			return nil, -1
		}
	}
	for _, v := range c.GetBoolContents() {
		if v {
			data = append(data, 1)
		} else {
			data = append(data, 0)
		}
	}
	for _, v := range c.GetIntContents() {
		if wide := int64(v); datatype == Int8 && wide != int64(int8(v)) ||
			datatype == Int16 && wide != int64(int16(v)) {
			return nil, -1
		}
		data = append(data, le.AppendUint32(nil, uint32(v))[:SizeOf(datatype)]...)
	}
	for _, v := range c.GetUintContents() {
		if datatype == Uint8 && v > math.MaxUint8 || datatype == Uint16 && v > math.MaxUint16 {
			return nil, -1
		}
		data = append(data, le.AppendUint32(nil, v)[:SizeOf(datatype)]...)
	}
	for _, v := range c.GetInt64Contents() {
		data = le.AppendUint64(data, uint64(v))
	}
	for _, v := range c.GetUint64Contents() {
		data = le.AppendUint64(data, v)
	}
	for _, v := range c.GetFp32Contents() {
		data = le.AppendUint32(data, math.Float32bits(v))
	}
	for _, v := range c.GetFp64Contents() {
		data = le.AppendUint64(data, math.Float64bits(v))
	}
	for _, v := range c.GetBytesContents() {
		data = AppendBytes(data, v)
	}
	return data, lens[want]
}

func compareRequests(t *testing.T, got, want *InferRequest) {
	t.Helper()
	sameParams := func(where string, a, b Params) {
		t.Helper()
		if len(a) != len(b) {
			t.Fatalf("%s: parameters %v, want %v", where, a, b)
		}
		for _, p := range b {
			q, ok := a.Get(p.Key)
			bits, q2, p2 := math.Float64bits(q.Float) == math.Float64bits(p.Float), q, p
			q2.Float, p2.Float = 0, 0
			if !ok || q2 != p2 || !bits {
				t.Fatalf("%s: parameter %v, want %v", where, q, p)
			}
		}
	}
	if got.ModelName != want.ModelName || got.ModelVersion != want.ModelVersion || got.ID != want.ID ||
		len(got.Inputs) != len(want.Inputs) || len(got.Outputs) != len(want.Outputs) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	sameParams("request", got.Params, want.Params)
	for i := range want.Inputs {
		a, b := &got.Inputs[i], &want.Inputs[i]
		if a.Name != b.Name || a.Datatype != b.Datatype || !slices.Equal(a.Shape, b.Shape) ||
			!bytes.Equal(a.Data, b.Data) {
			t.Fatalf("input %d: got %+v, want %+v", i, a, b)
		}
		sameParams("input", a.Params, b.Params)
	}
	for i := range want.Outputs {
		if got.Outputs[i].Name != want.Outputs[i].Name {
			t.Fatalf("output %d: got %+v, want %+v", i, got.Outputs[i], want.Outputs[i])
		}
		sameParams("output", got.Outputs[i].Params, want.Outputs[i].Params)
	}
}

// TestAppendProto checks that the generated message reads AppendProto's output.
func TestAppendProto(t *testing.T) {
	long := strings.Repeat("n", 200)
	r := &InferResponse{ModelName: "m", ModelVersion: "1", ID: "a",
		Params: Params{{Key: "b", Kind: Boolean, Bool: true}, {Key: "f", Kind: Float, Float: 2.5},
			{Key: "i", Kind: Int, Int: -3}, {Key: "s", Kind: String, Str: long}, {Key: "z", Kind: String}},
		Outputs: []Tensor{
			{Name: long, Datatype: FP16, Shape: []int{1, 300}, Data: make([]byte, 600),
				Params: Params{{Key: "k", Kind: Int, Int: 1}}},
			{Name: "scalar", Datatype: Uint8, Data: []byte{7}},
			{Name: "text", Datatype: Bytes, Shape: []int{2}, Data: AppendBytes(AppendBytes(nil, []byte("ab")), nil)},
			{Name: "none", Datatype: FP32, Shape: []int{0}},
		}}
	body, err := AppendProto(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range r.Outputs {
		body = append(AppendProtoRaw(body, len(o.Data)), o.Data...)
	}
	var got inferencepb.ModelInferResponse
	if err := proto.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	want := &inferencepb.ModelInferResponse{ModelName: "m", ModelVersion: "1", Id: "a",
		Parameters: map[string]*pbParam{"b": pbBool(true), "f": pbFloat(2.5), "i": pbInt(-3), "s": pbText(long),
			"z": pbText("")},
		Outputs: []*inferencepb.ModelInferResponse_InferOutputTensor{
			{Name: long, Datatype: "FP16", Shape: []int64{1, 300}, Parameters: map[string]*pbParam{"k": pbInt(1)}},
			{Name: "scalar", Datatype: "UINT8"}, {Name: "text", Datatype: "BYTES", Shape: []int64{2}},
			{Name: "none", Datatype: "FP32", Shape: []int64{0}},
		},
		RawOutputContents: [][]byte{make([]byte, 600), {7}, AppendBytes(AppendBytes(nil, []byte("ab")), nil), {}},
	}
	if !proto.Equal(&got, want) {
		t.Errorf("got  %v\nwant %v", &got, want)
	}
	for _, o := range []Tensor{
		{Datatype: FP32, Shape: []int{2}, Data: make([]byte, 4)}, {Datatype: "FP8"},
		{Datatype: FP32, Shape: []int{-1}}, {Datatype: Bytes, Shape: []int{1}, Data: []byte{1}},
	} {
		if _, err := AppendProto(nil, &InferResponse{Outputs: []Tensor{o}}); err == nil {
			t.Errorf("%+v was written", o)
		}
	}
}

func BenchmarkDecodeProto(b *testing.B) {
	body := marshal(b, &pbRequest{ModelName: "identity",
		Inputs:           []*pbInput{{Name: "x", Datatype: "UINT8", Shape: []int64{1, 30720}}},
		RawInputContents: [][]byte{make([]byte, 30720)}})
	var r InferRequest
	b.ReportAllocs()
	for b.Loop() {
		if err := DecodeProto(&r, body, makeBytes, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}
