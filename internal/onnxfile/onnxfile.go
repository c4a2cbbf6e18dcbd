// Package onnxfile writes small ONNX models, so that tests and measurements have
// some without Python. It owns the encoding of the parts of onnx.proto that such
// models need. It reads no models, and must not know what runs them.
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

// What a Model gets that names no versions: those of ONNX 1.12, which the
// runtimes in use read.
const (
	DefaultIR    = 8
	DefaultOpset = 17
)

// Model is one graph. Its zero versions are the default ones.
type Model struct {
	IR    int64
	Opset int64
	// Domain is a second operator set to import, at version 1; "" for none.
	Domain          string
	Inputs, Outputs []Value
	Nodes           []Node // each after those whose outputs it takes
	Initializers    []Tensor
}

// Value declares an input or an output.
type Value struct {
	Name string
	Type int32
	// Dims are int or int64 for an axis of that length, string for one that each
	// run chooses and that is as long wherever it has that name, "" for one
	// without a name. nil is a scalar.
	Dims []any
}

// Tensor is a constant of the graph: Raw is dense, row-major, little-endian.
type Tensor struct {
	Name string
	Type int32
	Dims []int64
	Raw  []byte
}

// Node is one operator. Domain is "" for those of ONNX itself.
type Node struct {
	Op, Domain      string
	Inputs, Outputs []string
	Attrs           []Attr
}

// Attr is an attribute of a node. Value is int64, float32, string or []int64.
type Attr struct {
	Name  string
	Value any
}

// Bytes returns the model as a file's content. Nothing is checked, for tests want
// models that are wrong too; only a dimension or an attribute of a Go type that
// has no encoding panics.
func (m Model) Bytes() []byte {
	size := 4 << 10
	for _, t := range m.Initializers {
		size += len(t.Raw) + 128
	}
	b := make([]byte, 0, size)
	b = number(b, 1, or(m.IR, DefaultIR))
	b = text(b, 2, "millrace")
	b = nest(b, 7, m.graph)
	b = opset(b, "", or(m.Opset, DefaultOpset))
	if m.Domain != "" {
		b = opset(b, m.Domain, 1)
	}
	return b
}

func opset(b []byte, domain string, version int64) []byte {
	return nest(b, 8, func(b []byte) []byte { return number(text(b, 1, domain), 2, version) })
}

func (m Model) graph(b []byte) []byte {
	for _, n := range m.Nodes {
		b = nest(b, 1, n.append)
	}
	b = text(b, 2, "graph") // it must have a name
	for _, t := range m.Initializers {
		b = nest(b, 5, t.append)
	}
	for _, v := range m.Inputs {
		b = nest(b, 11, v.append)
	}
	for _, v := range m.Outputs {
		b = nest(b, 12, v.append)
	}
	return b
}

func (n Node) append(b []byte) []byte {
	for _, name := range n.Inputs {
		b = text(b, 1, name)
	}
	for _, name := range n.Outputs {
		b = text(b, 2, name)
	}
	b = text(b, 4, n.Op)
	for _, a := range n.Attrs {
		b = nest(b, 5, a.append)
	}
	if n.Domain != "" {
		b = text(b, 7, n.Domain)
	}
	return b
}

// append writes the value and, as field 20, which kind of value it is.
func (a Attr) append(b []byte) []byte {
	b = text(b, 1, a.Name)
	switch v := a.Value.(type) {
	case float32:
		b = protowire.AppendTag(b, 2, protowire.Fixed32Type)
		return number(protowire.AppendFixed32(b, math.Float32bits(v)), 20, 1)
	case int64:
		return number(number(b, 3, v), 20, 2)
	case string:
		return number(text(b, 4, v), 20, 3)
	case []int64:
		for _, i := range v {
			b = number(b, 8, i)
		}
		return number(b, 20, 7)
	}
	panic(fmt.Sprintf("onnxfile: attribute %q: %T is none of int64, float32, string, []int64", a.Name, a.Value))
}

func (t Tensor) append(b []byte) []byte {
	for _, d := range t.Dims {
		b = number(b, 1, d)
	}
	b = number(b, 2, int64(t.Type))
	b = text(b, 8, t.Name)
	b = protowire.AppendTag(b, 9, protowire.BytesType)
	return protowire.AppendBytes(b, t.Raw)
}

// append writes the name and the type, of which there is only tensor here.
func (v Value) append(b []byte) []byte {
	b = text(b, 1, v.Name)
	return nest(b, 2, func(b []byte) []byte {
		return nest(b, 1, func(b []byte) []byte {
			return nest(number(b, 1, int64(v.Type)), 2, v.shape)
		})
	})
}

func (v Value) shape(b []byte) []byte {
	for _, d := range v.Dims {
		b = nest(b, 1, func(b []byte) []byte {
			switch d := d.(type) {
			case int:
				return number(b, 1, int64(d))
			case int64:
				return number(b, 1, d)
			case string:
				if d == "" {
					return b
				}
				return text(b, 2, d)
			}
			panic(fmt.Sprintf("onnxfile: value %q: a dimension of %T is none of int, int64, string", v.Name, d))
		})
	}
	return b
}

func number(b []byte, field protowire.Number, v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(v))
}

func text(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

// nest appends a message that body writes. What precedes it is its length, known
// only then: the message is moved by that much rather than written twice, for
// weights are large.
func nest(b []byte, field protowire.Number, body func([]byte) []byte) []byte {
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

func or(v, fallback int64) int64 {
	if v == 0 {
		return fallback
	}
	return v
}
