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
func parseH264(b []byte) (c Chunk, err error) {
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
			if c.Width, c.Height, err = sizeOfSPS(unit); err != nil {
				return Chunk{}, err
			}
		}
	}
	if units == 0 {
		return Chunk{}, errNoUnits
	}
	return c, nil
}

var errNoUnits = errors.New(`it has no Annex B start code (00 00 01): set the encoder to Annex B, in a browser with ` +
	`avc: {format: "annexb"}`)

// sizeOfSPS reads the size, after cropping, from a sequence parameter set (ITU-T H.264, 7.3.2.1.1).
func sizeOfSPS(unit []byte) (width, height int, err error) {
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
		r.ue() // bit depths
		r.ue()
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
		return 0, 0, errHeader
	}
	width, height = 16*w, 16*h*fields
	if r.u(1) == 1 {
		x, y := 1, fields
		if chroma == 1 || chroma == 2 {
			x = 2
		}
		if chroma == 1 {
			y *= 2
		}
		left, right, top, bottom := int(r.ue()), int(r.ue()), int(r.ue()), int(r.ue())
		width -= x * (left + right)
		height -= y * (top + bottom)
	}
	if r.over || width <= 0 || height <= 0 {
		return 0, 0, errHeader
	}
	return width, height, nil
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
