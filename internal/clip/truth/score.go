package truth

import "sort"

// MinIoU is how far a detection must agree with the truth to count.
const MinIoU = 0.3

// Score counts matches over any number of frames. The zero value is ready; not for concurrent use.
type Score struct {
	// Hits are matched pairs, False detections without an object, Missed moving objects without a detection.
	Hits, False, Missed int
}

// Add scores one frame: detections against its moving objects. A detection that matches only an object standing still
// counts neither way: detectors see the last of its movement for some frames, and they are right.
func (s *Score) Add(f *Frame, detections []Box) {
	moving := f.Moving()
	taken := match(moving, detections)
	for _, ok := range taken.truth {
		if ok {
			s.Hits++
		} else {
			s.Missed++
		}
	}
	for i, ok := range taken.found {
		if ok || touchesStanding(f, detections[i]) {
			continue
		}
		s.False++
	}
}

func touchesStanding(f *Frame, d Box) bool {
	for _, o := range f.Objects {
		if !o.Moving && IoU(o.Box, d) >= MinIoU {
			return true
		}
	}
	return false
}

// Precision is the share of detections that are right, 1 when there was none.
func (s Score) Precision() float64 { return share(s.Hits, s.False) }

// Recall is the share of moving objects that were found, 1 when there was none.
func (s Score) Recall() float64 { return share(s.Hits, s.Missed) }

func share(good, bad int) float64 {
	if good+bad == 0 {
		return 1
	}
	return float64(good) / float64(good+bad)
}

type matched struct{ truth, found []bool }

// match pairs boxes of both lists, the best overlap first, each box at most once.
func match(truth, found []Box) matched {
	type pair struct {
		i, j int
		iou  float64
	}
	var pairs []pair
	for i, a := range truth {
		for j, b := range found {
			if v := IoU(a, b); v >= MinIoU {
				pairs = append(pairs, pair{i, j, v})
			}
		}
	}
	sort.SliceStable(pairs, func(a, b int) bool { return pairs[a].iou > pairs[b].iou })
	m := matched{make([]bool, len(truth)), make([]bool, len(found))}
	for _, p := range pairs {
		if !m.truth[p.i] && !m.found[p.j] {
			m.truth[p.i], m.found[p.j] = true, true
		}
	}
	return m
}
