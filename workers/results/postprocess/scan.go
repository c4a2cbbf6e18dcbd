package postprocess

import (
	"math"
	"unsafe"
)

// reaching returns the first index from i on of a score of at least least, or len(scores). least is above 0. Most
// scores are far below least, so a fast test of pairs comes first: without signs, the bits of floats are ordered like
// integers, and adding carry sets the sign bit of exactly the scores from least on. Only the few pairs with a sign
// bit are compared as floats.
func reaching(scores []float32, i int, least float32) int {
	const signs = 1<<63 | 1<<31
	carry := uint64(1<<31-math.Float32bits(least)) * (1<<32 | 1)
	for ; i+16 <= len(scores); i += 16 {
		p := (*[8]uint64)(unsafe.Pointer((*[16]float32)(scores[i:])))
		if ((p[0]&^signs+carry)|(p[1]&^signs+carry)|(p[2]&^signs+carry)|(p[3]&^signs+carry)|
			(p[4]&^signs+carry)|(p[5]&^signs+carry)|(p[6]&^signs+carry)|(p[7]&^signs+carry))&signs != 0 {
			break
		}
	}
	for i < len(scores) && !(scores[i] >= least) {
		i++
	}
	return i
}

// firstOutOfRange returns the first index of a score outside of 0..1 by more than scoreSlack, or len(scores). NaN is
// outside. As in reaching, a fast test of pairs comes first: only pairs with a sign bit, before or after adding carry,
// are compared as floats.
func firstOutOfRange(scores []float32) int {
	const signs = 1<<63 | 1<<31
	const limit = 1 + scoreSlack
	carry := uint64(1<<31-math.Float32bits(limit)-1) * (1<<32 | 1)
	i := 0
	for i < len(scores) {
		if i+16 <= len(scores) {
			p := (*[8]uint64)(unsafe.Pointer((*[16]float32)(scores[i:])))
			if (p[0]|p[1]|p[2]|p[3]|p[4]|p[5]|p[6]|p[7]|
				(p[0]&^signs+carry)|(p[1]&^signs+carry)|(p[2]&^signs+carry)|(p[3]&^signs+carry)|
				(p[4]&^signs+carry)|(p[5]&^signs+carry)|(p[6]&^signs+carry)|(p[7]&^signs+carry))&signs == 0 {
				i += 16
				continue
			}
		}
		for end := min(i+16, len(scores)); i < end; i++ {
			if !isScore(scores[i]) {
				return i
			}
		}
	}
	return i
}
