package video

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"time"
)

// The NUT container, as far as ffmpeg writes NUT for one video stream. FFmpeg's documentation describes the format
// ("NUT Open Container Format"). Checksums are not verified: the bytes come through a pipe.

const (
	nutFileID   = "nut/multimedia container\x00"
	nutMain     = 0x4E4D7A561F5F04AD
	nutStream   = 0x4E5311405BF2F9DB
	nutSync     = 0x4E4BE4ADEECA4569
	nutInfo     = 0x4E49AB68B596BA78
	nutIndex    = 0x4E58DD672F23E64E
	nutMaxHead  = 1 << 20 // largest header packet we read
	nutMaxTimes = 16      // more time bases than a stream can need
)

// Flags of a frame header.
const (
	nutEndOfRelevance = 1 << 1
	nutCodedPTS       = 1 << 3
	nutStreamID       = 1 << 4
	nutSizeMSB        = 1 << 5
	nutChecksum       = 1 << 6
	nutReserved       = 1 << 7
	nutSideData       = 1 << 8
	nutHeaderIdx      = 1 << 10
	nutMatchTime      = 1 << 11
	nutCoded          = 1 << 12
	nutInvalid        = 1 << 13
)

var errNut = errors.New("malformed NUT")

func nutErr(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errNut, fmt.Sprintf(format, args...))
}

// rational is a time base: one tick lasts num/den seconds.
type rational struct{ num, den uint64 }

// nutCode is one entry of the table indexed by the first byte of a frame header.
type nutCode struct {
	flags, stream, mul, lsb, reserved, header uint64
	ptsDelta                                  int64
}

// nutReader reads headers from a NUT stream and leaves the frames' data to the caller.
type nutReader struct {
	r *bufio.Reader

	width, height int
	fourcc        [4]byte

	times     []rational
	codes     [256]nutCode
	elided    [][]byte // prefixes that frames may leave out
	haveMain  bool
	haveVideo bool
	timeBase  rational
	timeIdx   int
	msbShift  uint64
	lastPTS   int64
	head      []byte // reused for header packets
}

// newNutReader's buffer is for headers: a frame's data bypasses the buffer, except for the first bytes.
func newNutReader(r io.Reader) *nutReader {
	return &nutReader{r: bufio.NewReaderSize(r, 512)}
}

// start reads up to the description of the stream. io.EOF means an empty stream.
func (n *nutReader) start() error {
	var id [len(nutFileID)]byte
	if _, err := io.ReadFull(n.r, id[:]); err != nil {
		return err
	}
	if string(id[:]) != nutFileID {
		return nutErr("the file id is missing")
	}
	for !n.haveVideo {
		b, err := n.r.ReadByte()
		if err != nil {
			return unexpectedEOF(err)
		}
		if b != 'N' {
			return nutErr("a frame before its stream header")
		}
		if err := n.packet(); err != nil {
			return unexpectedEOF(err)
		}
	}
	return nil
}

// next reads up to the data of the next frame. The frame consists of prefix (usually empty) and size more bytes; the
// caller must read these from n.r. io.EOF means a clean end between two frames.
func (n *nutReader) next() (pts time.Duration, prefix []byte, size int, err error) {
	for {
		b, err := n.r.ReadByte()
		if err != nil {
			return 0, nil, 0, err
		}
		if b == 'N' {
			if err := n.packet(); err != nil {
				return 0, nil, 0, unexpectedEOF(err)
			}
			continue
		}
		prefix, size, eor, err := n.frame(b)
		if err != nil {
			return 0, nil, 0, unexpectedEOF(err)
		}
		if eor && size == 0 {
			continue
		}
		return n.timeBase.duration(n.lastPTS), prefix, size, nil
	}
}

// unexpectedEOF converts io.EOF to io.ErrUnexpectedEOF.
func unexpectedEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// packet reads a header packet; the 'N' of the startcode was just read.
func (n *nutReader) packet() error {
	var code [8]byte
	code[0] = 'N'
	if _, err := io.ReadFull(n.r, code[1:]); err != nil {
		return err
	}
	size, err := n.varint()
	if err != nil {
		return err
	}
	if size > nutMaxHead || size < 4 {
		return nutErr("a header of %d bytes", size)
	}
	if size > 4096 { // a checksum of the packet's own header
		if _, err := n.r.Discard(4); err != nil {
			return err
		}
	}
	startcode := binary.BigEndian.Uint64(code[:])
	if startcode == nutInfo || startcode == nutIndex {
		_, err := n.r.Discard(int(size))
		return err
	}
	if cap(n.head) < int(size) {
		n.head = make([]byte, size)
	}
	n.head = n.head[:size]
	if _, err := io.ReadFull(n.r, n.head); err != nil {
		return err
	}
	body := nutBytes{b: n.head[:size-4]}
	switch startcode {
	case nutMain:
		return n.mainHeader(&body)
	case nutStream:
		return n.streamHeader(&body)
	case nutSync:
		return n.syncpoint(&body)
	}
	return nutErr("unknown startcode %016x", startcode)
}

func (n *nutReader) mainHeader(b *nutBytes) error {
	if n.haveMain { // ffmpeg repeats its headers
		return nil
	}
	version := b.v()
	if version < 3 || version > 4 {
		return nutErr("version %d; want 3 or 4", version)
	}
	if version > 3 {
		b.v() // minor version
	}
	if streams := b.v(); streams != 1 {
		return nutErr("%d streams; want 1", streams)
	}
	b.v() // max_distance
	count := b.v()
	if count == 0 || count > nutMaxTimes {
		return nutErr("%d time bases", count)
	}
	n.times = n.times[:0]
	for range count {
		t := rational{b.v(), b.v()}
		if t.num == 0 || t.den == 0 || t.num > math.MaxInt32 || t.den > math.MaxInt32 {
			return nutErr("time base %d/%d", t.num, t.den)
		}
		n.times = append(n.times, t)
	}
	if err := n.codeTable(b); err != nil {
		return err
	}
	n.elided = [][]byte{nil}
	for range min(b.v(), 255) {
		n.elided = append(n.elided, append([]byte(nil), b.bytes()...))
	}
	n.haveMain = b.err == nil
	return b.err
}

// codeTable reads the run-length coded table of frame codes.
func (n *nutReader) codeTable(b *nutBytes) error {
	e := nutCode{mul: 1}
	for i := 0; i < 256; {
		e.flags = b.v()
		fields := b.v()
		if fields > 0 {
			e.ptsDelta = b.s()
		}
		if fields > 1 {
			e.mul = b.v()
		}
		if fields > 2 {
			e.stream = b.v()
		}
		e.lsb, e.reserved = 0, 0
		if fields > 3 {
			e.lsb = b.v()
		}
		if fields > 4 {
			e.reserved = b.v()
		}
		count := e.mul - e.lsb
		if fields > 5 {
			count = b.v()
		}
		if fields > 6 {
			b.s() // match_time_delta
		}
		if fields > 7 {
			e.header = b.v()
		}
		for j := uint64(8); j < fields && b.err == nil; j++ {
			b.v()
		}
		if b.err != nil {
			return b.err
		}
		if count == 0 || count > 256 {
			return nutErr("a run of %d frame codes", count)
		}
		for j := uint64(0); j < count && i < 256; i++ {
			if i == 'N' { // the first byte of every startcode is no frame code
				n.codes[i].flags = nutInvalid
				continue
			}
			n.codes[i] = e
			n.codes[i].lsb += j
			j++
		}
	}
	return nil
}

func (n *nutReader) streamHeader(b *nutBytes) error {
	if !n.haveMain {
		return nutErr("a stream header before the main header")
	}
	if n.haveVideo {
		return nil
	}
	id, class := b.v(), b.v()
	fourcc := b.bytes()
	timeIdx := b.v()
	n.msbShift = b.v()
	b.v() // max_pts_distance
	b.v() // decode_delay
	b.v() // flags
	b.bytes()
	w, h := b.v(), b.v()
	switch {
	case b.err != nil:
		return b.err
	case id != 0 || class != 0:
		return nutErr("stream %d of class %d; want one video stream", id, class)
	case timeIdx >= uint64(len(n.times)):
		return nutErr("time base %d of %d", timeIdx, len(n.times))
	case n.msbShift >= 16:
		return nutErr("msb_pts_shift %d", n.msbShift)
	case w == 0 || h == 0 || w > maxSide || h > maxSide:
		return nutErr("a picture of %d x %d pixels; want 1 to %d a side", w, h, maxSide)
	}
	copy(n.fourcc[:], fourcc)
	n.timeIdx, n.timeBase = int(timeIdx), n.times[timeIdx]
	n.width, n.height = int(w), int(h)
	n.haveVideo = true
	return nil
}

// syncpoint reads the time to which the truncated times of the next frames refer.
func (n *nutReader) syncpoint(b *nutBytes) error {
	if !n.haveVideo {
		return nutErr("a syncpoint before the stream header")
	}
	t := b.v()
	if b.err != nil {
		return b.err
	}
	from := n.times[t%uint64(len(n.times))]
	ticks := t / uint64(len(n.times))
	if from == n.timeBase {
		n.lastPTS = int64(ticks)
		return nil
	}
	// ticks * from / timeBase, rounded down.
	hi, lo := bits.Mul64(ticks, from.num*n.timeBase.den)
	div := from.den * n.timeBase.num
	if hi >= div {
		return nutErr("a time of %d ticks", ticks)
	}
	q, _ := bits.Div64(hi, lo, div)
	n.lastPTS = int64(q)
	return nil
}

// frame reads the rest of a frame's header after its first byte, code.
func (n *nutReader) frame(code byte) (prefix []byte, size int, eor bool, err error) {
	e := &n.codes[code]
	flags := e.flags
	v := func() (x uint64) {
		if err == nil {
			x, err = n.varint()
		}
		return x
	}
	if flags&nutInvalid != 0 {
		return nil, 0, false, nutErr("frame code %#x", code)
	}
	if flags&nutCoded != 0 {
		flags ^= v()
	}
	stream := e.stream
	if flags&nutStreamID != 0 {
		stream = v()
	}
	pts := n.lastPTS + e.ptsDelta
	if flags&nutCodedPTS != 0 {
		pts = n.fullPTS(v())
	}
	length := e.lsb
	if flags&nutSizeMSB != 0 {
		msb := v()
		if e.mul != 0 && msb > maxFrame/e.mul {
			return nil, 0, false, nutErr("a frame of more than %d bytes", maxFrame)
		}
		length += e.mul * msb
	}
	if flags&nutMatchTime != 0 {
		v()
	}
	header := e.header
	if flags&nutHeaderIdx != 0 {
		header = v()
	}
	reserved := e.reserved
	if flags&nutReserved != 0 {
		reserved = v()
	}
	for ; reserved > 0 && err == nil; reserved-- {
		v()
	}
	if flags&nutChecksum != 0 && err == nil {
		_, err = n.r.Discard(4)
	}
	if err != nil {
		return nil, 0, false, err
	}
	if header >= uint64(len(n.elided)) {
		return nil, 0, false, nutErr("elided header %d of %d", header, len(n.elided))
	}
	prefix = n.elided[header]
	switch {
	case stream != 0:
		return nil, 0, false, nutErr("a frame of stream %d", stream)
	case flags&nutSideData != 0:
		return nil, 0, false, nutErr("side data")
	case length > maxFrame || length < uint64(len(prefix)):
		return nil, 0, false, nutErr("a frame of %d bytes; want at most %d", length, maxFrame)
	}
	n.lastPTS = pts
	return prefix, int(length) - len(prefix), flags&nutEndOfRelevance != 0, nil
}

// fullPTS completes a time truncated to its low bits.
func (n *nutReader) fullPTS(coded uint64) int64 {
	limit := uint64(1) << n.msbShift
	if coded >= limit {
		return int64(coded - limit)
	}
	mask := int64(limit - 1)
	delta := n.lastPTS - mask/2
	return ((int64(coded) - delta) & mask) + delta
}

// varint reads a number of 7 bits a byte, the most significant first.
func (n *nutReader) varint() (uint64, error) {
	var x uint64
	for range 10 {
		b, err := n.r.ReadByte()
		if err != nil {
			return 0, err
		}
		x = x<<7 | uint64(b&0x7f)
		if b&0x80 == 0 {
			return x, nil
		}
	}
	return 0, nutErr("a number of more than 10 bytes")
}

// duration converts ticks, saturating.
func (t rational) duration(ticks int64) time.Duration {
	neg := ticks < 0
	u := uint64(ticks)
	if neg {
		u = -u
	}
	// t.num is below 2^31, so num * 1e9 fits 64 bits.
	hi, lo := bits.Mul64(u, t.num*uint64(time.Second))
	d := uint64(math.MaxInt64)
	if hi < t.den {
		if q, _ := bits.Div64(hi, lo, t.den); q < d {
			d = q
		}
	}
	if neg {
		return -time.Duration(d)
	}
	return time.Duration(d)
}

// nutBytes reads numbers from a header packet. After the first error everything is 0.
type nutBytes struct {
	b   []byte
	err error
}

func (n *nutBytes) v() uint64 {
	var x uint64
	for i, c := range n.b {
		if i == 10 {
			break
		}
		x = x<<7 | uint64(c&0x7f)
		if c&0x80 == 0 {
			n.b = n.b[i+1:]
			return x
		}
	}
	n.fail("a number runs past its header")
	return 0
}

func (n *nutBytes) s() int64 {
	x := n.v() + 1
	if x&1 != 0 {
		return -int64(x >> 1)
	}
	return int64(x >> 1)
}

func (n *nutBytes) bytes() []byte {
	size := n.v()
	if size > uint64(len(n.b)) {
		n.fail("bytes run past their header")
		return nil
	}
	out := n.b[:size]
	n.b = n.b[size:]
	return out
}

func (n *nutBytes) fail(what string) {
	if n.err == nil {
		n.err = nutErr("%s", what)
	}
	n.b = nil
}
