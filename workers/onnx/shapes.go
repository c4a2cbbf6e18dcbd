//go:build cgo

package onnx

import (
	ort "github.com/yalue/onnxruntime_go"

	"millrace/stream"
)

// datatypes are the types common to the library and the protocols.
var datatypes = map[ort.TensorElementDataType]stream.Datatype{
	ort.TensorElementDataTypeBool: stream.Bool, ort.TensorElementDataTypeUint8: stream.Uint8,
	ort.TensorElementDataTypeUint16: stream.Uint16,
	ort.TensorElementDataTypeUint32: stream.Uint32, ort.TensorElementDataTypeUint64: stream.Uint64,
	ort.TensorElementDataTypeInt8:  stream.Int8,
	ort.TensorElementDataTypeInt16: stream.Int16, ort.TensorElementDataTypeInt32: stream.Int32,
	ort.TensorElementDataTypeInt64:   stream.Int64,
	ort.TensorElementDataTypeFloat16: stream.Float16, ort.TensorElementDataTypeBFloat16: stream.BFloat,
	ort.TensorElementDataTypeFloat: stream.Float32, ort.TensorElementDataTypeDouble: stream.Float64,
	ort.TensorElementDataTypeString: stream.Bytes,
}

var natives = func() map[stream.Datatype]ort.TensorElementDataType {
	m := map[stream.Datatype]ort.TensorElementDataType{}
	for n, d := range datatypes {
		m[d] = n
	}
	return m
}()

// axis is the meaning of the first dimension of a model's tensors.
type axis int

const (
	none  axis = iota // not a batch: one request per run
	fixed             // a fixed number of rows
	free              // any number of rows
)

// described returns the axis as in a model's description.
func (a axis) described() stream.BatchAxis {
	return [...]stream.BatchAxis{none: stream.NoAxis, fixed: stream.FixedAxis, free: stream.FreeAxis}[a]
}

// batchAxis returns the meaning of the first dimensions, and the rows of a fixed axis: free when no first dimension
// has a number, fixed when all inputs have the same number and no output a different number. With a batch of one,
// outputs may have other first dimensions, such as the number of objects found in the row. scalars are the scalar
// outputs.
func batchAxis(inputs, outputs []ort.InputOutputInfo, scalars map[string]bool) (axis, int) {
	rows := int64(0)
	for _, in := range inputs {
		if len(in.Dimensions) == 0 || rows != 0 && in.Dimensions[0] != rows {
			return none, 0
		}
		rows = in.Dimensions[0]
	}
	if rows == 0 {
		return none, 0
	}
	for _, out := range outputs {
		switch {
		case rows == 1: // see above
		case len(out.Dimensions) == 0 && rows < 0 && !scalars[out.Name]: // of unknown rank
		case len(out.Dimensions) == 0 || out.Dimensions[0] != rows && (rows < 0 || out.Dimensions[0] >= 0):
			return none, 0
		}
	}
	if rows < 0 {
		return free, 0
	}
	return fixed, int(rows)
}

// otherDimensions returns the outputs whose first dimension has another name in the file than the inputs' first
// dimension.
func otherDimensions(path string) map[string]bool {
	inputs, outputs := firstDimensions(path)
	others := map[string]bool{}
	for output, name := range outputs {
		same := name == ""
		for _, input := range inputs {
			same = same || input == name || input == ""
		}
		others[output] = !same
	}
	return others
}

// spec describes a tensor to clients, without the batch axis.
func spec(t ort.InputOutputInfo, a axis) (stream.TensorSpec, error) {
	d, known := datatypes[t.DataType]
	if t.OrtValueType != ort.ONNXTypeTensor || !known {
		return stream.TensorSpec{}, stream.Errorf(stream.Unsupported, "source",
			"%s of the model is not a tensor of a type that can be sent (%s)", t.Name, t.String())
	}
	dims := []int64(t.Dimensions)
	if a != none {
		dims = dims[1:]
	}
	shape := make([]int, len(dims))
	for k, n := range dims {
		shape[k] = int(n)
	}
	return stream.TensorSpec{Name: t.Name, Datatype: d, Shape: shape}, nil
}

// native converts a shape for the library, without the batch axis if the model has no batch axis.
func native(shape []int, a axis) ort.Shape {
	if a == none {
		shape = shape[1:] // the only row of a model without the axis
	}
	out := make(ort.Shape, len(shape))
	for i, n := range shape {
		out[i] = int64(n)
	}
	return out
}
