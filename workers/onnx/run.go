package onnx

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"

	"millrace/batching"
	"millrace/stream"
)

// Run computes one batch. The library cannot be interrupted: a run past its
// limit is the watchdog's.
func (w *worker) Run(_ context.Context, b *batching.Batch) (err error) {
	rows := b.Rows
	if w.axis != free {
		rows = w.max
	}
	b.Outputs, err = w.compute(b.Inputs, rows)
	return err
}

// compute runs the model. The outputs are valid until the next call.
func (w *worker) compute(inputs []stream.Tensor, rows int) ([]stream.Tensor, error) {
	if w.results == nil {
		return w.allocating(inputs, rows)
	}
	b, err := w.binding(inputs, rows)
	if err == nil {
		if err = w.session.RunWithBinding(b.IoBinding); err == nil {
			return b.outputs, nil
		}
	}
	if !w.guessed() {
		return nil, runError(err)
	}
	out, slow := w.allocating(inputs, rows)
	if slow != nil {
		return nil, slow
	}
	w.Release() // the outputs vary: no more bindings
	w.Deallocate()
	return out, nil
}

// guessed says whether the outputs' sizes come from a first run, not from the
// file.
func (w *worker) guessed() bool { return len(w.results) > 0 && &w.results[0] != &w.outputs[0] }

// binding returns the one for a batch's memory, which comes again and again.
func (w *worker) binding(inputs []stream.Tensor, rows int) (*binding, error) {
	for _, b := range w.bound {
		if b.rows == rows && b.over(inputs) {
			return b, nil
		}
	}
	if len(w.bound) == maxBound {
		w.Release()
	}
	b, err := w.bind(inputs, rows)
	if err == nil {
		w.bound = append(w.bound, b)
	}
	return b, err
}

// over says whether the binding's inputs are these. Shapes with free dimensions
// are compared too.
func (b *binding) over(inputs []stream.Tensor) bool {
	for i := range inputs {
		if unsafe.SliceData(inputs[i].Data) != b.data[i] {
			return false
		}
		shape := b.values[i].GetShape()
		from := len(inputs[i].Shape) - len(shape) // 1 without a batch axis
		for k, n := range shape {
			if int64(inputs[i].Shape[from+k]) != n {
				return false
			}
		}
	}
	return true
}

func (w *worker) bind(inputs []stream.Tensor, rows int) (_ *binding, err error) {
	b := &binding{rows: rows}
	if b.IoBinding, err = w.session.CreateIoBinding(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.destroy()
		}
	}()
	for i, t := range inputs {
		v, err := w.value(t)
		if err != nil {
			return nil, err
		}
		b.values = append(b.values, v)
		b.data = append(b.data, unsafe.SliceData(t.Data))
		if err = b.BindInput(w.inputs[i].Name, v); err != nil {
			return nil, err
		}
	}
	for i, r := range w.results {
		size := stream.Elements(r.Shape) * r.Datatype.Size() * rows
		t := stream.Tensor{Name: r.Name, Datatype: r.Datatype, Shape: append([]int{rows}, r.Shape...), Data: w.memory[i][:size:size]}
		v, err := w.value(t)
		if err != nil {
			return nil, err
		}
		b.values = append(b.values, v)
		b.outputs = append(b.outputs, t)
		if err = b.BindOutput(r.Name, v); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// value is a tensor of the library over t's memory. Memory of the Go heap does
// not move either, and its owner outlives the run.
func (w *worker) value(t stream.Tensor) (*ort.CustomDataTensor, error) {
	if len(t.Data) == 0 {
		return nil, stream.Errorf(stream.InvalidArgument, "inputs."+t.Name+".shape", "is %v, which holds nothing", t.Shape)
	}
	return ort.NewCustomDataTensor(native(t.Shape, w.axis), t.Data, natives[t.Datatype])
}

func (b *binding) destroy() {
	// Neither can fail: they free.
	_ = b.Destroy()
	for _, v := range b.values {
		_ = v.Destroy()
	}
}

// allocating runs the model and has the library allocate the outputs: for those
// whose size depends on what the input shows.
func (w *worker) allocating(inputs []stream.Tensor, rows int) ([]stream.Tensor, error) {
	in, out := make([]ort.Value, len(inputs)), make([]ort.Value, len(w.outputs))
	defer func() {
		for _, v := range append(in, out...) {
			if v != nil {
				_ = v.Destroy()
			}
		}
	}()
	for i, t := range inputs {
		v, err := w.value(t)
		if err != nil {
			return nil, runError(err)
		}
		in[i] = v
	}
	if err := w.session.Run(in, out); err != nil {
		var empty *ort.BadShapeDimensionError
		if !errors.As(err, &empty) {
			return nil, runError(err)
		}
		// Nothing was found: the binding has no tensors without elements.
	}
	for i, spec := range w.outputs {
		t, err := w.copied(spec, out[i], rows)
		if err != nil {
			return nil, err
		}
		w.fresh[i] = t
	}
	return w.fresh, nil
}

// copied is an output in memory of ours, with a batch axis in front.
func (w *worker) copied(spec stream.TensorSpec, v ort.Value, rows int) (stream.Tensor, error) {
	t := stream.Tensor{Name: spec.Name, Datatype: spec.Datatype, Shape: []int{rows}}
	if v == nil {
		for _, n := range spec.Shape {
			t.Shape = append(t.Shape, max(n, 0))
		}
		return t, nil
	}
	shape := v.GetShape()
	if w.axis != none {
		if len(shape) == 0 || shape[0] != int64(rows) && w.max > 1 {
			return t, stream.Errorf(stream.Unsupported, "batch_axis", "output %s has the shape %v for a batch of %d: its first dimension is no batch. Load the model with batch_axis=false", spec.Name, shape, rows)
		}
		if shape[0] == int64(rows) {
			shape = shape[1:]
		}
	}
	for _, n := range shape {
		t.Shape = append(t.Shape, int(n))
	}
	var err error
	t.Data, err = bytesOf(v)
	return t, err
}

// bytesOf copies a value's elements.
func bytesOf(v ort.Value) ([]byte, error) {
	switch v := v.(type) {
	case *ort.Tensor[float32]:
		return raw(v.GetData()), nil
	case *ort.Tensor[float64]:
		return raw(v.GetData()), nil
	case *ort.Tensor[int8]:
		return raw(v.GetData()), nil
	case *ort.Tensor[int16]:
		return raw(v.GetData()), nil
	case *ort.Tensor[int32]:
		return raw(v.GetData()), nil
	case *ort.Tensor[int64]:
		return raw(v.GetData()), nil
	case *ort.Tensor[uint8]:
		return raw(v.GetData()), nil
	case *ort.Tensor[uint16]:
		return raw(v.GetData()), nil
	case *ort.Tensor[uint32]:
		return raw(v.GetData()), nil
	case *ort.Tensor[uint64]:
		return raw(v.GetData()), nil
	case *ort.Tensor[bool]:
		return raw(v.GetData()), nil
	case *ort.StringTensor:
		texts, err := v.GetContents()
		if err != nil {
			return nil, runError(err)
		}
		var out []byte
		for _, s := range texts {
			out = append(binary.LittleEndian.AppendUint32(out, uint32(len(s))), s...)
		}
		return out, nil
	}
	return nil, stream.Errorf(stream.Unsupported, "source", "an output of a size that varies is of a type (%v) that can only be read where its size is known: export the model with fixed sizes", v.DataType())
}

// raw is a copy of a slice's memory.
func raw[T any](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	n := len(s) * int(unsafe.Sizeof(s[0]))
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), n)...)
}

// runError is what the library says of a run that failed.
func runError(err error) error {
	var coded *stream.Error
	if errors.As(err, &coded) {
		return err
	}
	return &stream.Error{Code: stream.Internal, Msg: fmt.Sprintf("the model failed: %s", useful(err)), Err: err}
}
