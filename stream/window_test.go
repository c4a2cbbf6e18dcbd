package stream_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace/internal/buf"
	"millrace/stream"
)

// results keeps what a stream's sink was pushed.
type results struct {
	all  []stream.Result
	done int
}

func (k *results) Push(r *stream.Result) {
	k.all = append(k.all, *r)
	r.Release()
}

func (k *results) Done(stream.CloseReason) { k.done++ }

// cutting is a stream of a model with windows, and what it should cut: the plain
// list of everything sent since the last break.
type cutting struct {
	*stream.Stream
	model    *stream.Model
	ep       *endpoint
	sink     *results
	mem      *buf.Pool
	channels int
	coding   stream.Codec
	pictures bool

	value   int       // of the next sample
	sent    []float32 // since the last break
	cut     int       // windows of them
	seq     uint64
	want    map[uint64][][]float32 // by frame: its windows
	end     map[uint64]int64
	errors  map[uint64]bool
	lost    map[uint64]bool
	order   []uint64 // accepted
	waiting []uint64 // in Latest
	running []*stream.Request
}

func newCutting(length, hop, channels int, coding stream.Codec, rows int, p stream.Policy) *cutting {
	c := &cutting{
		ep: &endpoint{}, sink: &results{}, mem: buf.NewPool(0), channels: channels, coding: coding,
		want: map[uint64][][]float32{}, end: map[uint64]int64{}, errors: map[uint64]bool{}, lost: map[uint64]bool{},
	}
	shape := []int{length}
	if channels > 1 {
		shape = append(shape, channels)
	}
	c.model = &stream.Model{
		Name: "m", Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Float32, Shape: shape}}, MaxBatch: rows,
		Window: &stream.Window{Length: length, Hop: hop, Memory: c.mem},
	}
	if coding == stream.JPEG {
		c.pictures = true
		c.model.Inputs[0].Shape = []int{length, 1, 1, 1}
		c.model.Image = &stream.ImageSpec{Width: 1, Height: 1}
	}
	c.Stream = stream.New(c.model, c.ep, c.sink, stream.Options{Policy: p})
	return c
}

// samples makes n of them that no others are like, as PCM can hold them.
func (c *cutting) samples(n int) []float32 {
	out := make([]float32, n*c.channels)
	for i := range out {
		c.value = (c.value + 1) % 60000
		out[i] = float32(c.value-30000) / (1 << 15)
	}
	return out
}

// frame is a lease with the samples as the coding has them.
func (c *cutting) frame(vs []float32) stream.Frame {
	var data []byte
	switch c.coding {
	case stream.PCM16:
		for _, v := range vs {
			data = binary.LittleEndian.AppendUint16(data, uint16(int16(v*(1<<15))))
		}
	default:
		data = stream.AppendFloat32(nil, vs...)
	}
	l, _ := c.mem.Copy(data)
	f := stream.Frame{Seq: c.seq, Codec: c.coding, Lease: l}
	if c.coding == stream.Tensors {
		shape := []int{len(vs) / c.channels}
		if c.channels > 1 {
			shape = append(shape, c.channels)
		}
		f.Inputs = []stream.Tensor{{Name: "x", Datatype: stream.Float32, Shape: shape, Data: l.Bytes()}}
	} else {
		f.Payload = l.Bytes()
	}
	return f
}

func (c *cutting) forget() { c.sent, c.cut = nil, 0 }

// send submits n samples and notes which windows they complete.
func (c *cutting) send(t *rapid.T, n int, discontinuity bool) {
	vs := c.samples(n)
	f := c.frame(vs)
	f.Discontinuity = discontinuity
	if err := c.Submit(f); err != nil {
		if stream.CodeOf(err) != stream.FlowControl {
			t.Fatal(err)
		}
		return // as if it had not been sent
	}
	if discontinuity {
		c.forget()
	}
	c.order = append(c.order, c.seq)
	c.sent = append(c.sent, vs...)
	w := c.model.Window
	var windows [][]float32
	for ; (c.cut*w.Hop+w.Length)*c.channels <= len(c.sent); c.cut++ {
		at := c.cut * w.Hop * c.channels
		windows = append(windows, slices.Clone(c.sent[at:at+w.Length*c.channels]))
	}
	switch {
	case len(windows) > c.model.MaxBatch:
		c.errors[c.seq] = true
		c.forget()
	case len(windows) > 0:
		c.want[c.seq], c.end[c.seq] = windows, int64((c.cut-1)*w.Hop+w.Length-1)
		if c.Policy().Mode == stream.Latest {
			c.waiting = []uint64{c.seq}
		}
	}
	c.seq++
}

// take binds the next request and looks at its rows.
func (c *cutting) take(t *rapid.T) {
	if c.ep.pop() == nil {
		t.Skip("no token")
	}
	r, kept := c.Take(stream.Now(), c.model.MaxBatch, nil, 0)
	if kept || r == nil && c.waiting != nil {
		t.Fatalf("took %v, kept %v", r, kept)
	}
	if r == nil { // it was flushed
		return
	}
	if w := c.waiting; w != nil && r.Seq != w[0] {
		t.Fatalf("took %d, not the newest that completes a window, %d", r.Seq, w[0])
	}
	c.waiting = nil
	c.running = append(c.running, r)
	c.look(t, r)
}

func (c *cutting) look(t *rapid.T, r *stream.Request) {
	want := c.want[r.Seq]
	if r.Rows != len(want) {
		t.Fatalf("frame %d has %d rows, want %d", r.Seq, r.Rows, len(want))
	}
	for i, w := range want {
		var got []float32
		if c.pictures {
			for _, p := range r.Cut.Pictures {
				got = append(got, math.Float32frombits(binary.LittleEndian.Uint32(p.Payload)))
			}
		} else {
			in := stream.Tensor{Data: r.Inputs[0].Data[i*r.Cut.Step:][:4*len(w)]}
			got = in.Float32s()
		}
		if !slices.Equal(got, w) {
			t.Fatalf("window %d of frame %d is %v\nwant %v", i, r.Seq, got, w)
		}
	}
}

// answer ends one that runs, and has its batch let go of it.
func (c *cutting) answer(t *rapid.T) {
	if len(c.running) == 0 {
		t.Skip("nothing runs")
	}
	i := rapid.IntRange(0, len(c.running)-1).Draw(t, "which")
	r := c.running[i]
	c.running = slices.Delete(c.running, i, i+1)
	c.look(t, r) // nobody wrote over it meanwhile
	r.Finish(nil, nil, true)
	r.Unbind()
}

// over closes the stream and looks at its account.
func (c *cutting) over(t *rapid.T) {
	c.Close(stream.ByClient)
	for _, r := range c.running {
		c.look(t, r)
		r.Finish(nil, nil, true)
		r.Unbind()
	}
	for s := c.ep.pop(); s != nil; s = c.ep.pop() {
		s.Rest()
	}
	seen := map[uint64]bool{}
	last := int64(-1)
	for _, r := range c.sink.all {
		if seen[r.Seq] {
			t.Fatalf("frame %d ended twice", r.Seq)
		}
		seen[r.Seq] = true
		if (r.Outcome == stream.Failed) != c.errors[r.Seq] {
			t.Fatalf("frame %d: %v %v", r.Seq, r.Outcome, r.Err)
		}
		if r.Outcome == stream.Dropped && len(c.want[r.Seq]) == 0 && !c.lost[r.Seq] {
			t.Fatalf("frame %d completes no window and was dropped: %s", r.Seq, r.Reason)
		}
		if r.Outcome != stream.Answered {
			continue
		}
		if int64(r.Seq) < last {
			t.Fatalf("frame %d was answered after %d", r.Seq, last)
		}
		last = int64(r.Seq)
		want := stream.Params{"window": "filling"}
		if len(c.want[r.Seq]) > 0 {
			want = stream.Params{"window_end": c.end[r.Seq]}
		}
		if fmt.Sprint(r.Params) != fmt.Sprint(want) {
			t.Fatalf("frame %d says %v, want %v", r.Seq, r.Params, want)
		}
	}
	if len(seen) != len(c.order) || c.sink.done != 1 || len(c.ep.faults) > 0 {
		t.Fatalf("%d endings of %d, done %d times, %v", len(seen), len(c.order), c.sink.done, c.ep.faults)
	}
	if n := c.mem.Stats(); n.Leases != 0 || n.Leased != 0 {
		t.Fatalf("kept after the end: %+v", n)
	}
}

// Whatever the lengths, and however many windows are dropped, the windows are
// those of everything that was sent.
func TestWindowsAreThoseOfAllThatWasSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		coding := rapid.SampledFrom([]stream.Codec{stream.PCM16, stream.PCMFloat, stream.Tensors, stream.JPEG}).Draw(t, "coding")
		channels := 1
		if coding != stream.JPEG {
			channels = rapid.IntRange(1, 3).Draw(t, "channels")
		}
		p := stream.Policy{
			Mode:   rapid.SampledFrom([]stream.Mode{stream.Latest, stream.Every}).Draw(t, "mode"),
			Window: rapid.IntRange(1, 6).Draw(t, "in flight"),
		}
		c := newCutting(rapid.IntRange(1, 12).Draw(t, "length"), rapid.IntRange(1, 20).Draw(t, "hop"), channels, coding,
			rapid.IntRange(1, 4).Draw(t, "rows"), p)
		most := rapid.SampledFrom([]int{1, 4, 40, 3000}).Draw(t, "most") // the last one fills a lease
		send := func(t *rapid.T) {
			n := 1
			if !c.pictures {
				n = rapid.IntRange(1, most).Draw(t, "n")
			}
			c.send(t, n, rapid.IntRange(0, 15).Draw(t, "discontinuity") == 0)
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": send, "send2": send, "send3": send,
			"take": c.take, "answer": c.answer, "answer2": c.answer,
			"break": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") > 0 {
					t.Skip("goes on")
				}
				c.Break()
				c.forget()
			},
			"lose": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") > 0 {
					t.Skip("goes on")
				}
				if err := c.Lose(stream.Frame{Seq: c.seq}, stream.Now(), stream.Undecoded, nil); err != nil {
					t.Fatal(err)
				}
				c.order, c.lost[c.seq] = append(c.order, c.seq), true
				c.seq++
				c.forget()
			},
			"flush": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") > 0 {
					t.Skip("goes on")
				}
				c.Flush()
				c.forget()
				c.waiting = nil
			},
			"swap": func(t *rapid.T) {
				next := *c.model
				next.Version = "2"
				w := *c.model.Window
				next.Window = &w
				old := c.ep
				c.ep = &endpoint{}
				if !c.Move(c.ep, &next) {
					t.Fatal("not moved")
				}
				c.Discard(old)
				c.model = &next
			},
		})
		c.over(t)
	})
}

// What a stream keeps is bounded by its window, however long it runs.
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

// A silent stream gives its window back.
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

// A window for which there is no memory is dropped, and the next one has no gap.
func TestWindowsWithoutMemory(t *testing.T) {
	c := newCutting(4, 4, 1, stream.PCM16, 1, stream.Policy{Mode: stream.Every})
	none := buf.NewPool(1)
	c.model.Window.Memory = none
	if err := c.Submit(c.frame(c.samples(3))); err != nil {
		t.Fatal(err)
	}
	c.model.Window.Memory = c.mem
	c.seq++
	if err := c.Submit(c.frame(c.samples(3))); err != nil {
		t.Fatal(err)
	}
	r := c.sink.all
	if len(r) != 2 || r[0].Outcome != stream.Dropped || r[0].Reason != stream.Memory || r[1].Params["window"] != "filling" {
		t.Fatalf("%+v", r)
	}
	c.Close(stream.ByClient)
	if n := c.mem.Stats().Leases; n != 0 {
		t.Fatalf("%d leases", n)
	}
}

// A model that is replaced by one with other windows ends what waits, and starts
// its own.
func TestSwapToOtherWindows(t *testing.T) {
	c := newCutting(4, 2, 1, stream.PCM16, 2, stream.Policy{Mode: stream.Every})
	if err := c.Submit(c.frame(c.samples(5))); err != nil {
		t.Fatal(err)
	}
	other := newCutting(6, 2, 1, stream.PCM16, 2, stream.Policy{}).model
	other.Window.Memory = c.mem
	old := c.ep
	c.ep = &endpoint{}
	c.Move(c.ep, other)
	c.Discard(old)
	c.seq++
	if err := c.Submit(c.frame(c.samples(5))); err != nil {
		t.Fatal(err)
	}
	if r := c.sink.all; len(r) != 2 || stream.CodeOf(r[0].Err) != stream.Conflict || r[1].Params["window"] != "filling" {
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
		{"half a sample", rows, stream.Frame{Codec: stream.PCM16, Payload: make([]byte, 7)}, false, "frame: has 7 bytes, and one sample of pcm16 has 6 for model m: send whole samples"},
		{"nothing", rows, stream.Frame{Codec: stream.PCMFloat}, false, "frame: has 0 bytes, and one sample of pcmf32 has 12 for model m: send whole samples"},
		{"a picture", rows, stream.Frame{Codec: stream.JPEG, Payload: make([]byte, 7)}, false, "codec: model m takes samples and rows, not jpeg frames: send pcm16, pcmf32 or tensors"},
		{"sound for a model of maps", &deep, stream.Frame{Codec: stream.PCM16, Payload: make([]byte, 12)}, false, "codec: model m takes no audio: its input x is FP32 [4 3 2]. Send tensors of n rows"},
		{"sound for pictures", image, stream.Frame{Codec: stream.PCM16, Payload: make([]byte, 12)}, false, "codec: model m takes pictures, not pcm16: send jpeg, png, webp, rgb24 or nv12"},
		{"other features", rows, three(2, 4), false, "inputs.x.shape: is [2 4], model m wants rows, [-1 3], which it cuts into windows of 4 (-1 = any)"},
		{"no rows", rows, three(0, 3), false, "inputs.x.shape: is [0 3], model m wants rows, [-1 3], which it cuts into windows of 4 (-1 = any)"},
		{"another name", rows, stream.Frame{Codec: stream.Tensors, Inputs: []stream.Tensor{tensor("y", stream.Float32, 2, 3)}}, false, `inputs: want one tensor, "x", of rows for the windows of model m`},
		{"another type", rows, stream.Frame{Codec: stream.Tensors, Inputs: []stream.Tensor{tensor("x", stream.Uint8, 2, 3)}}, false, "inputs.x.datatype: is UINT8, model m wants FP32"},
		{"too much", rows, stream.Frame{Codec: stream.PCM16, Payload: make([]byte, 60)}, false, "window.hop: is 2, so that a frame of 10 completes 4 windows, and model m takes 2 at once (batching.max_size): send at most 4 in one frame"},
		{"whole windows of a wrong length", rows, three(1, 5, 3), false, "inputs.x.shape: is [1 5 3], model m wants [4 3], with a batch axis in front of it if you like (-1 = any)"},
		{"a request with too little", rows, stream.Frame{Codec: stream.PCM16, Payload: make([]byte, 18)}, true, "window.length: is 4 and this request has 3: send a whole window, or open a stream"},
		{"a request with rows", rows, three(3, 3), true, "inputs.x.shape: is [3 3], model m wants [4 3], with a batch axis in front of it if you like (-1 = any)"},
		{"one picture", image, stream.Frame{Codec: stream.JPEG, Payload: []byte("jpeg")}, true, "window.length: is 4 and this request has 1: send a whole window, or open a stream"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sink := &results{}
			s := stream.New(c.model, &endpoint{}, sink, stream.Options{OneShot: c.oneShot})
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

// One-shot requests bring their windows with them, and leave nothing behind.
func TestRequestsOfTheirOwn(t *testing.T) {
	c := newCutting(4, 2, 1, stream.PCM16, 3, stream.Policy{})
	c.Stream = stream.New(c.model, c.ep, c.sink, stream.Options{OneShot: true, Policy: stream.Policy{Mode: stream.Every}})
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
		if r.Rows != rows || r.Cut != nil {
			t.Fatalf("%d rows, cut %v", r.Rows, r.Cut)
		}
		r.Finish(nil, nil, true)
		r.Unbind()
	}
	c.Close(stream.ByClient)
}

// Behind a frame that does not end no more frames wait than there may be.
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
	if err := c.Submit(c.frame(c.samples(1))); err != nil || c.WaitingRows() != 1 { // what was refused is missing
		t.Fatalf("%v, %d windows", err, c.WaitingRows())
	}
	c.Close(stream.ByClient)
}
