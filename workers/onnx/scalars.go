//go:build cgo

package onnx

import (
	"io"
	"os"

	"google.golang.org/protobuf/encoding/protowire"
)

// The library reports no dimensions both for a scalar output and for an output of unknown rank. The file
// distinguishes the two: a scalar has a shape, without dimensions.

// Field numbers of onnx.proto, on the path to an output's shape.
const (
	modelGraph      = 7
	graphInput      = 11
	graphOutput     = 12
	valueName       = 1
	valueType       = 2
	typeTensor      = 1
	tensorTypeShape = 2
	shapeDim        = 1
	dimName         = 2
)

// maxValueInfo is the largest description of an output that is read.
const maxValueInfo = 1 << 20

// firstDimensions returns the names of the first dimensions of a model's inputs or outputs, by the
// name of the tensor; "" is a dimension without a name, or with a number.
func firstDimensions(path string) (inputs, outputs map[string]string) {
	inputs, outputs = map[string]string{}, map[string]string{}
	eachValue(path, func(number protowire.Number, name string, shape []byte) {
		into := outputs
		if number == graphInput {
			into = inputs
		}
		into[name] = string(field(firstField(shape, shapeDim), dimName))
	})
	return inputs, outputs
}

// firstField returns the first field with number want and with bytes.
func firstField(message []byte, want protowire.Number) []byte {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil
		}
		size := protowire.ConsumeFieldValue(number, kind, message[n:])
		if size < 0 {
			return nil
		}
		if number == want && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message[n:])
			return value
		}
		message = message[n+size:]
	}
	return nil
}

// scalarOutputs returns the outputs whose shape in a model's file has no dimensions. scalarOutputs skips the rest of
// the file, such as the weights.
func scalarOutputs(path string) map[string]bool {
	found := map[string]bool{}
	eachValue(path, func(number protowire.Number, name string, shape []byte) {
		if number == graphOutput {
			found[name] = shape != nil && len(shape) == 0
		}
	})
	return found
}

// eachValue calls f with the name and shape of each input and output in a model's file; the
// shape is nil for a tensor of unknown rank.
func eachValue(path string, f func(number protowire.Number, name string, shape []byte)) {
	file, err := os.Open(path)
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }() // opened only for reading
	st, err := file.Stat()
	if err != nil {
		return
	}
	eachField(file, 0, st.Size(), func(number protowire.Number, at, size int64) {
		if number != modelGraph {
			return
		}
		eachField(file, at, size, func(number protowire.Number, at, size int64) {
			if number != graphOutput && number != graphInput || size > maxValueInfo {
				return
			}
			value := make([]byte, size)
			if _, err := file.ReadAt(value, at); err == nil {
				f(number, string(field(value, valueName)), field(field(field(value, valueType), typeTensor),
					tensorTypeShape))
			}
		})
	})
}

// eachField calls f with each field of a message that has bytes.
func eachField(r io.ReaderAt, at, size int64, f func(number protowire.Number, at, size int64)) {
	for end := at + size; at < end; {
		var head [2 * 10]byte // two varints
		n, _ := r.ReadAt(head[:min(int64(len(head)), end-at)], at)
		number, kind, tag := protowire.ConsumeTag(head[:n])
		if tag < 0 {
			return
		}
		if kind != protowire.BytesType {
			value := protowire.ConsumeFieldValue(number, kind, head[tag:n])
			if value < 0 {
				return
			}
			at += int64(tag + value)
			continue
		}
		length, l := protowire.ConsumeVarint(head[tag:n])
		at += int64(tag + l)
		if l < 0 || length > uint64(end-at) {
			return
		}
		f(number, at, int64(length))
		at += int64(length)
	}
}

// field returns the last field with number want and with bytes, which are not nil.
func field(message []byte, want protowire.Number) (found []byte) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil
		}
		size := protowire.ConsumeFieldValue(number, kind, message[n:])
		if size < 0 {
			return nil
		}
		if number == want && kind == protowire.BytesType {
			found, _ = protowire.ConsumeBytes(message[n:])
			if found == nil {
				found = []byte{}
			}
		}
		message = message[n+size:]
	}
	return found
}
