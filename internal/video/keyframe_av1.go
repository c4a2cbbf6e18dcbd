package video

// OBU types of AV1 (AV1 bitstream specification, 6.2.2).
const (
	obuSequence = 1
	obuFrameHdr = 3
	obuFrame    = 6
)

// parseAV1 reads the sequence header, which encoders put in front of each key frame, and the type of the first frame
// (AV1 bitstream specification, 5.3 to 5.9).
func parseAV1(b []byte) (c Chunk, err error) {
	sequence, reduced := false, false
	for len(b) > 0 {
		head := b[0]
		kind := int(head >> 3 & 15)
		b = b[1:]
		if head&4 != 0 { // extension
			if len(b) == 0 {
				return Chunk{}, errHeader
			}
			b = b[1:]
		}
		size := len(b)
		if head&2 != 0 {
			n, used := leb128(b)
			if used == 0 || n > uint64(len(b)-used) {
				return Chunk{}, errHeader
			}
			b, size = b[used:], int(n)
		}
		if head&0x80 != 0 {
			return Chunk{}, errHeader
		}
		switch kind {
		case obuSequence:
			if c.Width, c.Height, reduced, err = sizeOfSequence(b[:size]); err != nil {
				return Chunk{}, err
			}
			sequence = true
		case obuFrame, obuFrameHdr:
			r := bitReader{b: b[:size]}
			key := reduced || r.u(1) == 0 && r.u(2) == 0 // show_existing_frame 0, KEY_FRAME
			if !key || !sequence {
				return Chunk{}, r.err()
			}
			c.Key = true
			return c, r.err()
		}
		b = b[size:]
	}
	return c, nil
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

// sizeOfSequence reads a sequence header up to the largest picture size (5.5).
func sizeOfSequence(b []byte) (width, height int, reduced bool, err error) {
	r := bitReader{b: b}
	r.u(3) // profile
	r.u(1) // still picture
	if reduced = r.u(1) == 1; reduced {
		r.u(5)
	} else {
		skipOperatingPoints(&r)
	}
	w, h := int(r.u(4))+1, int(r.u(4))+1
	width, height = int(r.u(w))+1, int(r.u(h))+1
	return width, height, reduced, r.err()
}

func skipOperatingPoints(r *bitReader) {
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
	for n := r.u(5) + 1; n > 0; n-- {
		r.u(12)
		if r.u(5) > 7 {
			r.u(1)
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
}
