package codec

import (
	"encoding/binary"
	"math"

	"millrace/internal/codec/luma"
)

// targetWriter writes rows of the stored picture to their places in dst. Positions
// are in pixels of the target: stored pixel (x, y) goes to base + x*sx + y*sy.
type targetWriter struct {
	dst                    []byte
	base, sx, sy           int
	pixelStep, channelStep int // elements between pixels, and between channels
	channels               int
	lut                    *[3][256]uint32 // bits of floats; nil for UINT8
	half                   bool            // elements are FP16
}

func (d *Decoder) targetWriter(t *Target, r rect, orientation, tw, th int, dst []byte) targetWriter {
	p := targetWriter{dst: dst, channels: t.Color.Channels()}
	p.pixelStep, p.channelStep = p.channels, 1
	if t.Layout == NCHW {
		p.pixelStep, p.channelStep = 1, tw*th
	}
	if t.Type != UINT8 {
		p.half = t.Type == FP16
		p.lut = d.normalise(t.Norm, p.half)
	}
	right, down := r.w-1, (r.h-1)*tw
	switch orientation {
	default:
		p.base, p.sx, p.sy = 0, 1, tw
	case 2: // mirrored
		p.base, p.sx, p.sy = right, -1, tw
	case 3: // upside down
		p.base, p.sx, p.sy = down+right, -1, -tw
	case 4: // upside down, mirrored
		p.base, p.sx, p.sy = down, 1, -tw
	case 5: // rows become columns
		p.base, p.sx, p.sy = 0, tw, 1
	case 6: // a quarter turn clockwise
		p.base, p.sx, p.sy = right, tw, -1
	case 7: // a quarter turn clockwise, mirrored
		p.base, p.sx, p.sy = down+right, -tw, -1
	case 8: // a quarter turn anticlockwise
		p.base, p.sx, p.sy = down, -tw, 1
	}
	p.base += r.y*tw + r.x
	return p
}

// normalise returns the table from pixel value to the bits of its float, per channel.
func (d *Decoder) normalise(n Norm, half bool) *[3][256]uint32 {
	if d.lut != nil && d.lutFor == n && d.lutHalf == half {
		return d.lut
	}
	if d.lut == nil {
		d.lut = new([3][256]uint32)
	}
	d.lutFor, d.lutHalf = n, half
	for c := range 3 {
		scale, std := n.Scale[c], n.Std[c]
		if scale == 0 {
			scale = 1
		}
		if std == 0 {
			std = 1
		}
		for v := range 256 {
			f := (float32(v)*scale - n.Mean[c]) / std
			if d.lut[c][v] = math.Float32bits(f); half {
				d.lut[c][v] = uint32(Half(f))
			}
		}
	}
	return d.lut
}

// Half returns the bits of the FP16 number nearest to f; halfway, the even number. A number out of range becomes
// infinite.
func Half(f float32) uint16 {
	bits := math.Float32bits(f)
	sign, bits := uint16(bits>>16)&0x8000, bits&0x7fffffff
	switch {
	case bits > 0x7f800000: // NaN
		return sign | 0x7e00
	case bits >= 0x477ff000: // rounds to 65520 or more
		return sign | 0x7c00
	case bits < 0x38800000: // below the least exponent: the lowest bits of the sum are the result
		return sign | uint16(math.Float32bits(math.Float32frombits(bits)+0.5)-math.Float32bits(0.5))
	}
	bits += 0xfff + bits>>13&1
	return sign | uint16(bits>>13-112<<10)
}

// row writes one stored row of channel c.
func (p *targetWriter) row(y, c int, row []byte) {
	at := (p.base+y*p.sy)*p.pixelStep + c*p.channelStep
	step := p.sx * p.pixelStep
	if p.half {
		lut := &p.lut[c]
		for _, v := range row {
			binary.LittleEndian.PutUint16(p.dst[2*at:], uint16(lut[v]))
			at += step
		}
		return
	}
	if p.lut != nil {
		lut := &p.lut[c]
		if step == 1 {
			out := p.dst[4*at : 4*(at+len(row))]
			for ; len(row) >= 4 && len(out) >= 16; row, out = row[4:], out[16:] {
				binary.LittleEndian.PutUint32(out, lut[row[0]])
				binary.LittleEndian.PutUint32(out[4:], lut[row[1]])
				binary.LittleEndian.PutUint32(out[8:], lut[row[2]])
				binary.LittleEndian.PutUint32(out[12:], lut[row[3]])
			}
			for i, v := range row {
				binary.LittleEndian.PutUint32(out[4*i:], lut[v])
			}
			return
		}
		for _, v := range row {
			binary.LittleEndian.PutUint32(p.dst[4*at:], lut[v])
			at += step
		}
		return
	}
	if step == 1 {
		copy(p.dst[at:at+len(row)], row)
		return
	}
	for _, v := range row {
		p.dst[at] = v
		at += step
	}
}

// row3 writes one stored row of three interleaved channels, left to right.
func (p *targetWriter) row3(y int, r, g, b []byte) {
	at := (p.base + y*p.sy) * 3
	n := len(r)
	g, b = g[:n], b[:n]
	if p.half {
		out := p.dst[2*at : 2*(at+3*n)]
		for i := range r {
			binary.LittleEndian.PutUint16(out[6*i:], uint16(p.lut[0][r[i]]))
			binary.LittleEndian.PutUint16(out[6*i+2:], uint16(p.lut[1][g[i]]))
			binary.LittleEndian.PutUint16(out[6*i+4:], uint16(p.lut[2][b[i]]))
		}
		return
	}
	if p.lut != nil {
		out := p.dst[4*at : 4*(at+3*n)]
		l0, l1, l2 := &p.lut[0], &p.lut[1], &p.lut[2]
		for i := range r {
			o := out[12*i : 12*i+12 : 12*i+12]
			binary.LittleEndian.PutUint32(o, l0[r[i]])
			binary.LittleEndian.PutUint32(o[4:], l1[g[i]])
			binary.LittleEndian.PutUint32(o[8:], l2[b[i]])
		}
		return
	}
	out := p.dst[at : at+3*n]
	for i := range r {
		o := out[3*i : 3*i+3 : 3*i+3]
		o[0], o[1], o[2] = r[i], g[i], b[i]
	}
}

// fill writes t.Fill to the target around r.
func (d *Decoder) fill(t *Target, r rect, tw, th int, dst []byte) {
	if r.w == tw && r.h == th {
		return
	}
	p := d.targetWriter(t, rect{0, 0, tw, th}, 1, tw, th, dst)
	d.blank = grow(d.blank, tw)
	for i := range d.blank {
		d.blank[i] = t.Fill
	}
	for y := range th {
		for c := range p.channels {
			if y < r.y || y >= r.y+r.h {
				p.row(y, c, d.blank)
				continue
			}
			p.base = 0
			p.row(y, c, d.blank[:r.x])
			p.base = r.x + r.w
			p.row(y, c, d.blank[:tw-r.x-r.w])
			p.base = 0
		}
	}
}

// render samples the source into the rectangle r of the target. The error comes from the source's rows.
func (d *Decoder) render(src *source, orientation int, t *Target, r rect, tw, th int, dst []byte) error {
	d.fill(t, r, tw, th, dst)
	writer := d.targetWriter(t, r, orientation, tw, th, dst)
	// From here on all coordinates, also the target's, are those of the stored picture.
	dw, dh := r.w, r.h
	if orientation >= 5 {
		dw, dh = dh, dw
	}
	shrink := 1
	if src.shrunk == 1 {
		shrink = shrinkFor(src.w, src.h, dw, dh)
	}
	planes := src.model.planes()
	lumaOnly := t.Color == Gray && (src.model == modelYCbCr || src.model == modelYCbCrLimited)
	if lumaOnly {
		planes = 1
	}
	for c := range planes {
		d.samplers[c].start(d, src, &src.planes[c], shrink, dw, dh)
	}
	if src.packed {
		d.samplers[0].siblings = [2]*sampler{&d.samplers[1], &d.samplers[2]}
	}
	if src.hasAlpha {
		d.samplers[4].start(d, src, &src.alpha, shrink, dw, dh)
	}
	for i := range d.lines {
		d.lines[i] = grow(d.lines[i], dw)
	}
	for y := range dh {
		rgb := d.convertRow(src, y, planes, lumaOnly)
		if rows := src.planes[0].rows; rows != nil && rows.failed() != nil {
			return rows.failed()
		}
		if t.Color == BGR {
			rgb[0], rgb[2] = rgb[2], rgb[0]
		}
		switch {
		case t.Color == Gray:
			writer.row(y, 0, rgb[0])
		case t.Layout == NHWC && writer.sx == 1:
			writer.row3(y, rgb[0], rgb[1], rgb[2])
		default:
			for c := range 3 {
				writer.row(y, c, rgb[c])
			}
		}
	}
	return nil
}

// convertRow returns red, green and blue of row y; for a Gray target, element 0 is
// the luma.
func (d *Decoder) convertRow(src *source, y, planes int, lumaOnly bool) [3][]byte {
	var in [4][]byte
	for c := range planes {
		in[c] = d.samplers[c].row(y)
	}
	r, g, b := d.lines[0], d.lines[1], d.lines[2]
	switch {
	case src.model == modelGray, lumaOnly && src.model == modelYCbCr:
		r, g, b = in[0], in[0], in[0]
	case lumaOnly:
		luma.Full(r, in[0])
		g, b = r, r
	case src.model == modelRGB:
		r, g, b = in[0], in[1], in[2]
	case src.model == modelYCbCr:
		ycbcrRow(r, g, b, in[0], in[1], in[2])
	case src.model == modelYCbCrLimited:
		ycbcrLimitedRow(r, g, b, in[0], in[1], in[2])
	default:
		flip := src.model == modelCMYK
		scaleRow(r, in[0], in[3], flip)
		scaleRow(g, in[1], in[3], flip)
		scaleRow(b, in[2], in[3], flip)
	}
	if src.hasAlpha {
		a := d.samplers[4].row(y)
		scaleRow(d.lines[0], r, a, false)
		scaleRow(d.lines[1], g, a, false)
		scaleRow(d.lines[2], b, a, false)
		r, g, b = d.lines[0], d.lines[1], d.lines[2]
	}
	if d.wantLuma && src.model != modelGray && !lumaOnly {
		lumaRow(d.lines[3], r, g, b)
		r = d.lines[3]
	}
	return [3][]byte{r, g, b}
}
