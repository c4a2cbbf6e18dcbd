package codec

// Weights have fracBits bits: a row interpolated horizontally has 19 bits a sample, and the weighted sum of two such
// rows has 30.
const (
	fracBits = 11
	fracOne  = 1 << fracBits
)

// tap is the two samples read for one target position, and the second's weight.
type tap struct {
	a, b int32 // offsets: samples times the plane's step
	w    int32 // 0 to fracOne, for b; a has the rest
}

// axisKey identifies an interpolation along x or y: equal keys have equal taps.
type axisKey struct {
	full  int // length of the drawn part of the frame, pixels times ratio.den
	from  int // pixels from the edge of the first sample to the part, times ratio.den
	den   int // pixels a sample covers, times ratio.den: subsampling times shrink
	count int // samples
	dst   int // target positions
	step  int // bytes between samples; 1 for rows
}

// axis is the interpolation along one axis.
type axis struct {
	key      axisKey
	taps     []tap
	used     uint64 // time of the last use, in calls of axisFor
	identity bool   // position i reads sample i alone
}

// Position i of dst covers frame pixels around from+(i+0.5)*full/dst, and sample j
// of the plane is centred at (j+0.5)*den: half-pixel centres.
func (ax *axis) set(k axisKey) {
	ax.key = k
	if cap(ax.taps) < k.dst {
		ax.taps = make([]tap, k.dst)
	}
	ax.taps = ax.taps[:k.dst]
	ax.identity = k.from == 0 && k.full == k.dst*k.den && k.count == k.dst
	d := int64(2*k.dst) * int64(k.den)
	for i := range ax.taps {
		p := (int64(2*i+1)*int64(k.full)*fracOne+int64(k.from)*fracOne*int64(2*k.dst)+d/2)/d - fracOne/2
		a, w := int(max(p, 0)>>fracBits), int32(max(p, 0)&(fracOne-1))
		if a >= k.count-1 {
			a, w = k.count-1, 0
		}
		b := min(a+1, k.count-1)
		ax.taps[i] = tap{int32(a * k.step), int32(b * k.step), w}
	}
}

// maxAxes bounds the cache of a Decoder. A picture needs six at most (two axes; luma, chroma and alpha), mostly two
// or four, so several sizes stay cached.
const maxAxes = 32

// axisFor returns the taps for k from the cache, or computes the taps and replaces the least recently used. The taps
// of the current picture are the most recent, so they stay.
func (d *Decoder) axisFor(k axisKey) *axis {
	d.axisUses++
	oldest := &d.axes[0]
	for i := range d.axes {
		ax := &d.axes[i]
		if ax.key == k {
			ax.used = d.axisUses
			return ax
		}
		if ax.used < oldest.used {
			oldest = ax
		}
	}
	oldest.set(k)
	oldest.used = d.axisUses
	return oldest
}

// sampler computes the target rows of one plane.
type sampler struct {
	p      *plane
	fx, fy int // box size to average before sampling
	sw, sh int // the plane's size after shrinking
	x, y   *axis
	rows   [2]int // the source row of each of the cached rows; -1 none
	lines  [2][]int32
	box    []byte // one shrunk row
	boxY   int
	acc    []uint32
	out    []byte // the target row

	// siblings are the samplers of the other two channels of an interleaved source, computed in the same pass.
	siblings [2]*sampler
}

// grow returns a slice of length n: b if the capacity suffices. Contents are lost.
func grow[T any](b []T, n int) []T {
	if cap(b) < n {
		return make([]T, n)
	}
	return b[:n]
}

// start prepares for dw by dh target positions of a picture shrunk by shrink.
func (s *sampler) start(d *Decoder, src *source, p *plane, shrink, dw, dh int) {
	s.p = p
	s.fx, s.fy = max(shrink/p.subX, 1), max(shrink/p.subY, 1)
	s.sw, s.sh = (p.w+s.fx-1)/s.fx, (p.h+s.fy-1)/s.fy
	step := p.step
	if s.fx > 1 || s.fy > 1 {
		step = 1
		s.box = grow(s.box, s.sw)
		s.acc = grow(s.acc, s.sw)
	}
	kx, ky := src.scaledX, src.scaledY
	s.x = d.axisFor(axisKey{src.cropW * kx.den, p.beforeX, p.subX * s.fx * src.shrunk * kx.num, s.sw, dw, step})
	s.y = d.axisFor(axisKey{src.cropH * ky.den, p.beforeY, p.subY * s.fy * src.shrunk * ky.num, s.sh, dh, 1})
	s.rows = [2]int{-1, -1}
	s.boxY = -1
	s.siblings = [2]*sampler{}
	s.out = grow(s.out, dw)
	if !s.x.identity || !s.y.identity {
		s.lines[0], s.lines[1] = grow(s.lines[0], dw), grow(s.lines[1], dw)
	}
}

// source returns row y of the shrunk plane and the step between samples.
func (s *sampler) source(y int) ([]byte, int) {
	if s.fx == 1 && s.fy == 1 {
		return s.p.row(y), s.p.step
	}
	if s.boxY != y && s.siblings[0] != nil && s.fx == 2 && s.fy == 2 && 2*y+2 <= s.p.h {
		m, n := s.siblings[0], s.siblings[1]
		boxRow3(s.box, m.box, n.box, s.p, y)
		s.boxY, m.boxY, n.boxY = y, y, y
	}
	if s.boxY != y && s.siblings[0] != nil {
		m, n := s.siblings[0], s.siblings[1]
		boxRows3(s, m, n, y)
		s.boxY, m.boxY, n.boxY = y, y, y
	}
	if s.boxY != y {
		boxRow(s.box, s.acc, s.p, y, s.fx, s.fy)
		s.boxY = y
	}
	return s.box, 1
}

// row returns target row y. The slice is read-only, and valid until the next call.
func (s *sampler) row(y int) []byte {
	t := s.y.taps[y]
	if s.x.identity && t.w == 0 {
		src, step := s.source(int(t.a))
		if step == 1 {
			return src[:len(s.out)]
		}
		if step == 3 {
			copyEveryThird(s.out, src)
			return s.out
		}
		for i := range s.out {
			s.out[i] = src[i*step]
		}
		return s.out
	}
	a := s.line(int(t.a), int(t.b))
	if t.w == 0 {
		a = a[:len(s.out)]
		for i, v := range a {
			s.out[i] = byte((v + fracOne/2) >> fracBits)
		}
		return s.out
	}
	b := s.line(int(t.b), int(t.a))[:len(a)]
	out := s.out[:len(a)]
	w := t.w
	for i, v := range a {
		out[i] = byte((v<<fracBits + (b[i]-v)*w + 1<<(2*fracBits-1)) >> (2 * fracBits))
	}
	return out
}

// copyEveryThird copies the first of each three bytes: one channel of interleaved pixels.
func copyEveryThird(out, src []byte) {
	for ; len(out) >= 4 && len(src) >= 12; out, src = out[4:], src[12:] {
		out[0], out[1], out[2], out[3] = src[0], src[3], src[6], src[9]
	}
	for i := range out {
		out[i] = src[3*i]
	}
}

// line returns source row y interpolated horizontally, from the cache if possible. Row keep is not evicted.
func (s *sampler) line(y, keep int) []int32 {
	switch {
	case s.rows[0] == y:
		return s.lines[0]
	case s.rows[1] == y:
		return s.lines[1]
	}
	slot := 0
	if s.rows[0] == keep {
		slot = 1
	}
	s.rows[slot] = y
	line := s.lines[slot]
	src, step := s.source(y)
	taps := s.x.taps[:len(line)]
	if m, n := s.siblings[0], s.siblings[1]; m != nil {
		m.rows[slot], n.rows[slot] = y, y
		if step == 1 {
			src1, _ := m.source(y)
			src2, _ := n.source(y)
			lines3(line, m.lines[slot], n.lines[slot], taps, src, src1, src2)
		} else {
			lines3(line, m.lines[slot], n.lines[slot], taps, src, src[1:], src[2:])
		}
		return line
	}
	for i := range line {
		t := &taps[i]
		a := int32(src[t.a])
		line[i] = a<<fracBits + (int32(src[t.b])-a)*t.w
	}
	return line
}

// lines3 interpolates a row of each of three channels.
func lines3(l0, l1, l2 []int32, taps []tap, s0, s1, s2 []byte) {
	l0, l1, l2 = l0[:len(taps)], l1[:len(taps)], l2[:len(taps)]
	n := min(len(s0), len(s1), len(s2))
	s0, s1, s2 = s0[:n], s1[:n], s2[:n]
	for i := range taps {
		t := &taps[i]
		a, b, w := uint(t.a), uint(t.b), t.w
		p, q, r := int32(s0[a]), int32(s1[a]), int32(s2[a])
		l0[i] = p<<fracBits + (int32(s0[b])-p)*w
		l1[i] = q<<fracBits + (int32(s1[b])-q)*w
		l2[i] = r<<fracBits + (int32(s2[b])-r)*w
	}
}
