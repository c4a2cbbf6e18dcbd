package codec

import (
	"bytes"
	"image"
	"image/color"
	"image/jpeg"
	"testing"
)

// scene is a smooth picture with a known value at each place.
func scene(w, h int) *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			m.SetRGBA(x, y, color.RGBA{byte(255 * x / max(w-1, 1)), byte(255 * y / max(h-1, 1)), byte(128 + 100*(x-y)/(w+h)), 255})
		}
	}
	return m
}

func jpegOf(t testing.TB, m image.Image, q int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, &jpeg.Options{Quality: q}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSmoke(t *testing.T) {
	d := NewDecoder(Limits{})
	defer d.Close()
	b := jpegOf(t, scene(640, 480), 95)
	for _, tc := range []Target{{}, {Width: 320, Height: 240}, {Width: 224, Height: 224, Layout: NCHW}, {Width: 100, Height: 100, Fit: Letterbox, Type: FP32}, {Width: 900, Height: 900, Color: Gray}} {
		dst := make([]byte, tc.Size(640, 480))
		p, err := d.Decode(b, tc, dst)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(p, dst[len(dst)/2:len(dst)/2+6])
	}
}
