package video

// OBU types of AV1 (AV1 bitstream specification, 6.2.2).
const (
	obuSequence  = 1
	obuDelimiter = 2
	obuFrameHdr  = 3
	obuFrame     = 6
)

// parseAV1 reads the sequence header, which encoders put in front of each key frame, and the type of the first frame
// (AV1 bitstream specification, 5.3 to 5.9).
func parseAV1(b []byte) (c Chunk, _ error) {
	sequence, reduced := false, false
	for len(b) > 0 {
		u, err := nextOBU(b)
		if err != nil {
			return Chunk{}, err
		}
		b = b[len(u.whole):]
		switch u.kind {
		case obuSequence:
			s := parseSequence(u.content)
			if s.err != nil {
				return Chunk{}, s.err
			}
			c.Width, c.Height, reduced, sequence = s.width, s.height, s.reduced, true
		case obuFrame, obuFrameHdr:
			r := bitReader{b: u.content}
			key := reduced || r.u(1) == 0 && r.u(2) == 0 // show_existing_frame 0, KEY_FRAME
			if !key || !sequence {
				return Chunk{}, r.err()
			}
			c.Key = true
			return c, r.err()
		}
	}
	return c, nil
}

// obu is a unit of AV1 with its header, and without.
type obu struct {
	kind           int
	whole, content []byte
}

// nextOBU reads the first unit of b.
func nextOBU(all []byte) (obu, error) {
	head, b := all[0], all[1:]
	if head&4 != 0 { // extension
		if len(b) == 0 {
			return obu{}, errHeader
		}
		b = b[1:]
	}
	size := len(b)
	if head&2 != 0 {
		n, used := leb128(b)
		if used == 0 || n > uint64(len(b)-used) {
			return obu{}, errHeader
		}
		b, size = b[used:], int(n)
	}
	if head&0x80 != 0 {
		return obu{}, errHeader
	}
	return obu{int(head >> 3 & 15), all[:len(all)-len(b)+size], b[:size]}, nil
}

func leb128(b []byte) (v uint64, used int) {
	for i := 0; i < 8 && i < len(b); i++ {
		v |= uint64(b[i]&0x7F) << (7 * i)
		if b[i] < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}

// av1Sequence is the content of a sequence header (5.5). The fields behind height are the bits of the box av1C.
type av1Sequence struct {
	reduced       bool
	width, height int // largest size
	profile, level, tier, high, twelve, mono,
	x, y, position uint32 // subsampling, and the position of its samples
	err error
}

func parseSequence(b []byte) (s av1Sequence) {
	r := bitReader{b: b}
	s.profile = r.u(3)
	r.u(1) // still picture
	if s.reduced = r.u(1) == 1; s.reduced {
		s.level = r.u(5)
	} else {
		s.level, s.tier = operatingPoint(&r)
	}
	w, h := int(r.u(4))+1, int(r.u(4))+1
	s.width, s.height = int(r.u(w))+1, int(r.u(h))+1
	if s.err = r.err(); s.err != nil {
		return s
	}
	skipTools(&r, s.reduced)
	s.colours(&r)
	return s // zeros behind the end
}

// skipTools skips the coding tools of a sequence.
func skipTools(r *bitReader, reduced bool) {
	if !reduced && r.u(1) == 1 { // frame ids
		r.u(4 + 3)
	}
	r.u(3)
	if !reduced {
		r.u(4)
		order := r.u(1)
		if order == 1 {
			r.u(2)
		}
		tools := r.u(1) == 1 // the frames choose
		if !tools {
			tools = r.u(1) == 1
		}
		if tools && r.u(1) == 0 {
			r.u(1)
		}
		if order == 1 {
			r.u(3)
		}
	}
	r.u(3)
}

// colours reads the format of the samples (5.5.2).
func (s *av1Sequence) colours(r *bitReader) {
	s.high = r.u(1)
	if s.profile == 2 && s.high == 1 {
		s.twelve = r.u(1)
	}
	if s.profile != 1 {
		s.mono = r.u(1)
	}
	const srgb = 1<<16 | 13<<8
	described := uint32(0)
	if r.u(1) == 1 {
		described = r.u(24)
	}
	switch {
	case s.mono == 1:
		s.x, s.y = 1, 1
		return
	case described == srgb: // 4:4:4
		return
	}
	r.u(1) // range
	switch {
	case s.profile == 0:
		s.x, s.y = 1, 1
	case s.profile == 2 && s.twelve == 1:
		if s.x = r.u(1); s.x == 1 {
			s.y = r.u(1)
		}
	case s.profile == 2:
		s.x = 1
	}
	if s.x == 1 && s.y == 1 {
		s.position = r.u(2)
	}
}

// operatingPoint reads the operating points, and returns the level and the tier of the first.
func operatingPoint(r *bitReader) (level, tier uint32) {
	model, delay := false, 0
	if r.u(1) == 1 { // timing info
		r.u(32)
		r.u(32)
		if r.u(1) == 1 {
			r.ue()
		}
		if model = r.u(1) == 1; model {
			delay = int(r.u(5)) + 1
			r.u(32)
			r.u(10)
		}
	}
	display := r.u(1) == 1
	n := int(r.u(5)) + 1
	for i := range n {
		r.u(12)
		l, t := r.u(5), uint32(0)
		if l > 7 {
			t = r.u(1)
		}
		if i == 0 {
			level, tier = l, t
		}
		if model && r.u(1) == 1 {
			r.u(delay)
			r.u(delay)
			r.u(1)
		}
		if display && r.u(1) == 1 {
			r.u(4)
		}
	}
	return level, tier
}
