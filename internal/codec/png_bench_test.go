package codec

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
	"math/rand/v2"
	"testing"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
)

// photo is like the picture of a phone's camera: smooth areas, edges, and noise of the sensor.
func photo(w, h int) *image.RGBA {
	random := rand.New(rand.NewPCG(5, 6))
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			fx, fy := float64(x)/float64(w), float64(y)/float64(h)
			light := 90 + 80*math.Sin(5*fx+2*fy) + 30*math.Cos(23*fx*fy)
			if math.Hypot(fx-0.5, fy-0.4) < 0.2 || (x/97+y/131)%7 == 0 {
				light += 40
			}
			noise := random.NormFloat64() * 2
			p := m.Pix[m.PixOffset(x, y):]
			for c, gain := range [3]float64{1, 0.9, 0.75} {
				p[c] = byte(max(0, min(255, light*gain+noise+random.NormFloat64()*1.5)))
			}
			p[3] = 255
		}
	}
	return m
}

// screen is like a screenshot: a toolbar with a gradient, and windows with text or gradients.
func screen(tb testing.TB, w, h int, text bool) *image.RGBA {
	tb.Helper()
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			c := color.RGBA{byte(225 - y/40), byte(232 - y/50), 240, 255}
			if !text && y > 60 {
				c = color.RGBA{byte(40 + 160*x/w), byte(60 + 120*y/h), byte(120 + 100*(x+y)/(w+h)), 255}
			}
			m.SetRGBA(x, y, c)
		}
	}
	draw.Draw(m, image.Rect(40, 80, w/2, h-40), image.White, image.Point{}, draw.Src)
	parsed, err := opentype.Parse(goregular.TTF)
	if err != nil {
		tb.Fatal(err)
	}
	face, err := opentype.NewFace(parsed, &opentype.FaceOptions{Size: 15, DPI: 96, Hinting: font.HintingFull})
	if err != nil {
		tb.Fatal(err)
	}
	random := rand.New(rand.NewPCG(7, 8))
	right := w/2 - 60
	if text {
		right = w - 60
		draw.Draw(m, image.Rect(w/2+20, 80, w-40, h-40), image.White, image.Point{}, draw.Src)
	}
	d := font.Drawer{Dst: m, Src: image.NewUniform(color.RGBA{30, 30, 34, 255}), Face: face}
	for y := 110; y < h-50; y += 24 {
		d.Dot = fixed.P(50, y)
		for d.Dot.X.Round() < right-80 {
			word := make([]byte, 2+random.IntN(8))
			for i := range word {
				word[i] = byte('a' + random.IntN(26))
			}
			d.DrawString(string(word) + " ")
		}
	}
	return m
}

// withAlpha is m with an alpha channel, as screenshots of macOS and Android have: all pixels but one are opaque,
// since image/png writes no alpha channel otherwise.
func withAlpha(m *image.RGBA) *image.NRGBA {
	n := &image.NRGBA{Pix: bytes.Clone(m.Pix), Stride: m.Stride, Rect: m.Rect}
	n.Pix[3] = 254
	return n
}

// phonePictures are the PNGs for which this package has a decoder of its own.
func phonePictures(tb testing.TB) []namedPNG {
	text, gradient := screen(tb, 1920, 1080, true), screen(tb, 1920, 1080, false)
	return []namedPNG{
		{"photo12MP-RGB", pngOf(tb, photo(4000, 3000))},
		{"text-RGB", pngOf(tb, text)},
		{"text-RGBA", pngOf(tb, withAlpha(text))},
		{"gradient-RGB", pngOf(tb, gradient)},
		{"gradient-RGBA", pngOf(tb, withAlpha(gradient))},
	}
}

type namedPNG struct {
	name string
	file []byte
}

// decodeImagePNG decodes a PNG with image/png.
func decodeImagePNG(d *Decoder, b []byte, tg Target, dst []byte) error {
	info, err := d.Limits.Header(b)
	if err != nil {
		return err
	}
	j := job{info: info, target: &tg, dst: dst}
	if err := j.place(info.Width, info.Height); err != nil {
		return err
	}
	m, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		return err
	}
	return d.drawImage(m, &j)
}

// BenchmarkPNG compares decoding into a model's input of 640x640 with image/png and the same resizing.
func BenchmarkPNG(b *testing.B) {
	tg := Target{Width: 640, Height: 640, Fit: Letterbox, Fill: 114}
	dst := make([]byte, tg.Size(0, 0))
	for _, p := range phonePictures(b) {
		run := func(name string, decode func(d *Decoder) error) {
			b.Run(p.name+"/"+name, func(b *testing.B) {
				d := NewDecoder(Limits{})
				b.ReportAllocs()
				for b.Loop() {
					if err := decode(d); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("own", func(d *Decoder) error { _, err := d.Decode(p.file, tg, dst); return err })
		run("image-png", func(d *Decoder) error { return decodeImagePNG(d, p.file, tg, dst) })
	}
}
