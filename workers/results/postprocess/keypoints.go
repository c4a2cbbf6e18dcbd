package postprocess

import (
	"math"
	"slices"

	"millrace/stream"
)

// keypoints returns points with scores.
//
//	keypoints FP32 [rows, n, k, 3]  x y score, x and y in pixels of the frame
//
// The input is [k, 2], [k, 3] with scores, the same for n bodies, or a heat map of each point, [k, height, width]: a
// tensor whose last dimension is 2 or 3 is no heat map. A separate tensor may have the scores of [n, k, 2], one score
// for each point or each body; without scores every score is 1. Points may be outside the frame. A point below the
// threshold keeps the position and has score 0; a point with a NaN or infinite value becomes 0 0 0.
type keypoints struct {
	raw    *raw
	scores *raw // or nil
	sx, sy float32
	least  float32
	heat   bool
	units  unitCheck

	shapes shapes
	data   []byte
	out    [1]stream.Tensor
}

func (c *Keypoints) build(f *finder) (kind, error) {
	points := func(shape []int) bool { d := shape[len(shape)-1]; return d == 2 || d == 3 }
	r, err := f.find("output", c.Output, "a tensor of key points, [k, 2], [k, 3], [n, k, 2], [n, k, 3] or [k, "+
		"height, width]", func(s stream.TensorSpec) bool {
		return isFloat(s.Datatype) && (len(s.Shape) == 2 && points(s.Shape) || len(s.Shape) == 3)
	})
	if err != nil {
		return nil, err
	}
	k := &keypoints{raw: r, least: float32(c.Threshold), heat: !points(r.spec.Shape)}
	if c.Threshold == 0 {
		k.least = -math.MaxFloat32 // scores of heat maps may be below 0
	}
	shape := r.spec.Shape
	switch {
	case k.heat && c.Units != "pixels":
		return nil, f.settingError("units", "is set, but heat maps have no coordinates: the model has %s",
			describe(f.model.Outputs))
	case !k.heat && shape[len(shape)-1] == 2:
		if k.scores, err = f.findOptional("scores", c.Scores, "a tensor of scores, one for each point or each body",
			func(s stream.TensorSpec) bool {
				each, body := shape[:len(shape)-1], shape[:len(shape)-2]
				return isFloat(s.Datatype) &&
					(slices.Equal(s.Shape, each) || len(body) > 0 && slices.Equal(s.Shape, body))
			}); err != nil {
			return nil, err
		}
	}
	if c.Scores != "" && k.scores == nil {
		return nil, f.settingError("scores", "is set, but %s has scores already", r.spec.Name)
	}
	k.units = f.unitCheck(c.Units, r.spec.Name)
	k.sx, k.sy, err = f.scale(k.heat || c.Units == "normalised")
	return k, err
}

// bodies returns the number of bodies and the number of points of each.
func (k *keypoints) bodies(shape []int) (bodies, points int) {
	if k.heat || len(shape) == 2 {
		return 1, shape[0]
	}
	return shape[0], shape[1]
}

func (k *keypoints) specs() []stream.TensorSpec {
	n, points := k.bodies(k.raw.spec.Shape)
	return []stream.TensorSpec{{Name: "keypoints", Datatype: stream.Float32, Shape: []int{n, points, 3}}}
}

func (k *keypoints) decode(p *part) ([]stream.Tensor, error) {
	values, shape, err := k.raw.read(p)
	if err != nil {
		return nil, err
	}
	k.data = k.data[:0]
	k.units.begin()
	bodies, points := k.bodies(shape)
	switch {
	case k.heat:
		h, w := shape[1], shape[2]
		if h < 1 || w < 1 {
			return nil, stream.Errorf(stream.Internal, "outputs."+k.raw.spec.Name+".shape", "%v is not a heat map",
				shape)
		}
		for ; len(values) > 0; values = values[h*w:] {
			x, y, score := peak(values[:h*w], w)
			k.point(p.at, x/float32(w), y/float32(h), score)
		}
		k.units.begin() // cells are not coordinates of the model
	case shape[len(shape)-1] == 3:
		for ; len(values) > 0; values = values[3:] {
			k.point(p.at, values[0], values[1], values[2])
		}
	default:
		scores, each, err := k.each(p, p.rows*bodies, points)
		if err != nil {
			return nil, err
		}
		for i := 0; len(values) > 0; i, values = i+1, values[2:] {
			score := float32(1)
			if scores != nil {
				score = scores[i/each]
			}
			k.point(p.at, values[0], values[1], score)
		}
	}
	if err := k.units.check(); err != nil {
		return nil, err
	}
	return append(k.out[:0], stream.Tensor{Name: "keypoints", Datatype: stream.Float32,
		Shape: k.shapes.of(p.rows, bodies, points, 3), Data: k.data}), nil
}

// each returns the scores, and the number of points per score. Without scores the slice is nil.
func (k *keypoints) each(p *part, bodies, points int) (scores []float32, each int, err error) {
	if k.scores == nil {
		return nil, 1, nil
	}
	scores, shape, err := k.scores.read(p)
	switch {
	case err != nil:
		return nil, 0, err
	case len(scores) == bodies*points:
		return scores, 1, nil
	case len(scores) == bodies:
		return scores, points, nil
	}
	return nil, 0, stream.Errorf(stream.Internal, "outputs."+k.scores.spec.Name+".shape",
		"has %v scores for %d bodies of %d points", shape, bodies/p.rows, points)
}

// point writes a raw point.
func (k *keypoints) point(at Mapping, x, y, score float32) {
	rawX, rawY := x, y
	x, y = at.point(x*k.sx, y*k.sy)
	switch {
	case !finite(x) || !finite(y) || !finite(score):
		x, y, score = 0, 0, 0
	case score < k.least:
		score = 0
	default:
		k.units.see(rawX, rawY)
	}
	k.data = stream.AppendFloat32(k.data, x, y, score)
}

// peak returns the middle of the highest cell of a heat map with rows of width cells,
// moved by a quarter of a cell towards the higher neighbour on each axis, and its
// score. Without a finite cell, x is NaN.
func peak(cells []float32, width int) (x, y, score float32) {
	at, score := top(cells)
	if at < 0 {
		return float32(math.NaN()), 0, 0
	}
	col, row := at%width, at/width
	x, y = float32(col)+0.5, float32(row)+0.5
	if col > 0 && col < width-1 {
		x += nearer(cells[at-1], cells[at+1])
	}
	if row > 0 && at+width < len(cells) {
		y += nearer(cells[at-width], cells[at+width])
	}
	return x, y, score
}

func nearer(before, after float32) float32 {
	switch {
	case after > before:
		return 0.25
	case before > after:
		return -0.25
	}
	return 0
}
