package postprocess

import (
	"encoding/binary"
	"math"

	"millrace/stream"
)

// classify returns the classes with the highest scores, best first.
//
//	classes INT64 [rows, k]
//	scores  FP32  [rows, k]
//	labels  BYTES [rows, k]  when there are names
//
// A score that is NaN or infinite does not count: when fewer than k are left, the row
// ends with class -1, score 0 and an empty name.
type classify struct {
	set    *Classify
	scores *raw
	count  int // of classes; -1 = varies
	labels labels

	best   best
	shapes shapes
	data   [3][]byte
	out    [3]stream.Tensor
}

func (c *Classify) build(f *finder) (kind, error) {
	scores, err := f.find("output", c.Output, "a list of scores, [classes]", func(s stream.TensorSpec) bool {
		return isFloat(s.Datatype) && isList(s.Shape)
	})
	if err != nil {
		return nil, err
	}
	k := &classify{set: c, scores: scores, count: stream.Elements(scores.spec.Shape)}
	if k.labels, err = f.readLabels(k.count, false); err != nil {
		return nil, err
	}
	k.best = newBest(c.TopK)
	if k.count > 0 {
		k.best = newBest(min(c.TopK, k.count))
	}
	return k, nil
}

// isList reports whether all dimensions but one are 1.
func isList(shape []int) bool {
	long := 0
	for _, d := range shape {
		if d == 0 {
			return false
		}
		if d != 1 {
			long++
		}
	}
	return len(shape) > 0 && long <= 1
}

func (k *classify) specs() []stream.TensorSpec {
	n := min(k.set.TopK, k.count) // -1 stays -1
	list := []stream.TensorSpec{
		{Name: "classes", Datatype: stream.Int64, Shape: []int{n}},
		{Name: "scores", Datatype: stream.Float32, Shape: []int{n}},
	}
	if k.labels.names != nil {
		list = append(list, stream.TensorSpec{Name: "labels", Datatype: stream.Bytes, Shape: []int{n}})
	}
	return list
}

func (k *classify) decode(p *part) ([]stream.Tensor, error) {
	values, shape, err := k.scores.read(p)
	if err != nil {
		return nil, err
	}
	count := stream.Elements(shape)
	if err := k.labels.check(count); err != nil {
		return nil, err
	}
	n := min(k.set.TopK, count)
	classes, scores, names := k.data[0][:0], k.data[1][:0], k.data[2][:0]
	for row := range p.rows {
		values := values[row*count : (row+1)*count]
		candidates := k.rank(values)
		for i := range n {
			class, score := -1, float32(0)
			if i < len(candidates) {
				class, score = int(candidates[i].class), candidates[i].score
			}
			classes = binary.LittleEndian.AppendUint64(classes, uint64(class))
			scores = stream.AppendFloat32(scores, score)
			if k.labels.names != nil {
				names = k.labels.append(names, class)
			}
		}
	}
	k.data = [3][]byte{classes, scores, names}
	shape = k.shapes.of(p.rows, n)
	out := append(k.out[:0],
		stream.Tensor{Name: "classes", Datatype: stream.Int64, Shape: shape, Data: classes},
		stream.Tensor{Name: "scores", Datatype: stream.Float32, Shape: shape, Data: scores})
	if k.labels.names != nil {
		out = append(out, stream.Tensor{Name: "labels", Datatype: stream.Bytes, Shape: shape, Data: names})
	}
	return out, nil
}

// rank returns the best classes with their scores. Both activations keep the order, so
// that only the best scores need to be computed.
func (k *classify) rank(values []float32) []candidate {
	k.best.candidates = k.best.candidates[:0]
	for i, v := range values {
		if finite(v) && k.best.accepts(v) {
			k.best.add(candidate{score: v, class: int32(i), index: int32(i)})
		}
	}
	candidates := k.best.drain()
	if len(candidates) == 0 {
		return nil
	}
	switch k.set.Activation {
	case "sigmoid":
		for i := range candidates {
			candidates[i].score = sigmoid(candidates[i].score)
		}
	case "softmax":
		first := candidates[0].score
		sum := softmaxSum(values, int(candidates[0].class), math.Inf(1))
		for i := range candidates {
			candidates[i].score = float32(math.Exp(float64(candidates[i].score)-float64(first)) / sum)
		}
	}
	return candidates
}
