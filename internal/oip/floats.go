package oip

import (
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
	"unsafe"
)

// Floats are read to the same bits as by strconv.ParseFloat, in three ways, the fastest first:
//
//   - if a float64 can represent the mantissa and the power of ten exactly, one
//     multiplication or division suffices, because IEEE 754 rounds the result correctly;
//   - a mantissa of up to 19 digits and a power of ten of up to 27 are multiplied
//     or divided as integers, exactly, and rounded by this code;
//   - strconv reads all other numbers.
//
// A float32 is first computed as a float64 with a known bound on its error. Rounding again is correct unless the
// float64 is close to the middle between two float32 values; strconv then reads the number.

var pow10f = [23]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
	1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// pow5u has the powers of five below 1<<64.
var pow5u = func() (t [28]uint64) {
	t[0] = 1
	for i := 1; i < len(t); i++ {
		t[i] = t[i-1] * 5
	}
	return t
}()

// decimal is a number as written: mantissa * 10^exp. The number is inexact if not all digits fit into the mantissa.
type decimal struct {
	mantissa uint64
	exp      int
	sign     uint64 // 1 for a negative number
	exact    bool
}

// scanDecimal reads the JSON number at pos. end is -1 if there is none.
func scanDecimal(src []byte, pos int) (d decimal, end int) {
	// Signs are random, so a branch on the sign would often be mispredicted.
	sign := 0
	if pos < len(src) && src[pos] == '-' {
		sign = 1
	}
	pos += sign
	d.sign = uint64(sign)
	from := pos
	var v uint64
	for ; pos < len(src) && src[pos]-'0' <= 9; pos++ {
		v = v*10 + uint64(src[pos]-'0')
	}
	whole := pos - from
	if whole == 0 || whole > 1 && src[from] == '0' {
		return d, -1
	}
	digits := whole // digits counted towards the 19 that always fit the mantissa
	if v == 0 && whole == 1 {
		digits = 0
	}
	if pos < len(src) && src[pos] == '.' {
		pos++
		from = pos
		for {
			n, more := digitsAt(src, pos)
			v = v*pow10u[n] + more
			if v != 0 || digits != 0 {
				digits += n
			}
			pos += n
			if n < 8 {
				break
			}
		}
		if pos == from {
			return d, -1
		}
		d.exp = from - pos
	}
	if pos < len(src) && src[pos]|0x20 == 'e' {
		pos++
		down := false
		if pos < len(src) && (src[pos] == '+' || src[pos] == '-') {
			down = src[pos] == '-'
			pos++
		}
		from = pos
		e := 0
		for ; pos < len(src) && src[pos]-'0' <= 9; pos++ {
			if e < 1e6 {
				e = e*10 + int(src[pos]-'0')
			}
		}
		if pos == from {
			return d, -1
		}
		if down {
			e = -e
		}
		d.exp += e
	}
	if pos < len(src) && wordByte(src[pos]) {
		return d, -1
	}
	d.mantissa, d.exact = v, digits <= 19
	return d, pos
}

// exactFloat64 returns the float64 nearest to m * 10^exp. ok is false if the two fast ways cannot compute the result.
func exactFloat64(m uint64, exp int) (f float64, ok bool) {
	if m < 1<<53 {
		switch {
		case exp == 0:
			return float64(m), true
		case exp > 0 && exp <= 22:
			return float64(m) * pow10f[exp], true
		case exp < 0 && exp >= -22:
			return float64(m) / pow10f[-exp], true
		}
	}
	if m == 0 {
		return 0, true
	}
	// 10^k is 5^k * 2^k, and the factor 2^k only changes the exponent.
	shift := bits.LeadingZeros64(m)
	m <<= shift
	two := exp - shift
	var rest uint64
	switch {
	case exp >= 0 && exp <= 27:
		p := pow5u[exp]
		s := bits.LeadingZeros64(p)
		hi, lo := bits.Mul64(m, p<<s)
		two += 64 - s
		if hi>>63 == 0 {
			hi, lo = hi<<1|lo>>63, lo<<1
			two--
		}
		m, rest = hi, lo
	case exp < 0 && exp >= -27:
		p := pow5u[-exp]
		s := bits.LeadingZeros64(p)
		p <<= s
		if m < p {
			m, rest = bits.Div64(m, 0, p)
			two += s - 64
		} else {
			m, rest = bits.Div64(m>>1, m<<63, p)
			two += s - 63
		}
	default:
		return 0, false
	}
	// The top bit of m is set. A float64 keeps 53 of the 64 bits; halves round to even.
	low := m & (1<<11 - 1)
	m >>= 11
	if low > 1<<10 || low == 1<<10 && (rest != 0 || m&1 != 0) {
		m++
	}
	return math.Float64frombits(uint64(two+11+52+1023)<<52 + (m - 1<<52)), true
}

// fastFloat32 returns the float32 nearest to m * 10^exp; ok is as for exactFloat64.
func fastFloat32(m uint64, exp int) (f float32, ok bool) {
	if m == 0 {
		return 0, true
	}
	var d float64
	switch {
	case exp < 0 && exp >= -22:
		d = float64(m) / pow10f[-exp]
	case exp >= 0 && exp <= 22:
		d = float64(m) * pow10f[exp]
	default:
		return 0, false
	}
	// d was rounded at most twice, so its error is less than 2 units in the last place. 29 bits are dropped; 1<<28 is
	// the middle.
	const drop, middle, slack = 1<<29 - 1, 1 << 28, 4
	if tail := math.Float64bits(d) & drop; tail-(middle-slack) <= 2*slack {
		return 0, false
	}
	if d < 0x1p-126 || d > math.MaxFloat32 {
		return 0, false
	}
	return float32(d), true
}

// readFloats reads n numbers into dst, of 4 or 8 bytes each; see readInts.
func readFloats(src []byte, pos int, dst []byte, n, size int) (next, count int, p problem) {
	for k := 0; k < n; {
		if pos < len(src) && src[pos] <= ' ' {
			pos = skipSpace(src, pos)
		}
		d, end := scanDecimal(src, pos)
		if end < 0 {
			if v, end := notFinite(src, pos); end > 0 {
				if size == 4 {
					binary.LittleEndian.PutUint32(dst[4*k:], math.Float32bits(float32(v)))
				} else {
					binary.LittleEndian.PutUint64(dst[8*k:], math.Float64bits(v))
				}
				pos = end
				if k++; k == n {
					return pos, k, none
				}
				if pos, p = comma(src, pos); p != none {
					return pos, k, p
				}
				continue
			}
			if k == 0 && pos < len(src) && src[pos] == ']' {
				return pos, k, tooFew
			}
			return pos, k, notThat
		}
		if size == 4 {
			f, ok := float32(0), false
			if d.exact {
				f, ok = fastFloat32(d.mantissa, d.exp)
			}
			b := math.Float32bits(f) | uint32(d.sign)<<31
			if !ok {
				v, err := strconv.ParseFloat(unsafeString(src[pos:end]), 32)
				if err != nil {
					return pos, k, tooBig
				}
				b = math.Float32bits(float32(v))
			}
			binary.LittleEndian.PutUint32(dst[4*k:], b)
		} else {
			f, ok := 0.0, false
			if d.exact {
				f, ok = exactFloat64(d.mantissa, d.exp)
			}
			b := math.Float64bits(f) | d.sign<<63
			if !ok {
				v, err := strconv.ParseFloat(unsafeString(src[pos:end]), 64)
				if err != nil {
					return pos, k, tooBig
				}
				b = math.Float64bits(v)
			}
			binary.LittleEndian.PutUint64(dst[8*k:], b)
		}
		pos = end
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

// The words for numbers that are not finite. JSON lacks these words, but Python's json and many servers of the
// protocol write and read the words.
const (
	wordNaN   = "NaN"
	wordInf   = "Infinity"
	wordMinus = "-Infinity"
)

// notFinite reads a word for a number that is not finite at pos. end is 0 if there is none.
func notFinite(src []byte, pos int) (v float64, end int) {
	has := func(word string) bool { return len(src)-pos >= len(word) && string(src[pos:pos+len(word)]) == word }
	switch {
	case has(wordNaN):
		return math.NaN(), pos + len(wordNaN)
	case has(wordInf):
		return math.Inf(1), pos + len(wordInf)
	case has(wordMinus):
		return math.Inf(-1), pos + len(wordMinus)
	}
	return 0, 0
}

// appendNotFinite appends the word for v.
func appendNotFinite(dst []byte, v float64) []byte {
	switch {
	case v > 0:
		return append(dst, wordInf...)
	case v < 0:
		return append(dst, wordMinus...)
	}
	return append(dst, wordNaN...)
}

// unsafeString returns b as a string without a copy, for a callee that does not keep the string.
func unsafeString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
