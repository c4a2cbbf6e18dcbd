package rest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"millrace/ingest/frames"
	"millrace/ingest/rest/request"
	"millrace/internal/httpd"
	"millrace/internal/oip"
	"millrace/stream"
)

func TestOptionsHaveDefaults(t *testing.T) {
	h, err := httpd.New(httpd.Config{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[time.Duration]time.Duration{0: 20 * time.Second, -1: 20 * time.Second, 1: 1,
		time.Hour: time.Hour} {
		if a := New(h, Options{DrainTimeout: given}); a.opts.DrainTimeout != want || a.opts.Log == nil {
			t.Errorf("%v: %+v", given, a.opts)
		}
	}
}

func TestMediaTypes(t *testing.T) {
	for text, want := range map[string]string{"": "", "application/json": "application/json",
		"Image/JPEG; q=1": "image/jpeg", "; charset=utf-8": "", " text/plain ": "text/plain"} {
		if got := mediaType([]byte(text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// The model's inputs decide the meaning of a body without a type.
func TestBytesOfNoType(t *testing.T) {
	jpeg := []byte("\xff\xd8\xff\xe0\x00\x10JFIF")
	text, number := stream.TensorSpec{Name: "t", Datatype: stream.Bytes},
		stream.TensorSpec{Name: "n", Datatype: stream.Uint8}
	image := &stream.ImageSpec{}
	for i, c := range []struct {
		m    stream.Model
		body []byte
		what form
		kind stream.Codec
	}{
		{stream.Model{Image: image, Inputs: []stream.TensorSpec{number}}, jpeg, asFrame, stream.JPEG},
		{stream.Model{AcceptsAnyInput: true}, jpeg, asFrame, stream.JPEG},
		{stream.Model{AcceptsAnyInput: true}, []byte("x"), asFrame, stream.Opaque},
		{stream.Model{Image: image, Inputs: []stream.TensorSpec{number}}, []byte("x"), asTensor, 0},
		{stream.Model{Image: image, Inputs: []stream.TensorSpec{text}}, []byte("x"), asTensor, 0},
		{stream.Model{Inputs: []stream.TensorSpec{text}}, jpeg, asFrame, stream.Opaque},
		{stream.Model{Inputs: []stream.TensorSpec{number}}, jpeg, asTensor, 0},
		{stream.Model{Inputs: []stream.TensorSpec{text, text}}, jpeg, asTensor, 0},
		{stream.Model{}, jpeg, asTensor, 0},
	} {
		what, kind, err := bytesForm(&c.m, c.body)
		if what != c.what || err != nil {
			t.Errorf("%d: %d, %v", i, what, err)
		}
		if what == asFrame {
			f := stream.Frame{Codec: kind, Payload: c.body}
			if err := frames.Recognise(&f, &c.m); f.Codec != c.kind || err != nil {
				t.Errorf("%d: a frame of %s, %v", i, f.Codec, err)
			}
		}
	}
}

// TestOneTensor checks that the body becomes the only input. The options set the properties left open by the model,
// and the number of rows follows from the number of bytes.
func TestOneTensor(t *testing.T) {
	spec := func(dims ...int) stream.TensorSpec {
		return stream.TensorSpec{Name: "x", Datatype: stream.Uint8, Shape: dims}
	}
	for i, c := range []struct {
		m     stream.Model
		opt   request.Options
		shape string
	}{
		{stream.Model{MaxBatch: 4, Inputs: []stream.TensorSpec{spec(2)}}, request.Options{}, "[3 2]"},
		{stream.Model{MaxBatch: 1, Axis: stream.NoAxis, Inputs: []stream.TensorSpec{spec(6)}}, request.Options{},
			"[6]"},
		{stream.Model{MaxBatch: 4, Inputs: []stream.TensorSpec{spec(-1)}}, request.Options{}, "[6]"},
		{stream.Model{MaxBatch: 4, Inputs: []stream.TensorSpec{spec(2)}},
			request.Options{Shape: []int{1, 6}, HasShape: true}, "[1 6]"},
		{stream.Model{MaxBatch: 4, AcceptsAnyInput: true}, request.Options{Datatype: stream.Uint8, Shape: []int{6},
			HasShape: true}, "[6]"},
		{stream.Model{MaxBatch: 4, AcceptsAnyInput: true}, request.Options{Datatype: stream.Uint8}, ""},
		{stream.Model{MaxBatch: 4, AcceptsAnyInput: true}, request.Options{Shape: []int{6}, HasShape: true}, ""},
		{stream.Model{MaxBatch: 4, Inputs: []stream.TensorSpec{spec(2), spec(2)}}, request.Options{}, ""},
	} {
		k := &call{opt: c.opt, alloc: func(n int) []byte { return make([]byte, n) }}
		err := k.oneTensor(&c.m, []byte("abcdef"), oip.Limits{})
		if c.shape == "" {
			if stream.CodeOf(err) != stream.InvalidArgument {
				t.Errorf("%d: %v", i, err)
			}
		} else if err != nil || fmt.Sprint(k.Request.Inputs[0].Shape) != c.shape {
			t.Errorf("%d: %+v, %v, want %s", i, k.Request.Inputs, err, c.shape)
		}
	}
}

// failing takes n writes.
type failing struct{ n int }

func (f *failing) Write(b []byte) (int, error) {
	if f.n--; f.n < 0 {
		return 1, io.ErrClosedPipe
	}
	return len(b), nil
}

// Replies in parts arrive whole, and stop when the client stops reading.
func TestRepliesInParts(t *testing.T) {
	parts := func() *call {
		return &call{head: []byte("head"), parts: [][]byte{[]byte("first"), nil, []byte("second")}}
	}
	var out bytes.Buffer
	if n, err := parts().WriteTo(&out); n != 15 || err != nil || out.String() != "headfirstsecond" {
		t.Errorf("%d, %v, %q", n, err, out.String())
	}
	if n, err := parts().Read(make([]byte, 8)); n != 0 || err == nil {
		t.Errorf("%d, %v: a reply that is not read whole must not look like one", n, err)
	}
	for writes, want := range map[int]int64{0: 1, 1: 5, 2: 10, 3: 10} {
		if n, err := parts().WriteTo(&failing{writes}); n != want || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%d writes: %d bytes, want %d, %v", writes, n, want, err)
		}
	}
}
