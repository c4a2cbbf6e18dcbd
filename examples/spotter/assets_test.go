package spotter

import (
	"bytes"
	"testing"

	"millrace/internal/clip/truth"
)

// The truth is about the clip: frames of the model's size, in which every object is a digit.
func TestTruth(t *testing.T) {
	tr, err := truth.Read(bytes.NewReader(Truth))
	if err != nil {
		t.Fatal(err)
	}
	if tr.Width != 320 || tr.Height != 240 || tr.FPS != 30 || len(tr.Frames) < 300 {
		t.Errorf("%dx%d, %g frames a second, %d frames; want 320x240, 30, at least 300", tr.Width, tr.Height, tr.FPS,
			len(tr.Frames))
	}
	seen := map[int]bool{}
	for _, f := range tr.Frames {
		for _, o := range f.Objects {
			if o.Class == nil || *o.Class > 9 {
				t.Fatalf("frame %d: object %d is no digit", f.Index, o.ID)
			}
			seen[*o.Class] = true
		}
	}
	if len(seen) < 4 {
		t.Errorf("only the digits %v", seen)
	}
}

func TestSizes(t *testing.T) {
	if len(Model) == 0 || len(Model) > 1<<20 {
		t.Errorf("the model has %d bytes; want at most 1 MiB", len(Model))
	}
	if len(Clip) == 0 || len(Clip) > 2<<20 {
		t.Errorf("the clip has %d bytes; want at most 2 MiB", len(Clip))
	}
}
