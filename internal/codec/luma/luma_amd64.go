package luma

import "golang.org/x/sys/cpu"

var hasAVX2 = cpu.X86.HasAVX2

// fullAVX2 is Full for n bytes, a multiple of 32 above 0.
//
//go:noescape
func fullAVX2(out, y *byte, n int)

// vectors is Full for the first bytes, and returns their number.
func vectors(out, y []byte) int {
	n := len(y) &^ 31
	if !hasAVX2 || n == 0 {
		return 0
	}
	fullAVX2(&out[0], &y[0], n)
	return n
}
