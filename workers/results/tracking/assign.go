package tracking

import "math"

// matcher assigns boxes to tracks, with reused memory.
type matcher struct {
	overlap []float64 // boxes x tracks
	trackOf []int     // of each box, -1 for none
	u, v    []float64 // potentials
	row     []int     // box of each track's column, 0 for none; 1-based
	way     []int
	least   []float64
	used    []bool
}

// assign returns the track of each box, -1 for none, with the largest sum of the overlaps of at least c.IoU: the
// Hungarian method (Kuhn 1955, Munkres 1957) by shortest augmenting paths with potentials (Jonker and Volgenant
// 1987), in time boxes^2 x (tracks + boxes).
func (m *matcher) assign(tracks []*track, boxes []Box, c *Config) []int {
	nb, nt := len(boxes), len(tracks)
	m.trackOf = m.trackOf[:0]
	for range boxes {
		m.trackOf = append(m.trackOf, -1)
	}
	if nb == 0 || nt == 0 {
		return m.trackOf
	}
	cols := nt + nb // each box also has its own column, for no track
	m.overlap = resize(m.overlap, nb*nt)
	for b := range boxes {
		for k, t := range tracks {
			o := 0.0
			if boxes[b].valid() && (!c.SameClass || t.class == boxes[b].Class) {
				if o = t.iou(&boxes[b]); o < c.IoU || math.IsNaN(o) {
					o = 0
				}
			}
			m.overlap[b*nt+k] = o
		}
	}
	cost := func(b, c int) float64 { // 0-based
		if c < nt {
			if o := m.overlap[b*nt+c]; o > 0 {
				return -o
			}
			return 1 // worse than no track
		}
		return 0
	}
	m.u, m.v = resize(m.u, nb+1), resize(m.v, cols+1)
	m.least = resize(m.least, cols+1)
	m.row, m.way = resize(m.row, cols+1), resize(m.way, cols+1)
	m.used = resize(m.used, cols+1)
	for i := 1; i <= nb; i++ {
		m.row[0] = i
		j0 := 0
		for j := range m.least {
			m.least[j], m.used[j] = math.Inf(1), false
		}
		for {
			m.used[j0] = true
			i0, delta, j1 := m.row[j0], math.Inf(1), 0
			for j := 1; j <= cols; j++ {
				if m.used[j] {
					continue
				}
				if c := cost(i0-1, j-1) - m.u[i0] - m.v[j]; c < m.least[j] {
					m.least[j], m.way[j] = c, j0
				}
				if m.least[j] < delta {
					delta, j1 = m.least[j], j
				}
			}
			for j := 0; j <= cols; j++ {
				if m.used[j] {
					m.u[m.row[j]] += delta
					m.v[j] -= delta
				} else {
					m.least[j] -= delta
				}
			}
			if j0 = j1; m.row[j0] == 0 {
				break
			}
		}
		for j0 != 0 {
			j1 := m.way[j0]
			m.row[j0] = m.row[j1]
			j0 = j1
		}
	}
	for j := 1; j <= nt; j++ {
		if i := m.row[j]; i > 0 && m.overlap[(i-1)*nt+j-1] > 0 {
			m.trackOf[i-1] = j - 1
		}
	}
	return m.trackOf
}

// resize returns a slice of n zeros, in the memory of s if large enough.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, 2*n)
	}
	s = s[:n]
	clear(s)
	return s
}
