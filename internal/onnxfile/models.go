package onnxfile

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Identity returns a model that copies its input "x" to its output "y", both of the given type and shape.
func Identity(datatype int32, dims ...any) []byte {
	return Model{
		Inputs:  []Value{{"x", datatype, dims}},
		Outputs: []Value{{"y", datatype, dims}},
		Nodes:   []Node{{Op: "Identity", Inputs: []string{"x"}, Outputs: []string{"y"}}},
	}.Bytes()
}

// MLP returns a model of fully connected layers with hidden neurons between layers, and ReLU after all layers but the
// last: input "x" FP32 [N, in], output "y" FP32 [N, out]. The weights are always the same.
func MLP(in, hidden, out, layers int) []byte {
	var b builder
	x, width := "x", in
	for i := range layers {
		next, relu := hidden, true
		if i == layers-1 {
			next, relu = out, false
		}
		x, width = b.dense(x, width, next, relu), next
	}
	return b.model(Value{"x", Float32, []any{"N", in}}, Value{"y", Float32, []any{"N", out}}, x)
}

// CNN returns a small classifier of pictures: input "image" FP32 [N, 3, height, width], output "scores" FP32 [N, 10].
// Three convolutions of 3x3 with ReLU make 16 channels at half the size, 32 at a quarter, and 32 again; their means
// feed one dense layer. The weights are always the same.
func CNN(width, height int) []byte {
	var b builder
	x := b.conv("image", 3, 16, 2)
	x = b.conv(x, 16, 32, 2)
	x = b.conv(x, 32, 32, 1)
	x = b.add("GlobalAveragePool", []string{x})
	x = b.add("Flatten", []string{x})
	x = b.dense(x, 32, 10, false)
	return b.model(Value{"image", Float32, []any{"N", 3, height, width}}, Value{"scores", Float32, []any{"N", 10}}, x)
}

// builder builds a graph node by node.
type builder struct {
	Model
	seed uint32
}

// model names the last value as the output.
func (b *builder) model(in, out Value, last string) []byte {
	b.Inputs, b.Outputs = []Value{in}, []Value{out}
	b.Nodes = append(b.Nodes, Node{Op: "Identity", Inputs: []string{last}, Outputs: []string{out.Name}})
	return b.Bytes()
}

// add appends a node with one output and returns the output's name.
func (b *builder) add(op string, inputs []string, attrs ...Attr) string {
	out := fmt.Sprintf("v%d", len(b.Nodes))
	b.Nodes = append(b.Nodes, Node{Op: op, Inputs: inputs, Outputs: []string{out}, Attrs: attrs})
	return out
}

// dense has the form that PyTorch exports, with transposed weights: OpenCV 4.6 reads no other.
func (b *builder) dense(x string, in, out int, relu bool) string {
	x = b.add("Gemm", []string{x, b.weights(in, out, in), b.weights(in, out)}, Attr{"transB", int64(1)})
	if relu {
		x = b.add("Relu", []string{x})
	}
	return x
}

func (b *builder) conv(x string, in, out, stride int) string {
	s := int64(stride)
	x = b.add("Conv", []string{x, b.weights(9*in, out, in, 3, 3), b.weights(9*in, out)},
		Attr{"kernel_shape", []int64{3, 3}}, Attr{"strides", []int64{s, s}}, Attr{"pads", []int64{1, 1, 1, 1}})
	return b.add("Relu", []string{x})
}

// weights adds an initializer and returns its name. The values are uniform over +-sqrt(6/fan), where fan is the
// number of inputs of a neuron, so that activations keep their variance through many layers (He and others, 2015).
func (b *builder) weights(fan int, dims ...int) string {
	t := Tensor{Name: fmt.Sprintf("w%d", len(b.Initializers)), Type: Float32}
	count := 1
	for _, d := range dims {
		t.Dims = append(t.Dims, int64(d))
		count *= d
	}
	limit := math.Sqrt(6 / float64(fan))
	t.Raw = make([]byte, 0, 4*count)
	for range count {
		b.seed = b.seed*1664525 + 1013904223 // linear congruential generator of Numerical Recipes
		v := (float64(b.seed)/(1<<31) - 1) * limit
		t.Raw = binary.LittleEndian.AppendUint32(t.Raw, math.Float32bits(float32(v)))
	}
	b.Initializers = append(b.Initializers, t)
	return t.Name
}
