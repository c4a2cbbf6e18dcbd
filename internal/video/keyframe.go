package video

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Names of the inter-coded codecs in ParseChunk and DecoderOptions.
const (
	H264 = "h264" // Annex B, parameter sets in the stream
	VP8  = "vp8"
	VP9  = "vp9"
	AV1  = "av1" // low-overhead stream format
)

// Chunk is the information in the header of a chunk of inter-coded video, found without decoding.
type Chunk struct {
	Key bool // decoding can begin here
	// Width and Height of the picture in pixels, 0 when the chunk does not contain the size. H.264 has the size in
	// the parameter sets, possibly in an earlier chunk.
	Width, Height int
}

// errHeader is the error of a truncated or invalid header.
var errHeader = errors.New("its header is truncated or invalid")

// ParseChunk reads the header of one chunk: one access unit or frame of an encoder. The data after a valid header may
// be damaged.
func ParseChunk(codec string, b []byte) (c Chunk, err error) {
	if len(b) == 0 {
		return Chunk{}, errors.New("the chunk is empty")
	}
	switch codec {
	case H264:
		c, err = parseH264(b)
	case VP8:
		c, err = parseVP8(b)
	case VP9:
		c, err = parseVP9(b)
	case AV1:
		c, err = parseAV1(b)
	default:
		err = fmt.Errorf("%q is no inter-coded video: want h264, vp8, vp9 or av1", codec)
	}
	if err != nil {
		return Chunk{}, err
	}
	if c.Width > maxSide || c.Height > maxSide {
		return Chunk{}, fmt.Errorf("a picture of %d x %d pixels; at most %d a side are allowed", c.Width, c.Height,
			maxSide)
	}
	return c, nil
}

// parseVP8 follows RFC 6386, 9.1.
func parseVP8(b []byte) (Chunk, error) {
	if len(b) < 3 {
		return Chunk{}, errHeader
	}
	if b[0]&1 != 0 {
		return Chunk{}, nil
	}
	if len(b) < 10 || b[3] != 0x9D || b[4] != 0x01 || b[5] != 0x2A {
		return Chunk{}, errHeader
	}
	le := binary.LittleEndian
	return Chunk{Key: true, Width: int(le.Uint16(b[6:]) & 0x3FFF), Height: int(le.Uint16(b[8:]) & 0x3FFF)}, nil
}

// parseVP9 follows the VP9 bitstream specification, 6.2. Of a superframe (with its index at the end), parseVP9 reads
// the first frame.
func parseVP9(b []byte) (Chunk, error) {
	r := bitReader{b: b}
	if r.u(2) != 2 {
		return Chunk{}, errHeader
	}
	profile := r.u(1) | r.u(1)<<1
	if profile == 3 {
		r.u(1)
	}
	if r.u(1) == 1 { // show_existing_frame
		return Chunk{}, r.err()
	}
	inter := r.u(1) == 1
	r.u(2) // show_frame, error_resilient_mode
	if inter {
		return Chunk{}, r.err()
	}
	if r.u(24) != 0x498342 {
		return Chunk{}, errHeader
	}
	if profile >= 2 {
		r.u(1) // bit depth
	}
	const rgb = 7
	switch space := r.u(3); {
	case space != rgb:
		r.u(1) // range
		if profile == 1 || profile == 3 {
			r.u(3)
		}
	case profile == 1 || profile == 3:
		r.u(1)
	}
	c := Chunk{Key: true, Width: int(r.u(16)) + 1, Height: int(r.u(16)) + 1}
	return c, r.err()
}

// bitReader reads a header bit by bit, the most significant first. Past the end all bits are zero, and err returns an
// error.
type bitReader struct {
	b    []byte
	at   int // in bits
	over bool
}

func (r *bitReader) err() error {
	if r.over {
		return errHeader
	}
	return nil
}

// u reads an unsigned number of n bits, at most 32.
func (r *bitReader) u(n int) (v uint32) {
	for range n {
		v <<= 1
		if r.at>>3 >= len(r.b) {
			r.over = true
			continue
		}
		v |= uint32(r.b[r.at>>3]>>(7-r.at&7)) & 1
		r.at++
	}
	return v
}

// zeros reads the zeros up to and including the next 1, and returns the number of zeros.
func (r *bitReader) zeros() (n int) {
	for n < 32 && !r.over && r.u(1) == 0 {
		n++
	}
	return n
}

// ue is H.264's unsigned Exp-Golomb code (ITU-T H.264, 9.1), and AV1's uvlc.
func (r *bitReader) ue() uint32 {
	n := r.zeros()
	if n >= 32 {
		r.over = true
		return 0
	}
	return 1<<n - 1 + r.u(n)
}

// se is the signed Exp-Golomb code.
func (r *bitReader) se() int32 {
	k := r.ue()
	if k&1 == 1 {
		return int32(k/2) + 1
	}
	return -int32(k / 2)
}
