package onnxfile

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Identity returns a model that hands its input "x" on as its output "y", both of
// that type and shape.
func Identity(datatype int32, dims ...any) []byte {
	return Model{
		Inputs:  []Value{{"x", datatype, dims}},
		Outputs: []Value{{"y", datatype, dims}},
		Nodes:   []Node{{Op: "Identity", Inputs: []string{"x"}, Outputs: []string{"y"}}},
	}.Bytes()
}

// MLP returns layers fully connected ones, hidden wide between them, with ReLU
// after all but the last: input "x" FP32 [N, in], output "y" FP32 [N, out]. The
// weights are always the same.
func MLP(in, hidden, out, layers int) []byte {
	var n net
	x, width := "x", in
	for i := range layers {
		next, relu := hidden, true
		if i == layers-1 {
			next, relu = out, false
		}
		x, width = n.dense(x, width, next, relu), next
	}
	return n.model(Value{"x", Float32, []any{"N", in}}, Value{"y", Float32, []any{"N", out}}, x)
}

// CNN returns a small classifier of pictures: input "image" FP32 [N, 3, height,
// width], output "scores" FP32 [N, 10]. Three convolutions of 3x3 with ReLU make
// 16 channels at half the size, 32 at a quarter, and 32 once more; their means go
// through one dense layer. The weights are always the same.
func CNN(width, height int) []byte {
	var n net
	x := n.conv("image", 3, 16, 2)
	x = n.conv(x, 16, 32, 2)
	x = n.conv(x, 32, 32, 1)
	x = n.add("GlobalAveragePool", []string{x})
	x = n.add("Flatten", []string{x})
	x = n.dense(x, 32, 10, false)
	return n.model(Value{"image", Float32, []any{"N", 3, height, width}}, Value{"scores", Float32, []any{"N", 10}}, x)
}

// net gathers a graph, one node after the other.
type net struct {
	Model
	seed uint32
}

// model names the last value as the output.
func (n *net) model(in, out Value, last string) []byte {
	n.Inputs, n.Outputs = []Value{in}, []Value{out}
	n.Nodes = append(n.Nodes, Node{Op: "Identity", Inputs: []string{last}, Outputs: []string{out.Name}})
	return n.Bytes()
}

// add appends a node with one output and returns that one's name.
func (n *net) add(op string, inputs []string, attrs ...Attr) string {
	out := fmt.Sprintf("v%d", len(n.Nodes))
	n.Nodes = append(n.Nodes, Node{Op: op, Inputs: inputs, Outputs: []string{out}, Attrs: attrs})
	return out
}

func (n *net) dense(x string, in, out int, relu bool) string {
	x = n.add("Gemm", []string{x, n.weights(in, in, out), n.weights(in, out)})
	if relu {
		x = n.add("Relu", []string{x})
	}
	return x
}

func (n *net) conv(x string, in, out, stride int) string {
	s := int64(stride)
	x = n.add("Conv", []string{x, n.weights(9*in, out, in, 3, 3), n.weights(9*in, out)},
		Attr{"kernel_shape", []int64{3, 3}}, Attr{"strides", []int64{s, s}}, Attr{"pads", []int64{1, 1, 1, 1}})
	return n.add("Relu", []string{x})
}

// weights adds an initializer and returns its name. Its values are spread evenly
// over +-sqrt(6/fan), fan being the inputs of one neuron, so that what goes
// through many layers neither dies nor grows (He and others, 2015).
func (n *net) weights(fan int, dims ...int) string {
	t := Tensor{Name: fmt.Sprintf("w%d", len(n.Initializers)), Type: Float32}
	count := 1
	for _, d := range dims {
		t.Dims = append(t.Dims, int64(d))
		count *= d
	}
	limit := math.Sqrt(6 / float64(fan))
	t.Raw = make([]byte, 0, 4*count)
	for range count {
		n.seed = n.seed*1664525 + 1013904223 // a linear congruence, mod 2^32: Numerical Recipes
		v := (float64(n.seed)/(1<<31) - 1) * limit
		t.Raw = binary.LittleEndian.AppendUint32(t.Raw, math.Float32bits(float32(v)))
	}
	n.Initializers = append(n.Initializers, t)
	return t.Name
}
