package oip

import (
	"encoding/binary"
	"math"
)

// Number returns the first element of data of a datatype as a float: the nearest float to a 64-bit integer. BOOL is 0
// or 1, BYTES is NaN.
func Number(d string, b []byte) float64 {
	le := binary.LittleEndian
	switch d {
	case Uint8, Bool:
		return float64(b[0])
	case Int8:
		return float64(int8(b[0]))
	case Uint16:
		return float64(le.Uint16(b))
	case Int16:
		return float64(int16(le.Uint16(b)))
	case Uint32:
		return float64(le.Uint32(b))
	case Int32:
		return float64(int32(le.Uint32(b)))
	case Uint64:
		return float64(le.Uint64(b))
	case Int64:
		return float64(int64(le.Uint64(b)))
	case FP16:
		return float16(le.Uint16(b))
	case BF16:
		return float64(math.Float32frombits(uint32(le.Uint16(b)) << 16))
	case FP32:
		return float64(math.Float32frombits(le.Uint32(b)))
	case FP64:
		return math.Float64frombits(le.Uint64(b))
	}
	return math.NaN()
}

// float16 reads an IEEE 754 half: 1 bit sign, 5 bits exponent, 10 bits fraction.
func float16(h uint16) float64 {
	exp, frac := int(h>>10&0x1f), float64(h&0x3ff)
	var v float64
	switch exp {
	case 0:
		v = math.Ldexp(frac, -24)
	case 0x1f:
		v = math.Inf(1)
		if frac != 0 {
			v = math.NaN()
		}
	default:
		v = math.Ldexp(1024+frac, exp-25)
	}
	if h>>15 != 0 {
		return -v
	}
	return v
}
