package video

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The inter-coded codecs, as ParseChunk and DecoderOptions name them.
const (
	H264 = "h264" // Annex B, parameter sets in the stream
	VP8  = "vp8"
	VP9  = "vp9"
	AV1  = "av1" // low-overhead stream format
)

// Chunk is what a chunk of inter-coded video says of itself without being decoded.
type Chunk struct {
	Key bool // decoding can begin with it
	// Width and Height of the picture in pixels, 0 when the chunk does not tell. H.264 tells them in its parameter sets,
	// which may have come before.
	Width, Height int
}

// errBits is for headers that end too early or say what cannot be.
var errBits = errors.New("its header is cut short or garbled")

// ParseChunk reads the header of one chunk, one access unit or frame as an encoder made it. The error says what is wrong
// with it; what lies behind the header may be broken all the same.
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
		return Chunk{}, fmt.Errorf("a picture of %d x %d pixels; at most %d a side are read", c.Width, c.Height, maxSide)
	}
	return c, nil
}

// parseVP8 follows RFC 6386, 9.1.
func parseVP8(b []byte) (Chunk, error) {
	if len(b) < 3 {
		return Chunk{}, errBits
	}
	if b[0]&1 != 0 {
		return Chunk{}, nil
	}
	if len(b) < 10 || b[3] != 0x9D || b[4] != 0x01 || b[5] != 0x2A {
		return Chunk{}, errBits
	}
	le := binary.LittleEndian
	return Chunk{Key: true, Width: int(le.Uint16(b[6:]) & 0x3FFF), Height: int(le.Uint16(b[8:]) & 0x3FFF)}, nil
}

// parseVP9 follows the VP9 bitstream specification, 6.2. Of a superframe, whose index is at the end, the first frame
// counts.
func parseVP9(b []byte) (Chunk, error) {
	r := bitReader{b: b}
	if r.u(2) != 2 {
		return Chunk{}, errBits
	}
	profile := r.u(1) | r.u(1)<<1
	if profile == 3 {
		r.u(1)
	}
	if r.u(1) == 1 { // shows a frame that is there already
		return Chunk{}, r.err()
	}
	inter := r.u(1) == 1
	r.u(2) // show_frame, error_resilient_mode
	if inter {
		return Chunk{}, r.err()
	}
	if r.u(24) != 0x498342 {
		return Chunk{}, errBits
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

// bitReader reads a header bit by bit, the highest first. Reading past the end gives zeros and is an error.
type bitReader struct {
	b    []byte
	at   int // in bits
	over bool
}

func (r *bitReader) err() error {
	if r.over {
		return errBits
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

// zeros counts the zeros in front of the next one, and reads both.
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

// se is the signed one.
func (r *bitReader) se() int32 {
	k := r.ue()
	if k&1 == 1 {
		return int32(k/2) + 1
	}
	return -int32(k / 2)
}
