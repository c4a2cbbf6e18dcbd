package motion

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Vectors and single pixels give the same results.
func TestVectorsOfPixels(t *testing.T) {
	if !hasAVX2 {
		t.Log("this processor has no AVX2: both are the same")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	extreme := []int{0, 1, 254, 255}
	pick := func(most int) int {
		if rng.IntN(4) == 0 {
			return min(extreme[rng.IntN(len(extreme))]*(most/255), most)
		}
		return rng.IntN(most + 1)
	}
	for range 20000 {
		n := 1 + rng.IntN(64)
		px, mean, noise := make([]byte, n), make([]uint16, n), make([]uint8, n)
		for i := range px {
			px[i], mean[i], noise[i] = byte(pick(255)), uint16(pick(65535)), uint8(pick(255))
			if rng.IntN(2) == 0 { // near the background
				mean[i] = uint16(min(max(int(px[i])*one+rng.IntN(8*one)-4*one, 0), 65535))
			}
		}
		light := uint64(lightUnit*7/8 + rng.IntN(lightUnit/4+1))
		least, share := int32(rng.IntN(255*one)), int32(rng.IntN(1<<shareBits+1))
		mean2, noise2 := slices.Clone(mean), slices.Clone(noise)
		word, seen, expected := compare(px, mean, noise, light, least, share)
		word2, seen2, expected2 := compareEach(px, mean2, noise2, light, least, share)
		if word != word2 || seen != seen2 || expected != expected2 || !slices.Equal(mean, mean2) ||
			!slices.Equal(noise, noise2) {
			t.Fatalf("%d pixels %v in light %d, least %d, share %d: %#x %d %d %v, want %#x %d %d %v",
				n, px, light, least, share, word, seen, expected, mean, word2, seen2, expected2, mean2)
		}
		estimate(px, mean, noise, word)
		estimateEach(px, mean2, noise2, word)
		if !slices.Equal(mean, mean2) || !slices.Equal(noise, noise2) {
			t.Fatalf("%d pixels %v of %v, marked %#x: %v, want %v", n, px, mean, word, noise, noise2)
		}
	}
}
