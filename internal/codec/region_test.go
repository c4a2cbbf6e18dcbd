package codec

import (
	"encoding/binary"
	"errors"
	"image"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// nv12Of is a picture of w by h in limited range, with luma from the green of m.
func nv12Of(m *image.RGBA) []byte {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	out := make([]byte, NV12.Size(w, h))
	for y := range h {
		for x := range w {
			c := m.RGBAAt(x, y)
			out[y*w+x] = byte(16 + 219*int(c.G)/255)
			at := w*h + 2*(y/2*((w+1)/2)+x/2)
			out[at], out[at+1] = byte(60+int(c.R)/2), byte(60+int(c.B)/2)
		}
	}
	return out
}

// form is a form of a picture, for decoding whole or in part.
type form struct {
	name          string
	width, height int // upright
	lossless      bool
	turned        bool // boxes of pixels are then averaged from another corner
	make          func(d *Decoder, tg Target, dst []byte) (Placed, error)
}

func forms(t *testing.T) (all []form) {
	coded := func(name string, lossless bool, b []byte) {
		info, err := Header(b)
		if err != nil {
			t.Fatal(name, err)
		}
		w, h := info.Upright()
		all = append(all, form{name, w, h, lossless, info.Orientation != 1,
			func(d *Decoder, tg Target, dst []byte) (Placed, error) {
				return d.Decode(b, tg, dst)
			}})
	}
	for o := 1; o <= 8; o++ {
		m := stored(scene(131, 97), o)
		coded("jpeg", false, withExif(jpegOf(t, m, 95), o, binary.BigEndian))
		b := pngOf(t, m)
		coded("png", true, append(append(b[:33:33], pngChunk("eXIf", tiffOf(o, binary.LittleEndian))...), b[33:]...))
	}
	for name, b := range quadPictures(t) { // all pixel types and subsamplings
		if !strings.HasPrefix(name, "animated") {
			coded(name, false, b)
		}
	}
	for _, f := range []RawFormat{RGB24, NV12, Gray8} {
		m := scene(113, 75)
		b := packed(m)
		switch f {
		case NV12:
			b = nv12Of(m)
		case Gray8:
			b = b[:113*75]
		}
		all = append(all, form{f.String(), 113, 75, f != NV12, false, func(d *Decoder, tg Target, dst []byte) (Placed,
			error) {
			return d.Convert(b, f, 113, 75, tg, dst)
		}})
	}
	return all
}

func (f *form) whole(t testing.TB) []byte {
	out := make([]byte, 3*f.width*f.height)
	if _, err := f.make(NewDecoder(Limits{}), Target{}, out); err != nil {
		t.Fatal(f.name, err)
	}
	return out
}

func drawRegion(t *rapid.T, w, h int) Region {
	var r Region
	r.X, r.Y = rapid.IntRange(0, w-1).Draw(t, "x"), rapid.IntRange(0, h-1).Draw(t, "y")
	r.Width, r.Height = rapid.IntRange(1, w-r.X).Draw(t, "width"), rapid.IntRange(1, h-r.Y).Draw(t, "height")
	return r
}

func cropRGB(rgb []byte, w int, r Region) (out []byte) {
	for y := range r.Height {
		at := 3 * ((r.Y+y)*w + r.X)
		out = append(out, rgb[at:at+3*r.Width]...)
	}
	return out
}

// A region at its own size is the same part of the whole picture, wherever the region begins. Only the colours of the
// outermost pixels may differ, in pictures with fewer samples than pixels: pixels beyond the region are not read.
func TestRegionAtItsSizeIsACrop(outer *testing.T) {
	all := forms(outer)
	wholes := map[int][]byte{}
	for i := range all {
		wholes[i] = all[i].whole(outer)
	}
	d := NewDecoder(Limits{})
	rapid.Check(outer, func(t *rapid.T) {
		i := rapid.IntRange(0, len(all)-1).Draw(t, "form")
		f := &all[i]
		r := drawRegion(t, f.width, f.height)
		want := cropRGB(wholes[i], f.width, r)
		tg := Target{Region: r, Layout: Layout(rapid.IntRange(0, 1).Draw(t, "layout"))}
		got := make([]byte, tg.Size(f.width, f.height))
		p, err := f.make(d, tg, got)
		if err != nil {
			t.Fatalf("%s %+v: %v", f.name, r, err)
		}
		if p != (Placed{Width: f.width, Height: f.height, ScaleX: 1, ScaleY: 1, OriginX: float64(r.X),
			OriginY: float64(r.Y)}) {
			t.Fatalf("%s %+v: placed %+v", f.name, r, p)
		}
		const rim = 2
		for y := range r.Height {
			for x := range r.Width {
				inside := x >= rim && y >= rim && x < r.Width-rim && y < r.Height-rim
				for c := range 3 {
					at := 3*(y*r.Width+x) + c
					from := at
					if tg.Layout == NCHW {
						from = (c*r.Height+y)*r.Width + x
					}
					if (inside || f.lossless) && got[from] != want[at] {
						t.Fatalf("%s %+v: channel %d of %d,%d is %d, want %d", f.name, r, c, x, y, got[from], want[at])
					}
				}
			}
		}
	})
}

// A region at another size looks like the same part of the whole picture at this size, however region and picture
// were shrunk.
func TestRegionResized(outer *testing.T) {
	var all []form
	for _, f := range forms(outer) {
		if f.width > 60 { // the smooth pictures
			all = append(all, f)
		}
	}
	d := NewDecoder(Limits{})
	rapid.Check(outer, func(t *rapid.T) {
		f := &all[rapid.IntRange(0, len(all)-1).Draw(t, "form")]
		r := drawRegion(t, f.width, f.height)
		part := cropRGB(f.whole(outer), f.width, r)
		tg := Target{Width: rapid.IntRange(1, 90).Draw(t, "tw"), Height: rapid.IntRange(1, 90).Draw(t, "th"),
			Fit: Fit(rapid.IntRange(0, 1).Draw(t, "fit"))}
		want := make([]byte, tg.Size(r.Width, r.Height))
		plain, err := d.Convert(part, RGB24, r.Width, r.Height, tg, want)
		if err != nil {
			t.Fatal(err)
		}
		tg.Region = r
		got := make([]byte, len(want))
		p, err := f.make(d, tg, got)
		if err != nil {
			t.Fatalf("%s %+v: %v", f.name, r, err)
		}
		plain.Width, plain.Height, plain.OriginX, plain.OriginY = f.width, f.height, float64(r.X), float64(r.Y)
		if p != plain {
			t.Fatalf("%s %+v: placed %+v, want %+v", f.name, r, p, plain)
		}
		for i := range want {
			if !near(int(got[i]), int(want[i]), 16) || f.lossless && !f.turned && got[i] != want[i] {
				t.Fatalf("%s %+v to %dx%d: byte %d is %d, want %d", f.name, r, tg.Width, tg.Height, i, got[i], want[i])
			}
		}
	})
}

func TestInvalidRegions(t *testing.T) {
	b := pngOf(t, scene(40, 30))
	d := NewDecoder(Limits{})
	for _, r := range []Region{
		{X: 1}, {Width: 40}, {Height: 30}, {X: 40, Width: 1, Height: 1}, {Y: 30, Width: 1, Height: 1},
		{X: -1, Width: 5, Height: 5},
		{X: 1, Width: 40, Height: 30}, {Y: 1, Width: 40, Height: 30}, {Width: 1 << 62, Height: 1 << 62, X: 1 << 62},
		{Width: -1, Height: -1},
	} {
		_, err := d.Decode(b, Target{Width: 8, Height: 8, Region: r}, make([]byte, 3*64))
		if !errors.Is(err, ErrRegion) || !strings.Contains(err.Error(), "40x30") {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if _, err := d.Decode(b, Target{Width: 8, Height: 8, Region: Region{39, 29, 1, 1}},
		make([]byte, 3*64)); err != nil {
		t.Error(err)
	}
}

// A region needs no allocation either, after the first of its size.
func TestRegionAllocatesNothing(t *testing.T) {
	raw := nv12Of(scene(64, 48))
	d := NewDecoder(Limits{})
	tg := Target{Width: 16, Height: 16}
	dst := make([]byte, 3*256)
	n := 0
	if got := testing.AllocsPerRun(100, func() {
		n = (n + 1) % 8
		tg.Region = Region{n, 7 - n, 40, 30}
		if _, err := d.Convert(raw, NV12, 64, 48, tg, dst); err != nil {
			t.Fatal(err)
		}
	}); got > 0 {
		t.Errorf("%v allocations", got)
	}
}

// The cost of a region of 320x240 of a camera's picture compared with the whole picture.
func BenchmarkRegion(b *testing.B) {
	picture := jpegOf(b, busy(1280, 720), 85)
	dst := make([]byte, 3*128*128)
	for name, r := range map[string]Region{"whole": {}, "part": {X: 501, Y: 203, Width: 320, Height: 240}} {
		b.Run(name, func(b *testing.B) {
			d := NewDecoder(Limits{})
			for b.Loop() {
				if _, err := d.Decode(picture, Target{Width: 128, Height: 128, Region: r}, dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
