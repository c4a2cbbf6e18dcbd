package motion

const (
	// reach is how far from an outline its step is measured, in pixels: edges are
	// soft.
	reach = 2
	// ghostShare is the share of its outline's contrast by which a ghost's steps
	// are larger in the background than in the frame: 1 for a perfect one, -1 for
	// an object that is there.
	ghostShare = 0.4
)

// ghosts finds the pieces that have looked the same for a while, of parts whose
// other pieces move, and makes those that something has left background.
func (s *search) ghosts(b *background, gray []byte) {
	w := s.set.Width
	for y := range s.tmp.height {
		row, still := s.clean.row(y), s.tmp.row(y)
		clear(still)
		for from, to := next(row, 0, w); from < to; from, to = next(row, to, w) {
			for x := from; x < to; x++ {
				if b.age[y*w+x] >= s.quiet {
					still[x>>6] |= 1 << uint(x&63)
				}
			}
		}
	}
	s.still.majority(&s.tmp, s.rows)
	s.parts.find(&s.still)
	for _, r := range s.parts.runs {
		s.outline(&s.parts.list[r.label], b, gray, int(r.y), int(r.from), int(r.to))
	}
	for _, r := range s.parts.runs {
		if p := &s.parts.list[r.label]; p.area >= s.minArea/2 && p.left() {
			for x := max(int(r.from)-reach, 0); x < min(int(r.to)+reach, w); x++ {
				b.absorb(int(r.y)*w+x, gray[int(r.y)*w+x])
			}
		}
	}
}

// outline counts the run from..to of row y, and compares the steps at both of
// its ends in the frame and in the background. Around an object that is there the
// frame has the steps; around the place that one has left, the background has
// them. An end that touches something else tells nothing.
func (s *search) outline(p *part, b *background, gray []byte, y, from, to int) {
	w := s.set.Width
	row := s.clean.row(y)
	p.area += to - from
	p.ends += 2
	if x := from - reach; x >= 0 && row[x>>6]>>uint(x&63)&1 == 0 {
		p.step(b, gray, y*w+min(from+reach-1, to-1), y*w+x)
	}
	if x := to + reach - 1; x < w && row[x>>6]>>uint(x&63)&1 == 0 {
		p.step(b, gray, y*w+max(to-reach, from), y*w+x)
	}
}

func (p *part) step(b *background, gray []byte, inner, outer int) {
	now := int(gray[inner]) - int(gray[outer])
	then := (int(b.mean[inner]) - int(b.mean[outer])) / one
	diff := int(gray[inner]) - int(b.mean[inner])/one
	p.steps += max(then, -then) - max(now, -now)
	p.edge += max(diff, -diff)
	p.free++
}

// left says whether the part is a place that something has left.
func (p *part) left() bool {
	return p.free*3 >= p.ends && float64(p.steps) > ghostShare*float64(p.edge)
}
