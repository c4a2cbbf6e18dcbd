package postprocess

import (
	"cmp"
	"math"

	"millrace/stream"
)

// masks returns the class of each pixel and the position of the mask.
//
//	mask   UINT8 [rows, height, width]  as large as the raw tensor
//	region FP32  [rows, 4]              x1 y1 x2 y2 of the mask's area, in pixels of the
//	                                    frame; larger than the frame for a letterbox
//
// For scores [classes, height, width] a pixel has the class with the highest score; with a single class the pixel is
// 1 where the score reaches the threshold. Integers, and the values of a tensor [height, width], are classes already;
// other values become 0.
type masks struct {
	raw           *raw
	least         float32 // for a single class, before the activation
	width, height float32 // of the model's input

	most       []float32
	shapes     shapes
	mask, area []byte
	out        [2]stream.Tensor
}

// tile is the number of pixels compared over all classes at once, so that the best scores stay in the first-level
// cache.
const tile = 2048

func (c *Masks) build(f *finder) (kind, error) {
	r, err := f.find("output", c.Output, "a mask, [classes, height, width] or [height, width], of at most 256 classes",
		func(s stream.TensorSpec) bool {
			d := s.Shape
			switch {
			case len(d) == 3 && isWhole(s.Datatype):
				return d[0] == 1
			case len(d) == 3 && isFloat(s.Datatype):
				return d[0] >= 1 && d[0] <= 256
			}
			return len(d) == 2 && (isWhole(s.Datatype) || isFloat(s.Datatype))
		})
	if err != nil {
		return nil, err
	}
	threshold := cmp.Or(c.Threshold, maskThreshold)
	k := &masks{raw: r, least: float32(threshold)}
	w, h, err := f.size()
	if err != nil {
		return nil, err
	}
	k.width, k.height = float32(w), float32(h)
	one := len(r.spec.Shape) == 3 && r.spec.Shape[0] == 1 && isFloat(r.spec.Datatype)
	switch {
	case !one && c.Threshold != 0:
		return nil, f.settingError("threshold", "is set, but only masks with one class have one: the model has %s",
			describe(f.model.Outputs))
	case one && c.Activation == "softmax":
		return nil, f.settingError("activation",
			"softmax of one score is always 1: use sigmoid, or none. The model has %s",
			describe(f.model.Outputs))
	case one && c.Activation == "sigmoid":
		k.least = float32(math.Log(threshold / (1 - threshold)))
	}
	return k, nil
}

func (k *masks) specs() []stream.TensorSpec {
	s := k.raw.spec.Shape
	return []stream.TensorSpec{
		{Name: "mask", Datatype: stream.Uint8, Shape: append([]int{}, s[len(s)-2:]...)},
		{Name: "region", Datatype: stream.Float32, Shape: []int{4}},
	}
}

func (k *masks) decode(p *part) ([]stream.Tensor, error) {
	values, shape, err := k.raw.read(p)
	if err != nil {
		return nil, err
	}
	size := stream.Elements(shape)
	if size == 0 {
		return nil, stream.Errorf(stream.Internal, "outputs."+k.raw.spec.Name+".shape", "%v is not a mask", shape)
	}
	h, w := shape[len(shape)-2], shape[len(shape)-1]
	mask := resize(&k.mask, p.rows*h*w)
	for row := range p.rows {
		values, mask := values[row*size:(row+1)*size], mask[row*h*w:(row+1)*h*w]
		switch {
		case len(shape) == 2 || isWhole(k.raw.spec.Datatype):
			copyClasses(mask, values)
		case shape[0] == 1:
			threshold(mask, values, k.least)
		default:
			k.highest(mask, values)
		}
	}
	x1, y1 := p.at.point(0, 0)
	x2, y2 := p.at.point(k.width, k.height)
	k.area = k.area[:0]
	for range p.rows {
		k.area = stream.AppendFloat32(k.area, x1, y1, x2, y2)
	}
	return append(k.out[:0],
		stream.Tensor{Name: "mask", Datatype: stream.Uint8, Shape: k.shapes.of(p.rows, h, w), Data: mask},
		stream.Tensor{Name: "region", Datatype: stream.Float32, Shape: k.shapes.of(p.rows, 4), Data: k.area}), nil
}

// highest writes the class with the highest score of each pixel; of equal scores the first.
func (k *masks) highest(mask []byte, values []float32) {
	n := len(mask)
	for from := 0; from < n; from += tile {
		mask := mask[from:min(from+tile, n)]
		most := resize(&k.most, len(mask))
		for i := range most {
			most[i] = float32(math.Inf(-1))
		}
		clear(mask)
		for c := 0; c < len(values)/n; c++ {
			most := most[:len(mask)]
			for i, v := range values[c*n+from:][:len(mask)] {
				if v > most[i] && v <= math.MaxFloat32 {
					most[i], mask[i] = v, byte(c)
				}
			}
		}
	}
}

func threshold(mask []byte, values []float32, least float32) {
	for i, v := range values {
		mask[i] = 0
		if v >= least && v <= math.MaxFloat32 {
			mask[i] = 1
		}
	}
}

func copyClasses(mask []byte, values []float32) {
	for i, v := range values {
		mask[i] = 0
		if v > 0 && v < 255.5 {
			mask[i] = byte(v + 0.5)
		}
	}
}
