package oip

import (
	"encoding/binary"
	"math/bits"
)

// Images arrive as long runs of numbers from 0 to 255. Branching on the digits
// of each would mispredict at nearly every number, so blockUint8 takes 64
// characters at a time: it turns them into a bit mask of the commas without a
// branch, and then reads each number as the three characters before its comma
// through one table.
//
// A character becomes a 4-bit code, (c + c>>4) & 15: digits 3 to 12, comma 14,
// space 2. Three codes index the table. It holds the number, or badUint8 for
// what is none: an empty place, a leading zero, a number past 255.

const badUint8 = 0x100

var uint8Table = makeUint8Table()

func makeUint8Table() *[4096]uint16 {
	const comma, space = 14, 2
	t := new([4096]uint16)
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

// gather gives the bit of every byte of w that has its high bit set in m.
func gather(m uint64) uint64 { return (m >> 7) * 0x0102040810204080 >> 56 }

// notDigit has the high bit of each byte of w set that is no digit; w must be ASCII.
func notDigit(w uint64) uint64 { return (w ^ ones*'0') + ones*0x76 }

// isByte has the high bit clear of each byte of w that equals c; w must be ASCII.
func isByte(w, c uint64) uint64 { return (w ^ ones*c) + ones*0x7f }

// blockUint8 reads numbers into dst as long as it meets whole blocks of numbers
// separated by "," or ", " alone. src[pos] must be the first digit of a number,
// behind at least three characters, the last of them a comma or a space. It
// gives the position of the first number it left and how many it read.
func blockUint8(src []byte, pos int, dst []byte) (next, n int) {
	last := pos
	var digits0, commas0 uint64 = 0, 1 << 63
	for base := pos; base+64 <= len(src) && n+64 <= len(dst); base += 64 {
		block := src[base : base+64 : base+64]
		w0 := binary.LittleEndian.Uint64(block)
		w1 := binary.LittleEndian.Uint64(block[8:])
		w2 := binary.LittleEndian.Uint64(block[16:])
		w3 := binary.LittleEndian.Uint64(block[24:])
		w4 := binary.LittleEndian.Uint64(block[32:])
		w5 := binary.LittleEndian.Uint64(block[40:])
		w6 := binary.LittleEndian.Uint64(block[48:])
		w7 := binary.LittleEndian.Uint64(block[56:])
		if (w0|w1|w2|w3|w4|w5|w6|w7)&highs != 0 {
			break
		}
		d0, d1, d2, d3 := notDigit(w0), notDigit(w1), notDigit(w2), notDigit(w3)
		d4, d5, d6, d7 := notDigit(w4), notDigit(w5), notDigit(w6), notDigit(w7)
		c0, c1, c2, c3 := isByte(w0, ','), isByte(w1, ','), isByte(w2, ','), isByte(w3, ',')
		c4, c5, c6, c7 := isByte(w4, ','), isByte(w5, ','), isByte(w6, ','), isByte(w7, ',')
		// Every character that is no digit should be a comma: exactly one of the
		// two high bits is then set everywhere.
		same := (d0 ^ c0) & (d1 ^ c1) & (d2 ^ c2) & (d3 ^ c3) & (d4 ^ c4) & (d5 ^ c5) & (d6 ^ c6) & (d7 ^ c7)
		others := gather(d0&highs) | gather(d1&highs)<<8 | gather(d2&highs)<<16 | gather(d3&highs)<<24 |
			gather(d4&highs)<<32 | gather(d5&highs)<<40 | gather(d6&highs)<<48 | gather(d7&highs)<<56
		commas := others
		if same&highs != highs {
			commas = gather(^c0&highs) | gather(^c1&highs)<<8 | gather(^c2&highs)<<16 | gather(^c3&highs)<<24 |
				gather(^c4&highs)<<32 | gather(^c5&highs)<<40 | gather(^c6&highs)<<48 | gather(^c7&highs)<<56
			spaces := gather(^isByte(w0, ' ')&highs) | gather(^isByte(w1, ' ')&highs)<<8 |
				gather(^isByte(w2, ' ')&highs)<<16 | gather(^isByte(w3, ' ')&highs)<<24 |
				gather(^isByte(w4, ' ')&highs)<<32 | gather(^isByte(w5, ' ')&highs)<<40 |
				gather(^isByte(w6, ' ')&highs)<<48 | gather(^isByte(w7, ' ')&highs)<<56
			if commas|spaces != others || spaces&^(commas<<1|commas0>>63) != 0 {
				break
			}
		}
		// Four digits in a row are past 255, and past what the table sees.
		digits := ^others
		if digits&(digits<<1|digits0>>63)&(digits<<2|digits0>>62)&(digits<<3|digits0>>61) != 0 {
			break
		}
		count := bits.OnesCount64(commas)
		out := dst[n : n+64 : n+64]
		chars := src[base-3 : base+64 : base+64]
		bad := uint16(0)
		k := 0
		for m := commas; m != 0; m &= m - 1 {
			u := binary.LittleEndian.Uint32(chars[bits.TrailingZeros64(m):])
			v := uint8Table[((u+u>>4)&0x0f0f0f)*(1<<24|1<<12|1)>>16&0xfff]
			bad |= v
			out[k&63] = byte(v)
			k++
		}
		if bad >= badUint8 {
			break
		}
		n += count
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
