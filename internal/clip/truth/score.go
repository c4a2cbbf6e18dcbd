package truth

import "sort"

// MinIoU is the least IoU of a detection with its object, MinIoUClassified the least IoU of a detection with a class.
const (
	MinIoU           = 0.3
	MinIoUClassified = 0.5
)

// Detection is a detected box and its class.
type Detection struct {
	Box   Box
	Class int
}

// Score counts matches over any number of frames. The zero value is ready; not for concurrent use.
type Score struct {
	// Hits are matched pairs, False detections without an object, Missed moving objects without a detection.
	Hits, False, Missed int
}

// Add scores one frame: detections against the frame's moving objects. A detection that matches only a standing
// object counts as neither hit nor false, since detectors correctly report an object's last movement for some frames.
// The same applies to a detection mostly inside an ignored box.
func (s *Score) Add(f *Frame, detections []Box) {
	s.add(f, detections, func(a Object, i int) bool { return IoU(a.Box, detections[i]) >= MinIoU })
}

// AddClassified scores one frame like Add, with an IoU of at least MinIoUClassified. A detection matches an object
// with a class only if the classes are equal. A detection with the wrong class counts as false, and the object as
// missed.
func (s *Score) AddClassified(f *Frame, detections []Detection) {
	boxes := make([]Box, len(detections))
	for i, d := range detections {
		boxes[i] = d.Box
	}
	s.add(f, boxes, func(a Object, i int) bool {
		return IoU(a.Box, boxes[i]) >= MinIoUClassified && (a.Class == nil || *a.Class == detections[i].Class)
	})
}

func (s *Score) add(f *Frame, detections []Box, agrees func(o Object, detection int) bool) {
	moving := f.moving()
	matched := match(moving, detections, agrees)
	for _, ok := range matched.objects {
		if ok {
			s.Hits++
		} else {
			s.Missed++
		}
	}
	for i, ok := range matched.detections {
		if ok || matchesStill(f, detections[i]) || mostlyIgnored(f, detections[i]) {
			continue
		}
		s.False++
	}
}

func mostlyIgnored(f *Frame, d Box) bool {
	for _, b := range f.Ignore {
		if shared := overlap(b, d); shared > 0 && shared >= d.Area()/2 {
			return true
		}
	}
	return false
}

func matchesStill(f *Frame, d Box) bool {
	for _, o := range f.Objects {
		if !o.Moving && IoU(o.Box, d) >= MinIoU {
			return true
		}
	}
	return false
}

// Precision is the share of hits among the detections, 1 without detections.
func (s Score) Precision() float64 { return share(s.Hits, s.False) }

// Recall is the share of moving objects found, 1 without moving objects.
func (s Score) Recall() float64 { return share(s.Hits, s.Missed) }

func share(good, bad int) float64 {
	if good+bad == 0 {
		return 1
	}
	return float64(good) / float64(good+bad)
}

// matches says for each object and each detection whether it is part of a pair.
type matches struct{ objects, detections []bool }

// match pairs objects with detections for which agrees is true, the best overlap first, each at most once.
func match(objects []Object, detections []Box, agrees func(o Object, detection int) bool) matches {
	type pair struct {
		i, j int
		iou  float64
	}
	var pairs []pair
	for i, a := range objects {
		for j, b := range detections {
			if agrees(a, j) {
				pairs = append(pairs, pair{i, j, IoU(a.Box, b)})
			}
		}
	}
	sort.SliceStable(pairs, func(a, b int) bool { return pairs[a].iou > pairs[b].iou })
	m := matches{make([]bool, len(objects)), make([]bool, len(detections))}
	for _, p := range pairs {
		if !m.objects[p.i] && !m.detections[p.j] {
			m.objects[p.i], m.detections[p.j] = true, true
		}
	}
	return m
}
