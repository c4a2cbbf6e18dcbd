package oip

import (
	"encoding/binary"
	"math"
	"testing"
)

func TestNumber(t *testing.T) {
	le := binary.LittleEndian
	for _, c := range []struct {
		d    string
		bits uint64
		want float64
	}{
		{Uint8, 0xff, 255}, {Bool, 1, 1}, {Int8, 0xff, -1}, {Uint16, 0xffff, 65535}, {Int16, 0xffff, -1},
		{Uint32, 0xffffffff, 4294967295}, {Int32, 0xffffffff, -1}, {Uint64, 1 << 40, 1 << 40},
		{Int64, math.MaxUint64, -1},
		{FP16, 0x3c00, 1}, {FP16, 0xc100, -2.5}, {FP16, 0x0001, math.Ldexp(1, -24)}, {FP16, 0x7bff, 65504},
		{FP16, 0xfc00, math.Inf(-1)}, {BF16, 0x3f80, 1}, {BF16, 0xc020, -2.5},
		{FP32, uint64(math.Float32bits(1.5)), 1.5}, {FP64, math.Float64bits(-0.1), -0.1},
	} {
		if got := Number(c.d, le.AppendUint64(nil, c.bits)); got != c.want {
			t.Errorf("%s %x: got %v, want %v", c.d, c.bits, got, c.want)
		}
	}
	if !math.IsNaN(float16(0x7e00)) {
		t.Error("a half that is no number")
	}
}
