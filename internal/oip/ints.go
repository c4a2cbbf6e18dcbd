package oip

import (
	"encoding/binary"
	"math/bits"
)

// problem is why the reading of numbers ended early.
type problem uint8

const (
	none     problem = iota
	tooFew           // the array has fewer elements than the shape
	notThat          // a value of another kind than the datatype's, or no value at all
	tooBig           // a number outside of the datatype's range
	fraction         // a fraction or exponent where an integer is wanted
	noComma          // a value is followed by neither ',' nor ']'
	badText          // an invalid string
)

// intRange is the range of a datatype: from -below to above.
type intRange struct{ below, above uint64 }

func intRangeOf(datatype string) (r intRange, size int) {
	switch datatype {
	case Uint8:
		return intRange{0, 1<<8 - 1}, 1
	case Uint16:
		return intRange{0, 1<<16 - 1}, 2
	case Uint32:
		return intRange{0, 1<<32 - 1}, 4
	case Uint64:
		return intRange{0, 1<<64 - 1}, 8
	case Int8:
		return intRange{1 << 7, 1<<7 - 1}, 1
	case Int16:
		return intRange{1 << 15, 1<<15 - 1}, 2
	case Int32:
		return intRange{1 << 31, 1<<31 - 1}, 4
	case Int64:
		return intRange{1 << 63, 1<<63 - 1}, 8
	}
	return intRange{}, 0
}

var pow10u = [20]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17,
	1e18, 1e19}

// eightDigits returns the number whose digits are the eight bytes of w, values 0 to 9; the lowest byte is the first
// digit. Adjacent numbers are combined three times: to four numbers of two digits, two of four, and one of eight.
func eightDigits(w uint64) uint64 {
	w = (w*10 + w>>8) & 0x00ff00ff00ff00ff
	w = (w*100 + w>>16) & 0x0000ffff0000ffff
	return (w*10000 + w>>32) & 0xffffffff
}

// digitsAt returns the number n of digits, at most eight, at pos, and the value of these digits.
func digitsAt(src []byte, pos int) (n int, v uint64) {
	var w uint64
	if pos+8 <= len(src) {
		w = binary.LittleEndian.Uint64(src[pos:])
	} else {
		w = tail(src, pos)
	}
	x := w ^ ones*'0'
	m := (x&^uint64(highs) + ones*0x76 | x) & highs
	if m == 0 {
		return 8, eightDigits(x)
	}
	// The lowest bit of m, at 8n+7, shifts byte n of the constant to the top. Counting zeros is slower if the
	// compiler may not use the newest instruction.
	const index = 0x0001020304050607
	n = int((m & -m >> 7) * index >> 56)
	return n, eightDigits(x << 8 << ((56 - 8*n) & 63))
}

// tail returns the up to seven characters at pos, with zero bytes after the end.
func tail(src []byte, pos int) uint64 {
	var b [8]byte
	if pos < len(src) {
		copy(b[:], src[pos:])
	}
	return binary.LittleEndian.Uint64(b[:])
}

// scanDigits reads the digits at pos. ok is false for none, for a leading zero, and if the
// number does not fit in 64 bits (end is then still after the digits).
func scanDigits(src []byte, pos int) (v uint64, end int, ok bool) {
	n, v := digitsAt(src, pos)
	if n == 0 || n > 1 && src[pos] == '0' {
		return 0, pos, false
	}
	end = pos + n
	for n == 8 {
		var more uint64
		n, more = digitsAt(src, end)
		end += n
		hi, lo := bits.Mul64(v, pow10u[n])
		sum, carry := bits.Add64(lo, more, 0)
		if hi+carry != 0 {
			for end < len(src) && src[end]-'0' <= 9 {
				end++
			}
			return 0, end, false
		}
		v = sum
	}
	return v, end, true
}

// readInts reads n integers, separated by commas, into dst. pos may be at space. On success next is the position
// after the last integer; otherwise next is the position of the problem, and count is the number of integers before.
func readInts(src []byte, pos int, dst []byte, n int, r intRange, size int) (next, count int, p problem) {
	retryBlocks := 0 // elements to read before blocks of UINT8 are tried again
	for k := 0; k < n; {
		if pos < len(src) && src[pos] <= ' ' {
			pos = skipSpace(src, pos)
		}
		if size == 1 && r.below == 0 {
			if v, l := shortUint8(src, pos); l > 0 {
				dst[k] = v
				pos += l
				k++
				if k == n {
					return pos, k, none
				}
				if pos, p = comma(src, pos); p != none {
					return pos, k, p
				}
				if n-k < 64 {
					continue
				}
				if retryBlocks > 0 {
					retryBlocks--
					continue
				}
				if pos < len(src) && src[pos] == ' ' {
					pos++
				}
				var got int
				pos, got = runUint8(src, pos, dst[k:n])
				if k += got; got < 64 {
					retryBlocks = 64
				}
				continue
			}
		}
		start, sign := pos, 0
		if pos < len(src) && src[pos] == '-' {
			sign = 1
		}
		pos += sign
		v, end, ok := scanDigits(src, pos)
		if !ok {
			switch {
			case end > pos:
				return start, k, tooBig
			case k == 0 && start < len(src) && src[start] == ']':
				return start, k, tooFew
			}
			return start, k, notThat
		}
		pos = end
		if pos < len(src) && wordByte(src[pos]) {
			if c := src[pos]; c == '.' || c|0x20 == 'e' {
				return start, k, fraction
			}
			return start, k, notThat
		}
		limit := r.above
		if sign != 0 {
			limit = r.below
			v = -v
			if -v > limit {
				return start, k, tooBig
			}
		} else if v > limit {
			return start, k, tooBig
		}
		switch size {
		case 1:
			dst[k] = byte(v)
		case 2:
			binary.LittleEndian.PutUint16(dst[2*k:], uint16(v))
		case 4:
			binary.LittleEndian.PutUint32(dst[4*k:], uint32(v))
		default:
			binary.LittleEndian.PutUint64(dst[8*k:], v)
		}
		k++
		if k == n {
			return pos, k, none
		}
		if pos, p = comma(src, pos); p != none {
			return pos, k, p
		}
	}
	return pos, n, none
}

// shortUint8 reads the number at pos if there are one to three digits before another character; l is the number of
// digits, 0 if nothing was read.
func shortUint8(src []byte, pos int) (v byte, l int) {
	if pos+4 > len(src) {
		return 0, 0
	}
	x := binary.LittleEndian.Uint32(src[pos:]) ^ 0x30303030
	m := (x&0x7f7f7f7f + 0x76767676 | x) & 0x80808080
	// As in digitsAt: byte n of the constant for a lowest bit of m at 8n+7, 0 if m is 0.
	l = int((m & -m >> 7) * 0x00010203 >> 24)
	x <<= (24 - 8*l) & 31
	n := x&0xff*100 + x>>8&0xff*10 + x>>16&0xff
	if l == 0 || n > 255 || src[pos] == '0' && l > 1 || src[pos+l]|0x20 == 'e' || src[pos+l] == '.' {
		return 0, 0
	}
	return byte(n), l
}

// comma reads the comma between two elements.
func comma(src []byte, pos int) (int, problem) {
	if pos < len(src) && src[pos] == ',' {
		return pos + 1, none
	}
	pos = skipSpace(src, pos)
	if pos >= len(src) {
		return pos, noComma
	}
	switch src[pos] {
	case ',':
		return pos + 1, none
	case ']':
		return pos, tooFew
	}
	return pos, noComma
}
