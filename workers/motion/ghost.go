package motion

const (
	// reach is the distance, in pixels, from an outline to the measured points of the outline's step, because edges
	// are blurred.
	reach = 2
	// ghostShare is the least amount, relative to the outline's contrast, by which the
	// steps of a ghost are larger in the background than in the frame: 1 for a perfect
	// ghost, -1 for an object.
	ghostShare = 0.4
)

// removeGhosts finds ghosts and makes ghosts background. A ghost is an unchanged piece of the foreground left behind
// by an object of the background.
func (s *search) removeGhosts(b *background, gray []byte) {
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
		if p := &s.parts.list[r.label]; p.area >= s.minArea/2 && p.isVacated() {
			for x := max(int(r.from)-reach, 0); x < min(int(r.to)+reach, w); x++ {
				b.adopt(int(r.y)*w+x, gray[int(r.y)*w+x])
			}
		}
	}
}

// outline counts the run from..to of row y, and compares the steps at both ends of the run in the frame and in the
// background. Around an object the frame has the steps; around a ghost the background has the steps. Ends next to
// other foreground are not measured.
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

// step adds the step between two pixels inside and outside of the outline.
func (p *part) step(b *background, gray []byte, inner, outer int) {
	now := int(gray[inner]) - int(gray[outer])
	then := (int(b.mean[inner]) - int(b.mean[outer])) / one
	diff := int(gray[inner]) - int(b.mean[inner])/one
	p.steps += max(then, -then) - max(now, -now)
	p.edge += max(diff, -diff)
	p.free++
}

// isVacated reports whether an object has left the part.
func (p *part) isVacated() bool {
	return p.free*3 >= p.ends && float64(p.steps) > ghostShare*float64(p.edge)
}
