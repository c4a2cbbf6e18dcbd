package frames_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"millrace/ingest/frames"
	"millrace/internal/oip"
	"millrace/stream"
)

var (
	jpeg = []byte("\xff\xd8\xff\xe0\x00\x10JFIF\x00")
	png  = []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")
	webp = []byte("RIFF\x10\x00\x00\x00WEBPVP8 ")

	anything = &stream.Model{Name: "m", AcceptsAnyInput: true}
	pictures = &stream.Model{Name: "m", Image: &stream.ImageSpec{Width: 8, Height: 8}}
	tensors  = &stream.Model{Name: "m", Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Bytes}}}
)

func TestRecognise(t *testing.T) {
	for name, c := range map[string]struct {
		frame stream.Frame
		model *stream.Model
		want  stream.Codec
	}{
		"jpeg":               {stream.Frame{Codec: stream.Auto, Payload: jpeg}, pictures, stream.JPEG},
		"png":                {stream.Frame{Codec: stream.Auto, Payload: png}, pictures, stream.PNG},
		"webp":               {stream.Frame{Codec: stream.Auto, Payload: webp}, pictures, stream.WebP},
		"jpeg, for anything": {stream.Frame{Codec: stream.Auto, Payload: jpeg}, anything, stream.JPEG},
		"text, for anything": {stream.Frame{Codec: stream.Auto, Payload: []byte("text")}, anything,
			stream.Opaque},
		"jpeg, for tensors": {stream.Frame{Codec: stream.Auto, Payload: jpeg}, tensors, stream.Opaque},
		"said to be png":    {stream.Frame{Codec: stream.PNG, Payload: jpeg}, pictures, stream.PNG},
		"said to be opaque": {stream.Frame{Codec: stream.Opaque, Payload: jpeg}, pictures, stream.Opaque},
		"rgb24 of the right length": {stream.Frame{Codec: stream.RGB24, Width: 2, Height: 1, Payload: make([]byte, 6)},
			pictures, stream.RGB24},
		"nv12 with odd sides": {stream.Frame{Codec: stream.NV12, Width: 3, Height: 3, Payload: make([]byte, 17)},
			pictures, stream.NV12},
	} {
		if err := frames.Recognise(&c.frame, c.model); err != nil || c.frame.Codec != c.want {
			t.Errorf("%s: %s and %v, want %s", name, c.frame.Codec, err, c.want)
		}
	}
}

func TestRecogniseRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		frame stream.Frame
		code  stream.Code
		field string
		says  string
	}{
		"nothing": {stream.Frame{}, stream.InvalidArgument, "frame", "empty"},
		"text": {stream.Frame{Codec: stream.Auto, Payload: []byte("text")}, stream.Unsupported, "codec",
			"model m takes JPEG"},
		"WebM": {stream.Frame{Codec: stream.Auto, Payload: []byte("\x1aE\xdf\xa3 and so on")},
			stream.Unsupported, "codec", "VideoEncoder"},
		"MP4": {stream.Frame{Codec: stream.Auto, Payload: []byte("\x00\x00\x00\x18ftypisom")},
			stream.Unsupported, "codec", "MediaRecorder"},
		"rgb24, no size": {stream.Frame{Codec: stream.RGB24, Payload: make([]byte, 6)}, stream.InvalidArgument,
			"width", "rgb24"},
		"rgb24, no width": {stream.Frame{Codec: stream.RGB24, Height: 2, Payload: make([]byte, 6)},
			stream.InvalidArgument, "width", "rgb24"},
		"rgb24, short": {stream.Frame{Codec: stream.RGB24, Width: 2, Height: 1, Payload: make([]byte, 5)},
			stream.InvalidArgument, "frame", "5 bytes: want 6 for rgb24 of 2 x 1 pixels"},
		"nv12, long": {stream.Frame{Codec: stream.NV12, Width: 3, Height: 3, Payload: make([]byte, 18)},
			stream.InvalidArgument, "frame", "want 17"},
	} {
		err := frames.Recognise(&c.frame, pictures)
		var e *stream.Error
		if !errors.As(err, &e) || e.Code != c.code || e.Field != c.field || !strings.Contains(e.Msg, c.says) {
			t.Errorf("%s: %v, want %s about %q with %q", name, err, c.code, c.field, c.says)
		}
	}
}

// The message is reused, so the frame may share only names and data with the message.
func TestTensorsShareNoShape(t *testing.T) {
	from := []oip.Tensor{
		{Name: "a", Datatype: oip.Uint8, Shape: []int{1, 2}, Data: []byte{1, 2}},
		{Name: "b", Datatype: oip.FP32, Shape: []int{1}, Data: []byte{0, 0, 128, 63}},
	}
	got := frames.Tensors(from)
	from[0].Shape[0], from[1].Shape[0] = 9, 9
	_ = append(got[0].Shape, 7) // must not reach into the next one's
	want := []stream.Tensor{
		{Name: "a", Datatype: stream.Uint8, Shape: []int{1, 2}, Data: []byte{1, 2}},
		{Name: "b", Datatype: stream.Float32, Shape: []int{1}, Data: []byte{0, 0, 128, 63}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestParamsThereAndBack(t *testing.T) {
	params := stream.Params{"b": int64(2), "a": "x", "c": true, "d": 1.5}
	message := frames.AppendParams(oip.Params{{Key: "z"}}, params)
	var keys []string
	for _, p := range message {
		keys = append(keys, p.Key)
	}
	if want := []string{"z", "a", "b", "c", "d"}; !reflect.DeepEqual(keys, want) {
		t.Errorf("the keys are %v, want %v", keys, want)
	}
	if got := frames.Params(message[1:]); !reflect.DeepEqual(got, params) {
		t.Errorf("%v came back, want %v", got, params)
	}
	if got := frames.Params(nil); got != nil {
		t.Errorf("%v of no parameters", got)
	}
	if got := frames.AppendParams(nil, stream.Params{"odd": struct{}{}}); len(got) != 0 {
		t.Errorf("%v of what a message cannot carry", got)
	}
}
