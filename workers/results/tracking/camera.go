package tracking

import (
	"math"
	"slices"
)

// The camera's motion is estimated between small pictures: JPEG needs only a part of the decoding.
const (
	cameraWidth, cameraHeight = 160, 120
	blockSide                 = 16
	blockReach                = 3 // pixels of the small picture that a block is searched around the picture's shift
	coarseReach               = 4 // the same for the whole picture at a quarter of the size
	leastContrast             = blockSide * blockSide
)

// luma is the brightness of a small picture.
type luma struct {
	full    [cameraWidth * cameraHeight]byte
	half    [cameraWidth * cameraHeight / 4]byte
	quarter [cameraWidth * cameraHeight / 16]byte
}

// shrink fills half and quarter in from full.
func (l *luma) shrink() {
	halve(l.half[:], l.full[:], cameraWidth)
	halve(l.quarter[:], l.half[:], cameraWidth/2)
}

func halve(dst, src []byte, width int) {
	for i := range dst {
		at := i/(width/2)*2*width + i%(width/2)*2
		dst[i] = byte((int(src[at]) + int(src[at+1]) + int(src[at+width]) + int(src[at+width+1]) + 2) / 4)
	}
}

// brighten changes the mean brightness to the mean of b, for an exposure that changes.
func (l *luma) brighten(b *luma) {
	sum := 0
	for i := range l.quarter {
		sum += int(b.quarter[i]) - int(l.quarter[i])
	}
	d := int(math.Round(float64(sum) / float64(len(l.quarter))))
	if d == 0 {
		return
	}
	for i, v := range l.full {
		l.full[i] = byte(min(max(int(v)+d, 0), 255))
	}
	l.shrink()
}

// similarity moves, turns and scales points: (x, y) to (a*x - b*y + dx, b*x + a*y + dy).
type similarity struct{ a, b, dx, dy float64 }

func (s *similarity) of(x, y float64) (float64, float64) {
	return s.a*x - s.b*y + s.dx, s.b*x + s.a*y + s.dy
}

// shift is the motion of a block.
type shift struct{ x, y, toX, toY float64 }

// camera estimates the motion between pictures, with reused memory.
type camera struct {
	shifts, close []shift
	random        uint32
}

// motion returns the motion of the scene from one picture to the next, in pixels of the frame, each scaleX and scaleY
// small pixels wide and high: blocks that move together are the scene, others are objects (M. Fischler and R. Bolles,
// "Random Sample Consensus", 1981). ok is false when too few blocks agree.
func (c *camera) motion(from, to *luma, scaleX, scaleY float64) (best similarity, ok bool) {
	gx, gy := shiftOf(from, to)
	c.shifts = c.shifts[:0]
	for by := 0; by+blockSide <= cameraHeight; by += blockSide {
		for bx := 0; bx+blockSide <= cameraWidth; bx += blockSide {
			if dx, dy, ok := blockShift(from, to, bx, by, gx, gy); ok {
				x, y := float64(bx)+blockSide/2, float64(by)+blockSide/2
				c.shifts = append(c.shifts, shift{x * scaleX, y * scaleY, (x + dx) * scaleX, (y + dy) * scaleY})
			}
		}
	}
	n := len(c.shifts)
	if n < 6 {
		return best, false
	}
	most, within := 0, 0.6*math.Max(scaleX, scaleY)
	c.random = 1 // the same pictures give the same motion
	for range 80 {
		i, j := c.pick(n), c.pick(n)
		s, ok := fit([]shift{c.shifts[i], c.shifts[j]})
		if !ok {
			continue
		}
		if k := c.agree(&s, within); k > most {
			most, best = k, s
		}
	}
	if most < max(6, n*2/5) {
		return best, false
	}
	for range 2 {
		c.close = c.close[:0]
		for _, b := range c.shifts {
			if best.misses(&b) <= within {
				c.close = append(c.close, b)
			}
		}
		if best, ok = fit(c.close); !ok {
			return best, false
		}
	}
	return best, true
}

// pick returns a pseudo-random number below n.
func (c *camera) pick(n int) int {
	c.random = c.random*1664525 + 1013904223
	return int(uint64(c.random) * uint64(n) >> 32)
}

func (c *camera) agree(s *similarity, within float64) (n int) {
	for i := range c.shifts {
		if s.misses(&c.shifts[i]) <= within {
			n++
		}
	}
	return n
}

// misses returns how far from the block's place s moves the block.
func (s *similarity) misses(b *shift) float64 {
	x, y := s.of(b.x, b.y)
	return math.Hypot(x-b.toX, y-b.toY)
}

// fit returns the similarity with the least squared distances, unless the size changes by more than a tenth.
func fit(blocks []shift) (s similarity, ok bool) {
	var mx, my, mu, mv float64
	n := float64(len(blocks))
	for _, b := range blocks {
		mx, my, mu, mv = mx+b.x/n, my+b.y/n, mu+b.toX/n, mv+b.toY/n
	}
	var dot, cross, spread float64
	for _, b := range blocks {
		x, y, u, v := b.x-mx, b.y-my, b.toX-mu, b.toY-mv
		dot, cross, spread = dot+x*u+y*v, cross+x*v-y*u, spread+x*x+y*y
	}
	if spread == 0 {
		return s, false
	}
	s.a, s.b = dot/spread, cross/spread
	s.dx, s.dy = mu-s.a*mx+s.b*my, mv-s.b*mx-s.a*my
	size := math.Hypot(s.a, s.b)
	return s, size > 0.9 && size < 1.1
}

// shiftOf returns by how many small pixels most of the picture moved.
func shiftOf(from, to *luma) (x, y int) {
	x, y = nearest(from.quarter[:], to.quarter[:], cameraWidth/4, 0, 0, coarseReach)
	x, y = nearest(from.half[:], to.half[:], cameraWidth/2, 2*x, 2*y, 1)
	return 2 * x, 2 * y
}

// nearest returns the shift around (x, y) with the least mean difference of the common part.
func nearest(from, to []byte, width, x, y, reach int) (bestX, bestY int) {
	height := len(from) / width
	least := math.Inf(1)
	for dy := y - reach; dy <= y+reach; dy++ {
		for dx := x - reach; dx <= x+reach; dx++ {
			x0, x1 := max(0, -dx), min(width, width-dx)
			sum := 0
			for row := max(0, -dy); row < min(height, height-dy); row++ {
				a, b := from[row*width+x0:row*width+x1], to[(row+dy)*width+dx+x0:]
				for i, v := range a {
					d := int(v) - int(b[i])
					sum += max(d, -d)
				}
			}
			area := (x1 - x0) * (height - max(dy, -dy))
			if mean := float64(sum) / float64(area); mean < least {
				least, bestX, bestY = mean, dx, dy
			}
		}
	}
	return bestX, bestY
}

// blockShift returns the shift of a block around (gx, gy), to a fraction of a pixel. Blocks without contrast in both
// directions, and blocks that leave the picture, have none.
func blockShift(from, to *luma, bx, by, gx, gy int) (x, y float64, ok bool) {
	const n = 2*blockReach + 1
	if x0, y0 := bx+gx-blockReach, by+gy-blockReach; x0 < 0 || y0 < 0 ||
		x0+n-1+blockSide > cameraWidth || y0+n-1+blockSide > cameraHeight {
		return 0, 0, false
	}
	var sums [n * n]int
	least := 0
	for i := range sums {
		dx, dy, sum := gx+i%n-blockReach, gy+i/n-blockReach, 0
		for row := range blockSide {
			a := from.full[(by+row)*cameraWidth+bx:][:blockSide]
			b := to.full[(by+dy+row)*cameraWidth+bx+dx:][:blockSide]
			for k, v := range a {
				d := int(v) - int(b[k])
				sum += max(d, -d)
			}
		}
		if sums[i] = sum; sum < sums[least] {
			least = i
		}
	}
	if lx, ly := least%n, least/n; lx == 0 || ly == 0 || lx == n-1 || ly == n-1 {
		return 0, 0, false
	}
	between := func(step int) (float64, bool) { // the lowest point of the parabola through three sums
		before, at, after := sums[least-step], sums[least], sums[least+step]
		bend := before + after - 2*at
		return float64(before-after) / float64(2*max(bend, 1)), bend >= leastContrast
	}
	fx, okX := between(1)
	fy, okY := between(n)
	return float64(gx+least%n-blockReach) + fx, float64(gy+least/n-blockReach) + fy, okX && okY
}

// scene is the motion of one stream's camera.
type scene struct {
	pictures [2]luma
	last     int // number of the last picture
	known    bool
	place    [6]float64 // of the last picture in the frame
	moved    similarity // since the tracker's last frame
}

// still is no motion.
var still = similarity{a: 1}

// then returns the motion s and then n.
func (s similarity) then(n similarity) similarity {
	x, y := n.of(s.dx, s.dy)
	return similarity{a: n.a*s.a - n.b*s.b, b: n.b*s.a + n.a*s.b, dx: x, dy: y}
}

// next returns the memory for the next picture.
func (s *scene) next() []byte { return s.pictures[1-s.last].full[:] }

// add adds the picture in next to the motion. place is the picture's scale, origin and frame size: after a change the
// motion is unknown.
func (s *scene) add(c *camera, place [6]float64) {
	from, to := &s.pictures[s.last], &s.pictures[1-s.last]
	to.shrink()
	if s.known && s.place == place {
		from.brighten(to)
		if m, ok := c.motion(from, to, place[0], place[1]); ok {
			// the origin of m is the picture's, not the frame's
			ox, oy := place[2], place[3]
			m.dx, m.dy = m.dx+ox-m.a*ox+m.b*oy, m.dy+oy-m.b*ox-m.a*oy
			s.moved = s.moved.then(m)
		}
	}
	s.last, s.known, s.place = 1-s.last, true, place
}

// take returns the motion since the last call.
func (s *scene) take() similarity {
	m := s.moved
	s.moved = still
	if slices.ContainsFunc([]float64{m.a, m.b, m.dx, m.dy}, func(v float64) bool {
		return math.IsNaN(v) || math.Abs(v) > 1e5
	}) {
		return still
	}
	return m
}
