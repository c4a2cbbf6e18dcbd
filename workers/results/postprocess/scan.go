package postprocess

import (
	"math"
	"unsafe"
)

// reaching returns the first index from i on of a score of at least least, which is
// above 0, or len(scores). Most scores are far below, so that they are first tested in
// pairs: without their signs, the bits of floats are ordered like integers, and adding
// carry sets the sign bit of those from least on. Only the few pairs with a sign bit
// are compared as floats.
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
