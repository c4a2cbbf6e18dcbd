package window_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"millrace/stream"
	"millrace/stream/buf"
	"millrace/stream/window"
)

// results keeps the results pushed to a sink.
type results struct {
	all  []stream.Result
	done int
}

func (k *results) Push(r *stream.Result) {
	k.all = append(k.all, *r)
	r.Release()
}

func (k *results) Done(stream.CloseReason) { k.done++ }

// cutting is a stream of a model with windows, and the expected windows, computed from a plain list of all input
// since the last reset.
type cutting struct {
	*stream.Stream
	model    *stream.Model
	ep       *queue
	sink     *results
	mem      *buf.Pool
	channels int
	coding   stream.Codec
	pictures bool

	value   int       // of the next sample
	sent    []float32 // since the last reset
	cut     int       // number of windows cut
	seq     uint64
	want    map[uint64][][]float32 // expected windows by frame
	end     map[uint64]int64
	errors  map[uint64]bool
	lost    map[uint64]bool
	order   []uint64 // accepted
	waiting []uint64 // in Latest
	running []*stream.Request
}

func newCutting(length, hop, channels int, coding stream.Codec, rows int, p stream.Policy) *cutting {
	c := &cutting{
		ep: &queue{}, sink: &results{}, mem: buf.NewPool(0), channels: channels, coding: coding,
		want: map[uint64][][]float32{}, end: map[uint64]int64{}, errors: map[uint64]bool{}, lost: map[uint64]bool{},
	}
	shape := []int{length}
	if channels > 1 {
		shape = append(shape, channels)
	}
	c.model = &stream.Model{
		Name: "m", Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Float32, Shape: shape}}, MaxBatch: rows,
		Assembly: &window.Window{Length: length, Hop: hop, Memory: c.mem},
	}
	if coding == stream.JPEG {
		c.pictures = true
		c.model.Inputs[0].Shape = []int{length, 1, 1, 1}
		c.model.Image = &stream.ImageSpec{Width: 1, Height: 1}
	}
	c.Stream = stream.New(c.model, c.ep, c.sink, stream.Options{Policy: p})
	return c
}

// samples returns n samples with different values that PCM can represent.
func (c *cutting) samples(n int) []float32 {
	out := make([]float32, n*c.channels)
	for i := range out {
		c.value = (c.value + 1) % 60000
		out[i] = float32(c.value-30000) / (1 << 15)
	}
	return out
}

// frame returns a leased frame of the samples in the stream's coding.
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

func (c *cutting) reset() { c.sent, c.cut = nil, 0 }

// send submits n samples and notes the completed windows.
func (c *cutting) send(t *rapid.T, n int, discontinuity bool) {
	vs := c.samples(n)
	f := c.frame(vs)
	f.Discontinuity = discontinuity
	if err := c.Submit(f); err != nil {
		if stream.CodeOf(err) != stream.FlowControl {
			t.Fatal(err)
		}
		return // as if not sent
	}
	if discontinuity {
		c.reset()
	}
	c.order = append(c.order, c.seq)
	c.sent = append(c.sent, vs...)
	w := c.model.Assembly.(*window.Window)
	var windows [][]float32
	for ; (c.cut*w.Hop+w.Length)*c.channels <= len(c.sent); c.cut++ {
		at := c.cut * w.Hop * c.channels
		windows = append(windows, slices.Clone(c.sent[at:at+w.Length*c.channels]))
	}
	switch {
	case len(windows) > c.model.MaxBatch:
		c.errors[c.seq] = true
		c.reset()
	case len(windows) > 0:
		c.want[c.seq], c.end[c.seq] = windows, int64((c.cut-1)*w.Hop+w.Length-1)
		if c.Policy().Mode == stream.Latest {
			c.waiting = []uint64{c.seq}
		}
	}
	c.seq++
}

// take binds the next request and checks the rows.
func (c *cutting) take(t *rapid.T) {
	if c.ep.pop() == nil {
		t.Skip("no token")
	}
	r, kept := c.Take(stream.Now(), c.model.MaxBatch, nil, 0)
	if kept || r == nil && c.waiting != nil {
		t.Fatalf("took %v, kept %v", r, kept)
	}
	if r == nil { // flushed
		return
	}
	if w := c.waiting; w != nil && r.Seq != w[0] {
		t.Fatalf("took %d, not the newest that completes a window, %d", r.Seq, w[0])
	}
	c.waiting = nil
	c.running = append(c.running, r)
	c.checkRows(t, r)
}

func (c *cutting) checkRows(t *rapid.T, r *stream.Request) {
	want := c.want[r.Seq]
	if r.Rows != len(want) {
		t.Fatalf("frame %d has %d rows, want %d", r.Seq, r.Rows, len(want))
	}
	for i, w := range want {
		var got []float32
		if c.pictures {
			for _, p := range r.Assembled.Frames {
				got = append(got, math.Float32frombits(binary.LittleEndian.Uint32(p.Payload)))
			}
		} else {
			in := stream.Tensor{Data: r.Inputs[0].Data[i*r.Assembled.Stride:][:4*len(w)]}
			got = in.Float32s()
		}
		if !slices.Equal(got, w) {
			t.Fatalf("window %d of frame %d is %v\nwant %v", i, r.Seq, got, w)
		}
	}
}

// answer ends a request in flight and releases the memory.
func (c *cutting) answer(t *rapid.T) {
	if len(c.running) == 0 {
		t.Skip("nothing runs")
	}
	i := rapid.IntRange(0, len(c.running)-1).Draw(t, "which")
	r := c.running[i]
	c.running = slices.Delete(c.running, i, i+1)
	c.checkRows(t, r) // no writer has changed the rows meanwhile
	r.Finish(nil, nil, true)
	r.Unbind()
}

// checkFinished closes the stream and checks the endings and the memory.
func (c *cutting) checkFinished(t *rapid.T) {
	c.Close(stream.ByClient)
	for _, r := range c.running {
		c.checkRows(t, r)
		r.Finish(nil, nil, true)
		r.Unbind()
	}
	for s := c.ep.pop(); s != nil; s = c.ep.pop() {
		s.ReleaseToken()
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
	n := c.Counts()
	if n.Accepted != uint64(len(c.order)) || n.Accepted != n.Results+n.Drops+n.Errors || c.ep.ended != len(c.order) {
		t.Fatalf("%+v, %d endings reported of %d", n, c.ep.ended, len(c.order))
	}
	if n := c.mem.Stats(); n.Leases != 0 || n.Leased != 0 {
		t.Fatalf("kept after the end: %+v", n)
	}
}

// Whatever the window lengths and dropped windows, the windows come from the complete input.
func TestWindowsAreThoseOfAllThatWasSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		coding := rapid.SampledFrom([]stream.Codec{stream.PCM16, stream.PCMFloat, stream.Tensors, stream.JPEG}).Draw(t,
			"coding")
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
		most := rapid.SampledFrom([]int{1, 4, 40, 3000}).Draw(t, "most") // 3000 fill a lease
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
			"discontinuity": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") > 0 {
					t.Skip("continues")
				}
				c.MarkDiscontinuity()
				c.reset()
			},
			"lose": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") > 0 {
					t.Skip("continues")
				}
				if err := c.SubmitEnded(stream.Frame{Seq: c.seq}, stream.Now(), stream.Undecoded, nil); err != nil {
					t.Fatal(err)
				}
				c.order, c.lost[c.seq] = append(c.order, c.seq), true
				c.seq++
				c.reset()
			},
			"flush": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") > 0 {
					t.Skip("continues")
				}
				c.Flush()
				c.reset()
				c.waiting = nil
			},
			"swap": func(t *rapid.T) {
				next := *c.model
				next.Version = "2"
				w := *c.model.Assembly.(*window.Window)
				next.Assembly = &w
				old := c.ep
				c.ep = &queue{ended: old.ended}
				if !c.Move(c.ep, &next) {
					t.Fatal("not moved")
				}
				c.ForgetToken(old)
				c.model = &next
			},
		})
		c.checkFinished(t)
	})
}
