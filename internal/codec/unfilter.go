package codec

import (
	"encoding/binary"
)

// unfilter undoes the filter of a PNG row (PNG specification, "Filtering"). cur is the
// row without its filter byte, prev the row above, size the bytes of a whole pixel. It
// reports whether the filter is a known one.
func unfilter(filter byte, cur, prev []byte, size int) bool {
	switch filter {
	case 0:
	case 1:
		unfilterSub(cur, size)
	case 2:
		unfilterUp(cur, prev)
	case 3:
		unfilterAverage(cur, prev, size)
	case 4:
		unfilterPaeth(cur, prev, size)
	default:
		return false
	}
	return true
}

func unfilterSub(cur []byte, size int) {
	switch size {
	case 3:
		var a0, a1, a2 byte
		for ; len(cur) >= 3; cur = cur[3:] {
			a0 += cur[0]
			a1 += cur[1]
			a2 += cur[2]
			cur[0], cur[1], cur[2] = a0, a1, a2
		}
	case 4:
		a := uint32(0)
		for ; len(cur) >= 4; cur = cur[4:] {
			a = addBytes32(a, binary.LittleEndian.Uint32(cur))
			binary.LittleEndian.PutUint32(cur, a)
		}
	default:
		for i := size; i < len(cur); i++ {
			cur[i] += cur[i-size]
		}
	}
}

// addBytes32 adds four bytes each.
func addBytes32(a, b uint32) uint32 {
	const high = 0x80808080
	return (a&^high + b&^high) ^ (a^b)&high
}

func unfilterUp(cur, prev []byte) {
	const high = 0x8080808080808080
	prev = prev[:len(cur)]
	for ; len(cur) >= 8 && len(prev) >= 8; cur, prev = cur[8:], prev[8:] {
		a, b := binary.LittleEndian.Uint64(cur), binary.LittleEndian.Uint64(prev)
		binary.LittleEndian.PutUint64(cur, (a&^high+b&^high)^(a^b)&high)
	}
	for i := range cur {
		cur[i] += prev[i]
	}
}

func unfilterAverage(cur, prev []byte, size int) {
	prev = prev[:len(cur)]
	if size == 3 {
		var a0, a1, a2 byte
		for ; len(cur) >= 3 && len(prev) >= 3; cur, prev = cur[3:], prev[3:] {
			a0 = cur[0] + byte((int(a0)+int(prev[0]))/2)
			a1 = cur[1] + byte((int(a1)+int(prev[1]))/2)
			a2 = cur[2] + byte((int(a2)+int(prev[2]))/2)
			cur[0], cur[1], cur[2] = a0, a1, a2
		}
		return
	}
	for i := range min(size, len(cur)) {
		cur[i] += prev[i] / 2
	}
	for i := size; i < len(cur); i++ {
		cur[i] += byte((int(cur[i-size]) + int(prev[i])) / 2)
	}
}

// paeth returns the one of a (left), b (above) and c (above left) that is nearest to
// a+b-c, in the form without absolute values: that is the lower or the higher of a and b
// if c is beyond them far enough, otherwise c.
func paeth(a, b, c int32) int32 {
	low, high := min(a, b), max(a, b)
	limit := 3*c - a - b
	if high <= limit {
		c = low
	}
	if limit <= low {
		c = high
	}
	return c
}

func unfilterPaeth(cur, prev []byte, size int) {
	prev = prev[:len(cur)]
	switch size {
	case 3:
		var a0, a1, a2, c0, c1, c2 int32
		for ; len(cur) >= 3 && len(prev) >= 3; cur, prev = cur[3:], prev[3:] {
			b0, b1, b2 := int32(prev[0]), int32(prev[1]), int32(prev[2])
			a0 = (int32(cur[0]) + paeth(a0, b0, c0)) & 255
			a1 = (int32(cur[1]) + paeth(a1, b1, c1)) & 255
			a2 = (int32(cur[2]) + paeth(a2, b2, c2)) & 255
			cur[0], cur[1], cur[2] = byte(a0), byte(a1), byte(a2)
			c0, c1, c2 = b0, b1, b2
		}
	case 4:
		var a0, a1, a2, a3, c0, c1, c2, c3 int32
		for ; len(cur) >= 4 && len(prev) >= 4; cur, prev = cur[4:], prev[4:] {
			b0, b1, b2, b3 := int32(prev[0]), int32(prev[1]), int32(prev[2]), int32(prev[3])
			a0 = (int32(cur[0]) + paeth(a0, b0, c0)) & 255
			a1 = (int32(cur[1]) + paeth(a1, b1, c1)) & 255
			a2 = (int32(cur[2]) + paeth(a2, b2, c2)) & 255
			a3 = (int32(cur[3]) + paeth(a3, b3, c3)) & 255
			cur[0], cur[1], cur[2], cur[3] = byte(a0), byte(a1), byte(a2), byte(a3)
			c0, c1, c2, c3 = b0, b1, b2, b3
		}
	default:
		for i := range min(size, len(cur)) {
			cur[i] += prev[i]
		}
		for i := size; i < len(cur); i++ {
			cur[i] += byte(paeth(int32(cur[i-size]), int32(prev[i]), int32(prev[i-size])))
		}
	}
}
