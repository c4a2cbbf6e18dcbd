package tracking

import (
	"math"
	"time"
)

// matcher assigns boxes to tracks in one or several rounds, with reused memory.
type matcher struct {
	trackOf []int // by box, -1 for none
	boxOf   []int // by track, -1 for none

	// Of one round; rows are boxes and columns are tracks.
	rows, cols []int // numbers of the boxes and tracks without a partner
	areas      []area
	edges      []edge
	first      []int // by row: the row's first edge; one more entry ends the last row
	u, v       []float64
	colOf      []int // by row, -1 for none
	rowOf      []int // by column, -1 for none
	far        []float64
	way        []int // by column: the row before the column on the shortest path
	state      []uint8
	touched    []int // columns with a distance
}

// edge is a pair of a row and a column with enough overlap.
type edge struct {
	col     int
	overlap float64
}

// area is the corners of a predicted box, and the box's size.
type area struct{ x1, y1, x2, y2, size float64 }

func (a *area) iou(b *area) float64 {
	w := min(a.x2, b.x2) - max(a.x1, b.x1)
	h := min(a.y2, b.y2) - max(a.y1, b.y1)
	if w <= 0 || h <= 0 {
		return 0
	}
	both := w * h
	return both / (a.size + b.size - both)
}

// begin makes all boxes and tracks free.
func (m *matcher) begin(tracks, boxes int) {
	m.trackOf, m.boxOf = refill(m.trackOf, boxes, -1), refill(m.boxOf, tracks, -1)
}

// round is one assignment of free boxes to free tracks.
type round struct {
	score          float32       // of the boxes with a high score, at least
	high, low      bool          // boxes with a high score, with a low score
	named, unnamed bool          // tracks with an id, without an id
	since          time.Duration // tracks seen at this time or later
	least          float64       // overlap
	sameClass      bool
	last           bool // compare with the last boxes of the tracks, not with the predictions
}

func (r *round) takesTrack(k *track) bool {
	return k.seen >= r.since && (k.id != 0 && r.named || k.id == 0 && r.unnamed)
}

func (r *round) takesBox(b *Box) bool {
	if b.Score >= r.score {
		return r.high && b.valid()
	}
	return r.low && b.valid()
}

// assign pairs free boxes with free tracks by the largest sum of overlaps: shortest augmenting paths with potentials
// (Jonker and Volgenant 1987) over the pairs with enough overlap only. Groups of boxes far from each other do not slow
// each other down; the time is at most boxes x pairs.
func (m *matcher) assign(tracks []*track, boxes []Box, r *round) {
	m.rows, m.cols, m.areas = m.rows[:0], m.cols[:0], m.areas[:0]
	for k, t := range tracks {
		if m.boxOf[k] < 0 && r.takesTrack(t) {
			m.cols = append(m.cols, k)
			a := t.last
			if !r.last {
				a = t.area()
			}
			m.areas = append(m.areas, a)
		}
	}
	m.edges, m.first = m.edges[:0], m.first[:0]
	for b := range boxes {
		box := &boxes[b]
		if m.trackOf[b] >= 0 || !r.takesBox(box) {
			continue
		}
		m.rows, m.first = append(m.rows, b), append(m.first, len(m.edges))
		a := box.area()
		for c := range m.areas {
			if p := &m.areas[c]; p.x1 < a.x2 && a.x1 < p.x2 && p.y1 < a.y2 && a.y1 < p.y2 {
				if o := p.iou(&a); o >= r.least && !(r.sameClass && tracks[m.cols[c]].class != box.Class) {
					m.edges = append(m.edges, edge{c, o})
				}
			}
		}
	}
	m.first = append(m.first, len(m.edges))
	m.solve()
	for i, c := range m.colOf {
		if c >= 0 {
			m.trackOf[m.rows[i]], m.boxOf[m.cols[c]] = m.cols[c], m.rows[i]
		}
	}
}

// States of a column in a search.
const (
	unseen uint8 = iota
	reached
	done
)

// solve finds the column of each row with the largest sum of overlaps. The cost of a pair is the overlap below zero,
// the cost of a row without a column is zero.
func (m *matcher) solve() {
	nr, nc := len(m.rows), len(m.cols)
	m.u, m.v = refill(m.u, nr, 0), refill(m.v, nc, 0)
	m.colOf, m.rowOf = refill(m.colOf, nr, -1), refill(m.rowOf, nc, -1)
	m.far, m.way, m.state = refill(m.far, nc, 0), refill(m.way, nc, 0), refill(m.state, nc, unseen)
	for row := range nr {
		if m.first[row] < m.first[row+1] {
			m.augment(row)
		}
	}
}

// augment gives the row a column, or leaves a row without a column, by the cheapest path of changes.
func (m *matcher) augment(start int) {
	m.touched = m.touched[:0]
	i, at := start, 0.0
	end, loser, without := -1, start, math.Inf(1) // the path ends at a free column, or leaves the loser without one
	for {
		if d := at - m.u[i]; d < without {
			without, loser = d, i
		}
		for _, e := range m.edges[m.first[i]:m.first[i+1]] {
			if m.state[e.col] == done {
				continue
			}
			d := at - e.overlap - m.u[i] - m.v[e.col]
			if m.state[e.col] == unseen {
				m.state[e.col] = reached
				m.touched = append(m.touched, e.col)
			} else if d >= m.far[e.col] {
				continue
			}
			m.far[e.col], m.way[e.col] = d, i
		}
		next := -1
		for _, c := range m.touched {
			if m.state[c] == reached && (next < 0 || m.far[c] < m.far[next]) {
				next = c
			}
		}
		if next < 0 || without <= m.far[next] {
			at = without
			break
		}
		at = m.far[next]
		if m.rowOf[next] < 0 {
			end = next
			break
		}
		m.state[next] = done
		i = m.rowOf[next]
	}
	m.u[start] += at
	for _, c := range m.touched {
		if m.state[c] == done {
			m.u[m.rowOf[c]] += at - m.far[c]
			m.v[c] += m.far[c] - at
		}
		m.state[c] = unseen
	}
	if end < 0 { // the loser's column becomes free
		end, m.colOf[loser] = m.colOf[loser], -1
		if loser == start {
			return
		}
	}
	for {
		row := m.way[end]
		m.rowOf[end] = row
		end, m.colOf[row] = m.colOf[row], end
		if row == start {
			return
		}
	}
}

// refill returns a slice of n times v, in the memory of s if large enough.
func refill[T any](s []T, n int, v T) []T {
	if cap(s) < n {
		s = make([]T, n, 2*n)
	}
	s = s[:n]
	for i := range s {
		s[i] = v
	}
	return s
}
