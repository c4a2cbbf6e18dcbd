package window_test

import (
	"math"
	"testing"

	"millrace/stream"
)

// A tensor whose data do not match the description ends as an error, and changes nothing else.
func TestWindowsOfBadTensors(t *testing.T) {
	c := newCutting(8, 8, 1, stream.PCM16, 1, stream.Policy{Mode: stream.Every})
	if err := c.Submit(c.frame(c.samples(3))); err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]stream.Tensor{
		"short": {Shape: []int{3}, Data: make([]byte, 4)},
		"huge":  {Shape: []int{math.MaxInt}},
	} {
		in.Name, in.Datatype = "x", stream.Float32
		if err := c.Submit(stream.Frame{Codec: stream.Tensors, Inputs: []stream.Tensor{in}}); err != nil {
			t.Fatal(err)
		}
		if r := c.sink.all[len(c.sink.all)-1]; r.Outcome != stream.Failed {
			t.Errorf("%s: %+v", name, r)
		}
	}
	c.Close(stream.ByClient)
	if n := c.mem.Stats().Leases; n != 0 {
		t.Fatalf("%d leases", n)
	}
}

// A region needs a picture; samples with a region are refused, as without windows.
func TestWindowsOfSamplesHaveNoRegion(t *testing.T) {
	c := newCutting(8, 8, 1, stream.PCM16, 1, stream.Policy{Mode: stream.Every})
	f := c.frame(c.samples(3))
	f.Region = stream.Region{Width: 1, Height: 1}
	if err := c.Submit(f); err != nil {
		t.Fatal(err)
	}
	if r := c.sink.all[0]; stream.CodeOf(r.Err) != stream.Unsupported {
		t.Errorf("%+v", r)
	}
	c.Close(stream.ByClient)
}

// A must-process frame refused in Latest leaves a gap, and no window spans the gap.
func TestWindowsBehindARefusedFrame(t *testing.T) {
	c := newCutting(4, 4, 1, stream.PCM16, 1, stream.Policy{Mode: stream.Latest, Window: 1})
	submit := func(n int, must bool) error {
		f := c.frame(c.samples(n))
		f.Seq, f.Must = c.seq, must
		c.seq++
		return c.Submit(f)
	}
	if err := submit(6, true); err != nil { // a window, and two of the next
		t.Fatal(err)
	}
	if err := submit(1, true); stream.CodeOf(err) != stream.FlowControl {
		t.Fatal(err)
	}
	if err := submit(2, false); err != nil {
		t.Fatal(err)
	}
	if n := c.WaitingFrames(); n != 1 {
		t.Errorf("%d frames wait: two samples before a gap and two after it made a window", n)
	}
	c.Close(stream.ByClient)
	if n := c.mem.Stats().Leases; n != 0 {
		t.Fatalf("%d leases", n)
	}
}
