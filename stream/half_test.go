package stream

import (
	"math"
	"testing"
)

func TestHalfToFloat32(t *testing.T) {
	inf := float32(math.Inf(1))
	for h, want := range map[uint16]float32{
		0: 0, 0x3c00: 1, 0xc000: -2, 0x7bff: 65504, 0x0400: 0x1p-14, 0x0001: 0x1p-24, 0x83ff: -(0x1p-14 - 0x1p-24),
		0x7c00: inf, 0xfc00: -inf,
	} {
		if got := HalfToFloat32(h); got != want {
			t.Errorf("HalfToFloat32(%#04x) = %v, want %v", h, got, want)
		}
	}
	if v := HalfToFloat32(0x7e00); v == v {
		t.Errorf("half of NaN is %v", v)
	}
}
