package onnxfile

import (
	"encoding/binary"
	"math"
)

// Constant returns a model that answers every picture with the same outputs. Its input images is FP32 [N, 3, H, W],
// with any H and W. outputs has the shape of each output without the batch axis, values the elements of each output,
// and metadata keys and values by turns.
func Constant(outputs map[string][]int, values map[string][]float32, metadata ...string) Model {
	ints := func(name string, v ...int64) Tensor {
		var raw []byte
		for _, n := range v {
			raw = binary.LittleEndian.AppendUint64(raw, uint64(n))
		}
		return Tensor{Name: name, Type: Int64, Dims: []int64{int64(len(v))}, Raw: raw}
	}
	floats := func(name string, dims []int64, v []float32) Tensor {
		n := int64(1)
		for _, d := range dims {
			n *= d
		}
		raw := make([]byte, 4*n)
		for i, f := range v {
			binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(f))
		}
		return Tensor{Name: name, Type: Float32, Dims: dims, Raw: raw}
	}
	m := Model{
		Opset:  17,
		Inputs: []Value{{Name: "images", Type: Float32, Dims: []any{"N", int64(3), "H", "W"}}},
		Nodes: []Node{
			{Op: "GlobalAveragePool", Inputs: []string{"images"}, Outputs: []string{"mean"}},
			{Op: "ReduceMean", Inputs: []string{"mean"}, Outputs: []string{"one"},
				Attrs: []Attr{{Name: "axes", Value: []int64{1, 2, 3}}, {Name: "keepdims", Value: int64(1)}}},
			{Op: "Mul", Inputs: []string{"one", "nothing"}, Outputs: []string{"zero"}},
		},
		Initializers: []Tensor{floats("nothing", []int64{1}, nil)},
	}
	for i := 0; i < len(metadata); i += 2 {
		m.Metadata = append(m.Metadata, [2]string{metadata[i], metadata[i+1]})
	}
	for name, shape := range outputs {
		dims, flat, out := []int64{1}, []int64{-1}, []any{"N"}
		for _, d := range shape {
			dims, flat, out = append(dims, int64(d)), append(flat, 1), append(out, int64(d))
		}
		m.Initializers = append(m.Initializers, floats(name+".values", dims, values[name]),
			ints(name+".shape", flat...))
		m.Nodes = append(m.Nodes,
			Node{Op: "Reshape", Inputs: []string{"zero", name + ".shape"}, Outputs: []string{name + ".zero"}},
			Node{Op: "Add", Inputs: []string{name + ".zero", name + ".values"}, Outputs: []string{name}})
		m.Outputs = append(m.Outputs, Value{Name: name, Type: Float32, Dims: out})
	}
	return m
}
