package truth

import "sort"

// MinIoU is how far a detection must agree with the truth to count, MinIoURead how far one that also names a class.
const (
	MinIoU     = 0.3
	MinIoURead = 0.5
)

// Found is what a detector says that reads: where, and which class.
type Found struct {
	Box   Box
	Class int
}

// Score counts matches over any number of frames. The zero value is ready; not for concurrent use.
type Score struct {
	// Hits are matched pairs, False detections without an object, Missed moving objects without a detection.
	Hits, False, Missed int
}

// Add scores one frame: detections against its moving objects. A detection that matches only an object standing still
// counts neither way: detectors see the last of its movement for some frames, and they are right. Nor does one that lies
// mostly in a box to ignore.
func (s *Score) Add(f *Frame, detections []Box) {
	s.add(f, detections, func(a Object, i int) bool { return IoU(a.Box, detections[i]) >= MinIoU })
}

// AddRead scores one frame like Add, with an IoU of at least MinIoURead, and a detection matches an object that has a
// class only when it names that class. One that misreads an object counts as false, and the object as missed.
func (s *Score) AddRead(f *Frame, detections []Found) {
	boxes := make([]Box, len(detections))
	for i, d := range detections {
		boxes[i] = d.Box
	}
	s.add(f, boxes, func(a Object, i int) bool {
		return IoU(a.Box, boxes[i]) >= MinIoURead && (a.Class == nil || *a.Class == detections[i].Class)
	})
}

func (s *Score) add(f *Frame, detections []Box, agree func(o Object, detection int) bool) {
	moving := f.moving()
	taken := match(moving, detections, agree)
	for _, ok := range taken.truth {
		if ok {
			s.Hits++
		} else {
			s.Missed++
		}
	}
	for i, ok := range taken.found {
		if ok || touchesStanding(f, detections[i]) || toIgnore(f, detections[i]) {
			continue
		}
		s.False++
	}
}

func toIgnore(f *Frame, d Box) bool {
	for _, b := range f.Ignore {
		if shared := overlap(b, d); shared > 0 && shared >= d.Area()/2 {
			return true
		}
	}
	return false
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

// match pairs objects with detections that agree with them, the best overlap first, each at most once.
func match(truth []Object, found []Box, agree func(o Object, detection int) bool) matched {
	type pair struct {
		i, j int
		iou  float64
	}
	var pairs []pair
	for i, a := range truth {
		for j, b := range found {
			if agree(a, j) {
				pairs = append(pairs, pair{i, j, IoU(a.Box, b)})
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
