package luma

import (
	"bytes"
	"testing"
)

// Every luma, at every place of every length, matches the formula, and nothing is written beyond the end.
func TestFull(t *testing.T) {
	y := make([]byte, 512)
	for i := range y {
		y[i] = byte(i)
	}
	for n := range 257 {
		for from := 0; from+n <= len(y); from += 17 {
			out := bytes.Repeat([]byte{99}, n+64)
			Full(out, y[from:from+n])
			for i, got := range out {
				want := byte(99)
				if i < n {
					l := int32(y[from+i])
					want = byte(min(max((76309*(l-16)+1<<15)>>16, 0), 255))
				}
				if got != want {
					t.Fatalf("%d of %d from %d: %d is %d, want %d", i, n, from, y[(from+i)%len(y)], got, want)
				}
			}
		}
	}
}

func BenchmarkFull(b *testing.B) {
	y, out := make([]byte, 320*240), make([]byte, 320*240)
	b.SetBytes(int64(len(y)))
	for b.Loop() {
		Full(out, y)
	}
}
