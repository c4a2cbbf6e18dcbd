package oip

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawTensor makes a tensor of any datatype; text requires data that JSON can carry.
func drawTensor(t *rapid.T, name string, text bool) Tensor {
	types := []string{Bool, Uint8, Uint16, Uint32, Uint64, Int8, Int16, Int32, Int64, FP32, FP64, Bytes}
	if !text {
		types = append(types, FP16, BF16)
	}
	x := Tensor{Name: name, Datatype: rapid.SampledFrom(types).Draw(t, "datatype"),
		Shape: rapid.SliceOfN(rapid.IntRange(0, 7), 0, 3).Draw(t, "shape")}
	if x.Datatype == Uint8 && rapid.Bool().Draw(t, "large") {
		x.Shape = []int{rapid.IntRange(100, 500).Draw(t, "n")}
	}
	n, _ := Elements(x.Shape)
	for range n {
		switch x.Datatype {
		case Bool:
			x.Data = append(x.Data, byte(rapid.IntRange(0, 1).Draw(t, "v")))
		case FP32:
			x.Data = binary.LittleEndian.AppendUint32(x.Data, math.Float32bits(rapid.Float32().Draw(t, "v")))
		case FP64:
			x.Data = binary.LittleEndian.AppendUint64(x.Data, math.Float64bits(rapid.Float64().Draw(t, "v")))
		case Bytes:
			if text {
				x.Data = AppendBytes(x.Data, []byte(rapid.String().Draw(t, "v")))
			} else {
				x.Data = AppendBytes(x.Data, rapid.SliceOf(rapid.Byte()).Draw(t, "v"))
			}
		default:
			size := SizeOf(x.Datatype)
			b := binary.LittleEndian.AppendUint64(nil, rapid.Uint64().Draw(t, "v"))
			x.Data = append(x.Data, b[:size]...)
		}
	}
	return x
}

func drawParams(t *rapid.T) (ps Params) {
	for i := range rapid.IntRange(0, 3).Draw(t, "params") {
		p := Param{Key: "k" + strconv.Itoa(i) + rapid.String().Draw(t, "key")}
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			p.Kind, p.Str = String, rapid.String().Draw(t, "v")
		case 1:
			p.Kind, p.Int = Int, rapid.Int64().Draw(t, "v")
		case 2:
			p.Kind, p.Float = Float, rapid.Float64().Draw(t, "v")
		case 3:
			p.Kind, p.Bool = Boolean, rapid.Bool().Draw(t, "v")
		}
		ps = append(ps, p)
	}
	return ps
}

func sameTensors(t *rapid.T, got, want []Tensor) {
	if len(got) != len(want) {
		t.Fatalf("%d tensors, want %d", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		if g.Name != w.Name || g.Datatype != w.Datatype || !slicesEqual(g.Shape, w.Shape) ||
			!bytes.Equal(g.Data, w.Data) || !sameParams(g.Params, w.Params) {
			t.Fatalf("tensor %d:\ngot  %+v\nwant %+v", i, g, w)
		}
	}
}

func slicesEqual(a, b []int) bool { return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b) }

func sameParams(a, b Params) bool { return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b) }

// TestRoundTrip writes requests and replies, with each tensor in JSON or raw, and reads them back. encoding/json must
// read the JSON as well.
func TestRoundTrip(t *testing.T) {
	var req InferRequest
	var rep InferResponse
	rapid.Check(t, func(t *rapid.T) {
		var tensors []Tensor
		var raw []bool
		for i := range rapid.IntRange(1, 4).Draw(t, "tensors") {
			raw = append(raw, rapid.Bool().Draw(t, "raw"))
			tensors = append(tensors, drawTensor(t, "t"+strconv.Itoa(i)+rapid.String().Draw(t, "name"), !raw[i]))
			tensors[i].Params = drawParams(t)
		}
		isRaw := func(i int) bool { return raw[i] }

		want := InferRequest{ID: rapid.String().Draw(t, "id"), Params: drawParams(t), Inputs: tensors,
			BinaryOutput: rapid.Bool().Draw(t, "out")}
		for i := range rapid.IntRange(0, 3).Draw(t, "outputs") {
			want.Outputs = append(want.Outputs,
				RequestedOutput{Name: strconv.Itoa(i), Binary: rapid.Bool().Draw(t, "b"), Params: drawParams(t)})
		}
		text, err := AppendRequest(nil, &want, isRaw)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(text) {
			t.Fatalf("not JSON: %s", text)
		}
		body := bytes.Join(BinaryParts([][]byte{text}, tensors, isRaw), nil)
		if err := DecodeRequest(&req, body, len(text), reusingNone, Limits{}); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		sameTensors(t, req.Inputs, tensors)
		if req.ID != want.ID || !sameParams(req.Params, want.Params) || req.BinaryOutput != want.BinaryOutput ||
			len(req.Outputs) != len(want.Outputs) {
			t.Fatalf("got %+v\nwant %+v", req, want)
		}
		for i, o := range want.Outputs {
			if g := req.Outputs[i]; g.Name != o.Name || g.Binary != o.Binary || !sameParams(g.Params, o.Params) {
				t.Fatalf("output %d: got %+v want %+v", i, g, o)
			}
		}

		reply := InferResponse{ModelName: "m", ModelVersion: rapid.String().Draw(t, "version"), ID: want.ID,
			Params: want.Params, Outputs: tensors}
		if text, err = AppendResponse(nil, &reply, isRaw); err != nil {
			t.Fatal(err)
		}
		if !json.Valid(text) {
			t.Fatalf("not JSON: %s", text)
		}
		body = bytes.Join(BinaryParts([][]byte{text}, tensors, isRaw), nil)
		if err := DecodeResponse(&rep, body, len(text), reusingNone, Limits{}); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		sameTensors(t, rep.Outputs, tensors)
		if rep.ModelName != "m" || rep.ModelVersion != reply.ModelVersion || rep.ID != reply.ID ||
			!sameParams(rep.Params, reply.Params) {
			t.Fatalf("got %+v\nwant %+v", rep, reply)
		}
	})
}

// nest writes flat texts as arrays, nested like shape or flat, with random separators allowed by JSON.
func nest(t *rapid.T, shape []int, texts []string) string {
	sep := rapid.SampledFrom([]string{",", ", ", " ,", ",\n\t", ",  "}).Draw(t, "separator")
	if len(shape) < 2 || rapid.Bool().Draw(t, "flat") {
		return "[" + strings.Join(texts, sep) + "]"
	}
	var level func(shape []int) string
	level = func(shape []int) string {
		var parts []string
		for range shape[0] {
			if len(shape) == 1 {
				parts = append(parts, texts[0])
				texts = texts[1:]
			} else {
				parts = append(parts, level(shape[1:]))
			}
		}
		return "[" + strings.Join(parts, sep) + "]"
	}
	return level(shape)
}

// TestNesting reads numbers in every layout allowed by JSON, with data before and after the members on which they
// depend.
func TestNesting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := rapid.SliceOfN(rapid.IntRange(0, 12), 0, 3).Draw(t, "shape")
		if rapid.Bool().Draw(t, "image") {
			shape = append(shape, 50)
		}
		n, _ := Elements(shape)
		texts, want := make([]string, n), make([]byte, n)
		for i := range texts {
			want[i] = rapid.SampledFrom([]byte{0, 1, 9, 10, 99, 100, 199, 200, 249, 250, 255}).Draw(t, "v")
			texts[i] = strconv.Itoa(int(want[i]))
		}
		members := []string{`"shape":` + shapeText(shape), `"datatype":"UINT8"`, `"data":` + nest(t, shape, texts)}
		members = rapid.Permutation(members).Draw(t, "order")
		r := decode(t, tensorWith(strings.Join(members, ",")), -1)
		if !bytes.Equal(r.Inputs[0].Data, want) {
			t.Fatalf("got %v want %v", r.Inputs[0].Data, want)
		}
	})
}
