// Package onnxfile writes small ONNX models, so that tests and benchmarks need no Python. The package owns the
// encoding of the necessary parts of onnx.proto. The package does not read models, and must not know how models are
// run.
package onnxfile

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// The element types of ONNX, TensorProto.DataType.
const (
	Float32    int32 = 1
	Uint8      int32 = 2
	Int8       int32 = 3
	Uint16     int32 = 4
	Int16      int32 = 5
	Int32      int32 = 6
	Int64      int32 = 7
	String     int32 = 8
	Bool       int32 = 9
	Float16    int32 = 10
	Float64    int32 = 11
	Uint32     int32 = 12
	Uint64     int32 = 13
	Complex64  int32 = 14
	Complex128 int32 = 15
	BFloat16   int32 = 16
)

// The default versions of a Model: the versions of ONNX 1.12, supported by all common runtimes.
const (
	DefaultIR    = 8
	DefaultOpset = 17
)

// Model is a graph. A version of 0 means the default.
type Model struct {
	IR    int64
	Opset int64
	// Domain is a second operator set to import, at version 1; "" for none.
	Domain          string
	Inputs, Outputs []Value
	Nodes           []Node // each after the nodes whose outputs the node reads
	Initializers    []Tensor
	// Metadata are keys and values for programs, as written by exporters.
	Metadata [][2]string
}

// Value declares an input or an output.
type Value struct {
	Name string
	Type int32
	// Dims has int or int64 for a fixed axis, and string for a dynamic axis: axes with the same name have the same
	// length; "" is a dynamic axis without a name. nil is a scalar.
	Dims []any
}

// Tensor is a constant of the graph: Raw is dense, row-major, little-endian.
type Tensor struct {
	Name string
	Type int32
	Dims []int64
	Raw  []byte
	// External is a file with only the data; the model then has no data.
	External string
}

// Node is an operator. Domain is "" for ONNX's own operators.
type Node struct {
	Op, Domain      string
	Inputs, Outputs []string
	Attrs           []Attr
}

// Attr is an attribute of a node. Value is int64, float32, string, []int64, or a Model for a graph (of a Loop or an
// If).
type Attr struct {
	Name  string
	Value any
}

// Bytes returns the model as a file's content. Bytes checks nothing, because tests need invalid models too, and
// panics for a dimension or an attribute of a Go type without an encoding.
func (m Model) Bytes() []byte {
	size := 4 << 10
	for _, t := range m.Initializers {
		size += len(t.Raw) + 128
	}
	b := make([]byte, 0, size)
	b = appendInt(b, 1, valueOr(m.IR, DefaultIR))
	b = appendString(b, 2, "millrace")
	b = appendMessage(b, 7, m.graph)
	b = appendOpset(b, "", valueOr(m.Opset, DefaultOpset))
	if m.Domain != "" {
		b = appendOpset(b, m.Domain, 1)
	}
	for _, p := range m.Metadata {
		b = appendMessage(b, 14, func(b []byte) []byte { return appendString(appendString(b, 1, p[0]), 2, p[1]) })
	}
	return b
}

func appendOpset(b []byte, domain string, version int64) []byte {
	return appendMessage(b, 8, func(b []byte) []byte { return appendInt(appendString(b, 1, domain), 2, version) })
}

func (m Model) graph(b []byte) []byte {
	for _, n := range m.Nodes {
		b = appendMessage(b, 1, n.append)
	}
	b = appendString(b, 2, "graph") // the format requires a name
	for _, t := range m.Initializers {
		b = appendMessage(b, 5, t.append)
	}
	for _, v := range m.Inputs {
		b = appendMessage(b, 11, v.append)
	}
	for _, v := range m.Outputs {
		b = appendMessage(b, 12, v.append)
	}
	return b
}

func (n Node) append(b []byte) []byte {
	for _, name := range n.Inputs {
		b = appendString(b, 1, name)
	}
	for _, name := range n.Outputs {
		b = appendString(b, 2, name)
	}
	b = appendString(b, 4, n.Op)
	for _, a := range n.Attrs {
		b = appendMessage(b, 5, a.append)
	}
	if n.Domain != "" {
		b = appendString(b, 7, n.Domain)
	}
	return b
}

// append writes the value and, as field 20, the kind of the value.
func (a Attr) append(b []byte) []byte {
	b = appendString(b, 1, a.Name)
	switch v := a.Value.(type) {
	case float32:
		b = protowire.AppendTag(b, 2, protowire.Fixed32Type)
		return appendInt(protowire.AppendFixed32(b, math.Float32bits(v)), 20, 1)
	case int64:
		return appendInt(appendInt(b, 3, v), 20, 2)
	case string:
		return appendInt(appendString(b, 4, v), 20, 3)
	case Model:
		return appendInt(appendMessage(b, 6, v.graph), 20, 5)
	case []int64:
		for _, i := range v {
			b = appendInt(b, 8, i)
		}
		return appendInt(b, 20, 7)
	}
	panic(fmt.Sprintf("onnxfile: attribute %q: %T is none of int64, float32, string, []int64, Model", a.Name, a.Value))
}

func (t Tensor) append(b []byte) []byte {
	for _, d := range t.Dims {
		b = appendInt(b, 1, d)
	}
	b = appendInt(b, 2, int64(t.Type))
	b = appendString(b, 8, t.Name)
	if t.External != "" {
		b = appendMessage(b, 13, func(b []byte) []byte {
			return appendString(appendString(b, 1, "location"), 2, t.External)
		})
		return appendInt(b, 14, 1)
	}
	b = protowire.AppendTag(b, 9, protowire.BytesType)
	return protowire.AppendBytes(b, t.Raw)
}

// append writes the name and the type, always a tensor.
func (v Value) append(b []byte) []byte {
	b = appendString(b, 1, v.Name)
	return appendMessage(b, 2, func(b []byte) []byte {
		return appendMessage(b, 1, func(b []byte) []byte {
			return appendMessage(appendInt(b, 1, int64(v.Type)), 2, v.shape)
		})
	})
}

func (v Value) shape(b []byte) []byte {
	for _, d := range v.Dims {
		b = appendMessage(b, 1, func(b []byte) []byte {
			switch d := d.(type) {
			case int:
				return appendInt(b, 1, int64(d))
			case int64:
				return appendInt(b, 1, d)
			case string:
				if d == "" {
					return b
				}
				return appendString(b, 2, d)
			}
			panic(fmt.Sprintf("onnxfile: value %q: a dimension of %T is none of int, int64, string", v.Name, d))
		})
	}
	return b
}

func appendInt(b []byte, field protowire.Number, v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(v))
}

func appendString(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

// appendMessage appends a message written by body, and then moves the message to insert the length before it. For
// large weights a move is faster than writing twice.
func appendMessage(b []byte, field protowire.Number, body func([]byte) []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	start := len(b)
	b = body(b)
	size := len(b) - start
	var room [10]byte
	prefix := protowire.AppendVarint(room[:0], uint64(size))
	b = append(b, prefix...)
	copy(b[start+len(prefix):], b[start:start+size])
	copy(b[start:], prefix)
	return b
}

func valueOr(v, fallback int64) int64 {
	if v == 0 {
		return fallback
	}
	return v
}
