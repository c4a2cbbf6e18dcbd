package motion

import "golang.org/x/sys/cpu"

var hasAVX2 = cpu.X86.HasAVX2

// compareAVX2 is compareEach for n pixels, a multiple of 16 from 16 to 64. delta is the light
// minus lightUnit, from -lightUnit/8 to lightUnit/8.
//
//go:noescape
func compareAVX2(px *byte, mean *uint16, noise *uint8, n int, delta, least,
	share int32) (word uint64, seen, expected int32)

// estimateAVX2 is estimateEach for n pixels, a multiple of 8 from 8 to 64.
//
//go:noescape
func estimateAVX2(px *byte, mean *uint16, noise *uint8, n int, word uint64)

func compare(px []byte, mean []uint16, noise []uint8, light uint64, least,
	share int32) (word uint64, seen, expected int32) {
	n := len(px) &^ 15
	if !hasAVX2 || n == 0 {
		return compareEach(px, mean, noise, light, least, share)
	}
	_, _ = mean[n-1], noise[n-1]
	word, seen, expected = compareAVX2(&px[0], &mean[0], &noise[0], n, int32(light)-lightUnit, least, share)
	if n < len(px) {
		rest, s, e := compareEach(px[n:], mean[n:], noise[n:], light, least, share)
		word, seen, expected = word|rest<<uint(n), seen+s, expected+e
	}
	return word, seen, expected
}

func estimate(px []byte, mean []uint16, noise []uint8, word uint64) {
	n := len(px) &^ 7
	if hasAVX2 && n > 0 {
		_, _ = mean[n-1], noise[n-1]
		estimateAVX2(&px[0], &mean[0], &noise[0], n, word)
		px, mean, noise, word = px[n:], mean[n:], noise[n:], word>>uint(n)
	}
	estimateEach(px, mean, noise, word)
}
