package motion

import "slices"

// fill closes small holes in the foreground, where an object looks like the
// background behind it.
func (s *search) fill() {
	for i, w := range s.clean.bits {
		s.tmp.bits[i] = ^w
	}
	s.tmp.trim()
	s.core.find(&s.tmp)
	for _, r := range s.core.runs {
		p := &s.core.list[r.label]
		p.area += int(r.to - r.from)
		if r.y == 0 || int(r.y) == s.set.Height-1 || r.from == 0 || int(r.to) == s.set.Width {
			p.area += len(s.raw.bits) * 64 // no hole, because the part touches the border
		}
	}
	for _, r := range s.core.runs {
		if s.core.list[r.label].area <= s.minArea {
			setBits(s.clean.row(int(r.y)), int(r.from), int(r.to))
		}
	}
}

// erode computes the cores of the foreground: eroding the foreground separates touching objects.
func (s *search) erode() {
	for i, w := range s.clean.bits {
		s.cores.bits[i] = ^w
	}
	s.cores.trim()
	s.grown.grow(&s.cores, &s.tmp, s.neckRadius)
	for i, w := range s.grown.bits {
		s.cores.bits[i] = ^w
	}
	s.cores.trim()
	s.core.find(&s.cores)
	for _, r := range s.core.runs {
		p := &s.core.list[r.label]
		p.area += int(r.to - r.from)
		p.x1, p.x2 = min(p.x1, r.from), max(p.x2, r.to)
		p.y1, p.y2 = min(p.y1, r.y), max(p.y2, r.y+1)
		p.x, p.y = r.from, r.y
	}
}

// split replaces each part with several cores by a part for each core.
func (s *search) split() {
	n := len(s.parts.list)
	for i := range s.core.list {
		c := &s.core.list[i]
		if c.area*4 >= s.minArea {
			s.parts.list[s.parts.at(c.x, c.y)].cores++
		}
	}
	k := int32(s.neckRadius)
	for i := range s.core.list {
		c := &s.core.list[i]
		if c.area*4 < s.minArea {
			continue
		}
		p := &s.parts.list[s.parts.at(c.x, c.y)]
		if p.cores < 2 || p.class != moving {
			continue
		}
		piece := *p
		piece.area = max(p.area/p.cores, 1)
		piece.diff /= int64(p.cores)
		piece.x1, piece.x2 = max(c.x1-k, p.x1), min(c.x2+k, p.x2)
		piece.y1, piece.y2 = max(c.y1-k, p.y1), min(c.y2+k, p.y2)
		s.parts.list = append(s.parts.list, piece)
	}
	for i := range s.parts.list[:n] {
		if s.parts.list[i].cores >= 2 {
			s.parts.list[i].class = cut
		}
	}
}

// at returns the label of the part with the pixel x, y. The pixel must be in a part.
func (p *parts) at(x, y int32) int32 {
	i, _ := slices.BinarySearchFunc(p.runs, run{y: y, from: x}, func(a, b run) int {
		if a.y != b.y {
			return int(a.y - b.y)
		}
		if a.to <= b.from {
			return -1
		}
		return 1
	})
	return p.runs[i].label
}

// setBits sets the bits from up to, not including, to.
func setBits(row []uint64, from, to int) {
	for k := from >> 6; k <= (to-1)>>6; k++ {
		lo, hi := max(from-64*k, 0), min(to-64*k, 64)
		row[k] |= ^uint64(0) >> uint(64-hi) >> uint(lo) << uint(lo)
	}
}
