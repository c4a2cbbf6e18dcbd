//go:build cgo

package onnx

import (
	"encoding/binary"
	"slices"
	"strings"

	ort "github.com/yalue/onnxruntime_go"

	"millrace/batching"
	"millrace/stream"
)

// Rows of strings have no fixed size. A model with string inputs gets ragged batches,
// whose requests have their own inputs: these are concatenated for a run, and the
// library allocates the outputs.

// takesText reports whether an input has strings.
func takesText(inputs []ort.InputOutputInfo) bool {
	return slices.ContainsFunc(inputs, func(in ort.InputOutputInfo) bool {
		return in.DataType == ort.TensorElementDataTypeString
	})
}

// concatInputs concatenates the inputs of a ragged batch's requests. A request with invalid inputs ends as an error and
// is left out; when no request remains, joined returns nil.
func (w *worker) concatInputs(b *batching.Batch) []stream.Tensor {
	out := make([]stream.Tensor, len(w.inputs))
	rows := 0
	for i, r := range b.Requests {
		row, err := w.inputsOf(r)
		if err != nil {
			b.Fail(i, err)
			continue
		}
		b.Offsets[i] = rows
		rows += r.Rows
		for k, t := range row {
			t.Data = append(out[k].Data, t.Data...)
			t.Shape = t.Shape[len(t.Shape)-len(w.sent[k].Shape):]
			out[k] = t
		}
	}
	if b.Rows = rows; rows == 0 {
		return nil
	}
	for k := range out {
		out[k].Shape = append([]int{rows}, out[k].Shape...)
	}
	return out
}

func (w *worker) inputsOf(r *stream.Request) (out []stream.Tensor, err error) {
	out = make([]stream.Tensor, len(w.sent))
	for k, spec := range w.sent {
		if out[k], err = inputOf(r, spec); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// rowOf returns a row of a tensor; rows have rank dimensions.
func rowOf(t stream.Tensor, rank, row, rows int) stream.Tensor {
	t.Shape = append([]int{1}, t.Shape[len(t.Shape)-rank:]...)
	if t.Datatype != stream.Bytes {
		n := len(t.Data) / rows
		t.Data = t.Data[row*n : (row+1)*n]
		return t
	}
	after := func(elements int) (n int) {
		for range elements {
			n += 4 + int(binary.LittleEndian.Uint32(t.Data[n:]))
		}
		return n
	}
	n := stream.Elements(t.Shape)
	t.Data = t.Data[after(row*n):]
	t.Data = t.Data[:after(n)]
	return t
}

// inputOf returns a request's tensor for spec. An opaque frame is one string.
func inputOf(r *stream.Request, spec stream.TensorSpec) (t stream.Tensor, err error) {
	field := "inputs." + spec.Name + ".data"
	if r.Codec == stream.Tensors { // checked at the submission of the frame
		t = r.Inputs[slices.IndexFunc(r.Inputs, func(t stream.Tensor) bool { return t.Name == spec.Name })]
	} else {
		field = "frame"
		t = stream.Tensor{Name: spec.Name, Datatype: stream.Bytes}
		for _, n := range spec.Shape {
			t.Shape = append(t.Shape, max(n, 1))
		}
		if stream.Elements(t.Shape) != 1 {
			return t, stream.Errorf(stream.InvalidArgument, field,
				"is one string, but input %s has the shape %v: send a tensor", spec.Name, spec.Shape)
		}
		t.Data = append(binary.LittleEndian.AppendUint32(nil, uint32(len(r.Payload))), r.Payload...)
	}
	if t.Datatype == stream.Bytes && slices.ContainsFunc(stringsOf(t.Data), func(s string) bool {
		return strings.IndexByte(s, 0) >= 0
	}) {
		return t, stream.Errorf(stream.Unsupported, field,
			"has a string with a zero byte in it, which ends a string in the library: leave it out")
	}
	return t, nil
}

// stringsOf returns the elements of BYTES data. The size of data is already checked.
func stringsOf(data []byte) (out []string) {
	for len(data) > 0 {
		n := 4 + int(binary.LittleEndian.Uint32(data))
		out = append(out, string(data[4:n]))
		data = data[n:]
	}
	return out
}

// textValue returns a tensor of strings, copied by the library.
func textValue(shape ort.Shape, data []byte) (ort.Value, error) {
	v, err := ort.NewStringTensor(shape)
	if err != nil {
		return nil, err
	}
	if err = v.SetContents(stringsOf(data)); err != nil {
		_ = v.Destroy()
		return nil, err
	}
	return v, nil
}
