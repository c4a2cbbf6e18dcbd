package oip

import (
	"encoding/binary"
	"unicode/utf8"
)

// readBools reads n values true or false into dst; see readInts.
func readBools(src []byte, pos int, dst []byte, n int) (next, count int, p problem) {
	for k := 0; k < n; {
		pos = skipSpace(src, pos)
		end := pos
		switch {
		case pos+4 <= len(src) && string(src[pos:pos+4]) == "true":
			dst[k], end = 1, pos+4
		case pos+5 <= len(src) && string(src[pos:pos+5]) == "false":
			dst[k], end = 0, pos+5
		case k == 0 && pos < len(src) && src[pos] == ']':
			return pos, k, tooFew
		}
		if end == pos || end < len(src) && wordByte(src[end]) {
			return pos, k, notThat
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

// readTexts reads n strings as elements of a BYTES tensor into dst; dst must have room for them (see bytesBound).
// used is the number of bytes written to dst.
func readTexts(src []byte, pos int, dst []byte, n int) (next, count, used int, p problem) {
	for k := 0; k < n; {
		pos = skipSpace(src, pos)
		if pos >= len(src) || src[pos] != '"' {
			if k == 0 && pos < len(src) && src[pos] == ']' {
				return pos, k, used, tooFew
			}
			return pos, k, used, notThat
		}
		end, escaped, wrong := stringEnd(src, pos+1)
		if wrong != "" || !utf8.Valid(src[pos+1:end]) {
			return pos, k, used, badText
		}
		if len(dst)-used < 4+end-pos-1 {
			return pos, k, used, badText
		}
		room := dst[used+4 : used+4 : len(dst)]
		if !escaped {
			room = append(room, src[pos+1:end]...)
		} else if room, _, wrong = appendUnescaped(room, src[pos+1:end]); wrong != "" {
			return pos, k, used, badText
		}
		binary.LittleEndian.PutUint32(dst[used:], uint32(len(room)))
		used += 4 + len(room)
		pos = end + 1
		k++
		if k == n {
			return pos, k, used, none
		}
		if pos, p = comma(src, pos); p != none {
			return pos, k, used, p
		}
	}
	return pos, n, used, none
}

// bytesBound returns the most memory for n strings in text characters of JSON: an escape is longer than its text, and
// each string has two quotes in place of a length of four bytes.
func bytesBound(text, n int) int { return text + 2*n }

// checkBytes checks that data is exactly n elements of a BYTES tensor. If not, checkBytes returns the first invalid
// element, and a message.
func checkBytes(data []byte, n int) (element int, msg string) {
	off := 0
	for k := 0; k < n; k++ {
		left := len(data) - off
		if left < 4 {
			return k, "has " + itoa(left) + " bytes left for its length; expected 4"
		}
		size := binary.LittleEndian.Uint32(data[off:])
		if uint64(size) > uint64(left-4) {
			return k, "has a length of " + itoa(int(size)) + " bytes; expected at most the remaining " + itoa(left-4)
		}
		off += 4 + int(size)
	}
	if off != len(data) {
		return -1, "has " + itoa(len(data)-off) + " bytes after its " + itoa(n) + " elements; expected none"
	}
	return -1, ""
}

// NextBytes splits the first element from the data of a BYTES tensor. ok is false for a missing or invalid element.
func NextBytes(data []byte) (element, rest []byte, ok bool) {
	if len(data) < 4 {
		return nil, nil, false
	}
	size := binary.LittleEndian.Uint32(data)
	if uint64(size) > uint64(len(data)-4) {
		return nil, nil, false
	}
	return data[4 : 4+size : 4+size], data[4+size:], true
}

// AppendBytes appends an element to the data of a BYTES tensor.
func AppendBytes(dst, element []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(element)))
	return append(dst, element...)
}
