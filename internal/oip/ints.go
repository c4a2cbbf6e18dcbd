package oip

import (
	"encoding/binary"
	"math/bits"
)

// problem is what ended the reading of numbers early.
type problem uint8

const (
	none     problem = iota
	tooFew           // the array closed before it had the elements that the shape wants
	notThat          // a value of another kind than the datatype's, or no value at all
	tooBig           // a number outside of the datatype's range
	fraction         // a fraction or exponent where an integer is wanted
	noComma          // something other than ',' or ']' behind a value
	badText          // a string that is not text
)

// intRange is what a datatype holds: from -below to above.
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

var pow10u = [20]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19}

// eightDigits is the number that the eight bytes of w, values 0 to 9, are; the
// lowest byte is the first digit. Neighbours are joined three times: to four
// numbers of two digits, two of four, and one of eight.
func eightDigits(w uint64) uint64 {
	w = (w*10 + w>>8) & 0x00ff00ff00ff00ff
	w = (w*100 + w>>16) & 0x0000ffff0000ffff
	return (w*10000 + w>>32) & 0xffffffff
}

// leadingDigits gives how many of the eight characters in w are digits before the
// first that is none, and their number.
func leadingDigits(w uint64) (n int, v uint64) {
	x := w ^ ones*'0'
	m := (x&^uint64(highs) + ones*0x76 | x) & highs
	if m == 0 {
		return 8, eightDigits(x)
	}
	n = bits.TrailingZeros64(m) >> 3
	if n == 0 {
		return 0, 0
	}
	return n, eightDigits(x << (64 - 8*n))
}

// word is the eight characters at pos, with zero bytes behind the end of src.
func word(src []byte, pos int) uint64 {
	if pos+8 <= len(src) {
		return binary.LittleEndian.Uint64(src[pos:])
	}
	var b [8]byte
	if pos < len(src) {
		copy(b[:], src[pos:])
	}
	return binary.LittleEndian.Uint64(b[:])
}

// scanDigits reads the digits at pos. ok is false for none, for a leading zero,
// and where the number does not fit 64 bits (end is then still behind the
// digits, and n is 20 or more).
func scanDigits(src []byte, pos int) (v uint64, end int, ok bool) {
	n, v := leadingDigits(word(src, pos))
	if n == 0 || n > 1 && src[pos] == '0' {
		return 0, pos, false
	}
	end = pos + n
	for n == 8 {
		var more uint64
		n, more = leadingDigits(word(src, end))
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

// readInts reads n integers, separated by commas, into dst. pos may be at space.
// On success next is behind the last of them; otherwise at what is wrong, and
// count is how many came before.
func readInts(src []byte, pos int, dst []byte, n int, r intRange, size int) (next, count int, p problem) {
	patience := 0 // elements to read before blocks of UINT8 are tried again
	for k := 0; k < n; {
		if pos < len(src) && src[pos] <= ' ' {
			pos = skipSpace(src, pos)
		}
		start := pos
		neg := pos < len(src) && src[pos] == '-'
		if neg {
			pos++
		}
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
		if neg {
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
		if size == 1 && r.below == 0 && n-k >= 64 {
			if patience > 0 {
				patience--
				continue
			}
			if pos < len(src) && src[pos] == ' ' {
				pos++
			}
			var got int
			pos, got = blockUint8(src, pos, dst[k:n])
			if k += got; got < 64 {
				patience = 64
			}
		}
	}
	return pos, n, none
}

// comma passes over the comma between two elements.
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
