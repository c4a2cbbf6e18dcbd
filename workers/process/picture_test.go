package process

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"slices"
	"strings"
	"testing"

	"millrace/stream"
)

// Pictures and video frames reach a program with pictures of any size as RGB arrays of their own size.
func TestPictures(t *testing.T) {
	t.Run("shared memory", func(t *testing.T) { testPictures(t, true) })
	t.Run("pipe", func(t *testing.T) { testPictures(t, false) })
}

func testPictures(t *testing.T, shared bool) {
	r := load(t, "pictures", params("shared_memory", shared))
	s := r.open(stream.Options{})
	want := func(f stream.Frame, h, w int, pixel [3]byte) {
		t.Helper()
		s.submit(f)
		got := s.next()
		if got.Outcome != stream.Answered || len(got.Outputs) != 1 {
			t.Fatalf("%v, %v", got.Outcome, got.Err)
		}
		out := got.Outputs[0]
		if out.Datatype != stream.Uint8 || len(out.Shape) != 3 || out.Shape[0] != h || out.Shape[1] != w ||
			out.Shape[2] != 3 {
			t.Fatalf("%s %v", out.Datatype, out.Shape)
		}
		for c, v := range pixel {
			if d := int(out.Data[3*(h*w-1)+c]) - int(v); d < -3 || d > 3 {
				t.Fatalf("last pixel %v, want %v", out.Data[3*(h*w-1):], pixel)
			}
		}
		got.Release()
	}
	for _, size := range []image.Point{{40, 30}, {300, 200}, {5, 7}} {
		img := image.NewRGBA(image.Rectangle{Max: size})
		for i := range img.Pix {
			img.Pix[i] = 255
		}
		img.Set(size.X-1, size.Y-1, color.RGBA{200, 100, 50, 255})
		var b bytes.Buffer
		if err := png.Encode(&b, img); err != nil {
			t.Fatal(err)
		}
		want(stream.Frame{Codec: stream.PNG, Payload: b.Bytes()}, size.Y, size.X, [3]byte{200, 100, 50})
	}
	if !shared { // each picture has separate memory during the send
		s.submit(stream.Frame{Codec: stream.RGB24, Width: 1 << 10, Height: 1 << 10, Payload: make([]byte, 3<<20)})
		s.next().Release()
		stats := r.mem.Stats()
		held := stats.Budget - stats.Leased - stats.Reserved - 4<<20
		if err := r.mem.Charge(held); err != nil {
			t.Fatal(err)
		}
		s.submit(stream.Frame{Codec: stream.RGB24, Width: 1400, Height: 1 << 10, Payload: make([]byte, 3*1400<<10)})
		if got := s.next(); got.Outcome != stream.Dropped || got.Reason != stream.Memory {
			t.Errorf("%v, %v, %v without memory", got.Outcome, got.Reason, got.Err)
		}
		r.mem.Refund(held)
	}
	rgb := bytes.Repeat([]byte{1, 2, 3}, 6*4)
	want(stream.Frame{Codec: stream.RGB24, Width: 6, Height: 4, Payload: rgb}, 4, 6, [3]byte{1, 2, 3})
	white := append(bytes.Repeat([]byte{235}, 8*4), bytes.Repeat([]byte{128}, 8*2)...)
	want(stream.Frame{Codec: stream.NV12, Width: 8, Height: 4, Payload: white}, 4, 8, [3]byte{255, 255, 255})

	for says, f := range map[string]stream.Frame{
		"not a JPEG, PNG or WebP": {Codec: stream.Auto, Payload: []byte("text")},
		"roi": {Codec: stream.RGB24, Width: 6, Height: 4, Payload: rgb,
			Region: stream.Region{X: 5, Y: 1, Width: 3, Height: 2}},
		"codec: model m takes pictures, not pcm16": {Codec: stream.PCM16, Payload: []byte("text")},
	} {
		s.submit(f)
		if got := s.next(); got.Outcome != stream.Failed || !strings.Contains(got.Err.Error(), says) {
			t.Errorf("%q: %v, %v", says, got.Outcome, got.Err)
			got.Release()
		}
	}
	want(stream.Frame{Codec: stream.RGB24, Width: 6, Height: 4, Payload: rgb}, 4, 6, [3]byte{1, 2, 3})
}

// The server decodes pictures for a program on demand, in memory of the budget: without memory the request is
// dropped, and the program goes on.
func TestDecode(t *testing.T) {
	r := load(t, "any")
	s := r.open(stream.Options{})
	send := func(side int64, payload []byte) *stream.Result {
		t.Helper()
		s.submit(stream.Frame{Codec: stream.Opaque, Payload: payload, Params: stream.Params{"side": side}})
		got := s.next()
		t.Cleanup(got.Release)
		return got
	}
	img := image.NewGray(image.Rect(0, 0, 40, 30))
	for i := range img.Pix {
		img.Pix[i] = 77
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	right := func() {
		t.Helper()
		got := send(20, b.Bytes())
		if got.Err != nil || got.Outcome != stream.Answered || !slices.Equal(got.Outputs[0].Shape, []int{20, 20, 1}) ||
			!bytes.Equal(got.Outputs[0].Data, bytes.Repeat([]byte{77}, 400)) {
			t.Fatalf("%v, %v, %v", got.Outcome, got.Err, got.Outputs)
		}
	}
	right()
	if got := send(20, []byte("text")); got.Outcome != stream.Failed || stream.CodeOf(got.Err) != stream.Unsupported ||
		!strings.Contains(got.Err.Error(), "not a JPEG, PNG or WebP") {
		t.Errorf("%v, %v", got.Outcome, got.Err)
	}
	stats := r.mem.Stats()
	held := stats.Budget - stats.Leased - stats.Reserved - 4<<20
	if err := r.mem.Charge(held); err != nil {
		t.Fatal(err)
	}
	if got := send(4000, b.Bytes()); got.Outcome != stream.Dropped || got.Reason != stream.Memory {
		t.Errorf("%v, %v, %v without memory", got.Outcome, got.Reason, got.Err)
	}
	r.mem.Refund(held)
	right()
}
