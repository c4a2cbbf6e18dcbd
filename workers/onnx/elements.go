//go:build cgo

package onnx

import (
	"encoding/binary"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"

	"millrace/stream"
)

// elements are the Go binding's operations on values of one type.
type elements struct {
	scalar func(data []byte) (ort.Value, error) // copies data; nil is 0
	empty  func(ort.Shape) (ort.Value, error)   // of a shape without elements
	copied func(ort.Value) []byte
}

// element has the types for which the binding can read values allocated by the library, and make scalars.
var element = map[stream.Datatype]elements{
	stream.Bool: of[bool](), stream.Uint8: of[uint8](), stream.Uint16: of[uint16](), stream.Uint32: of[uint32](),
	stream.Uint64: of[uint64](),
	stream.Int8:   of[int8](), stream.Int16: of[int16](), stream.Int32: of[int32](), stream.Int64: of[int64](),
	stream.Float32: of[float32](), stream.Float64: of[float64](),
}

func of[T ort.TensorData]() elements {
	return elements{
		scalar: func(data []byte) (ort.Value, error) {
			var x T
			copy(unsafe.Slice((*byte)(unsafe.Pointer(&x)), unsafe.Sizeof(x)), data)
			return ort.NewScalar(x)
		},
		empty: func(shape ort.Shape) (ort.Value, error) { return ort.NewEmptyTensor[T](shape) },
		copied: func(v ort.Value) []byte {
			switch v := v.(type) {
			case *ort.Tensor[T]:
				return raw(v.GetData())
			case *ort.Scalar[T]:
				return raw([]T{v.GetData()})
			}
			return nil
		},
	}
}

// readable reports whether the binding can read outputs of a type that the library allocated. Other outputs are bound
// to the worker's memory, so their size must be known.
func readable(d stream.Datatype) bool {
	_, known := element[d]
	return known || d == stream.Bytes
}

// scalar returns a copy of a tensor without dimensions, in the binding's type for scalars.
func scalar(t stream.Tensor) (ort.Value, error) {
	e, known := element[t.Datatype]
	if !known {
		return nil, stream.Errorf(stream.Unsupported, "source",
			"%s is a scalar of %s, which cannot be bound: export it with one dimension", t.Name, t.Datatype)
	}
	return e.scalar(t.Data)
}

// bytesOf returns a value's elements: the bound memory, or else a copy.
func bytesOf(v ort.Value, d stream.Datatype) ([]byte, error) {
	switch v := v.(type) {
	case *ort.CustomDataTensor:
		return v.GetData(), nil
	case *ort.StringTensor:
		var texts []string
		var err error
		if len(v.GetShape()) == 0 {
			texts = make([]string, 1)
			texts[0], err = v.GetElement(0)
		} else {
			texts, err = v.GetContents()
		}
		if err != nil {
			return nil, runError(err)
		}
		var out []byte
		for _, s := range texts {
			out = append(binary.LittleEndian.AppendUint32(out, uint32(len(s))), s...)
		}
		return out, nil
	}
	return element[d].copied(v), nil
}

// raw returns a copy of a slice's memory.
func raw[T any](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	n := len(s) * int(unsafe.Sizeof(s[0]))
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), n)...)
}
