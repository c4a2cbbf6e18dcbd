package postprocess

import (
	"cmp"
	"math"

	"millrace/stream"
)

// yolo reads boxes of the YOLO family. form defines the meaning of a box's numbers.
type yolo struct {
	*boxList
	raw   *raw
	proto *raw // the prototypes of the masks of task segment, or nil
	form  yoloForm
	cells []cell // of each box, for layout yolox

	// The best score of each box of a tensor of columns, and the class of the score.
	most  []float32
	class []int32

	row    []float32 // the numbers of the decoded row
	n      int       // number of boxes in row
	points []byte    // key points, or corners
	mask   instanceMask
}

// scoreSlack is the accepted distance of a score from 0..1, from the rounding of quantized models. Such a score
// counts as 0 or 1.
const scoreSlack = 1.0 / 128

func isScore(v float32) bool { return v >= -scoreSlack && v <= 1+scoreSlack }

func (c *YOLO) build(f *finder) (kind, error) {
	r, err := f.find("output", c.Output, "a tensor of boxes, [numbers of a box, n] or [n, numbers of a box]",
		func(s stream.TensorSpec) bool {
			return isFloat(s.Datatype) && len(s.Shape) == 2 && s.Shape[0] != 0 && s.Shape[1] != 0
		})
	if err != nil {
		return nil, err
	}
	k := &yolo{raw: r}
	var names []string
	if k.form, names, err = c.choose(f, r.spec); err != nil {
		return nil, err
	}
	k.boxList = &boxList{format: "cxcywh", iou: cmp.Or(c.IoU, 0.45), limit: c.Max, least: float32(c.Threshold)}
	switch {
	case k.form.task == "obb":
		k.format, k.overlap = "xyxy", k.rotatedOverlap
	case k.form.end2end:
		k.format = "xyxy"
	}
	if k.form.end2end {
		k.iou = cmp.Or(c.IoU, 1) // the model has suppressed overlapping boxes
	}
	if k.form.yolox {
		if c.Units != "pixels" {
			return nil, f.settingError("units",
				"is %s, but layout yolox has positions in cells of grids: leave units out",
				c.Units)
		}
		if k.cells, err = yoloxCells(f); err != nil {
			return nil, err
		}
	}
	f.names = names
	if err := k.complete(f, k.form.classes, c.Units, r.spec.Name, false); err != nil {
		return nil, err
	}
	if k.form.task == "segment" {
		err = k.findMasks(f, c)
	}
	return k, err
}

func (k *yolo) specs() []stream.TensorSpec {
	list := k.boxList.specs()
	switch k.form.task {
	case "pose":
		list = append(list, stream.TensorSpec{Name: "keypoints", Datatype: stream.Float32,
			Shape: []int{-1, k.form.points, 3}})
	case "obb":
		list = append(list, stream.TensorSpec{Name: "corners", Datatype: stream.Float32, Shape: []int{-1, 4, 2}})
	case "segment":
		list = append(list, k.mask.specs(k.proto.spec)...)
	}
	return list
}

func (k *yolo) decode(p *part) ([]stream.Tensor, error) {
	values, shape, err := k.raw.read(p)
	if err != nil {
		return nil, err
	}
	width := shape[1]
	if k.n = shape[0]; k.form.columns {
		k.n, width = shape[1], shape[0]
	}
	if width != k.form.width {
		return nil, stream.Errorf(stream.Internal, "outputs."+k.raw.spec.Name+".shape",
			"is %v: a box has %d numbers, want %d", shape, width, k.form.width)
	}
	if k.cells != nil && k.n != len(k.cells) {
		return nil, stream.Errorf(stream.Internal, "outputs."+k.raw.spec.Name+".shape",
			"is %v: YOLOX's grids have %d boxes for the size of the model's input", shape, len(k.cells))
	}
	k.begin()
	size := k.n * width
	for row := range p.rows {
		k.row = values[row*size : (row+1)*size]
		switch {
		case k.form.end2end:
			err = k.finals()
		case k.form.columns:
			err = k.columns()
		case k.form.v5:
			err = k.objects()
		default:
			err = k.rows()
		}
		if err != nil {
			return nil, err
		}
		k.end()
	}
	if err := k.units.check(); err != nil {
		return nil, err
	}
	out := k.tensors(p.at)
	switch k.form.task {
	case "pose":
		return k.keypoints(out, values, size, p.at)
	case "obb":
		return k.corners(out, values, size, p.at), nil
	case "segment":
		return k.masks(out, values, size, p)
	}
	return out, nil
}

// value returns number j of box i of the row.
func (k *yolo) value(i, j int) float32 {
	if k.form.columns {
		return k.row[j*k.n+i]
	}
	return k.row[i*k.form.width+j]
}

// place adds box i, whose position begins at number from.
func (k *yolo) place(i, from int, score float32, class int) {
	a, b, c, d := k.value(i, from), k.value(i, from+1), k.value(i, from+2), k.value(i, from+3)
	if k.form.task == "obb" {
		turn := k.value(i, k.form.width-1)
		w, h := halfSides(c, d, turn)
		a, b, c, d = a-w, b-h, a+w, b+h
	}
	if k.cells != nil {
		a, b, c, d = k.cells[i].box(a, b, c, d)
	}
	k.add(i, score, class, a, b, c, d)
}

// objects reads layout v5: rows with the objectness after the position.
func (k *yolo) objects() error {
	width := k.form.width
	for i := range k.n {
		box := k.row[i*width : (i+1)*width]
		object := box[4]
		if !isScore(object) {
			return k.badScore(i, -1, object)
		}
		if object < k.least {
			continue
		}
		object = min(object, 1)
		scores := box[5 : 5+k.form.classes]
		if at := firstOutOfRange(scores); at < len(scores) {
			return k.badScore(i, at, scores[at])
		}
		class, score := top(scores)
		if score = min(score, 1) * object; class >= 0 && k.accepts(score) {
			k.place(i, 0, score, class)
		}
	}
	return nil
}

// rows reads layout v8 with a row for each box.
func (k *yolo) rows() error {
	width := k.form.width
	for i := range k.n {
		scores := k.row[i*width+4:][:k.form.classes]
		if at := firstOutOfRange(scores); at < len(scores) {
			return k.badScore(i, at, scores[at])
		}
		if class, score := top(scores); class >= 0 && k.accepts(min(score, 1)) {
			k.place(i, 0, min(score, 1), class)
		}
	}
	return nil
}

// columns reads layout v8 with a column for each box. The scores are read in memory order; very few scores reach the
// threshold.
func (k *yolo) columns() error {
	n := k.n
	if n == 0 {
		return nil
	}
	most, class := resize(&k.most, n), resize(&k.class, n)
	clear(most)
	scores, least := k.row[4*n:(4+k.form.classes)*n], k.least
	for c := int32(0); len(scores) >= n; c++ {
		row := scores[:n]
		if at := firstOutOfRange(row); at < n {
			return k.badScore(at, int(c), row[at])
		}
		for i := 0; i < n; i++ {
			i = reaching(row, i, least)
			if i < n && row[i] > most[i] {
				most[i], class[i] = row[i], c
			}
		}
		scores = scores[n:]
	}
	for i, score := range most {
		if k.accepts(min(score, 1)) {
			k.place(i, 0, min(score, 1), int(class[i]))
		}
	}
	return nil
}

// finals reads the rows of a model that has suppressed overlapping boxes: x1 y1 x2 y2 score class, or (v7) the number
// of the row of the batch, x1 y1 x2 y2 class score.
func (k *yolo) finals() error {
	from, scoreAt, classAt := 0, 4, 5
	if k.form.v7 {
		from, scoreAt, classAt = 1, 6, 5
	}
	for i := range k.n {
		box := k.row[i*k.form.width:][:k.form.width]
		score := box[scoreAt]
		if !isScore(score) {
			return k.badScore(i, -1, score)
		}
		if score = min(score, 1); !k.accepts(score) {
			continue
		}
		class := math.Round(float64(box[classAt]))
		last := float64(maxClass - 1)
		if k.form.classes > 0 {
			last = float64(k.form.classes - 1)
		}
		if !(math.Abs(class-float64(box[classAt])) <= 1e-3 && class >= 0 && class <= last) {
			return stream.Errorf(stream.Internal, "outputs."+k.raw.spec.Name, "box %d has the class %v, which is "+
				"not one of %s: the output has perhaps another form than output.yolo.task: %s", i, box[classAt],
				k.form.classesText(), k.form.name())
		}
		k.place(i, from, score, int(class))
	}
	return nil
}

// badScore returns the error of a score outside of 0..1. class is -1 for the score of the box.
func (k *yolo) badScore(box, class int, score float32) error {
	of := "its score"
	if class >= 0 {
		of = "its score of class " + itoa(class)
	}
	return stream.Errorf(stream.Internal, "outputs."+k.raw.spec.Name, "box %d: %s is %v, want 0 to 1: the output "+
		"has perhaps another form than output.yolo: {%s}, or the export leaves the sigmoid out", box, of, score,
		k.form.settings())
}
