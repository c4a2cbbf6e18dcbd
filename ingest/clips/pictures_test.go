package clips

import (
	"testing"

	"millrace/stream"
	"millrace/stream/buf"
)

// A frame is kept for the pictures of events until each model has answered, in any order, and no longer.
func TestPictureFrames(t *testing.T) {
	memory := buf.NewPool(1 << 20)
	var p Pictures
	for seq := range uint64(3) {
		lease, err := memory.Lease(1)
		if err != nil {
			t.Fatal(err)
		}
		p.Add(stream.Frame{Seq: seq, Lease: lease}, 2)
		lease.Release()
	}
	for _, seq := range []uint64{2, 1, 0} { // the first model
		p.take(seq).Lease.Release()
		p.Drop(seq)
	}
	for _, seq := range []uint64{0, 1, 2} {
		f := p.take(seq)
		if f.Lease == nil {
			t.Fatalf("frame %d was dropped before the answer of the second model", seq)
		}
		f.Lease.Release()
		p.Drop(seq)
	}
	if n := memory.Stats().Leases; n != 0 {
		t.Errorf("%d frames are kept after all answers", n)
	}
}
