package codec

import (
	"encoding/binary"
	"errors"
	"hash/adler32"
	"math/bits"
	"time"
)

// The decompression of PNG (RFC 1950 and 1951). compress/zlib reads through two
// interfaces, byte by byte, and allocates 40 KB a picture; here the compressed bytes are
// in memory, and the output is a window that is read in place.

var (
	errInflateCorrupt = errors.New("compressed data are corrupt")
	errInflateEnd     = errors.New("compressed data end early")
)

const (
	windowSize = 32 << 10
	outputSize = 96 << 10 // of the window and what follows it
	outputTail = 258 + 16 // the longest match, and what copies of eight bytes write beyond it

	literalBits  = 11 // of the first table
	distanceBits = 8
	// Sizes of the tables with their subtables, at least those that zlib's enough.c
	// computes (2342 and 402), as powers of two, so that indexes need no check.
	literalTable  = 4096
	distanceTable = 512
)

// An entry of a table has the bits to drop in its lowest byte. A literal is in the third
// byte. A length or distance has its extra bits in the second byte, and its base in the
// upper two. A link to a subtable has the subtable's bits in the second byte, and its
// index in the upper two.
const (
	entryLiteral = 1 << 7
	entryEnd     = 1 << 6 // end of block
	entryLink    = 1 << 5
	entryBits    = 1<<5 - 1
	entryInvalid = 0
)

// inflater decompresses the zlib stream of a picture.
type inflater struct {
	next func() []byte // returns the next piece of compressed data; none is the end

	in    []byte
	at    int
	hold  uint64 // bits that were read and not used, the lowest first
	count uint   // how many

	out        []byte // windowSize bytes at least before from, unless those are all
	from, to   int    // the output that was not read
	summed     int    // up to here sum covers the output
	sum        uint32
	last, done bool // the block is the last; the stream has ended
	stored     int  // bytes left of a stored block
	coded      bool // in a compressed block
	blocks     uint // that were begun

	deadline time.Time // zero: none

	lengths   [320]uint8
	literals  [literalTable]uint32
	distances [distanceTable]uint32
}

// reset begins a stream.
func (z *inflater) reset(next func() []byte, deadline time.Time) error {
	if z.out == nil {
		z.out = make([]byte, outputSize+outputTail)
	}
	z.next, z.deadline = next, deadline
	z.in, z.at, z.hold, z.count = nil, 0, 0, 0
	z.from, z.to, z.summed, z.sum = 0, 0, 0, 1
	z.last, z.done, z.stored, z.coded = false, false, 0, false
	head, err := z.take(16)
	if err != nil {
		return err
	}
	method, flags := head&0xff, head>>8
	if method&15 != 8 || method>>4 > 7 || (method<<8|flags)%31 != 0 || flags&0x20 != 0 {
		return errInflateCorrupt
	}
	return nil
}

// read fills b, or returns an error.
func (z *inflater) read(b []byte) error {
	for {
		n := copy(b, z.out[z.from:z.to])
		z.from += n
		if b = b[n:]; len(b) == 0 {
			return nil
		}
		if z.done {
			return errInflateEnd
		}
		if err := z.fill(); err != nil {
			return err
		}
	}
}

// finish reads the end of the stream, at which no output may be left. Like other decoders
// it ignores input after the end.
func (z *inflater) finish() error {
	for !z.done && z.from == z.to {
		if err := z.fill(); err != nil {
			return err
		}
	}
	if z.from != z.to {
		return errInflateCorrupt
	}
	return nil
}

// fill decompresses until the output is full or the stream ends. All output has been
// read.
func (z *inflater) fill() error {
	if z.late() {
		return ErrSlow
	}
	if z.to > outputSize/2 {
		copy(z.out, z.out[z.to-windowSize:z.to])
		z.from, z.to, z.summed = windowSize, windowSize, windowSize
	}
	for z.to < outputSize && !z.done {
		var err error
		switch {
		case z.stored > 0:
			err = z.copyStored()
		case z.coded:
			err = z.block()
		case z.last:
			err = z.checksum()
		default:
			err = z.startBlock()
		}
		if err != nil {
			return err
		}
	}
	z.sumOutput()
	return nil
}

// late reports whether decoding has taken too long.
func (z *inflater) late() bool { return !z.deadline.IsZero() && time.Now().After(z.deadline) }

// sumOutput adds the new output to the checksum.
func (z *inflater) sumOutput() {
	z.sum = adlerUpdate(z.sum, z.out[z.summed:z.to])
	z.summed = z.to
}

// adlerUpdate continues an Adler-32 checksum: that of the whole follows from those of
// its parts.
func adlerUpdate(sum uint32, b []byte) uint32 {
	const mod = 65521
	more := adler32.Checksum(b)
	a1, b1 := sum&0xffff, sum>>16
	a2, b2 := more&0xffff, more>>16
	a := (a1 + a2 + mod - 1) % mod
	return a | uint32((uint64(b1)+uint64(b2)+uint64(len(b)%mod)*uint64(a1+mod-1))%mod)<<16
}

// need makes hold have n bits at least, n up to 32.
func (z *inflater) need(n uint) error {
	for z.count < n {
		for z.at >= len(z.in) {
			z.in, z.at = z.next(), 0
			if len(z.in) == 0 {
				return errInflateEnd
			}
		}
		z.hold |= uint64(z.in[z.at]) << z.count
		z.at++
		z.count += 8
	}
	return nil
}

func (z *inflater) take(n uint) (uint, error) {
	if err := z.need(n); err != nil {
		return 0, err
	}
	v := uint(z.hold & (1<<n - 1))
	z.hold >>= n
	z.count -= n
	return v, nil
}

// align drops the bits up to the next whole byte.
func (z *inflater) align() {
	z.hold >>= z.count & 7
	z.count &^= 7
}

func (z *inflater) checksum() error {
	z.align()
	want, err := z.take(32)
	if err != nil {
		return err
	}
	z.sumOutput()
	if bits.ReverseBytes32(uint32(want)) != z.sum {
		return errInflateCorrupt
	}
	z.done = true
	return nil
}

func (z *inflater) startBlock() error {
	// Blocks may have no output, so that the clock must be read between them, too.
	if z.blocks++; z.blocks%64 == 0 && z.late() {
		return ErrSlow
	}
	head, err := z.take(3)
	if err != nil {
		return err
	}
	z.last = head&1 != 0
	switch head >> 1 {
	case 0:
		z.align()
		n, err := z.take(32)
		if err != nil {
			return err
		}
		if n&0xffff != ^n>>16&0xffff {
			return errInflateCorrupt
		}
		z.stored = int(n & 0xffff)
		return nil
	case 1:
		l := z.lengths[:]
		for i := range 288 {
			switch {
			case i < 144, i >= 280:
				l[i] = 8
			case i < 256:
				l[i] = 9
			default:
				l[i] = 7
			}
		}
		for i := range 32 {
			l[288+i] = 5
		}
		return z.tables(l[:288], l[288:320])
	case 2:
		return z.readTables()
	}
	return errInflateCorrupt
}

// codeOrder is the order of the lengths of the code of lengths.
var codeOrder = [19]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

func (z *inflater) readTables() error {
	head, err := z.take(14)
	if err != nil {
		return err
	}
	literals, distances, codes := int(head&31)+257, int(head>>5&31)+1, int(head>>10)+4
	if literals > 286 || distances > 30 {
		return errInflateCorrupt
	}
	var lengths [19]uint8
	for _, i := range codeOrder[:codes] {
		v, err := z.take(3)
		if err != nil {
			return err
		}
		lengths[i] = uint8(v)
	}
	var table [1 << 7]uint32
	if !buildTable(table[:], 7, lengths[:], codeEntries[:]) {
		return errInflateCorrupt
	}
	n := literals + distances
	for i := 0; i < n; {
		e, err := z.symbol(table[:], 7)
		if err != nil {
			return err
		}
		symbol, times, value := e>>16, 1, uint8(0)
		switch symbol {
		default:
			value = uint8(symbol)
		case 16:
			if i == 0 {
				return errInflateCorrupt
			}
			times, value = 3, z.lengths[i-1]
		case 17:
			times = 3
		case 18:
			times = 11
		}
		extra, err := z.take(uint(e >> 8 & 0xff))
		if err != nil {
			return err
		}
		if times += int(extra); times > n-i {
			return errInflateCorrupt
		}
		for range times {
			z.lengths[i] = value
			i++
		}
	}
	return z.tables(z.lengths[:literals], z.lengths[literals:n])
}

func (z *inflater) tables(literals, distances []uint8) error {
	if !buildTable(z.literals[:], literalBits, literals, literalEntries[:]) ||
		!buildTable(z.distances[:], distanceBits, distances, distanceEntries[:]) {
		return errInflateCorrupt
	}
	z.coded = true
	return nil
}

// The entries of symbols, without their lengths.
var (
	codeEntries     [19]uint32
	literalEntries  [288]uint32
	distanceEntries [32]uint32
)

func init() {
	for i := range codeEntries {
		codeEntries[i] = uint32(i)<<16 | entryLiteral
	}
	codeEntries[16] |= 2 << 8
	codeEntries[17] |= 3 << 8
	codeEntries[18] |= 7 << 8
	for i := range 256 {
		literalEntries[i] = uint32(i)<<16 | entryLiteral
	}
	literalEntries[256] = entryEnd
	base := uint32(3)
	for i := 257; i < 285; i++ {
		extra := uint32(max(0, (i-261)/4))
		literalEntries[i] = base<<16 | extra<<8
		base += 1 << extra
	}
	literalEntries[285] = 258 << 16
	base = 1
	for i := range 30 {
		extra := uint32(max(0, i/2-1))
		distanceEntries[i] = base<<16 | extra<<8
		base += 1 << extra
	}
	// Symbols 286 and 287, and distances 30 and 31, are invalid: their entry is 0.
}

// buildTable makes the table of a canonical code, of which the first root bits are looked
// up at once. It reports whether the lengths are those of a code. As in zlib, a code may
// be incomplete only if it has one symbol, or none.
func buildTable(table []uint32, root uint, lengths []uint8, entries []uint32) bool {
	var count [16]int
	for _, l := range lengths {
		count[l]++
	}
	count[0] = 0
	longest, left := uint(0), 1
	for l := uint(1); l <= 15; l++ {
		left = left<<1 - count[l]
		if left < 0 {
			return false
		}
		if count[l] > 0 {
			longest = l
		}
	}
	if left > 0 {
		if longest > 1 {
			return false
		}
		clear(table[:1<<root])
	}
	var at [16]int
	for l := 1; l < 15; l++ {
		at[l+1] = at[l] + count[l]
	}
	var sorted [320]uint16
	for i, l := range lengths {
		if l > 0 {
			sorted[at[l]] = uint16(i)
			at[l]++
		}
	}
	code, i, end := uint(0), 0, 1<<root // end of the tables
	link, sub, subBits := ^uint(0), 0, uint(0)
	for l := uint(1); l <= longest; l++ {
		code <<= 1
		for ; count[l] > 0; count[l]-- {
			e := entries[sorted[i]]
			i++
			turned := uint(bits.Reverse16(uint16(code)) >> (16 - l))
			code++
			if l <= root {
				if e != entryInvalid {
					e += uint32(l)
				}
				for k := turned; k < 1<<root; k += 1 << l {
					table[k] = e
				}
				continue
			}
			if first := turned & (1<<root - 1); first != link {
				link, sub, subBits = first, end, l-root
				for free := 1 << subBits; subBits+root < longest; {
					if free -= count[subBits+root]; free <= 0 {
						break
					}
					subBits++
					free <<= 1
				}
				end += 1 << subBits
				table[link] = uint32(sub)<<16 | uint32(subBits)<<8 | entryLink | uint32(root)
			}
			if e != entryInvalid {
				e += uint32(l - root)
			}
			for k := turned >> root; k < 1<<subBits; k += 1 << (l - root) {
				table[sub+int(k)] = e
			}
		}
	}
	return true
}

// symbol reads a symbol bit by bit, as far as it needs to, so that it works at the end
// of the input.
func (z *inflater) symbol(table []uint32, root uint) (uint32, error) {
	for {
		e := table[z.hold&(1<<root-1)]
		used := uint(0)
		if e&entryLink != 0 && z.count > root {
			used = root
			e = table[uint(e>>16)+uint(z.hold>>root)&(1<<(e>>8&0xff)-1)]
		}
		// The bits above count are 0, so an entry that needs more may be another's.
		if n := uint(e & entryBits); e&entryLink == 0 && used+n <= z.count && (e != entryInvalid || z.count >= 15) {
			if e == entryInvalid {
				return 0, errInflateCorrupt
			}
			z.hold >>= used + n
			z.count -= used + n
			return e, nil
		}
		if err := z.need(z.count + 1); err != nil {
			return 0, err
		}
	}
}

func (z *inflater) copyStored() error {
	for z.count > 0 && z.stored > 0 && z.to < outputSize {
		v, _ := z.take(8)
		z.out[z.to] = byte(v)
		z.to++
		z.stored--
	}
	for z.stored > 0 && z.to < outputSize {
		if z.at >= len(z.in) {
			if z.in, z.at = z.next(), 0; len(z.in) == 0 {
				return errInflateEnd
			}
		}
		n := copy(z.out[z.to:min(outputSize, z.to+z.stored)], z.in[z.at:])
		z.at += n
		z.to += n
		z.stored -= n
	}
	return nil
}

// block decompresses until the block ends or the output is full.
func (z *inflater) block() error {
	for z.to < outputSize {
		if len(z.in)-z.at >= 16 {
			if err := z.fast(); err != nil || !z.coded {
				return err
			}
			continue
		}
		e, err := z.symbol(z.literals[:], literalBits)
		switch {
		case err != nil:
			return err
		case e&entryLiteral != 0:
			z.out[z.to] = byte(e >> 16)
			z.to++
			continue
		case e&entryEnd != 0:
			z.coded = false
			return nil
		}
		extra, err := z.take(uint(e >> 8 & 0xff))
		if err != nil {
			return err
		}
		n := int(e>>16) + int(extra)
		if e, err = z.symbol(z.distances[:], distanceBits); err != nil {
			return err
		}
		if extra, err = z.take(uint(e >> 8 & 0xff)); err != nil {
			return err
		}
		back := int(e>>16) + int(extra)
		if back > z.to {
			return errInflateCorrupt
		}
		copyMatch(z.out, z.to, back, n)
		z.to += n
	}
	return nil
}

// fast is block where at least 16 bytes of input are in memory.
func (z *inflater) fast() error {
	in, at, hold, count := z.in, z.at, z.hold, z.count
	out, to := z.out, z.to
	lits, dists := &z.literals, &z.distances
	var err error
	for to < outputSize && len(in)-at >= 16 {
		// hold gets 56 bits at least; the same bits may be read twice.
		hold |= binary.LittleEndian.Uint64(in[at:]) << (count & 63)
		at += int((63 - count) >> 3)
		count |= 56
		e := lits[hold&(1<<literalBits-1)]
		if e&entryLiteral != 0 {
			hold >>= e & entryBits
			count -= uint(e & entryBits)
			out[to] = byte(e >> 16)
			to++
			e = lits[hold&(1<<literalBits-1)]
			if e&entryLiteral != 0 {
				hold >>= e & entryBits
				count -= uint(e & entryBits)
				out[to] = byte(e >> 16)
				to++
				e = lits[hold&(1<<literalBits-1)]
				if e&entryLiteral != 0 {
					hold >>= e & entryBits
					count -= uint(e & entryBits)
					out[to] = byte(e >> 16)
					to++
					continue
				}
			}
			// A length and a distance need 48 bits at most.
			hold |= binary.LittleEndian.Uint64(in[at:]) << (count & 63)
			at += int((63 - count) >> 3)
			count |= 56
		}
		if e&entryLink != 0 {
			hold >>= literalBits
			count -= literalBits
			e = lits[(uint(e>>16)+uint(hold)&(1<<(e>>8&15)-1))&(literalTable-1)]
			if e&entryLiteral != 0 {
				hold >>= e & entryBits
				count -= uint(e & entryBits)
				out[to] = byte(e >> 16)
				to++
				continue
			}
		}
		if e&entryEnd != 0 {
			hold >>= e & entryBits
			count -= uint(e & entryBits)
			z.coded = false
			break
		}
		if e == entryInvalid {
			err = errInflateCorrupt
			break
		}
		hold >>= e & entryBits
		extra := e >> 8 & 15
		n := int(e>>16) + int(hold&(1<<extra-1))
		hold >>= extra
		count -= uint(e&entryBits + extra)

		e = dists[hold&(1<<distanceBits-1)]
		if e&entryLink != 0 {
			hold >>= distanceBits
			count -= distanceBits
			e = dists[(uint(e>>16)+uint(hold)&(1<<(e>>8&15)-1))&(distanceTable-1)]
		}
		if e == entryInvalid {
			err = errInflateCorrupt
			break
		}
		hold >>= e & entryBits
		extra = e >> 8 & 15
		back := int(e>>16) + int(hold&(1<<extra-1))
		hold >>= extra
		count -= uint(e&entryBits + extra)
		if back > to {
			err = errInflateCorrupt
			break
		}
		if back >= 8 && n <= 16 {
			from := to - back
			binary.LittleEndian.PutUint64(out[to:], binary.LittleEndian.Uint64(out[from:]))
			binary.LittleEndian.PutUint64(out[to+8:], binary.LittleEndian.Uint64(out[from+8:]))
		} else {
			copyMatch(out, to, back, n)
		}
		to += n
	}
	// Return whole bytes, so that hold has no bits above count.
	whole := count >> 3
	at -= int(whole)
	count &= 7
	if at < 0 { // some were of the piece before
		at += int(whole)
		count += whole << 3
	}
	hold &= 1<<count - 1
	z.at, z.hold, z.count, z.to = at, hold, count, to
	return err
}

// copyMatch copies n bytes from back bytes before to. The parts may overlap.
func copyMatch(out []byte, to, back, n int) {
	from := to - back
	if back >= n {
		copy(out[to:to+n], out[from:from+n])
		return
	}
	if n < 16 {
		dst, src := out[to:to+n], out[from:from+n]
		for i := range dst {
			dst[i] = src[i]
		}
		return
	}
	for end := to + n; to < end; { // each copy doubles what can be copied at once
		to += copy(out[to:end], out[from:to])
	}
}
