package motion

import (
	"math/rand/v2"
	"testing"
)

// A pixel of a dilated mask is set when a pixel is set in the surrounding square.
func TestGrow(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		w, h, r := 1+rng.IntN(200), 1+rng.IntN(30), rng.IntN(80)
		src, got, tmp := newMask(w, h), newMask(w, h), newMask(w, h)
		set := map[[2]int]bool{}
		for range rng.IntN(5) {
			x, y := rng.IntN(w), rng.IntN(h)
			if rng.IntN(2) == 0 { // at a border
				x = (w - 1) * rng.IntN(2)
			}
			set[[2]int{x, y}] = true
			src.row(y)[x>>6] |= 1 << uint(x&63)
		}
		got.grow(&src, &tmp, r)
		for y := range h {
			for x := range 64 * src.stride {
				want := false
				for at := range set {
					want = want || x < w && max(at[0]-x, x-at[0], at[1]-y, y-at[1]) <= r
				}
				if is := got.row(y)[x>>6]>>uint(x&63)&1 == 1; is != want {
					t.Fatalf("%dx%d dilated by %d: %d, %d is %v; set are %v", w, h, r, x, y, is, set)
				}
			}
		}
	}
}
