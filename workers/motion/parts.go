package motion

// partClass is the class of a part.
type partClass uint8

const (
	noise  partClass = iota // too small
	moving                  // an object
	cut                     // replaced by the pieces
)

// part is one connected piece of the foreground.
type part struct {
	x1, y1, x2, y2 int32
	area           int   // pixels
	diff           int64 // sum of their differences from the background, times 256
	steps          int   // sum of the steps at the outline, in the background minus in the frame
	edge           int   // sum of the differences at the outline
	ends, free     int   // ends of runs, and ends that touch no other foreground
	cores          int   // number of cores in the part
	x, y           int32 // a pixel of the part
	class          partClass
}

// run is a piece of one row: pixels from up to, not including, to.
type run struct {
	y, from, to int32
	label       int32 // of the run's part, once the parts are found
}

// parts finds the connected pieces of a mask, run by run, with a union-find over
// the runs' labels.
type parts struct {
	runs   []run
	parent []int32
	list   []part
}

// find computes the runs, and an empty part for each connected piece. Runs in
// neighbouring rows are connected when they share a column or touch at a corner.
func (p *parts) find(m *mask) {
	p.runs, p.parent, p.list = p.runs[:0], p.parent[:0], p.list[:0]
	above, begin := 0, 0 // runs[above:begin] are the runs of the row above
	for y := range m.height {
		row := m.row(y)
		for from, to := next(row, 0, m.width); from < m.width; from, to = next(row, to, m.width) {
			r := run{int32(y), int32(from), int32(to), -1}
			for above < begin && p.runs[above].to < r.from {
				above++
			}
			for k := above; k < begin && p.runs[k].from <= r.to; k++ {
				r.label = p.join(r.label, p.runs[k].label)
			}
			if r.label < 0 {
				r.label = int32(len(p.parent))
				p.parent = append(p.parent, r.label)
			}
			p.runs = append(p.runs, r)
		}
		above, begin = begin, len(p.runs)
	}
	// Parents come before their children, so one pass numbers the parts.
	for i := range p.parent {
		if q := p.parent[i]; int(q) == i {
			p.parent[i] = int32(len(p.list))
			p.list = append(p.list, part{x1: int32(m.width), y1: int32(m.height)})
		} else {
			p.parent[i] = p.parent[q]
		}
	}
	for i := range p.runs {
		p.runs[i].label = p.parent[p.runs[i].label]
	}
}

// join merges two labels and returns the result; a may be -1 for none.
func (p *parts) join(a, b int32) int32 {
	b = p.root(b)
	if a < 0 {
		return b
	}
	a = p.root(a)
	if a > b {
		a, b = b, a
	}
	p.parent[b] = a
	return a
}

func (p *parts) root(i int32) int32 {
	for p.parent[i] != i {
		p.parent[i] = p.parent[p.parent[i]]
		i = p.parent[i]
	}
	return i
}

// stillStep is the largest difference of an unchanged pixel from the frame before, by noise.
const stillStep = 6

// measure computes the parts from the foreground pixels, and sets their class.
func (s *search) measure(b *background, gray []byte) {
	w := s.set.Width
	for _, r := range s.parts.runs {
		p := &s.parts.list[r.label]
		row := s.clean.row(int(r.y))
		at := int(r.y) * w
		for from, to := next(row, int(r.from), int(r.to)); from < to; from, to = next(row, to, int(r.to)) {
			p.x1, p.x2 = min(p.x1, int32(from)), max(p.x2, int32(to))
			p.y1, p.y2 = min(p.y1, r.y), max(p.y2, r.y+1)
			for i := at + from; i < at+to; i++ {
				d := int32(gray[i])*one - int32(b.mean[i])
				p.diff += int64(max(d, -d))
			}
			p.area += to - from
		}
	}
	for i := range s.parts.list {
		if p := &s.parts.list[i]; p.area >= s.minArea {
			p.class = moving
		}
	}
}

// learnParts updates the background under marked pixels: pixels of moving parts age, all other pixels are learned.
func (s *search) learnParts(b *background, gray []byte, share int32) {
	w := s.set.Width
	ticks := b.frames%s.tick == 0
	for _, r := range s.parts.runs {
		if s.parts.list[r.label].class != moving {
			continue
		}
		at := int(r.y) * w
		row, raw := s.clean.row(int(r.y)), s.raw.row(int(r.y))
		for from, to := next(row, int(r.from), int(r.to)); from < to; from, to = next(row, to, int(r.to)) {
			clearBits(raw, from, to) // the rest of raw is learned below
			if ticks {
				s.ageRun(b, gray, at+from, at+to)
			}
		}
	}
	for y := range s.raw.height {
		row := s.raw.row(y)
		at := y * w
		for from, to := next(row, 0, w); from < to; from, to = next(row, to, w) {
			for i := at + from; i < at+to; i++ {
				b.relearn(i, gray[i], share)
			}
		}
	}
}

// ageRun increases the age of unchanged pixels from i up to end. Old pixels become background.
func (s *search) ageRun(b *background, gray []byte, i, end int) {
	for ; i < end; i++ {
		c := int(gray[i]) - int(b.prev[i])
		switch age := b.age[i]; {
		case max(c, -c) > stillStep:
			b.age[i] = age / 2
		case age >= s.old:
			b.adopt(i, gray[i])
		default:
			b.age[i] = age + 1
		}
	}
}

// clearBits clears the bits from up to, not including, to.
func clearBits(row []uint64, from, to int) {
	for k := from >> 6; k <= (to-1)>>6; k++ {
		lo, hi := max(from-64*k, 0), min(to-64*k, 64)
		row[k] &^= ^uint64(0) >> uint(64-hi) >> uint(lo) << uint(lo)
	}
}
