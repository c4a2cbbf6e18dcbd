package postprocess

import (
	"math"

	"millrace/stream"
)

// yolo reads boxes of the YOLO family: cx cy w h with a score for each class. In layout
// v5 each box is a row, [n, 5+classes], with the objectness after the box; in v8 each
// box is a column, [4+classes, n].
type yolo struct {
	*boxList
	raw  *raw
	wide bool // layout v8

	// The best score above the threshold of each box of layout v8 and its class.
	most  []float32
	class []int32
}

func (c *YOLO) build(f *finder) (kind, error) {
	r, err := f.find("output", c.Output, "a tensor of boxes with classes, [n, 5+classes] or [4+classes, n]", func(s stream.TensorSpec) bool {
		return isFloat(s.Datatype) && len(s.Shape) == 2 && s.Shape[0] != 0 && s.Shape[1] != 0
	})
	if err != nil {
		return nil, err
	}
	k := &yolo{raw: r}
	a, b := r.spec.Shape[0], r.spec.Shape[1]
	switch {
	case c.Layout != "":
		k.wide = c.Layout == "v8"
	case a == b:
		return nil, f.bad("layout", "cannot be derived from %s: set v5 for [n, 5+classes], v8 for [4+classes, n]", describe(f.model.Outputs))
	default: // there are more boxes than numbers in a box
		k.wide = b < 0 || a > 0 && a < b
	}
	classes := b - 5
	if k.wide {
		classes = a - 4
	}
	if classes < 1 {
		return nil, f.bad("output", "%s has no class: want [n, 5+classes] for layout v5, [4+classes, n] for v8", describe([]stream.TensorSpec{r.spec}))
	}
	k.boxList = &boxList{format: "cxcywh", iou: c.IoU, limit: c.Max, least: float32(c.Threshold)}
	return k, k.boxList.complete(f, classes, c.Units, false)
}

func (k *yolo) decode(p *part) ([]stream.Tensor, error) {
	values, shape, err := k.raw.read(p)
	if err != nil {
		return nil, err
	}
	k.begin()
	size := shape[0] * shape[1]
	for row := range p.rows {
		values := values[row*size : (row+1)*size]
		if k.wide {
			k.columns(values, shape[1])
		} else {
			k.rows(values, shape[1])
		}
		k.end()
	}
	return k.tensors(p.at), nil
}

// rows reads layout v5, with width numbers for each box.
func (k *yolo) rows(values []float32, width int) {
	for i := 0; len(values) >= width; i++ {
		box := values[:width]
		values = values[width:]
		object := box[4]
		if !(object >= k.least) {
			continue
		}
		class, score := top(box[5:])
		if score *= object; class >= 0 && k.accepts(score) {
			k.add(i, score, class, box[0], box[1], box[2], box[3])
		}
	}
}

// columns reads layout v8 with n boxes. It reads the tensor once, in the order of its
// memory; very few scores reach the threshold.
func (k *yolo) columns(values []float32, n int) {
	if n == 0 {
		return
	}
	most, class := resize(&k.most, n), resize(&k.class, n)
	clear(most)
	scores, least := values[4*n:], k.least
	for c := int32(0); len(scores) >= n; c++ {
		row := scores[:n]
		for i := 0; i < n; i++ {
			i = reaching(row, i, least)
			if i < n && row[i] > most[i] && row[i] <= math.MaxFloat32 {
				most[i], class[i] = row[i], c
			}
		}
		scores = scores[n:]
	}
	x, y, w, h := values[:n], values[n:2*n], values[2*n:3*n], values[3*n:4*n]
	for i, score := range most {
		if k.accepts(score) {
			k.add(i, score, int(class[i]), x[i], y[i], w[i], h[i])
		}
	}
}
