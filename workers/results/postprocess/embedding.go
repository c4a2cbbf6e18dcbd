package postprocess

import (
	"math"

	"millrace/stream"
)

// embedding returns one list of numbers.
//
//	embedding FP32 [rows, d]
//
// NaN and infinite values become 0. A list of zeros has no direction and is not scaled to length 1.
type embedding struct {
	raw       *raw
	normalise bool

	shapes shapes
	data   []byte
	out    [1]stream.Tensor
}

func (c *Embedding) build(f *finder) (kind, error) {
	r, err := f.find("output", c.Output, "a list of numbers, [d]", func(s stream.TensorSpec) bool {
		return isFloat(s.Datatype) && isList(s.Shape)
	})
	return &embedding{raw: r, normalise: c.Normalise}, err
}

func (k *embedding) specs() []stream.TensorSpec {
	return []stream.TensorSpec{{Name: "embedding", Datatype: stream.Float32,
		Shape: []int{stream.Elements(k.raw.spec.Shape)}}}
}

func (k *embedding) decode(p *part) ([]stream.Tensor, error) {
	values, shape, err := k.raw.read(p)
	if err != nil {
		return nil, err
	}
	d := stream.Elements(shape)
	k.data = k.data[:0]
	for row := range p.rows {
		values := values[row*d : (row+1)*d]
		length := 1.0
		if k.normalise {
			length = norm(values)
		}
		for _, v := range values {
			if !finite(v) {
				v = 0
			}
			k.data = stream.AppendFloat32(k.data, float32(float64(v)/length))
		}
	}
	return append(k.out[:0], stream.Tensor{Name: "embedding", Datatype: stream.Float32, Shape: k.shapes.of(p.rows, d),
		Data: k.data}), nil
}

// norm returns the length of a list, or 1 for a list of zeros.
func norm(values []float32) float64 {
	sum := 0.0
	for _, v := range values {
		if finite(v) {
			sum += float64(v) * float64(v)
		}
	}
	if sum == 0 {
		return 1
	}
	return math.Sqrt(sum)
}
