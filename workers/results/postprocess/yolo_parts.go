package postprocess

import (
	"math"
	"slices"

	"millrace/stream"
)

// keypoints adds the key points of the boxes of a pose:
//
//	keypoints FP32 [rows, n, points, 3]  x y score, x and y in pixels of the frame
//
// A point without a score has the score 1. Size is the numbers of a row of values.
func (k *yolo) keypoints(out []stream.Tensor, values []float32, size int, at Mapping) ([]stream.Tensor, error) {
	k.points = k.points[:0]
	from := k.form.width - k.form.points*k.form.dims
	err := k.eachBox(values, size, func(h *candidate) error {
		for i := range k.form.points {
			if h == nil {
				k.points = stream.AppendFloat32(k.points, 0, 0, 0)
				continue
			}
			j, box := from+i*k.form.dims, int(h.index)
			x, y, score := k.value(box, j)*k.sx, k.value(box, j+1)*k.sy, float32(1)
			if k.form.dims == 3 {
				score = k.value(box, j+2)
				if !isScore(score) {
					return stream.Errorf(stream.Internal, "outputs."+k.raw.spec.Name,
						"box %d: the score of key point %d is %v, want 0 to 1: the output has perhaps another form "+
							"than output.yolo: {%s}", box, i, score, k.form.settings())
				}
			}
			if x, y = at.point(x, y); !finite(x) || !finite(y) {
				x, y, score = 0, 0, 0
			}
			k.points = stream.AppendFloat32(k.points, x, y, min(max(score, 0), 1))
		}
		return nil
	})
	shape := out[0].Shape
	return append(out, stream.Tensor{Name: "keypoints", Datatype: stream.Float32,
		Shape: k.shapes.of(shape[0], shape[1], k.form.points, 3), Data: k.points}), err
}

// corners adds the corners of rotated boxes, in order around the box:
//
//	corners FP32 [rows, n, 4, 2]  x y in pixels of the frame; may exceed the frame
func (k *yolo) corners(out []stream.Tensor, values []float32, size int, at Mapping) []stream.Tensor {
	k.points = k.points[:0]
	_ = k.eachBox(values, size, func(h *candidate) error { // the function never fails
		if h == nil {
			k.points = stream.AppendFloat32(k.points, 0, 0, 0, 0, 0, 0, 0, 0)
			return nil
		}
		i := int(h.index)
		x, y := k.value(i, 0), k.value(i, 1)
		sin, cos := math.Sincos(float64(k.value(i, k.form.width-1)))
		w, h2 := float64(k.value(i, 2))/2, float64(k.value(i, 3))/2
		wx, wy, hx, hy := float32(w*cos), float32(w*sin), float32(-h2*sin), float32(h2*cos)
		for _, c := range [4][2]float32{{x - wx - hx, y - wy - hy}, {x + wx - hx, y + wy - hy},
			{x + wx + hx, y + wy + hy}, {x - wx + hx, y - wy + hy}} {
			px, py := at.point(c[0]*k.sx, c[1]*k.sy)
			k.points = stream.AppendFloat32(k.points, finiteCoordinate(px), finiteCoordinate(py))
		}
		return nil
	})
	shape := out[0].Shape
	return append(out, stream.Tensor{Name: "corners", Datatype: stream.Float32,
		Shape: k.shapes.of(shape[0], shape[1], 4, 2), Data: k.points})
}

// finiteCoordinate keeps a coordinate finite.
func finiteCoordinate(v float32) float32 { return min(max(v, -1e9), 1e9) }

// eachBox calls f with each box of the result, as boxList.tensors writes the boxes: nil fills up the shorter rows.
func (k *yolo) eachBox(values []float32, size int, f func(*candidate) error) error {
	from := 0
	for row, end := range k.ends {
		k.row = values[row*size : (row+1)*size]
		for i := from; i < from+k.longest; i++ {
			var h *candidate
			if i < end {
				h = &k.candidates[i]
			}
			if err := f(h); err != nil {
				return err
			}
		}
		from = end
	}
	return nil
}

// halfSides returns half the width and height of the upright box around a rotated box.
func halfSides(w, h, angle float32) (x, y float32) {
	sin, cos := math.Sincos(float64(angle))
	sin, cos = math.Abs(sin), math.Abs(cos)
	return float32((float64(w)*cos + float64(h)*sin) / 2), float32((float64(w)*sin + float64(h)*cos) / 2)
}

// rotatedOverlap reports whether two rotated boxes overlap by more than iou. Like the models' authors, rotatedOverlap
// compares the normal distributions with the boxes' moments, by the Hellinger distance (Llerena and others,
// "Probabilistic Intersection-over-Union", 2021).
func (k *yolo) rotatedOverlap(a, b *candidate, iou float64) bool {
	x1, y1, a1, b1, c1 := k.gaussian(int(a.index))
	x2, y2, a2, b2, c2 := k.gaussian(int(b.index))
	const eps = 1e-7
	sa, sb, sc := a1+a2, b1+b2, c1+c2
	det := sa*sb - sc*sc + eps
	dx, dy := x1-x2, y1-y2
	t1 := (sa*dy*dy + sb*dx*dx) / det / 4
	t2 := sc * -dx * dy / det / 2
	t3 := math.Log(det/(4*math.Sqrt(max(a1*b1-c1*c1, 0)*max(a2*b2-c2*c2, 0))+eps)+eps) / 2
	distance := min(max(t1+t2+t3, eps), 100)
	return 1-math.Sqrt(1-math.Exp(-distance)+eps) > iou
}

// gaussian returns the centre and the covariance of box i.
func (k *yolo) gaussian(i int) (x, y, xx, yy, xy float64) {
	w, h := float64(k.value(i, 2)), float64(k.value(i, 3))
	sin, cos := math.Sincos(float64(k.value(i, k.form.width-1)))
	w, h = w*w/12, h*h/12
	return float64(k.value(i, 0)), float64(k.value(i, 1)), w*cos*cos + h*sin*sin,
		w*sin*sin + h*cos*cos, (w - h) * cos * sin
}

// instanceMask makes the masks of the boxes of task segment.
//
//	mask   UINT8 [rows, height, width]  as large as the prototypes: 0, or 1 + the number of
//	                                    the first box with the pixel
//	region FP32  [rows, 4]              as of kind masks
type instanceMask struct {
	width, height float32 // of the model's input
	pixels, area  []byte
	sums          []float32
}

// maxInstances is the highest number of boxes in a mask.
const maxInstances = 255

func (m *instanceMask) specs(proto stream.TensorSpec) []stream.TensorSpec {
	return []stream.TensorSpec{
		{Name: "mask", Datatype: stream.Uint8, Shape: slices.Clone(proto.Shape[1:])},
		{Name: "region", Datatype: stream.Float32, Shape: []int{4}},
	}
}

func (k *yolo) findMasks(f *finder, c *YOLO) error {
	i := slices.IndexFunc(f.model.Outputs, isPrototypes)
	k.proto = &raw{spec: f.model.Outputs[i], index: i}
	w, h, err := f.size()
	k.mask.width, k.mask.height = float32(w), float32(h)
	if err == nil && c.Max > maxInstances {
		err = f.settingError("max", "is %d: a mask can have %d boxes", c.Max, maxInstances)
	}
	return err
}

// masks adds mask and region to the boxes.
func (k *yolo) masks(out []stream.Tensor, values []float32, size int, p *part) ([]stream.Tensor, error) {
	protos, shape, err := k.proto.read(p)
	if err != nil {
		return nil, err
	}
	h, w := shape[1], shape[2]
	m := &k.mask
	pixels := resize(&m.pixels, p.rows*h*w)
	clear(pixels)
	from := 0
	m.area = m.area[:0]
	x1, y1 := p.at.point(0, 0)
	x2, y2 := p.at.point(m.width, m.height)
	for row, end := range k.ends {
		k.row = values[row*size : (row+1)*size]
		own := protos[row*shape[0]*h*w:][:shape[0]*h*w]
		for i := from; i < end; i++ {
			k.instance(&k.candidates[i], byte(1+i-from), pixels[row*h*w:][:h*w], own, w, h)
		}
		from = end
		m.area = stream.AppendFloat32(m.area, x1, y1, x2, y2)
	}
	return append(out,
		stream.Tensor{Name: "mask", Datatype: stream.Uint8, Shape: k.shapes.of(p.rows, h, w), Data: pixels},
		stream.Tensor{Name: "region", Datatype: stream.Float32, Shape: k.shapes.of(p.rows, 4), Data: m.area}), nil
}

// instance writes number to the still free pixels of a box's mask: where the sum of the prototypes, times the box's
// coefficients, is at least 0, with sigmoid 0.5.
func (k *yolo) instance(box *candidate, number byte, pixels []byte, protos []float32, w, h int) {
	m := &k.mask
	side := func(from, to, scale float32, n int) (int, int) {
		a := min(max(int(math.Round(float64(from*scale))), 0), n-1)
		return a, min(max(int(math.Round(float64(to*scale))), a+1), n)
	}
	x1, x2 := side(box.x1, box.x2, float32(w)/m.width, w)
	y1, y2 := side(box.y1, box.y2, float32(h)/m.height, h)
	wide := x2 - x1
	sums := resize(&m.sums, wide*(y2-y1))
	clear(sums)
	first := k.form.width - k.form.masks
	for c := range k.form.masks {
		coefficient, plane := k.value(int(box.index), first+c), protos[c*w*h:][:w*h]
		for y := y1; y < y2; y++ {
			sums := sums[(y-y1)*wide:][:wide]
			for x, v := range plane[y*w+x1:][:wide] {
				sums[x] += coefficient * v
			}
		}
	}
	for i, v := range sums {
		if at := (y1+i/wide)*w + x1 + i%wide; v >= 0 && pixels[at] == 0 {
			pixels[at] = number
		}
	}
}
