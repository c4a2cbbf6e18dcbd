package tracking

import (
	"math"
	"testing"

	"millrace/internal/clip/truth"
)

// named is a box with the id of an object or of a track.
type named struct {
	id  int
	box truth.Box
}

// scored is one frame for the measures: the objects, and the boxes with ids of a tracker.
type scored struct{ objects, tracked []named }

// measures are the measures of a sequence.
type measures struct {
	MOTA, IDF1, HOTA, DetA, AssA float64
	Switches                     int

	objects, found, falsely int // objects, and tracked boxes with and without an object
	matched                 int // frames of the identities' pairs, for IDF1
	tracked                 int
	tp, fn, fp              [alphas]float64
	associated              [alphas]float64 // sums over pairs
}

// alphas is the number of thresholds of HOTA: 0.05, 0.1, ... 0.95.
const alphas = 19

// add adds a sequence to the measures.
func (m *measures) add(frames []scored) {
	ids := func(of func(f *scored) []named) (index map[int]int) {
		index = map[int]int{}
		for i := range frames {
			for _, n := range of(&frames[i]) {
				if _, ok := index[n.id]; !ok {
					index[n.id] = len(index)
				}
			}
		}
		return index
	}
	objects := ids(func(f *scored) []named { return f.objects })
	tracks := ids(func(f *scored) []named { return f.tracked })
	similar := make([][][]float64, len(frames)) // IoU by frame, object and tracked box
	for i, f := range frames {
		similar[i] = grid(len(f.objects), len(f.tracked))
		for a, o := range f.objects {
			for b, k := range f.tracked {
				similar[i][a][b] = truth.IoU(o.box, k.box)
			}
		}
	}
	m.clear(frames, similar)
	m.identity(frames, similar, objects, tracks)
	m.hota(frames, similar, objects, tracks)
	m.finish()
}

// clear counts as CLEAR MOT (Bernardin and Stiefelhagen 2008): an object and a track that were a pair in the frame
// before stay a pair while the IoU is at least 0.5.
func (m *measures) clear(frames []scored, similar [][][]float64) {
	pairs, last := map[int]int{}, map[int]int{} // track of an object: in the frame before, at any time before
	for i, f := range frames {
		worth := grid(len(f.objects), len(f.tracked))
		for a, o := range f.objects {
			for b, k := range f.tracked {
				if s := similar[i][a][b]; s >= 0.5 {
					worth[a][b] = s
					if id, ok := pairs[o.id]; ok && id == k.id {
						worth[a][b] += 1000
					}
				}
			}
		}
		clear(pairs)
		for a, b := range best(worth) {
			if b < 0 || worth[a][b] == 0 {
				continue
			}
			o, k := f.objects[a].id, f.tracked[b].id
			if old, ok := last[o]; ok && old != k {
				m.Switches++
			}
			pairs[o], last[o] = k, k
			m.found++
		}
		m.objects += len(f.objects)
		m.tracked += len(f.tracked)
	}
	m.falsely = m.tracked - m.found
}

// identity counts as IDF1 (Ristani et al. 2016): one track for each object over the whole sequence.
func (m *measures) identity(frames []scored, similar [][][]float64, objects, tracks map[int]int) {
	together := grid(len(objects), len(tracks)) // frames
	for i, f := range frames {
		for a, o := range f.objects {
			for b, k := range f.tracked {
				if similar[i][a][b] >= 0.5 {
					together[objects[o.id]][tracks[k.id]]++
				}
			}
		}
	}
	for a, b := range best(together) {
		if b >= 0 {
			m.matched += int(together[a][b])
		}
	}
}

// hota counts as HOTA (Luiten et al. 2021). Pairs of a frame prefer an object and a track that are together often.
func (m *measures) hota(frames []scored, similar [][][]float64, objects, tracks map[int]int) {
	align := grid(len(objects), len(tracks))
	inObject, inTrack := make([]float64, len(objects)), make([]float64, len(tracks)) // frames
	for i, f := range frames {
		rows, cols := make([]float64, len(f.objects)), make([]float64, len(f.tracked))
		for a := range f.objects {
			for b := range f.tracked {
				rows[a] += similar[i][a][b]
				cols[b] += similar[i][a][b]
			}
		}
		for a, o := range f.objects {
			inObject[objects[o.id]]++
			for b, k := range f.tracked {
				if s := similar[i][a][b]; s > 0 {
					align[objects[o.id]][tracks[k.id]] += s / (rows[a] + cols[b] - s)
				}
			}
		}
		for _, k := range f.tracked {
			inTrack[tracks[k.id]]++
		}
	}
	for o := range align {
		for k, both := range align[o] {
			if both > 0 {
				align[o][k] = both / (inObject[o] + inTrack[k] - both)
			}
		}
	}
	var pairs [alphas]map[[2]int]float64 // frames of an object and a track together
	for n := range pairs {
		pairs[n] = map[[2]int]float64{}
	}
	for i, f := range frames {
		worth := grid(len(f.objects), len(f.tracked))
		for a, o := range f.objects {
			for b, k := range f.tracked {
				worth[a][b] = align[objects[o.id]][tracks[k.id]] * similar[i][a][b]
			}
		}
		chosen := best(worth)
		for n := range alphas {
			tp := 0.0
			for a, b := range chosen {
				if b >= 0 && similar[i][a][b] >= float64(n+1)/20-1e-12 {
					tp++
					pairs[n][[2]int{objects[f.objects[a].id], tracks[f.tracked[b].id]}]++
				}
			}
			m.tp[n] += tp
			m.fn[n] += float64(len(f.objects)) - tp
			m.fp[n] += float64(len(f.tracked)) - tp
		}
	}
	for n := range alphas {
		for p, both := range pairs[n] {
			m.associated[n] += both * both / (inObject[p[0]] + inTrack[p[1]] - both)
		}
	}
}

func (m *measures) finish() {
	m.MOTA = 1 - float64(m.objects-m.found+m.falsely+m.Switches)/float64(m.objects)
	m.IDF1 = 2 * float64(m.matched) / float64(m.objects+m.tracked)
	m.HOTA, m.DetA, m.AssA = 0, 0, 0
	for n := range alphas {
		det, ass := m.tp[n]/(m.tp[n]+m.fn[n]+m.fp[n]), m.associated[n]/max(1, m.tp[n])
		m.DetA += det / alphas
		m.AssA += ass / alphas
		m.HOTA += math.Sqrt(det*ass) / alphas
	}
}

func grid(rows, cols int) [][]float64 {
	g := make([][]float64, rows)
	for i := range g {
		g[i] = make([]float64, cols)
	}
	return g
}

// best returns the column of each row, -1 for none, with the largest sum of the worths, which are not negative: the
// Hungarian method on a dense matrix, in time rows^2 x columns.
func best(worth [][]float64) []int {
	rows := len(worth)
	column := make([]int, rows)
	for i := range column {
		column[i] = -1
	}
	if rows == 0 || len(worth[0]) == 0 {
		return column
	}
	cols := max(rows, len(worth[0])) // a column beyond the matrix is worth nothing
	u, v := make([]float64, rows+1), make([]float64, cols+1)
	owner, way := make([]int, cols+1), make([]int, cols+1) // 1-based rows, 0 for none
	for i := 1; i <= rows; i++ {
		owner[0] = i
		least, used := make([]float64, cols+1), make([]bool, cols+1)
		for j := range least {
			least[j] = math.Inf(1)
		}
		j := 0
		for owner[j] != 0 {
			used[j] = true
			r, delta, next := owner[j], math.Inf(1), 0
			for c := 1; c <= cols; c++ {
				if used[c] {
					continue
				}
				cost := 0.0
				if c <= len(worth[0]) {
					cost = -worth[r-1][c-1]
				}
				if d := cost - u[r] - v[c]; d < least[c] {
					least[c], way[c] = d, j
				}
				if least[c] < delta {
					delta, next = least[c], c
				}
			}
			for c := range used {
				if used[c] {
					u[owner[c]] += delta
					v[c] -= delta
				} else {
					least[c] -= delta
				}
			}
			j = next
		}
		for j != 0 {
			owner[j] = owner[way[j]]
			j = way[j]
		}
	}
	for c := 1; c <= len(worth[0]); c++ {
		if owner[c] > 0 && worth[owner[c]-1][c-1] > 0 {
			column[owner[c]-1] = c - 1
		}
	}
	return column
}

// The values of each case are computed by hand from the definitions, beside the case.
func TestMeasures(t *testing.T) {
	at := func(x float64) truth.Box { return truth.Box{x, 0, x + 10, 10} }
	// frames repeats a frame.
	frames := func(parts ...[]scored) (all []scored) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	times := func(n int, f scored) (all []scored) {
		for range n {
			all = append(all, f)
		}
		return all
	}
	boxes := func(ns ...named) []named { return ns }
	one := boxes(named{1, at(0)})
	// A part of IoU s with at(0): as high, s times as wide.
	part := func(s float64) truth.Box { return truth.Box{0, 0, 10 * s, 10} }
	names := []string{"MOTA", "IDF1", "HOTA", "DetA", "AssA"}
	two := boxes(named{1, at(0)}, named{2, at(100)})
	for _, c := range []struct {
		name                         string
		frames                       []scored
		mota, idf1, hota, deta, assa float64
		switches                     int
	}{
		{"perfect", times(10, scored{one, boxes(named{7, at(0)})}), 1, 1, 1, 1, 1, 0},
		// 10 objects, none found, 10 false: MOTA 1 - 20/10.
		{"elsewhere", times(10, scored{one, boxes(named{7, at(50)})}), -1, 0, 0, 0, 0, 0},
		{"nothing", times(10, scored{one, nil}), 0, 0, 0, 0, 0, 0},
		// MOTA 1 - 1/10. IDF1: one of two tracks, 2*5/(10+10). Each track is with the object in 5 of 10 frames of
		// either: AssA = (5*5/10 + 5*5/10)/10 = 0.5, DetA = 1, HOTA = sqrt(0.5).
		{"one switch in the middle", frames(times(5, scored{one, boxes(named{7, at(0)})}),
			times(5, scored{one, boxes(named{8, at(0)})})), 0.9, 0.5, math.Sqrt(0.5), 1, 0.5, 1},
		// MOTA 1 - 4/10. IDF1: 2*6/(10+6). DetA = 6/10, AssA = 6/10.
		{"lost for 4 frames", frames(times(3, scored{one, boxes(named{7, at(0)})}), times(4, scored{one, nil}),
			times(3, scored{one, boxes(named{7, at(0)})})), 0.6, 12.0 / 16, 0.6, 0.6, 0.6, 0},
		// Two objects, two tracks that change places after 8 of 10 frames: 2 switches of 20. IDF1 32/40.
		// Pairs of 8 frames: 8/12, pairs of 2 frames: 2/18. AssA = (2*8*8/12 + 2*2*2/18)/20.
		{"swap", frames(times(8, scored{two, boxes(named{7, at(0)}, named{8, at(100)})}),
			times(2, scored{two, boxes(named{8, at(0)}, named{7, at(100)})})), 0.9, 0.8,
			math.Sqrt((128.0/12 + 8.0/18) / 20), 1, (128.0/12 + 8.0/18) / 20, 2},
		// IoU 0.72: found at the 14 thresholds up to 0.7 of 19; DetA, AssA and HOTA are 1 there, and 0 above.
		{"small boxes", times(10, scored{one, boxes(named{7, part(0.72)})}), 1, 1, 14.0 / 19, 14.0 / 19, 14.0 / 19, 0},
		// IoU 0.4 is below 0.5: as nothing and 10 false for MOTA and IDF1; 8 of 19 thresholds for HOTA.
		{"too small boxes", times(10, scored{one, boxes(named{7, part(0.4)})}), -1, 0, 8.0 / 19, 8.0 / 19, 8.0 / 19, 0},
		// A false box in half of the frames: MOTA 1 - 5/10, IDF1 20/25, DetA 10/15, AssA 1.
		{"a false track", frames(times(5, scored{one, boxes(named{7, at(0)})}),
			times(5, scored{one, boxes(named{9, at(50)}, named{7, at(0)})})), 0.5, 0.8, math.Sqrt(10.0 / 15),
			10.0 / 15, 1, 0},
		// A second track on the object overlaps a little better (1 against 0.72) in 2 of 10 frames. CLEAR MOT keeps
		// the pair; 2 false: MOTA 1 - 2/10. IDF1 20/22.
		// HOTA keeps the pair too, because track 7 is with the object most often: at 14 thresholds DetA 10/12, AssA 1.
		{"a better box of another track", frames(times(4, scored{one, boxes(named{7, part(0.72)})}),
			times(2, scored{one, boxes(named{9, at(0)}, named{7, part(0.72)})}),
			times(4, scored{one, boxes(named{7, part(0.72)})})), 0.8, 20.0 / 22, 14.0 / 19 * math.Sqrt(10.0/12),
			14.0 / 19 * 10 / 12, 14.0 / 19, 0},
		// Track A in 6 frames, 5 of them alone, B and C together in 10 and B in one with A. Alone a track counts 1 for
		// the alignment, beside another 1/2: A 5.5/(16+6-5.5), B 5.5/(16+11-5.5), C 5/(16+10-5). So the object's pair
		// is A 6 times, then B 10 times. 16 found, 11 false, one switch; IDF1 takes B: 2*11/(16+27).
		{"two tracks at a time", frames(times(5, scored{one, boxes(named{7, at(0)})}),
			times(1, scored{one, boxes(named{8, at(0)}, named{7, at(0)})}),
			times(10, scored{one, boxes(named{9, at(0)}, named{8, at(0)})})), 1 - 12.0/16, 22.0 / 43,
			math.Sqrt(16.0 / 27 * (36.0/16 + 100.0/17) / 16), 16.0 / 27, (36.0/16 + 100.0/17) / 16, 1},
	} {
		var m measures
		m.add(c.frames)
		got := []float64{m.MOTA, m.IDF1, m.HOTA, m.DetA, m.AssA}
		for i, want := range []float64{c.mota, c.idf1, c.hota, c.deta, c.assa} {
			if math.Abs(got[i]-want) > 1e-9 {
				t.Errorf("%s: %s is %.6f, not %.6f", c.name, names[i], got[i], want)
			}
		}
		if m.Switches != c.switches {
			t.Errorf("%s: %d switches, not %d", c.name, m.Switches, c.switches)
		}
	}
}
