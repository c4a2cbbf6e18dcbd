package codec

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// scene is a smooth picture with a different value at each place.
func scene(w, h int) *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			m.SetRGBA(x, y, color.RGBA{byte(255 * x / max(w-1, 1)), byte(255 * y / max(h-1, 1)),
				byte(128 + 100*(x-y)/(w+h)), 255})
		}
	}
	return m
}

// busy is waves of several lengths: every block has something to decode.
func busy(w, h int) *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			fx, fy := float64(x), float64(y)
			m.SetRGBA(x, y, color.RGBA{byte(128 + 60*math.Sin(fx/9) + 30*math.Sin(fx*fy/500)),
				byte(128 + 60*math.Sin(fy/7) + 30*math.Sin((fx+fy)/2)), byte(128 + 90*math.Cos((fx+fy)/11)), 255})
		}
	}
	return m
}

func packed(m *image.RGBA) []byte {
	out := make([]byte, 0, 3*len(m.Pix)/4)
	for i := 0; i < len(m.Pix); i += 4 {
		out = append(out, m.Pix[i:i+3]...)
	}
	return out
}

// quad is the picture of testdata: red and green over blue and gray 200.
var quadColors = [4][3]int{{255, 0, 0}, {0, 255, 0}, {0, 0, 255}, {200, 200, 200}}

func quad(w, h int) *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			c := quadColors[y/(h/2)*2+x/(w/2)]
			m.SetRGBA(x, y, color.RGBA{byte(c[0]), byte(c[1]), byte(c[2]), 255})
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

func pngOf(t testing.TB, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// redraw copies a picture into another pixel type.
func redraw[T interface {
	image.Image
	Set(x, y int, c color.Color)
}](dst T, src image.Image, alpha uint16) T {
	b := src.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			r, g, b, _ := src.At(x, y).RGBA()
			dst.Set(x, y, color.NRGBA64{uint16(r), uint16(g), uint16(b), alpha})
		}
	}
	return dst
}

// quadPictures is the quadrants in every encoding; pictures with alpha are half transparent, so half as bright on
// black.
func quadPictures(t testing.TB) map[string][]byte {
	t.Helper()
	const w, h = 48, 40
	all := map[string][]byte{}
	files, err := filepath.Glob("testdata/*.*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if name := filepath.Base(f); name != "generate.sh" {
			all[name] = b
		}
	}
	q, box := quad(w, h), image.Rect(0, 0, w, h)
	all["420.jpg"] = jpegOf(t, q, 95)
	all["rgb.png"] = pngOf(t, q)
	all["gray.png"] = pngOf(t, redraw(image.NewGray(box), q, 0xffff))
	all["gray16.png"] = pngOf(t, redraw(image.NewGray16(box), q, 0xffff))
	all["rgb16.png"] = pngOf(t, redraw(image.NewRGBA64(box), q, 0xffff))
	all["alpha.png"] = pngOf(t, redraw(image.NewNRGBA(box), q, 0x8080))
	all["alpha16.png"] = pngOf(t, redraw(image.NewNRGBA64(box), q, 0x8080))
	var opaque, clear color.Palette
	for _, c := range quadColors {
		opaque = append(opaque, color.NRGBA{byte(c[0]), byte(c[1]), byte(c[2]), 255})
		clear = append(clear, color.NRGBA{byte(c[0]), byte(c[1]), byte(c[2]), 128})
	}
	all["palette.png"] = pngOf(t, redraw(image.NewPaletted(box, opaque), q, 0xffff))
	all["alpha-palette.png"] = pngOf(t, redraw(image.NewPaletted(box, clear), q, 0x8080))
	return all
}

// want is the RGB colours of the quadrants of a picture.
func want(name string) [4][3]int {
	out := quadColors
	for i, c := range out {
		if strings.HasPrefix(name, "gray") {
			l := (299*c[0] + 587*c[1] + 114*c[2] + 500) / 1000
			out[i] = [3]int{l, l, l}
		}
		if strings.HasPrefix(name, "alpha") {
			out[i] = [3]int{c[0] / 2, c[1] / 2, c[2] / 2}
		}
	}
	return out
}

// withExif puts an EXIF segment with an orientation behind a JPEG's first marker.
func withExif(b []byte, orientation int, o binary.ByteOrder) []byte {
	tiff := tiffOf(orientation, o)
	out := append([]byte{}, b[:2]...)
	out = append(out, 0xff, 0xe1)
	out = binary.BigEndian.AppendUint16(out, uint16(2+6+len(tiff)))
	out = append(out, "Exif\x00\x00"...)
	return append(append(out, tiff...), b[2:]...)
}

func tiffOf(orientation int, o binary.ByteOrder) []byte {
	t := make([]byte, 8+2+2*12+4)
	copy(t, "MM\x00*")
	if o == binary.LittleEndian {
		copy(t, "II*\x00")
	}
	o.PutUint32(t[4:], 8)
	o.PutUint16(t[8:], 2)
	o.PutUint16(t[10:], 0x010f) // maker, to be passed over
	o.PutUint16(t[22:], 0x0112)
	o.PutUint16(t[24:], 3)
	o.PutUint32(t[26:], 1)
	o.PutUint16(t[30:], uint16(orientation))
	return t
}

// decode is Decode into a slice of the right size.
func decode(t testing.TB, b []byte, tg Target) ([]byte, Placed) {
	t.Helper()
	d := NewDecoder(Limits{})
	defer d.Close()
	info, err := Header(b)
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, tg.Size(info.Upright()))
	p, err := d.Decode(b, tg, dst)
	if err != nil {
		t.Fatal(err)
	}
	return dst, p
}

func near(a, b, tolerance int) bool { return a-b <= tolerance && b-a <= tolerance }
