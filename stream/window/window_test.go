package window_test

import (
	"slices"
	"testing"
	"time"

	"millrace/stream"
	"millrace/stream/buf"
	"millrace/stream/window"
)

// A stream keeps at most the input of its window, however many frames arrive.
func TestWindowsKeepLittle(t *testing.T) {
	c := newCutting(16000, 160, 1, stream.PCM16, 8, stream.Policy{Mode: stream.Latest})
	for range 2000 {
		if err := c.Submit(c.frame(c.samples(320))); err != nil {
			t.Fatal(err)
		}
		c.seq++
		if r, _ := c.Take(stream.Now(), 8, nil, 0); r != nil {
			c.ep.pop()
			r.Finish(nil, nil, true)
			r.Unbind()
		}
		if s := c.mem.Stats(); s.Leases > 1 || s.Leased > 2*4*(2*16000+320)*5/4 {
			t.Fatalf("%+v", s)
		}
	}
	c.Close(stream.ByClient)
	if s := c.mem.Stats(); s.Leased != 0 {
		t.Fatalf("%+v", s)
	}
}

// A silent stream's window is released.
func TestIdleWindowsAreGivenBack(t *testing.T) {
	c := newCutting(8, 8, 1, stream.PCM16, 1, stream.Policy{})
	if err := c.Submit(c.frame(c.samples(3))); err != nil {
		t.Fatal(err)
	}
	if c.mem.Stats().Leases != 1 {
		t.Fatal("nothing is kept")
	}
	if !c.DropIdleState(stream.Now().Add(time.Second)) || c.mem.Stats().Leases != 0 {
		t.Fatalf("%+v", c.mem.Stats())
	}
	c.Close(stream.ByClient)
}

// A window without memory is dropped, and the next window has no gap.
func TestWindowsWithoutMemory(t *testing.T) {
	c := newCutting(4, 4, 1, stream.PCM16, 1, stream.Policy{Mode: stream.Every})
	none := buf.NewPool(1)
	c.model.Assembly.(*window.Window).Memory = none
	if err := c.Submit(c.frame(c.samples(3))); err != nil {
		t.Fatal(err)
	}
	c.model.Assembly.(*window.Window).Memory = c.mem
	c.seq++
	if err := c.Submit(c.frame(c.samples(3))); err != nil {
		t.Fatal(err)
	}
	r := c.sink.all
	if len(r) != 2 || r[0].Outcome != stream.Dropped || r[0].Reason != stream.Memory ||
		r[1].Params["window"] != "filling" {
		t.Fatalf("%+v", r)
	}
	c.Close(stream.ByClient)
	if n := c.mem.Stats().Leases; n != 0 {
		t.Fatalf("%d leases", n)
	}
}

// When the next version of a model has other windows, waiting frames end and the new windows start.
func TestSwapToOtherWindows(t *testing.T) {
	c := newCutting(4, 2, 1, stream.PCM16, 2, stream.Policy{Mode: stream.Every})
	if err := c.Submit(c.frame(c.samples(5))); err != nil {
		t.Fatal(err)
	}
	other := newCutting(6, 2, 1, stream.PCM16, 2, stream.Policy{}).model
	other.Assembly.(*window.Window).Memory = c.mem
	old := c.ep
	c.ep = &queue{}
	c.Move(c.ep, other)
	c.ForgetToken(old)
	c.seq++
	if err := c.Submit(c.frame(c.samples(5))); err != nil {
		t.Fatal(err)
	}
	if r := c.sink.all; len(r) != 2 || stream.CodeOf(r[0].Err) != stream.Conflict ||
		r[1].Params["window"] != "filling" {
		t.Fatalf("%+v", r)
	}
	c.Close(stream.ByClient)
	if n := c.mem.Stats().Leases; n != 0 {
		t.Fatalf("%d leases", n)
	}
}

func TestFramesThatWindowsDoNotTake(t *testing.T) {
	rows := newCutting(4, 2, 3, stream.Tensors, 2, stream.Policy{}).model
	deep := *rows
	deep.Inputs = []stream.TensorSpec{{Name: "x", Datatype: stream.Float32, Shape: []int{4, 3, 2}}}
	image := newCutting(4, 2, 1, stream.JPEG, 1, stream.Policy{}).model
	three := func(shape ...int) stream.Frame {
		return stream.Frame{Codec: stream.Tensors, Inputs: []stream.Tensor{tensor("x", stream.Float32, shape...)}}
	}
	for _, c := range []struct {
		name    string
		model   *stream.Model
		frame   stream.Frame
		oneShot bool
		want    string
	}{
		{"half a sample", rows, stream.Frame{Codec: stream.PCM16, Payload: make([]byte, 7)}, false,
			"frame: has 7 bytes, and one sample of pcm16 has 6 for model m: send whole samples"},
		{"nothing", rows, stream.Frame{Codec: stream.PCMFloat}, false,
			"frame: has 0 bytes, and one sample of pcmf32 has 12 for model m: send whole samples"},
		{"a picture", rows, stream.Frame{Codec: stream.JPEG, Payload: make([]byte, 7)}, false,
			"codec: model m takes samples and rows, not jpeg frames: send pcm16, pcmf32 or tensors"},
		{"sound for a model of maps", &deep, stream.Frame{Codec: stream.PCM16, Payload: make([]byte, 12)}, false,
			"codec: model m takes no audio: its input x is FP32 [4 3 2]. Send tensors of n rows"},
		{"sound for pictures", image, stream.Frame{Codec: stream.PCM16, Payload: make([]byte, 12)}, false,
			"codec: model m takes pictures, not pcm16: send jpeg, png, webp, rgb24 or nv12"},
		{"other features", rows, three(2, 4), false,
			"inputs.x.shape: is [2 4], model m wants rows, [-1 3], which it cuts into windows of 4 (-1 = any)"},
		{"no rows", rows, three(0, 3), false,
			"inputs.x.shape: is [0 3], model m wants rows, [-1 3], which it cuts into windows of 4 (-1 = any)"},
		{"another name", rows, stream.Frame{Codec: stream.Tensors,
			Inputs: []stream.Tensor{tensor("y", stream.Float32, 2, 3)}}, false,
			`inputs: want one tensor, "x", of rows for the windows of model m`},
		{"another type", rows, stream.Frame{Codec: stream.Tensors,
			Inputs: []stream.Tensor{tensor("x", stream.Uint8, 2, 3)}}, false,
			"inputs.x.datatype: is UINT8, model m wants FP32"},
		{"too much", rows, stream.Frame{Codec: stream.PCM16, Payload: make([]byte, 60)}, false,
			"window.hop: is 2, so that a frame of 10 completes 4 windows, and model m takes 2 at once " +
				"(batching.max_size): send at most 4 in one frame"},
		{"whole windows of a wrong length", rows, three(1, 5, 3), false,
			"inputs.x.shape: is [1 5 3], model m wants [-1 4 3] (-1 = any)"},
		{"a request with too little", rows, stream.Frame{Codec: stream.PCM16, Payload: make([]byte, 18)}, true,
			"window.length: is 4 and this request has 3: send a whole window, or open a stream"},
		{"a request with rows", rows, three(3, 3), true, "inputs.x.shape: is [3 3], model m wants [-1 4 3] (-1 = any)"},
		{"one picture", image, stream.Frame{Codec: stream.JPEG, Payload: []byte("jpeg")}, true,
			"window.length: is 4 and this request has 1: send a whole window, or open a stream"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sink := &results{}
			s := stream.New(c.model, &queue{}, sink, stream.Options{OneShot: c.oneShot})
			if err := s.Submit(c.frame); err != nil {
				t.Fatal(err)
			}
			if len(sink.all) != 1 || sink.all[0].Err == nil || sink.all[0].Err.Error() != c.want {
				t.Errorf("%+v\nwant %s", sink.all, c.want)
			}
			s.Close(stream.ByClient)
		})
	}
}

// One-shot requests contain whole windows, and leave nothing for the next request.
func TestRequestsOfTheirOwn(t *testing.T) {
	c := newCutting(4, 2, 1, stream.PCM16, 3, stream.Policy{})
	c.Stream = stream.New(c.model, c.ep, c.sink,
		stream.Options{OneShot: true, Policy: stream.Policy{Mode: stream.Every}})
	for range 2 {
		vs := c.samples(7)
		if err := c.Submit(c.frame(vs)); err != nil {
			t.Fatal(err)
		}
		c.ep.pop()
		r, _ := c.Take(stream.Now(), 3, nil, 0)
		if r.Rows != 2 {
			t.Fatalf("%d rows", r.Rows)
		}
		if got := r.Inputs[0].Float32s(); !slices.Equal(got, vs[:6]) {
			t.Fatalf("%v\nwant %v", got, vs[:6])
		}
		r.Finish(nil, nil, true)
		r.Unbind()
		if n := c.mem.Stats().Leases; n != 0 {
			t.Fatalf("%d leases", n)
		}
	}
	for _, rows := range []int{1, 3} { // as tensors
		f := stream.Frame{Codec: stream.Tensors, Inputs: []stream.Tensor{tensor("x", stream.Float32, rows, 4)}}
		if err := c.Submit(f); err != nil {
			t.Fatal(err)
		}
		c.ep.pop()
		r, _ := c.Take(stream.Now(), 3, nil, 0)
		if r.Rows != rows || r.Assembled != nil {
			t.Fatalf("%d rows, cut %v", r.Rows, r.Assembled)
		}
		r.Finish(nil, nil, true)
		r.Unbind()
	}
	c.Close(stream.ByClient)
}

// The number of frames waiting behind an unfinished frame is bounded.
func TestFillingIsBounded(t *testing.T) {
	c := newCutting(1, 1<<20, 1, stream.PCM16, 1, stream.Policy{Mode: stream.Latest})
	for range stream.MaxWindow + 1 {
		if err := c.Submit(c.frame(c.samples(1))); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Submit(c.frame(c.samples(1))); stream.CodeOf(err) != stream.FlowControl {
		t.Fatal(err)
	}
	c.ep.pop()
	r, _ := c.Take(stream.Now(), 1, nil, 0)
	r.Finish(nil, nil, true)
	r.Unbind()
	if n := len(c.sink.all); n != stream.MaxWindow+1 {
		t.Fatalf("%d endings", n)
	}
	if err := c.Submit(c.frame(c.samples(1))); err != nil || c.WaitingRows() != 1 { // the refused frame is missing
		t.Fatalf("%v, %d windows", err, c.WaitingRows())
	}
	c.Close(stream.ByClient)
}
