package oip

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// Pictures in JSON are long sequences of numbers from 0 to 255. Where chunksUint8 is not available, blockUint8 reads
// them, in portable code. A branch on the number of digits would be mispredicted for nearly every number. So
// blockUint8 reads 64 characters at a time, computes a bit mask of the commas without a branch, and then looks up the
// three characters before each comma in a table.
//
// A character becomes a 4-bit code, (c + c>>4) & 15: digits 3 to 12, comma 14, space 2. Three codes index the table.
// The table has the number, or badUint8 for anything else: no digit, a leading zero, a number above 255.

const badUint8 = 0x100

var uint8Table = makeUint8Table()

func makeUint8Table() (t [4096]uint16) {
	const comma, space = 14, 2
	for i := range t {
		// The last character before the comma is the lowest code.
		c := [3]int{i >> 8, i >> 4 & 15, i & 15}
		digit := func(k int) bool { return c[k] >= 3 && c[k] <= 12 }
		edge := func(k int) bool { return c[k] == comma || c[k] == space }
		v := -1
		switch {
		case !digit(2):
		case edge(1):
			v = c[2] - 3
		case !digit(1):
		case edge(0):
			if c[1] != 3 {
				v = (c[1]-3)*10 + c[2] - 3
			}
		case digit(0) && c[0] != 3:
			v = (c[0]-3)*100 + (c[1]-3)*10 + c[2] - 3
		}
		t[i] = badUint8
		if v >= 0 && v <= 255 {
			t[i] = uint16(v)
		}
	}
	return t
}

// gather returns one bit for every byte of m; only the high bits of m may be set.
func gather(m uint64) uint64 { return (m >> 7) * 0x0102040810204080 >> 56 }

// notDigit sets the high bit of each byte of w that is not a digit. Here and in isNot, w must be ASCII, since
// otherwise a byte overflows into the next byte.
func notDigit(w uint64) uint64 { return (w ^ ones*'0') + ones*0x76 }

// isNot sets the high bit of each byte of w that is not c.
func isNot(w, c uint64) uint64 { return (w ^ ones*c) + ones*0x7f }

// blockUint8 reads numbers into dst while there are complete blocks of numbers separated only by "," or ", ". At
// least three characters must precede src[pos], the last a comma or a space. next is the position of the first unread
// number, n the count of numbers read.
func blockUint8(src []byte, pos int, dst []byte) (next, n int) {
	last := pos
	var digits0, commas0 uint64 = 0, 1 << 63
	for base := pos; base+64 <= len(src) && n+64 <= len(dst); base += 64 {
		block := (*[67]byte)(src[base-3:])
		others, plain, ascii := blockMasks(block)
		commas := others
		if !ascii {
			break
		}
		if !plain {
			var known bool
			if commas, known = spacedCommas(block); !known || others&^commas&^(commas<<1|commas0>>63) != 0 {
				break // no separator of commas and spaces
			}
		}
		// Four successive digits are above 255, and the table has three.
		digits := ^others
		if digits&(digits<<1|digits0>>63)&(digits<<2|digits0>>62)&(digits<<3|digits0>>61) != 0 {
			break
		}
		k, bad := numbersUint8(block, commas, (*[64]byte)(dst[n:]))
		if bad >= badUint8 {
			break
		}
		n += k
		if commas != 0 {
			last = base + 64 - bits.LeadingZeros64(commas)
		}
		digits0, commas0 = digits, commas
	}
	if last < len(src) && src[last] == ' ' {
		last++
	}
	return last, n
}

// The 64 characters of a block follow three earlier characters, possibly part of the block's first number.

// blockMasks returns the bits of the characters that are not digits. plain means that all of these are commas. others
// and plain are valid only if ascii is true.
func blockMasks(b *[67]byte) (others uint64, plain, ascii bool) {
	le := binary.LittleEndian
	var all uint64
	same := uint64(highs)

	// Each digit or comma has exactly one of the two bits.
	w := le.Uint64(b[3:])
	d := notDigit(w)
	all, same, others = all|w, same&(d^isNot(w, ',')), gather(d&highs)
	w = le.Uint64(b[11:])
	d = notDigit(w)
	all, same, others = all|w, same&(d^isNot(w, ',')), others|gather(d&highs)<<8
	w = le.Uint64(b[19:])
	d = notDigit(w)
	all, same, others = all|w, same&(d^isNot(w, ',')), others|gather(d&highs)<<16
	w = le.Uint64(b[27:])
	d = notDigit(w)
	all, same, others = all|w, same&(d^isNot(w, ',')), others|gather(d&highs)<<24
	w = le.Uint64(b[35:])
	d = notDigit(w)
	all, same, others = all|w, same&(d^isNot(w, ',')), others|gather(d&highs)<<32
	w = le.Uint64(b[43:])
	d = notDigit(w)
	all, same, others = all|w, same&(d^isNot(w, ',')), others|gather(d&highs)<<40
	w = le.Uint64(b[51:])
	d = notDigit(w)
	all, same, others = all|w, same&(d^isNot(w, ',')), others|gather(d&highs)<<48
	w = le.Uint64(b[59:])
	d = notDigit(w)
	all, same, others = all|w, same&(d^isNot(w, ',')), others|gather(d&highs)<<56
	return others, same == highs, all&highs == 0
}

// spacedCommas returns the bits of the commas. known means that all other characters are digits or spaces. The block
// must be ASCII.
func spacedCommas(b *[67]byte) (commas uint64, known bool) {
	var strange uint64
	for i := 0; i < 64; i += 8 {
		w := binary.LittleEndian.Uint64(b[3+i:])
		c := isNot(w, ',')
		strange |= notDigit(w) & c & isNot(w, ' ')
		commas |= gather(^c&highs) << (i & 63)
	}
	return commas, strange&highs == 0
}

// numbersUint8 reads the number before each comma. The result is valid if bad is below badUint8. Every index is below
// 64 (from bitIndex and a mask of at most 64 bits), but the compiler does not know this bound; unsafe avoids two
// bounds checks per number. numbersUint8 is not inlined because there would not be enough registers.
//
//go:noinline
func numbersUint8(b *[67]byte, commas uint64, out *[64]byte) (n int, bad uint16) {
	from, to := unsafe.Pointer(b), unsafe.Pointer(out)
	number := func(m uint64) uint16 {
		u := binary.LittleEndian.Uint32((*[4]byte)(unsafe.Add(from, bitIndex(m)))[:])
		return uint8Table[((u+u>>4)&0x0f0f0f)*(1<<24|1<<12|1)>>16&0xfff]
	}
	// Four numbers per iteration, since the loop itself takes time compared with this work.
	for left := bits.OnesCount64(commas); left >= 4; left -= 4 {
		v0 := number(commas)
		commas &= commas - 1
		v1 := number(commas)
		commas &= commas - 1
		v2 := number(commas)
		commas &= commas - 1
		v3 := number(commas)
		commas &= commas - 1
		bad |= v0 | v1 | v2 | v3
		*(*[4]byte)(unsafe.Add(to, n)) = [4]byte{byte(v0), byte(v1), byte(v2), byte(v3)}
		n += 4
	}
	for ; commas != 0; commas &= commas - 1 {
		v := number(commas)
		bad |= v
		*(*byte)(unsafe.Add(to, n)) = byte(v)
		n++
	}
	return n, bad
}

// bitIndex returns the index of the lowest bit of m; m is not 0. A table is three times as fast here as the
// instruction available to the compiler on every processor.
func bitIndex(m uint64) uint8 { return bitIndexes[(m&-m)*deBruijn>>58] }

const deBruijn = 0x03f79d71b4ca8b09

var bitIndexes = func() (t [64]uint8) {
	for i := range t {
		t[uint64(1)<<i*deBruijn>>58] = uint8(i)
	}
	return t
}()
