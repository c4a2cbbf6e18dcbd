package workers

import (
	"bytes"
	"image"
	"image/png"
	"testing"

	"millrace/internal/bulk"
	"millrace/internal/codec"
	"millrace/stream"
	"millrace/stream/buf"
)

// decodingProbe is asked for memory when a picture is decoded.
type decodingProbe struct{ seen []int } // occupied processors

func (p *decodingProbe) Charge(int64) error {
	p.seen = append(p.seen, bulk.Occupied())
	return nil
}

func (*decodingProbe) Refund(int64) {}

// A picture being decoded beside the workers occupies a processor, so that long texts do not take the remaining
// processors.
func TestDecodingOccupiesAProcessor(t *testing.T) {
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 8, 8))); err != nil {
		t.Fatal(err)
	}
	g := &Group{mem: buf.NewPool(0)}
	g.model = &stream.Model{Image: &stream.ImageSpec{Width: 4, Height: 4, Color: "GRAY", Layout: "NHWC"}, Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{4, 4, 1}}}}
	prep, err := newPreparer(g.model, codec.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	probe := &decodingProbe{}
	prep.decoder.Memory = probe
	before := bulk.Occupied()
	r := &stream.Request{Frame: stream.Frame{Codec: stream.PNG, Payload: picture.Bytes()}}
	g.decodeHeavy(r, prep, nil)
	if r.Row == nil {
		t.Fatal("the picture was not decoded")
	}
	r.Row.Release()
	if len(probe.seen) != 1 || probe.seen[0] != before+1 || bulk.Occupied() != before {
		t.Errorf("%d processors were occupied before, %v meanwhile, %d afterwards", before, probe.seen, bulk.Occupied())
	}
}
