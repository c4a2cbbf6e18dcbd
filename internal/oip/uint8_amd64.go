package oip

import "golang.org/x/sys/cpu"

// Numbers from 0 to 255 separated by "," or ", " are read 32 characters at a time on
// processors with AVX2, three times as fast as by blockUint8.

var hasAVX2 = cpu.X86.HasAVX2 && cpu.X86.HasPOPCNT

// vectors are the constants of chunksUint8.
type vectors struct {
	toTop, belowDigits, comma, space, zero [32]byte
	tens, hundreds, noFirst                [32]byte
	// front[m] are the indexes of the bits of m, for moving these of eight bytes to the front.
	front [256 + 1][8]byte // read 16 bytes at a time
}

var uint8Vectors = func() *vectors {
	v := new(vectors)
	for i := range 32 {
		v.toTop[i], v.belowDigits[i], v.comma[i], v.space[i], v.zero[i] = 0x7f-'9', 0x7f-10, ',', ' ', '0'
		digit := i % 16
		v.tens[i], v.hundreds[i] = byte(10*digit), byte(100*digit)
		if digit != 1 && digit != 2 {
			v.noFirst[i] = 255
		}
	}
	for m := range 256 {
		n := 0
		for i := range 8 {
			if m>>i&1 != 0 {
				v.front[m][n] = byte(i)
				n++
			}
		}
	}
	return v
}()

// chunksUint8 reads chunks of 32 characters into dst, of room bytes, while the chunks consist of numbers from 0 to
// 255, each followed by a comma and at most one space. Four characters must precede src, the last a comma or a space
// and not part of a number. The results are the numbers of chunks and numbers read. Bytes of dst after these, within
// room, are undefined.
//
//go:noescape
func chunksUint8(src *byte, chunks int, dst *byte, room int, with *vectors) (read, n int)

// maxChunks bounds a call of chunksUint8, because the scheduler cannot interrupt the call.
const maxChunks = 4 << 10

// runUint8 reads numbers into dst while there are complete chunks of numbers separated only by "," or ", ". A comma
// or a space must precede src[pos]. next is the position of the first unread number, n the count of numbers read.
func runUint8(src []byte, pos int, dst []byte) (next, n int) {
	if !hasAVX2 || pos < 4 {
		return blockUint8(src, pos, dst)
	}
	at := pos
	for {
		chunks := min((len(src)-at)/32, maxChunks)
		if chunks == 0 || n+16 > len(dst) {
			break
		}
		read, more := chunksUint8(&src[at], chunks, &dst[n], len(dst)-n, uint8Vectors)
		at, n = at+32*read, n+more
		if read < maxChunks {
			break
		}
	}
	// The last number of a chunk may continue in the next chunk.
	for at > pos && src[at-1]-'0' <= 9 {
		at--
	}
	if at < len(src) && src[at] == ' ' {
		at++
	}
	return at, n
}
