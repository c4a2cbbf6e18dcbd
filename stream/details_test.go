package stream_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"millrace/stream"
	"millrace/stream/buf"
)

func TestParseRegion(t *testing.T) {
	for text, want := range map[string]stream.Region{
		"1,2,3,4": {X: 1, Y: 2, Width: 3, Height: 4}, "0,0,65535,65535": {Width: 65535, Height: 65535},
	} {
		if got, err := stream.ParseRegion(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "1,2,3", "1,2,3,4,5", "1,2,0,4", "1,2,3,0", "x,2,3,4", "1,x,3,4", "1,2,x,4",
		"1,2,3,x", "-1,2,3,4", "1,2,65536,4", "1, 2,3,4"} {
		got, err := stream.ParseRegion(text)
		var coded *stream.Error
		if !errors.As(err, &coded) || coded.Code != stream.InvalidArgument || coded.Field != "roi" ||
			got != (stream.Region{}) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestNamesOfCodecsAndPriorities(t *testing.T) {
	for _, name := range []string{"auto", "opaque", "jpeg", "png", "webp", "h264", "vp8", "vp9", "av1", "rgb24",
		"nv12", "pcm16", "pcmf32", "tensor"} {
		if c, err := stream.ParseCodec(name); err != nil || c.String() != name {
			t.Errorf("%s: %s, %v", name, c, err)
		}
	}
	if _, err := stream.ParseCodec("film"); stream.CodeOf(err) != stream.InvalidArgument ||
		stream.Codec(200).String() != "unknown" {
		t.Error(err)
	}
	for p, name := range map[stream.Priority]string{stream.Normal: "normal", stream.High: "high", stream.Low: "low"} {
		var got stream.Priority
		text, err := p.MarshalText()
		if err != nil || string(text) != name || got.UnmarshalText(text) != nil || got != p {
			t.Errorf("%s: %q, %v, %v", name, text, err, got)
		}
	}
	if got := stream.Priority(stream.Priorities).String(); got != fmt.Sprintf("Priority(%d)", int(stream.Priorities)) {
		t.Error(got)
	}
	var p stream.Priority
	if err := p.UnmarshalText([]byte("urgent")); err == nil {
		t.Error("a priority of another name")
	}
}

// Regions are parts of pictures, for models that see pixels.
func TestRegionsAreForPictures(t *testing.T) {
	image := &stream.Model{Name: "image", MaxBatch: 1, Image: &stream.ImageSpec{},
		Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{3, 4, 4}}}}
	any := &stream.Model{Name: "any", AcceptsAnyInput: true, Image: &stream.ImageSpec{}, MaxBatch: 1}
	text := &stream.Model{Name: "text", MaxBatch: 1,
		Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Bytes, Shape: []int{1}}}}
	for _, c := range []struct {
		model *stream.Model
		codec stream.Codec
		code  stream.Code
	}{
		{image, stream.JPEG, ""}, {image, stream.NV12, ""}, {image, stream.PCM16, stream.Unsupported},
		{any, stream.JPEG, stream.Unsupported}, {text, stream.JPEG, stream.Unsupported},
	} {
		_, _, err := c.model.Check(&stream.Frame{Codec: c.codec, Region: stream.Region{Width: 1, Height: 1}})
		if stream.CodeOf(err) != c.code {
			t.Errorf("%s with %s: %v", c.model.Name, c.codec, err)
		}
	}
}

// Opaque bytes are for models with a single input of bytes.
func TestOpaqueFrames(t *testing.T) {
	bytes := stream.TensorSpec{Name: "x", Datatype: stream.Bytes, Shape: []int{1}}
	numbers := stream.TensorSpec{Name: "y", Datatype: stream.Uint8, Shape: []int{1}}
	for i, c := range []struct {
		inputs []stream.TensorSpec
		codec  stream.Codec
		ok     bool
	}{
		{[]stream.TensorSpec{bytes}, stream.Opaque, true}, {[]stream.TensorSpec{bytes}, stream.JPEG, false},
		{[]stream.TensorSpec{numbers}, stream.Opaque, false},
		{[]stream.TensorSpec{bytes, numbers}, stream.Opaque, false}, {nil, stream.Opaque, false},
	} {
		m := &stream.Model{Name: "m", MaxBatch: 1, Inputs: c.inputs}
		if _, _, err := m.Check(&stream.Frame{Codec: c.codec}); (err == nil) != c.ok ||
			err != nil && stream.CodeOf(err) != stream.Unsupported {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func TestKeepsState(t *testing.T) {
	for _, c := range []struct {
		m     stream.Model
		keeps bool
	}{
		{stream.Model{MaxBatch: 1}, false}, {stream.Model{MaxBatch: 2}, false},
		{stream.Model{MaxBatch: 1, Stateful: true}, true},
		{stream.Model{MaxBatch: 1, Assembly: &gaps{}}, true},
	} {
		if c.m.KeepsState() != c.keeps {
			t.Errorf("%+v: %v", c.m, c.m.KeepsState())
		}
	}
	none := &stream.Model{Name: "none", MaxBatch: 1,
		Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{0}}}}
	if _, _, err := none.Check(&stream.Frame{Codec: stream.Tensors,
		Inputs: []stream.Tensor{tensor("x", stream.Uint8, 5)}}); stream.CodeOf(err) != stream.InvalidArgument {
		t.Errorf("5 elements for a dimension of 0: %v", err)
	}
}

func TestTensorData(t *testing.T) {
	if stream.Datatype("x").Valid() || !stream.Bytes.Valid() || !stream.Bool.Valid() {
		t.Error("datatypes")
	}
	short := stream.Tensor{Name: "x", Datatype: stream.Bytes, Shape: []int{1}, Data: []byte{3, 0, 0, 0, 'a', 'b'}}
	if err := short.CheckSize(""); stream.CodeOf(err) != stream.InvalidArgument {
		t.Error(err)
	}
	short.Data = append(short.Data, 'c')
	if err := short.CheckSize(""); err != nil {
		t.Error(err)
	}
	f := stream.Tensor{Datatype: stream.Float32, Data: stream.AppendFloat32(nil, 1.5, -2, 3)}
	if got := fmt.Sprint(f.Float32s()); got != "[1.5 -2 3]" {
		t.Error(got)
	}
	if d := stream.Instant(7).Sub(3); d != 4 {
		t.Error(d)
	}
}

// Head returns the nearest deadline of all waiting frames, and nothing while no frame may be taken.
func TestHead(t *testing.T) {
	b := newBench(anything, every)
	if _, ok := b.Head(); ok {
		t.Error("an empty mailbox has a head")
	}
	within := func(d time.Duration) func(*stream.Frame) { return func(f *stream.Frame) { f.Deadline = d } }
	first := b.now
	for _, c := range []struct{ deadline, nearest time.Duration }{{0, 0}, {9 * time.Second, 9 * time.Second},
		{5 * time.Second, 5 * time.Second}, {7 * time.Second, 5 * time.Second}, {0, 5 * time.Second}} {
		_ = b.offer(within(c.deadline))
		want := stream.Head{Received: first}
		if c.nearest != 0 {
			want.Deadline = first.Add(c.nearest)
		}
		if h, ok := b.Head(); !ok || h != want {
			t.Errorf("%+v, %v; want %+v", h, ok, want)
		}
	}
	b.Pause()
	if _, ok := b.Head(); ok {
		t.Error("a paused stream has a head")
	}
	b.Close(stream.ByClient)
	b.checkFinished(t)
}

// A stream queues a token when a frame waits, and only then.
func TestTokensAreForFramesThatWait(t *testing.T) {
	b := newBench(anything, every)
	_ = b.offer()
	_ = b.offer()
	r0 := b.take(t)
	if b.ep.queued() != 1 {
		t.Errorf("%d tokens for a frame that waits", b.ep.queued())
	}
	r1 := b.take(t)
	for _, r := range []*stream.Request{r0, r1} {
		answer(b.mem, r)
		r.Unbind()
		if b.ep.queued() != 0 {
			t.Errorf("%d tokens while none waits", b.ep.queued())
		}
	}
	b.Close(stream.ByClient)
	b.checkFinished(t)
}

func TestAStaleFrameDoesNotHoldUpTheNext(t *testing.T) {
	b := newBench(anything, every)
	_ = b.offer(func(f *stream.Frame) { f.Deadline = time.Millisecond })
	_ = b.offer()
	b.now = b.now.Add(time.Second)
	r := b.take(t)
	if r == nil || r.Seq != 1 {
		t.Fatalf("%+v", r)
	}
	answer(b.mem, r)
	r.Unbind()
	b.check(t, "0 drop stale", "1 result")
	b.Close(stream.ByClient)
	b.checkFinished(t)
}

func TestSupersededFramesDoNotWait(t *testing.T) {
	b := newBench(anything, latest)
	for range 3 {
		_ = b.offer()
	}
	if f, r := b.WaitingFrames(), b.WaitingRows(); f != 1 || r != 1 {
		t.Errorf("%d frames, %d rows wait", f, r)
	}
	b.Close(stream.ByClient)
	b.checkFinished(t)
}

// A frame may come a quarter of an interval early; after a pause of more than one interval the rate starts again.
func TestRate(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		at   []time.Duration
		pass []bool
	}{
		"a quarter early":       {[]time.Duration{0, 75 * ms, 150 * ms}, []bool{true, true, false}},
		"more than a quarter":   {[]time.Duration{0, 75*ms - 1, 75 * ms}, []bool{true, false, true}},
		"one interval late":     {[]time.Duration{0, 200 * ms, 200 * ms, 200 * ms}, []bool{true, true, true, false}},
		"more than an interval": {[]time.Duration{0, 200*ms + 1, 200*ms + 1}, []bool{true, true, false}},
	} {
		b := newBench(anything, stream.Policy{Mode: stream.Every, Window: 8, MaxFPS: 10})
		begin := b.now
		for i, at := range c.at {
			b.now = begin.Add(at)
			before := b.Counts().Drops
			_ = b.offer()
			if dropped := b.Counts().Drops > before; dropped == c.pass[i] {
				t.Errorf("%s: frame %d dropped: %v", name, i, dropped)
			}
		}
		b.Close(stream.ByClient)
		b.checkFinished(t)
	}
	b := newBench(anything, stream.Policy{Mode: stream.Every, Window: 8, MaxFPS: 1})
	_ = b.offer()
	for i, p := range []stream.Policy{{Window: 9}, {MaxFPS: 2}} {
		_ = b.Update(p)
		_ = b.offer() // the same rate continues; a different rate starts again
		if c := b.Counts(); c.Drops != 1 {
			t.Errorf("after update %d: %+v", i, c)
		}
	}
	b.Close(stream.ByClient)
	b.checkFinished(t)
}

// In Latest, frames answered without a run wait for earlier frames; the number of such frames is bounded.
func TestEndingsThatWaitAreBounded(t *testing.T) {
	b := newBench(assembled(anything), latest)
	_ = b.offer()
	r := b.take(t)
	_ = b.offer() // waits, and does not count
	for i := range stream.MaxWindow - 1 {
		if err := b.offer(empty); err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
	}
	if err := b.offer(empty); stream.CodeOf(err) != stream.FlowControl {
		t.Errorf("one more: %v", err)
	}
	answer(b.mem, r)
	r.Unbind()
	b.Close(stream.ByClient)
	b.checkFinished(t)
}

func TestFramesThatEndedBefore(t *testing.T) {
	b := newBench(anything, every)
	if err := b.SubmitEnded(stream.Frame{Seq: 0}, b.now, stream.Memory, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.SubmitEnded(stream.Frame{Seq: 1}, b.now, stream.Memory,
		stream.Errorf(stream.Unsupported, "", "no picture")); err != nil {
		t.Fatal(err)
	}
	b.check(t, "0 drop memory", "1 error unsupported")
	b.Close(stream.ByClient)
	b.checkFinished(t)
	lease, _ := b.mem.Copy([]byte("x"))
	if err := b.SubmitEnded(stream.Frame{Seq: 2, Lease: lease}, b.now, stream.Memory, nil); err == nil ||
		b.mem.Stats().Leases != 0 {
		t.Errorf("%v, %+v", err, b.mem.Stats())
	}
}

// Frames without parameters take the parameters of the stream.
func TestParams(t *testing.T) {
	b := &bench{ep: &queue{}, sink: &sink{}, mem: buf.NewPool(0), now: 1e9}
	b.Stream = stream.New(anything, b.ep, b.sink,
		stream.Options{Policy: every, Params: stream.Params{"of": "the stream"}})
	_ = b.offer()
	_ = b.offer(func(f *stream.Frame) { f.Params = stream.Params{"of": "the frame"} })
	b.Flush()
	_ = b.offer()
	_ = b.offer(func(f *stream.Frame) { f.Params = stream.Params{"of": "the frame"} })
	for _, want := range []string{"the stream", "the frame"} {
		r := b.take(t)
		if r.Params["of"] != want || r.Flushes != 1 {
			t.Errorf("%v after %d flushes, want %s", r.Params, r.Flushes, want)
		}
		r.SetResultParam("a", 1)
		r.SetResultParam("b", 2)
		if p := r.Result().Params; p["a"] != 1 || p["b"] != 2 {
			t.Errorf("%v", p)
		}
		answer(b.mem, r)
		r.Unbind()
	}
	b.Close(stream.ByClient)
	b.checkFinished(t)
}

// A result is wanted until the result exists or no receiver is left.
func TestWanted(t *testing.T) {
	for why, want := range map[stream.CloseReason]bool{stream.ByClient: true, stream.ByDrain: true,
		stream.ClientGone: false, stream.SlowConsumer: false} {
		b := newBench(anything, every)
		_ = b.offer()
		r := b.take(t)
		if !r.Wanted() {
			t.Error("the result of an open stream is not wanted")
		}
		b.Close(why)
		if r.Wanted() != want {
			t.Errorf("%s: wanted %v", why, r.Wanted())
		}
		answer(b.mem, r)
		if r.Wanted() {
			t.Errorf("%s: still wanted after the result", why)
		}
		r.Unbind()
		b.checkFinished(t)
	}
}

// A request without the token keeps both states to itself.
func TestStatesOfARequestAlone(t *testing.T) {
	b := newBench(anything, every)
	_ = b.offer()
	r := b.take(t)
	released := ""
	note := func(v any) { released += v.(string) }
	r.SetState("w", note)
	r.SetStageState("s", note)
	r.DetachState() // the stream has no state to take
	if r.State() != "w" || r.StageState() != "s" || b.Kept() != nil {
		t.Errorf("%v, %v, the stream keeps %v", r.State(), r.StageState(), b.Kept())
	}
	answer(b.mem, r)
	r.Unbind()
	if released != "ws" {
		t.Errorf("released %q", released)
	}
	b.Close(stream.ByClient)
	b.checkFinished(t)

	b = newBench(stateful("s"), every)
	_ = b.offer()
	r = b.take(t)
	r.SetState("w", nil) // nothing to release at the end
	answer(b.mem, r)
	r.DetachState() // too late: the next frame may have the state
	if b.Kept() != "w" {
		t.Errorf("the stream keeps %v", b.Kept())
	}
	r.Unbind()
	b.Close(stream.ByClient)
	b.checkFinished(t)
}

func TestIdleSince(t *testing.T) {
	b := newBench(stateful("s"), every)
	_ = b.offer()
	r := b.take(t)
	r.SetState("w", nil)
	if b.DropIdleState(math.MaxInt64) {
		t.Error("dropped while a frame is in flight")
	}
	answer(b.mem, r)
	r.Unbind()
	ended := r.Result().Timing.Done
	if b.DropIdleState(ended - 1) {
		t.Error("dropped although active since")
	}
	if !b.DropIdleState(ended) || b.DropIdleState(ended) {
		t.Error("not dropped exactly once")
	}
	b.Close(stream.ByClient)
	b.checkFinished(t)
}

// pairs makes a request of two rows from each frame: a copy of the frame, and the frame.
type pairs struct {
	mem   *buf.Pool
	adopt bool
}

func (p *pairs) NewAssembler(*stream.Model, bool) stream.Assembler { return p }
func (p *pairs) IsRequest(*stream.Frame) bool                      { return false }
func (p *pairs) Reset()                                            {}
func (p *pairs) Adopt(*stream.Model) bool                          { return p.adopt }
func (p *pairs) Assemble(f *stream.Frame) (int, *stream.Assembled, stream.Params, error) {
	before, err := p.mem.Copy(f.Payload)
	return 2, &stream.Assembled{Frames: []stream.Frame{{Lease: before, Payload: before.Bytes()}, *f}}, nil, err
}

// When a model is replaced, the next model runs the assembled requests if compatible, and their memory is released
// with the request.
func TestAssembledRequestsMove(t *testing.T) {
	for _, c := range []struct {
		adopt bool
		rows  int
		ok    bool
	}{{true, 4, true}, {true, 2, true}, {true, 1, false}, {false, 4, false}} {
		p := &pairs{adopt: c.adopt}
		model := func(n int) *stream.Model {
			return &stream.Model{Name: "m", AcceptsAnyInput: true, Ragged: true, MaxBatch: n, Assembly: p}
		}
		b := newBench(model(4), every)
		p.mem = b.mem
		_ = b.offer()
		if b.WaitingRows() != 2 {
			t.Errorf("%d rows wait", b.WaitingRows())
		}
		b.ep.pop()
		b.Move(b.ep, model(c.rows))
		if !c.ok {
			b.check(t, "0 error conflict")
		} else {
			b.ep.pop()
			r, _ := b.Take(b.now, 2, nil, 0)
			answer(b.mem, r)
			r.Unbind()
			b.check(t, "0 result")
		}
		b.Close(stream.ByClient)
		b.checkFinished(t)
	}
}
