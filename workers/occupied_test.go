package workers

import (
	"bytes"
	"image"
	"image/png"
	"testing"

	"millrace/internal/codec"
	"millrace/internal/processors"
	"millrace/stream"
	"millrace/stream/buf"
)

// decodingProbe is asked for memory when a picture is decoded.
type decodingProbe struct {
	turns *processors.Turns
	seen  []int // numbers of occupied processors
}

func (p *decodingProbe) Charge(int64) error {
	p.seen = append(p.seen, p.turns.Occupied())
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
	turns := processors.NewTurns(2)
	g := &Group{mem: buf.NewPool(0), common: common{turns: turns}}
	g.model = &stream.Model{Image: &stream.ImageSpec{Width: 4, Height: 4, Color: "GRAY", Layout: "NHWC"},
		Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{4, 4, 1}}}}
	prep, err := newPreparer(g.model, codec.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	probe := &decodingProbe{turns: turns}
	prep.decoder.Memory = probe
	r := &stream.Request{Frame: stream.Frame{Codec: stream.PNG, Payload: picture.Bytes()}}
	g.decodeHeavy(r, prep, nil)
	if r.Row == nil {
		t.Fatal("the picture was not decoded")
	}
	r.Row.Release()
	if len(probe.seen) != 1 || probe.seen[0] != 1 || turns.Occupied() != 0 {
		t.Errorf("%v processors were occupied meanwhile, %d afterwards", probe.seen, turns.Occupied())
	}
}
