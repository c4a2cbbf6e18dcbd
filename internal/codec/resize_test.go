package codec

import (
	"image"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// reference is the package's three steps written plainly in floats, for one channel of packed pixels.
func reference(pix []byte, ch, c, w, h, tw, th int) []float64 {
	f := shrinkFor(w, h, tw, th)
	sw, sh := (w+f-1)/f, (h+f-1)/f
	small := make([]float64, sw*sh)
	for y := range sh {
		for x := range sw {
			sum, n := 0.0, 0.0
			for yy := y * f; yy < min(y*f+f, h); yy++ {
				for xx := x * f; xx < min(x*f+f, w); xx++ {
					sum += float64(pix[(yy*w+xx)*ch+c])
					n++
				}
			}
			small[y*sw+x] = math.Floor(sum/n + 0.5)
		}
	}
	at := func(i, full, dst, count int) (int, int, float64) {
		p := (float64(i)+0.5)*float64(full)/float64(dst)/float64(f) - 0.5
		p = min(max(p, 0), float64(count-1))
		a := int(p)
		return a, min(a+1, count-1), p - float64(a)
	}
	out := make([]float64, tw*th)
	for y := range th {
		y0, y1, v := at(y, h, th, sh)
		for x := range tw {
			x0, x1, u := at(x, w, tw, sw)
			top := small[y0*sw+x0]*(1-u) + small[y0*sw+x1]*u
			low := small[y1*sw+x0]*(1-u) + small[y1*sw+x1]*u
			out[y*tw+x] = top*(1-v) + low*v
		}
	}
	return out
}

func TestResizeAgainstReference(t *testing.T) {
	d := NewDecoder(Limits{})
	rapid.Check(t, func(t *rapid.T) {
		w, h := rapid.IntRange(1, 90).Draw(t, "w"), rapid.IntRange(1, 90).Draw(t, "h")
		tw, th := rapid.IntRange(1, 70).Draw(t, "tw"), rapid.IntRange(1, 70).Draw(t, "th")
		format, ch := RGB24, 3
		tg := Target{Width: tw, Height: th, Layout: NCHW}
		if rapid.Bool().Draw(t, "gray") {
			format, ch, tg.Color = Gray8, 1, Gray
		}
		seed := rapid.Uint32().Draw(t, "seed")
		pix := make([]byte, format.Size(w, h))
		for i := range pix {
			seed = seed*1664525 + 1013904223
			pix[i] = byte(seed >> 24)
		}
		got := make([]byte, tg.Size(w, h))
		if _, err := d.Convert(pix, format, w, h, tg, got); err != nil {
			t.Fatal(err)
		}
		for c := range ch {
			for i, want := range reference(pix, ch, c, w, h, tw, th) {
				if g := float64(got[c*tw*th+i]); math.Abs(g-want) > 1 {
					t.Fatalf("%dx%d to %dx%d channel %d at %d: %v, want %v", w, h, tw, th, c, i, g, want)
				}
			}
		}
	})
}

// A picture of one column has no whole box to average.
func TestOneColumn(t *testing.T) {
	for _, h := range []int{1, 2, 3, 16, 17} {
		m := image.NewRGBA(image.Rect(0, 0, 1, h))
		for i := range m.Pix {
			m.Pix[i] = 200
			if i%4 == 3 {
				m.Pix[i] = 255
			}
		}
		for _, b := range [][]byte{pngOf(t, m), jpegOf(t, m, 95)} {
			for _, tg := range []Target{{Width: 1, Height: 2}, {Width: 1, Height: 1},
				{Width: 1, Height: 8, Color: Gray}, {Width: 16, Height: 2, Fit: Letterbox, Fill: 200}} {
				got, _ := decode(t, b, tg)
				for i, v := range got {
					if !near(int(v), 200, 2) {
						t.Fatalf("1x%d to %+v: byte %d is %d", h, tg, i, v)
					}
				}
			}
		}
	}
}

// nv12 encodes a frame of one colour, in limited range.
func nv12(w, h int, y, cb, cr byte) []byte {
	b := make([]byte, NV12.Size(w, h))
	for i := range b {
		switch {
		case i < w*h:
			b[i] = y
		case (i-w*h)%2 == 0:
			b[i] = cb
		default:
			b[i] = cr
		}
	}
	return b
}

func TestNV12(t *testing.T) {
	d := NewDecoder(Limits{})
	for _, tc := range []struct {
		y, cb, cr byte
		rgb       [3]int
		gray      int
	}{
		{16, 128, 128, [3]int{0, 0, 0}, 0}, {235, 128, 128, [3]int{255, 255, 255}, 255},
		{81, 90, 240, [3]int{255, 0, 0}, 76}, {145, 54, 34, [3]int{0, 255, 0}, 150},
		{41, 240, 110, [3]int{0, 0, 255}, 29},
	} {
		for _, size := range [][4]int{{8, 6, 8, 6}, {7, 5, 7, 5}, {64, 64, 16, 16}, {1, 1, 3, 3}, {9, 9, 20, 4}} {
			w, h := size[0], size[1]
			frame := nv12(w, h, tc.y, tc.cb, tc.cr)
			got := make([]byte, 3*size[2]*size[3])
			if _, err := d.Convert(frame, NV12, w, h, Target{Width: size[2], Height: size[3]}, got); err != nil {
				t.Fatal(err)
			}
			for i, v := range got {
				if !near(int(v), tc.rgb[i%3], 2) {
					t.Fatalf("%v: byte %d of %+v is %d", size, i, tc, v)
				}
			}
			gray := make([]byte, size[2]*size[3])
			if _, err := d.Convert(frame, NV12, w, h, Target{Width: size[2], Height: size[3], Color: Gray},
				gray); err != nil {
				t.Fatal(err)
			}
			if !near(int(gray[0]), tc.gray, 2) {
				t.Fatalf("%v: luma of %+v is %d", size, tc, gray[0])
			}
		}
	}
}

func TestConvertRefuses(t *testing.T) {
	d := NewDecoder(Limits{MaxPixels: 100})
	for name, tc := range map[string]struct {
		f      RawFormat
		n      int
		w, h   int
		tg     Target
		dstLen int
	}{
		"no width":       {RGB24, 0, 0, 4, Target{}, 0},
		"negative":       {RGB24, 12, -2, -2, Target{}, 12},
		"format":         {99, 12, 2, 2, Target{}, 12},
		"short frame":    {RGB24, 11, 2, 2, Target{}, 12},
		"long frame":     {NV12, 7, 2, 2, Target{}, 12},
		"over the limit": {Gray8, 121, 11, 11, Target{}, 363},
		"dst":            {RGB24, 12, 2, 2, Target{}, 11},
		"target":         {RGB24, 12, 2, 2, Target{Width: -1}, 12},
	} {
		if _, err := d.Convert(make([]byte, tc.n), tc.f, tc.w, tc.h, tc.tg, make([]byte, tc.dstLen)); err == nil {
			t.Errorf("%s: was accepted", name)
		}
	}
}
