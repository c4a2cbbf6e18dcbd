package frames

import (
	"errors"
	"fmt"
	"testing"

	"millrace/internal/oip"
	"millrace/stream"
)

// TestRecognise checks the codec of a frame without a stated codec, determined by the bytes and the model.
func TestRecognise(t *testing.T) {
	jpeg, text := []byte("\xff\xd8\xff\xe0\x00\x10JFIF"), []byte("hello")
	image, any, tensors := &stream.Model{Name: "image", Image: &stream.ImageSpec{}},
		&stream.Model{Name: "any", AcceptsAnyInput: true}, &stream.Model{Name: "tensors"}
	element := &stream.Model{Name: "bytes", Inputs: []stream.TensorSpec{{Name: "t", Datatype: stream.Bytes,
		Shape: []int{1}}}}
	both := &stream.Model{Name: "both", AcceptsAnyInput: true, Image: &stream.ImageSpec{}}
	for i, c := range []struct {
		model *stream.Model
		frame stream.Frame
		want  stream.Codec
		code  stream.Code
	}{
		{image, stream.Frame{Codec: stream.Auto, Payload: jpeg}, stream.JPEG, ""},
		{any, stream.Frame{Codec: stream.Auto, Payload: jpeg}, stream.JPEG, ""},
		{both, stream.Frame{Codec: stream.Auto, Payload: jpeg}, stream.JPEG, ""},
		{tensors, stream.Frame{Codec: stream.Auto, Payload: jpeg}, stream.JPEG, ""}, // for the error of Check
		{tensors, stream.Frame{Codec: stream.Auto, Payload: text}, stream.Opaque, ""},
		{element, stream.Frame{Codec: stream.Auto, Payload: jpeg}, stream.Opaque, ""},
		{image, stream.Frame{Codec: stream.Auto, Payload: text}, 0, stream.Unsupported},
		{any, stream.Frame{Codec: stream.Auto, Payload: text}, stream.Opaque, ""},
		{image, stream.Frame{Codec: stream.PNG, Payload: text}, stream.PNG, ""},
		{image, stream.Frame{Codec: stream.Auto}, 0, stream.InvalidArgument},
		{image, stream.Frame{Codec: stream.JPEG}, 0, stream.InvalidArgument},
		{image, stream.Frame{Codec: stream.RGB24, Width: 1, Height: 1, Payload: []byte("abc")}, stream.RGB24, ""},
		{image, stream.Frame{Codec: stream.RGB24, Width: 0, Height: 1, Payload: []byte("abc")}, 0,
			stream.InvalidArgument},
		{image, stream.Frame{Codec: stream.RGB24, Width: 1, Height: 0, Payload: []byte("abc")}, 0,
			stream.InvalidArgument},
		{image, stream.Frame{Codec: stream.RGB24, Width: 1, Height: 1, Payload: []byte("abcd")}, 0,
			stream.InvalidArgument},
		{image, stream.Frame{Codec: stream.NV12, Width: 2, Height: 2, Payload: []byte("abcdef")}, stream.NV12, ""},
	} {
		err := Recognise(&c.frame, c.model)
		if stream.CodeOf(err) != c.code || err == nil && c.frame.Codec != c.want {
			t.Errorf("%d: %s, %v", i, c.frame.Codec, err)
		}
	}
	var coded *stream.Error
	if err := CheckRaw(&stream.Frame{Codec: stream.RGB24, Width: 0, Height: 1}); !errors.As(err, &coded) ||
		coded.Field != "width" {
		t.Errorf("no width, and no bytes: %v", err)
	}
	if err := CheckRaw(&stream.Frame{Codec: stream.RGB24, Width: 1, Height: 0}); !errors.As(err, &coded) ||
		coded.Field != "width" {
		t.Errorf("no height, and no bytes: %v", err)
	}
}

// TestShapesAreCopied checks shapes after the message is reused.
func TestShapesAreCopied(t *testing.T) {
	from := []oip.Tensor{{Name: "a", Datatype: "UINT8", Shape: []int{1, 2}, Data: []byte("ab")},
		{Name: "b", Datatype: "FP32", Shape: []int{3}}, {Name: "c", Datatype: "BOOL"}}
	got := Tensors(from)
	from[0].Shape[0], from[1].Shape[0] = 9, 9
	if text := fmt.Sprint(got[0].Shape, got[1].Shape, got[2].Shape); text != "[1 2] [3] []" || got[1].Name != "b" ||
		string(got[0].Data) != "ab" {
		t.Errorf("%s, %+v", text, got)
	}
	if n := testing.AllocsPerRun(100, func() { Tensors(from) }); n > 2 {
		t.Errorf("%v allocations: want one for all shapes", n)
	}
}

func TestParamsComeBack(t *testing.T) {
	if Params(nil) != nil || AppendParams(nil, nil) != nil {
		t.Error("parameters out of nothing")
	}
	p := Params(AppendParams(nil, stream.Params{"b": int64(1), "a": "x", "c": true, "d": 2.5, "no": struct{}{}}))
	if len(p) != 4 || p["b"] != int64(1) || p["a"] != "x" || p["c"] != true || p["d"] != 2.5 {
		t.Errorf("%v", p)
	}
	if list := AppendParams(oip.Params{{Key: "z"}}, stream.Params{"b": int64(1), "a": "x"}); len(list) != 3 ||
		list[0].Key != "z" || list[1].Key != "a" || list[2].Key != "b" {
		t.Errorf("%v", list)
	}
}

// TestDataAfterTheMessage checks that data in the JSON itself are refused.
func TestDataAfterTheMessage(t *testing.T) {
	var m oip.InferRequest
	raw := `{"inputs":[{"name":"x","datatype":"UINT8","shape":[2],"parameters":{"binary_data_size":2}}]}`
	got, err := FromRequest(&m, []byte(raw+"ab"), len(raw))
	if err != nil || len(got) != 1 || string(got[0].Data) != "ab" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{`{"inputs":[{"name":"x","datatype":"UINT8","shape":[2],"data":[1,2]}]}`,
		`{"inputs":`} {
		var m oip.InferRequest
		if _, err := FromRequest(&m, []byte(text), len(text)); stream.CodeOf(err) != stream.InvalidArgument {
			t.Errorf("%s: %v", text, err)
		}
	}
}
