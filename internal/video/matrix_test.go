package video

import (
	"math"
	"testing"
)

// toRGB returns the colours of a pixel with limited range: Y'CbCr with the shares kr and kb of red and blue in the luma
// (ITU-R BT.601-7, 2.5).
func toRGB(y, u, v int, kr, kb float64) [3]float64 {
	luma, cb, cr := float64(y-16)/219, float64(u-128)/224, float64(v-128)/224
	r, b := luma+2*(1-kr)*cr, luma+2*(1-kb)*cb
	return [3]float64{r, (luma - kr*r - kb*b) / (1 - kr - kb), b}
}

// A pixel of each matrix has the same colours in BT.601, for all colours that RGB has.
func TestMatrix(t *testing.T) {
	for name, k := range lumas {
		m := matrixFrom(name)
		worst := 0.
		for y := 16; y <= 235; y += 3 {
			for u := 16; u <= 240; u += 4 {
				for v := 16; v <= 240; v += 4 {
					want := toRGB(y, u, v, k[0], k[1])
					if min(want[0], want[1], want[2]) < 0 || max(want[0], want[1], want[2]) > 1 {
						continue
					}
					b := []byte{byte(y), byte(y), byte(y), byte(y), byte(u), byte(v)}
					m.apply(b, 2, 2)
					if b[0] != b[1] || b[0] != b[2] || b[0] != b[3] {
						t.Fatalf("%s: the pixels of a square differ: %v", name, b)
					}
					got := toRGB(int(b[0]), int(b[4]), int(b[5]), .299, .114)
					for i := range got {
						worst = max(worst, math.Abs(got[i]-want[i]))
					}
				}
			}
		}
		if worst > 1.6/219 { // half a step of Y, U and V each
			t.Errorf("%s: a difference of %.2f of 219", name, worst*219)
		}
	}
	for _, name := range []string{"", "smpte170m", "bt470bg", "unknown"} {
		if matrixFrom(name) != nil {
			t.Errorf("frames of %q are changed", name)
		}
	}
}

// Frames of odd sides are changed to the last pixel, and not beyond.
func TestMatrixOfOddSides(t *testing.T) {
	for _, s := range []size{{1, 1}, {3, 3}, {5, 2}, {2, 5}} {
		n := NV12.size(s.w, s.h)
		b := make([]byte, n+1)
		for i := range b[:n] {
			b[i] = 100
		}
		matrixFrom("bt709").apply(b[:n], s.w, s.h)
		for i := range b[:n] {
			if i < s.w*s.h && b[i] != b[0] || b[i] == 100 {
				t.Errorf("%v: %v", s, b)
				break
			}
		}
	}
}

func BenchmarkMatrix(b *testing.B) {
	const w, h = 640, 360
	m, frame := matrixFrom("bt709"), make([]byte, NV12.size(w, h))
	for i := range frame {
		frame[i] = byte(i*7 + i/1000)
	}
	for b.Loop() {
		m.apply(frame, w, h)
	}
}
