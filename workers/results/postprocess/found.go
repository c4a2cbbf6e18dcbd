package postprocess

import (
	"encoding/binary"

	"millrace/stream"
)

// found gathers the boxes of each row and writes them as tensors: what the kinds
// boxes and yolo answer.
//
//	boxes   FP32  [rows, n, 4]  x1 y1 x2 y2 in pixels of the frame, inside it
//	scores  FP32  [rows, n]
//	classes INT64 [rows, n]     when there is more than one
//	labels  BYTES [rows, n]     when there are names
//
// n is that of the longest row. Shorter ones end in boxes of zeros with score 0,
// class -1 and an empty name.
type found struct {
	format  string
	sx, sy  float32 // raw coordinates to pixels of the model's input
	iou     float64
	limit   int
	least   float32 // score
	classes bool
	labels  labels

	best   best
	hits   []hit // of all rows, row by row
	ends   []int // of each row in hits
	shapes shapes
	data   [4][]byte
	out    [4]stream.Tensor
}

// complete fills in what depends on the model. classes is their number, -1 = unknown;
// background says that the file of labels may not count it.
func (f *found) complete(in *finder, classes int, units string, background bool) (err error) {
	if f.sx, f.sy, err = in.scale(units == "normalised"); err != nil {
		return err
	}
	f.labels, err = in.readLabels(classes, background)
	f.classes, f.best = classes != 1, newBest(candidates)
	return err
}

func (f *found) specs() []stream.TensorSpec {
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

// begin forgets the rows before.
func (f *found) begin() { f.hits, f.ends, f.best.hits = f.hits[:0], f.ends[:0], f.best.hits[:0] }

// wants says whether a box with this score can be answered.
func (f *found) wants(score float32) bool {
	return score >= f.least && finite(score) && f.best.takes(score)
}

// add takes the box number index of the row, by ascending index, in the raw
// format. One whose corners are no numbers or the wrong way round is left out.
func (f *found) add(index int, score float32, class int, a, b, c, d float32) {
	h := hit{a, b, c, d, score, int32(class), int32(index)}
	switch f.format {
	case "xywh":
		h.x2, h.y2 = a+c, b+d
	case "cxcywh":
		h.x1, h.y1, h.x2, h.y2 = a-c/2, b-d/2, a+c/2, b+d/2
	}
	h.x1, h.y1, h.x2, h.y2 = h.x1*f.sx, h.y1*f.sy, h.x2*f.sx, h.y2*f.sy
	if finite(h.x1) && finite(h.y1) && finite(h.x2) && finite(h.y2) && h.x1 <= h.x2 && h.y1 <= h.y2 {
		f.best.add(h)
	}
}

// end ends a row.
func (f *found) end() {
	f.hits = append(f.hits, suppress(f.best.drain(), f.iou, f.limit)...)
	f.ends = append(f.ends, len(f.hits))
}

// tensors writes the rows.
func (f *found) tensors(at Place) []stream.Tensor {
	longest, from := 0, 0
	for _, end := range f.ends {
		longest, from = max(longest, end-from), end
	}
	list, scores, classes, names := f.data[0][:0], f.data[1][:0], f.data[2][:0], f.data[3][:0]
	from = 0
	for _, end := range f.ends {
		for i := from; i < from+longest; i++ {
			var x1, y1, x2, y2, score float32
			class := -1
			if i < end {
				h := &f.hits[i]
				x1, y1 = at.inside(h.x1, h.y1)
				x2, y2 = at.inside(h.x2, h.y2)
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
