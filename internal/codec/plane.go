package codec

// model is the colour model of a source's planes.
type model uint8

const (
	modelGray         model = iota // one plane
	modelRGB                       // three planes
	modelYCbCr                     // three planes, BT.601 full range: JPEG
	modelYCbCrLimited              // three planes, BT.601 limited range: video and lossy WebP
	modelCMYK                      // four planes, 255 is full ink
	modelCMYKInverted              // four planes, 255 is no ink: Adobe's convention
)

func (m model) planes() int {
	switch m {
	case modelGray:
		return 1
	case modelCMYK, modelCMYKInverted:
		return 4
	}
	return 3
}

// plane is one component of a picture in memory. Sample (x, y) is pix[y*stride+x*step] and covers subX by subY pixels
// of the frame.
type plane struct {
	pix          []byte
	stride, step int
	w, h         int // samples
	subX, subY   int

	beforeX, beforeY int // pixels of the first sample outside of the region, times ratio.den

	// rows are the rows of a picture decoded during resizing; nil: the rows are in pix. Row y is rows.row(this y +
	// y), from byte x on.
	rows rowReader
	x, y int
}

// rowReader decodes a picture row by row. A row may be requested repeatedly; of the earlier rows, only the row
// directly before may still be requested: both slices are valid until a further row is requested. After a failure the
// contents of rows are undefined.
type rowReader interface {
	row(y int) []byte
	failed() error
}

// row returns row y of the plane and the data after the row.
func (p *plane) row(y int) []byte {
	if p.rows != nil {
		return p.rows.row(p.y + y)[p.x:]
	}
	return p.pix[y*p.stride:]
}

// ratio is the number of pixels of the picture, in one direction, covered by a pixel of a scaled frame: num/den. 1/1
// when the frame was not scaled, or is drawn whole.
type ratio struct{ num, den int }

// source is a decoded picture, or a raw frame, in the form read by the resizer.
type source struct {
	model        model
	w, h         int // pixels covered by the planes, as stored
	shrunk       int // the decoder's shrink factor: 1, 2, 4 or 8
	planes       [4]plane
	alpha        plane // sampled only where hasAlpha; composited on black
	hasAlpha     bool
	packed       bool // the three planes are interleaved, in order
	fullW, fullH int  // stored size of the frame, before shrunk
	scaledX      ratio
	scaledY      ratio
	cropW, cropH int // the part to be drawn
}

// setPacked sets the planes of interleaved components: component c is at offset
// c*gap of a pixel of step bytes.
func (s *source) setPacked(m model, pix []byte, stride, step, gap, w, h int) {
	s.model, s.w, s.h = m, w, h
	s.packed = m == modelRGB && gap == 1
	for c := range m.planes() {
		s.planes[c] = plane{pix: pix[c*gap:], stride: stride, step: step, w: w, h: h, subX: 1, subY: 1}
	}
}

// setRows is setPacked for interleaved components of step bytes decoded row by row.
func (s *source) setRows(m model, rows rowReader, step, w, h int) {
	s.model, s.w, s.h = m, w, h
	s.packed = m == modelRGB
	for c := range m.planes() {
		s.planes[c] = plane{rows: rows, x: c, step: step, w: w, h: h, subX: 1, subY: 1}
	}
}

// shrinkFor is the largest of 8, 4, 2 and 1 by which a picture of w by h can be shrunk (rounding up) to at least tw
// by th pixels.
func shrinkFor(w, h, tw, th int) int {
	for f := 8; f > 1; f /= 2 {
		if (w+f-1)/f >= tw && (h+f-1)/f >= th {
			return f
		}
	}
	return 1
}

// boxRow averages boxes of fx by fy samples of the plane into out, one row of the shrunk plane. Boxes that cross the
// edge average the samples inside.
func boxRow(out []byte, acc []uint32, p *plane, y, fx, fy int) {
	y0, y1 := y*fy, min((y+1)*fy, p.h)
	acc = acc[:len(out)]
	clear(acc)
	for yy := y0; yy < y1; yy++ {
		boxAdd(acc, p.row(yy), p, fx)
	}
	boxAverage(out, acc, p, fx, fy, y1-y0)
}

// boxRows3 is boxRow for the three channels of interleaved pixels; each row is read once.
func boxRows3(s0, s1, s2 *sampler, y int) {
	p, fx, fy := s0.p, s0.fx, s0.fy
	y0, y1 := y*fy, min((y+1)*fy, p.h)
	whole := p.w / fx
	clear(s0.acc)
	clear(s1.acc)
	clear(s2.acc)
	for yy := y0; yy < y1; yy++ {
		row := p.row(yy)
		a0, a1, a2 := s0.acc[:s0.sw], s1.acc[:s0.sw], s2.acc[:s0.sw]
		rest := row[:(p.w-1)*p.step+3]
		for x := range a0[:whole] {
			var v0, v1, v2 uint32
			for range fx {
				v0 += uint32(rest[0])
				v1 += uint32(rest[1])
				v2 += uint32(rest[2])
				rest = rest[min(p.step, len(rest)):]
			}
			a0[x] += v0
			a1[x] += v1
			a2[x] += v2
		}
		for len(rest) >= 3 { // part of a box at the right edge
			a0[whole] += uint32(rest[0])
			a1[whole] += uint32(rest[1])
			a2[whole] += uint32(rest[2])
			rest = rest[min(p.step, len(rest)):]
		}
	}
	for _, s := range [3]*sampler{s0, s1, s2} {
		boxAverage(s.box, s.acc, p, fx, fy, y1-y0)
	}
}

// boxAdd adds the samples of a row to the sums of their boxes.
func boxAdd(acc []uint32, row []byte, p *plane, fx int) {
	whole := p.w / fx
	switch {
	case fx == 2 && p.step == 1:
		row := row[:2*whole]
		for x := range acc[:whole] {
			if i := 2 * x; i+1 < len(row) {
				acc[x] += uint32(row[i]) + uint32(row[i+1])
			}
		}
	case fx == 2:
		i, j := 0, p.step
		for x := range acc[:whole] {
			acc[x] += uint32(row[i]) + uint32(row[j])
			i += 2 * p.step
			j += 2 * p.step
		}
	default:
		i := 0
		for x := range acc[:whole] {
			sum := uint32(0)
			for range fx {
				sum += uint32(row[i])
				i += p.step
			}
			acc[x] += sum
		}
	}
	for x := whole * fx; x < p.w; x++ {
		acc[whole] += uint32(row[x*p.step])
	}
}

// boxAverage divides the sums of boxes of this number of rows.
func boxAverage(out []byte, acc []uint32, p *plane, fx, fy, rows int) {
	whole := p.w / fx
	n := uint32(rows * fx)
	if rows == fy { // a power of two
		shift := log2(fx * fy)
		for x, a := range acc[:whole] {
			out[x] = byte((a + n/2) >> shift)
		}
	} else {
		for x, a := range acc[:whole] {
			out[x] = byte((a + n/2) / n)
		}
	}
	if whole < len(out) {
		n := uint32(rows * (p.w - whole*fx))
		out[whole] = byte((acc[whole] + n/2) / n)
	}
}

// boxRow3 averages whole boxes of 2 by 2 pixels of three channels at once.
func boxRow3(o0, o1, o2 []byte, p *plane, y int) {
	whole, step := p.w/2, p.step
	top := p.row(2 * y)
	low := p.row(2*y + 1)
	n := max((2*whole-1)*step+3, 0) // a picture of one column has only the half box
	top, low = top[:n], low[:n]
	o0, o1, o2 = o0[:(p.w+1)/2], o1[:(p.w+1)/2], o2[:(p.w+1)/2]
	i := 0
	for x := range whole {
		a, b := top[i:i+step+3:i+step+3], low[i:i+step+3:i+step+3]
		c, d := a[step:], b[step:]
		c, d = c[:3], d[:3]
		o0[x] = byte((uint32(a[0]) + uint32(b[0]) + uint32(c[0]) + uint32(d[0]) + 2) >> 2)
		o1[x] = byte((uint32(a[1]) + uint32(b[1]) + uint32(c[1]) + uint32(d[1]) + 2) >> 2)
		o2[x] = byte((uint32(a[2]) + uint32(b[2]) + uint32(c[2]) + uint32(d[2]) + 2) >> 2)
		i += 2 * step
	}
	if whole < len(o0) { // half a box at the right edge
		i := whole * 2 * step
		top, low := p.row(2 * y)[i:], p.row(2*y + 1)[i:]
		o0[whole] = byte((uint32(top[0]) + uint32(low[0]) + 1) / 2)
		o1[whole] = byte((uint32(top[1]) + uint32(low[1]) + 1) / 2)
		o2[whole] = byte((uint32(top[2]) + uint32(low[2]) + 1) / 2)
	}
}

func log2(n int) (s uint) {
	for n > 1 {
		n >>= 1
		s++
	}
	return s
}
