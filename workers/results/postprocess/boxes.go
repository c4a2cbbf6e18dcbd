package postprocess

import (
	"fmt"
	"math"

	"millrace/stream"
)

// boxes reads boxes [n, 4] with scores [n] or [n, classes], and with classes [n] if the model has a tensor of
// classes.
type boxes struct {
	*boxList
	set    *Boxes
	boxes  *raw
	scores *raw
	index  *raw // the class of each box, or nil
	first  int  // first class in results
	maxSum float64
	most   float32 // the highest score of a box since begin
}

func (c *Boxes) build(f *finder) (kind, error) {
	k := &boxes{set: c}
	var err error
	k.boxes, err = f.find("boxes", c.Boxes, "a tensor of boxes, [n, 4]"+f.freeBoxes(c.Boxes),
		func(s stream.TensorSpec) bool {
			return isFloat(s.Datatype) && len(s.Shape) == 2 && (s.Shape[1] == 4 || c.Boxes != "" && s.Shape[1] < 0)
		})
	if err != nil {
		return nil, err
	}
	n := k.boxes.spec.Shape[0]
	fits := func(name string, got int) bool { return got == n || name != "" && (got < 0 || n < 0) }
	k.scores, err = f.find("scores", c.Scores, "a tensor of scores, [n] or [n, classes] for n boxes",
		func(s stream.TensorSpec) bool {
			return isFloat(s.Datatype) && (len(s.Shape) == 1 || len(s.Shape) == 2 && s.Shape[1] != 0) &&
				fits(c.Scores, s.Shape[0])
		})
	if err != nil {
		return nil, err
	}
	classes := 1
	if len(k.scores.spec.Shape) == 2 {
		classes = k.scores.spec.Shape[1]
	}
	switch {
	case classes == 1:
		k.index, err = f.findOptional("classes", c.Classes, "a tensor of classes, [n] for n boxes",
			func(s stream.TensorSpec) bool {
				return (isWhole(s.Datatype) || c.Classes != "" && isFloat(s.Datatype)) && len(s.Shape) == 1 &&
					fits(c.Classes, s.Shape[0])
			})
	case c.Classes != "":
		err = f.settingError("classes", "is set, but %s has a score for each class already: the model has %s",
			k.scores.spec.Name, describe(f.model.Outputs))
	}
	if err != nil {
		return nil, err
	}
	if k.index != nil {
		classes = -1
	}
	if c.Background {
		if classes == 1 {
			return nil, f.settingError("background", "is set, but there is only one class: the model has %s",
				describe(f.model.Outputs))
		}
		k.first = 1
		classes = max(classes-1, -1)
	}
	if c.Activation == "softmax" && len(k.scores.spec.Shape) == 1 ||
		c.Activation == "softmax" && k.scores.spec.Shape[1] == 1 {
		return nil, f.settingError("activation",
			"softmax of one score is always 1: use sigmoid, or none. The model has %s",
			describe(f.model.Outputs))
	}
	k.boxList = &boxList{format: c.Format, iou: c.IoU, limit: c.Max, least: float32(c.Threshold)}
	if err := k.boxList.complete(f, classes, c.Units, k.boxes.spec.Name, c.Background); err != nil {
		return nil, err
	}
	k.maxSum = 1.001 / c.Threshold // with a larger sum the softmax is below the threshold
	return k, nil
}

// freeBoxes tells how to use an output with a free number of columns: from the model's file alone, the output may or
// may not have boxes. name is the output named by the settings.
func (f *finder) freeBoxes(name string) string {
	for _, s := range f.model.Outputs {
		if name == "" && isFloat(s.Datatype) && len(s.Shape) == 2 && s.Shape[1] < 0 {
			return fmt.Sprintf(" (if %[1]s has the boxes, set output.boxes.boxes: %[1]s)", s.Name)
		}
	}
	return ""
}

func (k *boxes) decode(p *part) ([]stream.Tensor, error) {
	places, shape, err := k.boxes.read(p)
	if err != nil {
		return nil, err
	}
	n := shape[0]
	if shape[1] != 4 {
		return nil, stream.Errorf(stream.Internal, "outputs."+k.boxes.spec.Name+".shape",
			"has %d numbers for a box, want 4", shape[1])
	}
	scores, shape, err := k.scores.read(p)
	if err != nil {
		return nil, err
	}
	if shape[0] != n {
		return nil, k.badRows(k.scores, shape[0], n)
	}
	classes := 1
	if len(shape) == 2 {
		classes = shape[1]
	}
	if k.index == nil {
		if classes <= k.first {
			return nil, stream.Errorf(stream.Internal, "outputs."+k.scores.spec.Name+".shape", "%v has no class", shape)
		}
		if err := k.labels.check(classes - k.first); err != nil {
			return nil, err
		}
	}
	var index []float32
	if k.index != nil {
		index, shape, err = k.index.read(p)
		if err != nil {
			return nil, err
		}
		if shape[0] != n {
			return nil, k.badRows(k.index, shape[0], n)
		}
	}
	k.begin()
	k.most = 0
	for row := range p.rows {
		at := row * n
		var own []float32
		if index != nil {
			own = index[at : at+n]
		}
		k.row(places[4*at:4*(at+n)], scores[at*classes:(at+n)*classes], own, classes)
	}
	if k.most > 1+scoreSlack {
		return nil, stream.Errorf(stream.Internal, "outputs."+k.scores.spec.Name,
			"has the score %.6g, want 0 to 1: set output.boxes.activation: sigmoid, or softmax when the classes of "+
				"a box share one sum", k.most)
	}
	if err := k.units.check(); err != nil {
		return nil, err
	}
	return k.tensors(p.at), nil
}

func (k *boxes) badRows(r *raw, got, boxes int) error {
	return stream.Errorf(stream.Internal, "outputs."+r.spec.Name+".shape", "has %d rows for %d boxes", got, boxes)
}

// row adds the boxes of one row. index is nil when each class has a score.
func (k *boxes) row(places, scores, index []float32, classes int) {
	for i := 0; len(places) >= 4; i++ {
		class, score := k.score(scores[:classes], index == nil)
		if index != nil {
			class = k.classAt(index[i])
		}
		if class >= 0 && k.accepts(score) {
			k.most = max(k.most, score)
			k.add(i, score, class, places[0], places[1], places[2], places[3])
		}
		places, scores = places[4:], scores[classes:]
	}
	k.end()
}

// score returns the class of a box, counted after the background, and the score; class -1 means no class. each means
// that each class has a score.
func (k *boxes) score(values []float32, each bool) (int, float32) {
	skipped := 0
	if each {
		skipped = k.first
	}
	class, score := top(values[skipped:])
	if class < 0 {
		return -1, 0
	}
	switch k.set.Activation {
	case "sigmoid":
		score = sigmoid(score)
	case "softmax":
		score = float32(1 / softmaxSum(values, skipped+class, k.maxSum))
	}
	return class, score
}

// classAt returns the class for a number of a tensor of classes, counted after the background; -1 for the background
// and for a number that is no class.
func (k *boxes) classAt(v float32) int {
	if !(v >= 0 && v < maxClass) {
		return -1
	}
	return int(math.Round(float64(v))) - k.first
}
