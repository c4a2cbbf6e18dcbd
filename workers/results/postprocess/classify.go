package postprocess

import (
	"cmp"
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
// ends with class -1, score 0 and an empty name. Without an activation, a score outside of 0..1
// is an error.
type classify struct {
	set    *Classify
	scores *raw
	count  int // of classes; -1 = varies
	top    int // most classes in a result
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
	k := &classify{set: c, scores: scores, count: stream.Elements(scores.spec.Shape), top: cmp.Or(c.TopK, defaultTopK)}
	if k.count > 0 && c.TopK > k.count {
		return nil, f.settingError("top_k",
			"is %d, and output %s has %d classes: want at most %d, or leave it out", c.TopK,
			scores.spec.Name, k.count, k.count)
	}
	if k.labels, err = f.readLabels(k.count, false); err != nil {
		return nil, err
	}
	if k.count > 0 {
		k.top = min(k.top, k.count)
	}
	k.best = newBest(k.top)
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
	n := min(k.top, k.count) // -1 stays -1
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
	if k.set.Activation == "none" {
		if err := k.check(values, count); err != nil {
			return nil, err
		}
	}
	n := min(k.top, count)
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

// check returns an error for a score outside of 0..1, such as a logit.
func (k *classify) check(values []float32, classes int) error {
	for at := 0; ; at++ {
		if at += firstOutOfRange(values[at:]); at >= len(values) {
			return nil
		}
		if v := values[at]; finite(v) {
			return stream.Errorf(stream.Internal, "outputs."+k.scores.spec.Name,
				"has the score %.6g of class %d, want 0 to 1: set output.classify.activation: softmax, or sigmoid "+
					"when several classes may be right", v, at%classes)
		}
	}
}

// rank returns the best classes with their scores. Both activations keep the order, so only the best scores are
// computed.
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
