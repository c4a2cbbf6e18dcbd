package codec

import (
	"encoding/binary"
	"math"
	"testing"
)

// halfValue is the number of FP16 with these bits.
func halfValue(h uint16) float64 {
	sign := 1.0
	if h&0x8000 != 0 {
		sign = -1
	}
	exponent, fraction := int(h>>10&31), float64(h&1023)
	switch exponent {
	case 0:
		return sign * math.Ldexp(fraction, -24)
	case 31:
		return sign * math.Inf(1)
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

func TestHalfOf(t *testing.T) {
	for h := range 0x7c00 {
		v := halfValue(uint16(h))
		next := halfValue(uint16(h + 1))
		if h == 0x7bff {
			next = 65536
		}
		middle := (v + next) / 2
		even := uint16(h + h&1)
		for f, want := range map[float32]uint16{float32(v): uint16(h), float32(middle): even,
			math.Nextafter32(float32(middle), 0): uint16(h), math.Nextafter32(float32(middle), 1e9): uint16(h + 1)} {
			if got := Half(f); got != want {
				t.Fatalf("%v: %#x, want %#x", f, got, want)
			}
			if got := Half(-f); got != want|0x8000 {
				t.Fatalf("-%v: %#x, want %#x", f, got, want|0x8000)
			}
		}
	}
	inf := float32(math.Inf(1))
	if Half(inf) != 0x7c00 || Half(-inf) != 0xfc00 || Half(1e30) != 0x7c00 ||
		Half(float32(math.NaN()))&0x7fff <= 0x7c00 {
		t.Error("infinity or NaN")
	}
}

// A picture in FP16 is the picture in FP32, rounded, for each layout and order of channels.
func TestHalfPictures(t *testing.T) {
	const w, h = 7, 5
	pixels := make([]byte, 3*w*h)
	for i := range pixels {
		pixels[i] = byte(37 * i)
	}
	d := NewDecoder(Limits{})
	defer d.Close()
	for _, target := range []Target{
		{Layout: NCHW, Norm: Norm{Scale: [3]float32{1. / 255, 1. / 255, 1. / 255}, Mean: [3]float32{0.5, 0.4, 0.3}}},
		{Layout: NHWC, Color: BGR}, {Width: 11, Height: 11, Layout: NCHW, Fit: Letterbox, Fill: 114},
		{Width: 3, Height: 4, Color: Gray},
	} {
		full, half := target, target
		full.Type, half.Type = FP32, FP16
		a, b := make([]byte, full.Size(w, h)), make([]byte, half.Size(w, h))
		for range 2 { // a change of type makes a new table of numbers
			if _, err := d.Convert(pixels, RGB24, w, h, full, a); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Convert(pixels, RGB24, w, h, half, b); err != nil {
				t.Fatal(err)
			}
		}
		for i := range len(a) / 4 {
			want := Half(math.Float32frombits(binary.LittleEndian.Uint32(a[4*i:])))
			if got := binary.LittleEndian.Uint16(b[2*i:]); got != want {
				t.Fatalf("%+v: number %d is %#x, want %#x", target, i, got, want)
			}
		}
	}
}
