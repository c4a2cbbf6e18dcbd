package video

import (
	"bytes"
	"errors"
)

// NAL unit types of H.264 (ITU-T H.264, table 7-1).
const (
	nalIDR = 5
	nalSPS = 7
)

// parseH264 looks for an IDR picture, where decoding can begin, and for the sequence parameter set with the picture's
// size.
func parseH264(b []byte) (c Chunk, _ error) {
	units := 0
	for {
		i := bytes.Index(b, []byte{0, 0, 1})
		if i < 0 || i+3 >= len(b) {
			break
		}
		b = b[i+3:]
		units++
		switch b[0] & 0x1F {
		case nalIDR:
			c.Key = true
		case nalSPS:
			unit := b[1:]
			if end := bytes.Index(unit, []byte{0, 0, 1}); end >= 0 {
				unit = unit[:end]
			}
			s, err := parseSPS(unit)
			if err != nil {
				return Chunk{}, err
			}
			c.Width, c.Height = s.width, s.height
		}
	}
	if units == 0 {
		return Chunk{}, errNoUnits
	}
	return c, nil
}

var errNoUnits = errors.New(`it has no Annex B start code (00 00 01): set the encoder to Annex B, in a browser with ` +
	`avc: {format: "annexb"}`)

// spsInfo is the content of a sequence parameter set.
type spsInfo struct {
	width, height             int // after cropping
	high                      bool
	chroma, luma, chromaDepth uint32 // of high: the format, and the bits of samples beyond 8
}

// parseSPS reads a sequence parameter set up to the size (ITU-T H.264, 7.3.2.1.1).
func parseSPS(unit []byte) (s spsInfo, err error) {
	// Remove emulation prevention bytes: a 3 after two zeros.
	raw := bytes.ReplaceAll(unit[:min(len(unit), 1024)], []byte{0, 0, 3}, []byte{0, 0})
	r := bitReader{b: raw}
	profile := r.u(8)
	r.u(16)
	r.ue()
	chroma := uint32(1)
	switch profile {
	case 100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135:
		if chroma = r.ue(); chroma == 3 {
			r.u(1)
		}
		s.high, s.chroma, s.luma, s.chromaDepth = true, chroma, r.ue(), r.ue()
		r.u(1)
		if r.u(1) == 1 {
			skipScaling(&r, chroma)
		}
	}
	r.ue()
	switch r.ue() { // pic_order_cnt_type
	case 0:
		r.ue()
	case 1:
		r.u(1)
		r.se()
		r.se()
		for n := r.ue(); n > 0 && !r.over; n-- {
			r.se()
		}
	}
	r.ue()
	r.u(1)
	w, h := int(r.ue())+1, int(r.ue())+1
	fields := 2 - int(r.u(1)) // 2 when a map unit is one field
	if fields == 2 {
		r.u(1)
	}
	r.u(1)
	if r.over || w > maxSide || h > maxSide {
		return s, errHeader
	}
	s.width, s.height = 16*w, 16*h*fields
	if r.u(1) == 1 {
		x, y := 1, fields
		if chroma == 1 || chroma == 2 {
			x = 2
		}
		if chroma == 1 {
			y *= 2
		}
		left, right, top, bottom := int(r.ue()), int(r.ue()), int(r.ue()), int(r.ue())
		s.width -= x * (left + right)
		s.height -= y * (top + bottom)
	}
	if r.over || s.width <= 0 || s.height <= 0 {
		return s, errHeader
	}
	return s, nil
}

func skipScaling(r *bitReader, chroma uint32) {
	lists := 8
	if chroma == 3 {
		lists = 12
	}
	for i := range lists {
		if r.u(1) == 0 {
			continue
		}
		n := 16
		if i >= 6 {
			n = 64
		}
		last, next := int32(8), int32(8)
		for range n {
			if next != 0 {
				next = (last + r.se()) & 0xFF
			}
			if next != 0 {
				last = next
			}
		}
	}
}
