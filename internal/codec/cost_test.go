package codec

import (
	"bytes"
	"image"
	"testing"
	"time"
)

// Pictures of common sizes are cheap. The largest allowed pictures are not cheap, by pixels, bytes or scans. Cost
// allocates nothing.
func TestCost(t *testing.T) {
	const heavy = 25 * time.Millisecond
	for name, c := range map[string]struct {
		b     []byte
		heavy bool
	}{
		"jpeg 640x480":        {jpegOf(t, scene(640, 480), 90), false},
		"jpeg 1920x1080":      {jpegOf(t, scene(1920, 1080), 90), false},
		"png 640x480":         {pngOf(t, scene(640, 480)), false},
		"png 4096x4096":       {pngOf(t, image.NewGray(image.Rect(0, 0, 4096, 4096))), true},
		"webp 4096x4096":      {riff("VP8L", vp8l(4096, 4096)), true},
		"webp of many bytes":  {riff("VP8 ", vp8(640, 480)+string(make([]byte, 1<<20))), true},
		"jpeg of many scans":  {scansOf(t, 1024, 100), true},
		"jpeg of three scans": {scansOf(t, 1024, 3), false},
	} {
		info, err := Limits{}.Header(c.b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := info.Cost(len(c.b)); got >= heavy != c.heavy {
			t.Errorf("%s: %v", name, got)
		}
		if n := testing.AllocsPerRun(10, func() { _ = info.Cost(len(c.b)) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// scansOf is the header of a progressive picture, with the given number of scan headers.
func scansOf(t *testing.T, side, scans int) []byte {
	b := jpegResized(jpegOf(t, scene(64, 48), 90), side, side)
	i := bytes.Index(b, []byte{0xff, 0xc0})
	if i < 0 {
		t.Fatal("no frame header")
	}
	b[i+1] = 0xc2
	return append(b, bytes.Repeat([]byte{0xff, 0xda, 0, 8, 1, 1, 0, 1, 1, 0}, scans-1)...)
}
