package codec

import (
	"encoding/binary"
	"image"
	"image/color"
	"math"
	"testing"
)

// Every encoding, to several sizes and channel orders: the middle of each quadrant must have the right colour.
func TestKnownPictures(t *testing.T) {
	sizes := [][2]int{{0, 0}, {48, 40}, {24, 20}, {12, 10}, {6, 5}, {31, 17}, {100, 90}, {48, 10}}
	for name, b := range quadPictures(t) {
		t.Run(name, func(t *testing.T) {
			colors := want(name)
			for _, size := range sizes {
				for _, c := range []Color{RGB, BGR, Gray} {
					for _, l := range []Layout{NHWC, NCHW} {
						tg := Target{Width: size[0], Height: size[1], Color: c, Layout: l}
						got, p := decode(t, b, tg)
						w, h := tg.Dims(48, 40)
						if p.Width != 48 || p.Height != 40 {
							t.Fatalf("placed as %dx%d", p.Width, p.Height)
						}
						for q, rgb := range colors {
							x, y := w/4+q%2*(w-w/2), h/4+q/2*(h-h/2)
							for ch := range c.Channels() {
								expect := rgb[ch]
								switch c {
								case BGR:
									expect = rgb[2-ch]
								case Gray:
									expect = (299*rgb[0] + 587*rgb[1] + 114*rgb[2] + 500) / 1000
								}
								at := (y*w+x)*c.Channels() + ch
								if l == NCHW {
									at = ch*w*h + y*w + x
								}
								if !near(int(got[at]), expect, 12) {
									t.Errorf("%v %v %v: quadrant %d channel %d is %d, want %d", size, c, l, q, ch,
										got[at], expect)
								}
							}
						}
					}
				}
			}
		})
	}
}

func TestLosslessIsExact(t *testing.T) {
	m := scene(61, 47)
	got, _ := decode(t, pngOf(t, m), Target{})
	if string(got) != string(packed(m)) {
		t.Fatal("PNG at its own size differs from what was encoded")
	}
}

// turn applies an EXIF orientation pixel by pixel: the place in the stored picture of the pixel (x, y) of a w by h
// upright picture.
func turn(o, x, y, w, h int) (int, int) {
	switch o {
	case 2:
		return w - 1 - x, y
	case 3:
		return w - 1 - x, h - 1 - y
	case 4:
		return x, h - 1 - y
	case 5:
		return y, x
	case 6:
		return y, w - 1 - x
	case 7:
		return h - 1 - y, w - 1 - x
	case 8:
		return h - 1 - y, x
	}
	return x, y
}

func TestOrientation(t *testing.T) {
	upright := scene(96, 64)
	for o := 1; o <= 8; o++ {
		sw, sh := 96, 64
		if o >= 5 {
			sw, sh = sh, sw
		}
		stored := image.NewRGBA(image.Rect(0, 0, sw, sh))
		for y := range 64 {
			for x := range 96 {
				sx, sy := turn(o, x, y, 96, 64)
				stored.Set(sx, sy, upright.At(x, y))
			}
		}
		var order binary.ByteOrder = binary.LittleEndian
		if o%2 == 0 {
			order = binary.BigEndian
		}
		b := withExif(jpegOf(t, stored, 98), o, order)
		info, err := Header(b)
		if err != nil {
			t.Fatal(err)
		}
		if w, h := info.Upright(); info.Orientation != o || w != 96 || h != 64 || info.Width != sw {
			t.Fatalf("orientation %d: header says %+v", o, info)
		}
		for _, tg := range []Target{{}, {Width: 48, Height: 32}, {Width: 70, Height: 70}, {Layout: NCHW}, {Type: FP32},
			{Width: 60, Height: 60, Fit: Letterbox, Type: FP32, Layout: NCHW}} {
			got, p := decode(t, b, tg)
			plain, want := decode(t, jpegOf(t, upright, 98), tg)
			if p != want {
				t.Fatalf("orientation %d: placed %+v, want %+v", o, p, want)
			}
			if tg.Type == FP32 {
				got, plain = bytesOf(got), bytesOf(plain)
			}
			for i := range plain {
				if !near(int(got[i]), int(plain[i]), 6) {
					t.Fatalf("orientation %d, %+v: byte %d is %d, want %d", o, tg, i, got[i], plain[i])
				}
			}
		}
	}
}

func bytesOf(f []byte) []byte {
	out := make([]byte, len(f)/4)
	for i := range out {
		out[i] = byte(math.Float32frombits(binary.LittleEndian.Uint32(f[4*i:])))
	}
	return out
}

func TestOrientationOfPNGAndWebP(t *testing.T) {
	p := pngOf(t, quad(48, 40))
	tiff := tiffOf(6, binary.BigEndian)
	for _, at := range []int{33, len(p) - 12} { // behind IHDR, and before IEND
		turned := append(append(append([]byte{}, p[:at]...), pngChunk("eXIf", tiff)...), p[at:]...)
		got, placed := decode(t, turned, Target{})
		if placed.Width != 40 || placed.Height != 48 || got[0] != 0 || got[2] != 255 {
			t.Fatalf("png, at %d: %+v, top left is %v, want blue", at, placed, got[:3])
		}
	}
	w := quadPictures(t)["lossless.webp"]
	body := append([]byte("VP8X\x0a\x00\x00\x00\x08\x00\x00\x00\x2f\x00\x00\x27\x00\x00"), w[12:]...)
	body = append(body, "EXIF"...)
	body = binary.LittleEndian.AppendUint32(body, uint32(len(tiff)))
	body = append(body, tiff...)
	w = append(binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(4+len(body))),
		append([]byte("WEBP"), body...)...)
	i, err := Header(w)
	if err != nil || i.Orientation != 6 || i.Width != 48 || i.Height != 40 {
		t.Fatalf("webp: %+v, %v", i, err)
	}
	got, _ := decode(t, w, Target{}) // a quarter clockwise: blue comes to the top left
	if got[0] > 2 || got[2] < 253 {
		t.Fatalf("webp: top left is %v, want blue", got[:3])
	}
}

func TestLetterbox(t *testing.T) {
	b := pngOf(t, quad(40, 20))
	tg := Target{Width: 64, Height: 64, Fit: Letterbox, Fill: 114}
	got, p := decode(t, b, tg)
	if p != (Placed{Width: 40, Height: 20, ScaleX: 0.625, ScaleY: 0.625, OffsetY: 16}) {
		t.Fatalf("placed %+v", p)
	}
	at := func(x, y int) [3]byte { return [3]byte(got[3*(64*y+x):]) }
	for _, y := range []int{0, 15, 48, 63} {
		if at(0, y) != [3]byte{114, 114, 114} || at(63, y) != [3]byte{114, 114, 114} {
			t.Errorf("row %d is not fill: %v", y, at(0, y))
		}
	}
	if at(0, 16) != [3]byte{255, 0, 0} || at(63, 47) != [3]byte{200, 200, 200} {
		t.Errorf("corners %v %v", at(0, 16), at(63, 47))
	}
	if x, y := p.ToFrame(64, 48); x != 40 || y != 20 {
		t.Errorf("bottom right corner maps to %v, %v", x, y)
	}

	// Bars at the sides, as floats: the fill is normalised like a pixel.
	tg = Target{Width: 64, Height: 10, Fit: Letterbox, Fill: 51, Type: FP32, Layout: NCHW,
		Norm: Norm{Scale: [3]float32{1. / 255, 1. / 255, 1. / 255}}}
	got, p = decode(t, b, tg)
	if p.OffsetX != 22 || p.OffsetY != 0 || p.ScaleX != 2 {
		t.Fatalf("placed %+v", p)
	}
	for c := range 3 {
		for _, x := range []int{0, 21, 42, 63} {
			v := float64(math.Float32frombits(binary.LittleEndian.Uint32(got[4*(c*640+5*64+x):])))
			if !(math.Abs(v-0.2) < 1e-6) {
				t.Errorf("channel %d at %d is %v, want 0.2", c, x, v)
			}
		}
	}
}

func TestNorm(t *testing.T) {
	m := image.NewRGBA(image.Rect(0, 0, 2, 2))
	for i := range 4 {
		m.Set(i%2, i/2, color.RGBA{10, 100, 250, 255})
	}
	n := Norm{Scale: [3]float32{1. / 255, 1. / 255, 1. / 255}, Mean: [3]float32{0.485, 0.456, 0.406},
		Std: [3]float32{0.229, 0.224, 0.225}}
	for _, l := range []Layout{NHWC, NCHW} {
		for _, c := range []Color{RGB, BGR} {
			got, _ := decode(t, pngOf(t, m), Target{Color: c, Layout: l, Type: FP32, Norm: n})
			px := [3]float64{10, 100, 250}
			if c == BGR {
				px[0], px[2] = px[2], px[0]
			}
			for i := range 12 {
				ch := i % 3
				if l == NCHW {
					ch = i / 4
				}
				expect := (px[ch]/255 - float64(n.Mean[ch])) / float64(n.Std[ch])
				if v := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])); math.Abs(float64(v)-expect) >
					1e-5 {
					t.Errorf("%v %v element %d: %v, want %v", l, c, i, v, expect)
				}
			}
		}
	}
}

// A decoder after many sizes, more than its table cache holds, gives the same result as a fresh decoder.
func TestDecoderIsReusable(t *testing.T) {
	d := NewDecoder(Limits{})
	pics := quadPictures(t)
	for round := range 2 {
		for name, b := range pics {
			for i := range 12 {
				tg := Target{Width: 5 + 7*i, Height: 50 - 3*i, Layout: Layout(i % 2), Color: Color(i % 3)}
				want, _ := decode(t, b, tg)
				got := make([]byte, len(want))
				if _, err := d.Decode(b, tg, got); err != nil {
					t.Fatal(err)
				}
				if string(got) != string(want) {
					t.Fatalf("round %d: %s to %dx%d differs from a fresh decoder's", round, name, tg.Width, tg.Height)
				}
			}
		}
		d.Close()
		d.Close()
	}
}

func TestEncode(t *testing.T) {
	m := scene(33, 21)
	b, err := EncodeJPEG([]byte("x"), packed(m), 33, 21, 95)
	if err != nil || b[0] != 'x' {
		t.Fatal(err)
	}
	got, _ := decode(t, b[1:], Target{})
	for i, v := range packed(m) {
		if !near(int(got[i]), int(v), 12) {
			t.Fatalf("byte %d is %d, want %d", i, got[i], v)
		}
	}
	for _, err := range []error{
		second(EncodeJPEG(nil, nil, 0, 0, 90)), second(EncodeJPEG(nil, make([]byte, 5), 1, 2, 90)),
		second(EncodeJPEG(nil, make([]byte, 6), 1, 2, 0)), second(EncodeJPEG(nil, nil, 1, -1, 90)),
	} {
		if err == nil {
			t.Error("bad arguments were taken")
		}
	}
}

func second(_ []byte, err error) error { return err }
