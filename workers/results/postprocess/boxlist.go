package postprocess

import (
	"encoding/binary"

	"millrace/stream"
)

// boxList collects the boxes of each row and writes tensors, for the kinds boxes and yolo.
//
//	boxes   FP32  [rows, n, 4]  x1 y1 x2 y2 in pixels of the frame, inside the frame
//	scores  FP32  [rows, n]
//	classes INT64 [rows, n]     with two classes or more
//	labels  BYTES [rows, n]     with names
//
// n is the length of the longest row. Shorter rows end with boxes of zeros with score 0, class -1 and an empty name.
type boxList struct {
	format  string
	sx, sy  float32 // raw coordinates to pixels of the model's input
	iou     float64
	overlap func(a, b *candidate, iou float64) bool // nil = of upright boxes
	limit   int
	least   float32 // score
	classes bool
	labels  labels
	units   unitCheck

	best       best
	candidates []candidate // of all rows, row by row
	ends       []int       // of each row in candidates
	shapes     shapes
	data       [4][]byte
	longest    int              // boxes of a row
	out        [6]stream.Tensor // including the tensors of the YOLO tasks
}

// complete sets the fields that depend on the model. classes is the number of classes, -1 = unknown; output has the
// boxes; background forbids a name for the background in the file of labels.
func (f *boxList) complete(in *finder, classes int, units, output string, background bool) (err error) {
	if f.sx, f.sy, err = in.scale(units == "normalised"); err != nil {
		return err
	}
	f.units = in.unitCheck(units, output)
	f.labels, err = in.readLabels(classes, background)
	f.classes, f.best = classes != 1, newBest(maxCandidates)
	if f.overlap == nil {
		f.overlap = overlap
	}
	return err
}

func (f *boxList) classNames() []string {
	list := make([]string, 0, len(f.labels.names))
	for _, element := range f.labels.names {
		list = append(list, string(element[4:])) // behind the length
	}
	return list
}

func (f *boxList) specs() []stream.TensorSpec {
	list := []stream.TensorSpec{
		{Name: "boxes", Datatype: stream.Float32, Shape: []int{-1, 4}},
		{Name: "scores", Datatype: stream.Float32, Shape: []int{-1}},
	}
	if f.classes {
		list = append(list, stream.TensorSpec{Name: "classes", Datatype: stream.Int64, Shape: []int{-1}})
	}
	if f.labels.names != nil {
		list = append(list, stream.TensorSpec{Name: "labels", Datatype: stream.Bytes, Shape: []int{-1}})
	}
	return list
}

// begin removes the rows of the previous call.
func (f *boxList) begin() {
	f.candidates, f.ends, f.best.candidates = f.candidates[:0], f.ends[:0], f.best.candidates[:0]
	f.units.begin()
}

// accepts reports whether a box with this score can be part of the result.
func (f *boxList) accepts(score float32) bool {
	return score >= f.least && finite(score) && f.best.accepts(score)
}

// add adds the box number index of the row, by ascending index, in the raw format. A
// box whose corners are NaN, infinite or in the wrong order is left out.
func (f *boxList) add(index int, score float32, class int, a, b, c, d float32) {
	h := candidate{a, b, c, d, score, int32(class), int32(index)}
	switch f.format {
	case "xywh":
		h.x2, h.y2 = a+c, b+d
	case "cxcywh":
		h.x1, h.y1, h.x2, h.y2 = a-c/2, b-d/2, a+c/2, b+d/2
	}
	h.x1, h.y1, h.x2, h.y2 = h.x1*f.sx, h.y1*f.sy, h.x2*f.sx, h.y2*f.sy
	if finite(h.x1) && finite(h.y1) && finite(h.x2) && finite(h.y2) && h.x1 <= h.x2 && h.y1 <= h.y2 {
		f.units.see(a, b, c, d)
		f.best.add(h)
	}
}

// end ends a row.
func (f *boxList) end() {
	f.candidates = append(f.candidates, suppress(f.best.drain(), f.iou, f.limit, f.overlap)...)
	f.ends = append(f.ends, len(f.candidates))
}

// tensors writes the rows.
func (f *boxList) tensors(at Mapping) []stream.Tensor {
	longest, from := 0, 0
	for _, end := range f.ends {
		longest, from = max(longest, end-from), end
	}
	f.longest = longest
	list, scores, classes, names := f.data[0][:0], f.data[1][:0], f.data[2][:0], f.data[3][:0]
	from = 0
	for _, end := range f.ends {
		for i := from; i < from+longest; i++ {
			var x1, y1, x2, y2, score float32
			class := -1
			if i < end {
				h := &f.candidates[i]
				x1, y1 = at.clampedPoint(h.x1, h.y1)
				x2, y2 = at.clampedPoint(h.x2, h.y2)
				score, class = h.score, int(h.class)
			}
			list = stream.AppendFloat32(list, x1, y1, x2, y2)
			scores = stream.AppendFloat32(scores, score)
			if f.classes {
				classes = binary.LittleEndian.AppendUint64(classes, uint64(class))
			}
			if f.labels.names != nil {
				names = f.labels.append(names, class)
			}
		}
		from = end
	}
	f.data = [4][]byte{list, scores, classes, names}
	shape := f.shapes.of(len(f.ends), longest, 4)
	flat := shape[:2:2]
	out := append(f.out[:0],
		stream.Tensor{Name: "boxes", Datatype: stream.Float32, Shape: shape, Data: list},
		stream.Tensor{Name: "scores", Datatype: stream.Float32, Shape: flat, Data: scores})
	if f.classes {
		out = append(out, stream.Tensor{Name: "classes", Datatype: stream.Int64, Shape: flat, Data: classes})
	}
	if f.labels.names != nil {
		out = append(out, stream.Tensor{Name: "labels", Datatype: stream.Bytes, Shape: flat, Data: names})
	}
	return out
}
