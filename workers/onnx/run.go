//go:build cgo

package onnx

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"

	"millrace/batching"
	"millrace/stream"
)

// Run computes one batch. The run ends early with ctx and by Interrupt.
func (w *worker) Run(ctx context.Context, b *batching.Batch) (err error) {
	if w.keeps() {
		return w.runStates(ctx, b)
	}
	inputs := b.Inputs
	if w.text {
		if inputs = w.concatInputs(b); inputs == nil {
			return nil
		}
	}
	rows := b.Rows
	if w.axis != free {
		rows = w.max
	}
	b.Outputs, err = w.compute(ctx, inputs, rows)
	return err
}

// compute runs the model. The outputs are valid until the next call. The shapes of inputs and outputs are the
// clients' shapes.
func (w *worker) compute(ctx context.Context, inputs []stream.Tensor, rows int) ([]stream.Tensor, error) {
	outputs, err := w.computeInner(ctx, w.toInner(inputs, rows), rows)
	if err != nil {
		return nil, err
	}
	return w.toOuter(outputs, rows)
}

// computeInner is compute with the shapes of the model's file.
func (w *worker) computeInner(ctx context.Context, inputs []stream.Tensor, rows int) ([]stream.Tensor, error) {
	if w.results == nil || w.free && sizeOf(inputs) > maxFree {
		out, err := w.runAllocating(ctx, inputs, rows)
		if err == nil && !w.varies && w.learn(out, rows) != nil {
			w.varies = true
		}
		return out, err
	}
	b, err := w.binding(inputs, rows)
	if err == nil {
		if err = w.runUntil(ctx, b.in, b.out); err == nil {
			return b.outputs, nil
		}
		if w.ended() {
			return nil, runError(err)
		}
	}
	// The outputs may have other sizes than in the first run or the file.
	out, slow := w.runAllocating(ctx, inputs, rows)
	if slow != nil {
		return nil, slow
	}
	w.varies = true // from now on, without bindings
	w.Release()
	w.freeOutputs()
	return out, nil
}

func sizeOf(ts []stream.Tensor) (n int) {
	for i := range ts {
		n += len(ts[i].Data)
	}
	return n
}

// binding returns the reused binding for a batch's memory.
func (w *worker) binding(inputs []stream.Tensor, rows int) (*binding, error) {
	for _, b := range w.bound {
		if b.rows == rows && b.matches(inputs) {
			return b, nil
		}
	}
	if len(w.bound) == w.keep {
		w.Release()
	}
	b, err := w.bind(inputs, rows)
	if err == nil {
		w.bound = append(w.bound, b)
	}
	return b, err
}

// matches reports whether the binding is for these inputs: their memory and shapes.
func (b *binding) matches(inputs []stream.Tensor) bool {
	for i := range inputs {
		if unsafe.SliceData(inputs[i].Data) != b.data[i] {
			return false
		}
		shape := b.shapes[i]
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
	defer func() {
		if err != nil {
			b.destroy()
		}
	}()
	for i, t := range inputs {
		v, err := valueOf(t, w.inAxes[i], &b.pins)
		if err != nil {
			return nil, err
		}
		b.in = append(b.in, v)
		b.data = append(b.data, unsafe.SliceData(t.Data))
		b.shapes = append(b.shapes, native(t.Shape, w.inAxes[i]))
	}
	for i, r := range w.results {
		size := stream.Elements(r.Shape) * r.Datatype.Size() * rows
		t := stream.Tensor{Name: r.Name, Datatype: r.Datatype, Shape: w.outputShape(i, r.Shape, rows),
			Data: w.memory[i][:size:size]}
		v, err := valueOf(t, w.axes[i], &b.pins)
		if err != nil {
			return nil, err
		}
		b.out = append(b.out, v)
		b.outputs = append(b.outputs, t)
	}
	return b, nil
}

// outputShape returns the shape of output i for a run of the given rows; each row has the shape of.
func (w *worker) outputShape(i int, of []int, rows int) []int {
	if k := slices.Index(w.stateOutputs, i); k >= 0 {
		return w.states[k].shape(rows)
	}
	return append([]int{rows}, of...)
}

// valueOf returns a tensor of the library over t's memory. valueOf pins the memory, which may be on the Go heap,
// because the library keeps a pointer.
func valueOf(t stream.Tensor, a axis, pins *runtime.Pinner) (ort.Value, error) {
	shape := native(t.Shape, a)
	if len(t.Data) == 0 {
		if e, known := element[t.Datatype]; known {
			return e.empty(shape)
		}
		if t.Datatype == stream.Bytes {
			return ort.NewStringTensor(shape)
		}
		none := make([]byte, t.Datatype.Size()) // the binding wants a byte, the library reads none
		pins.Pin(unsafe.SliceData(none))
		return ort.NewCustomDataTensor(shape, none, natives[t.Datatype])
	}
	switch {
	case len(shape) == 0:
		return scalar(t)
	case t.Datatype == stream.Bytes:
		return textValue(shape, t.Data)
	}
	pins.Pin(unsafe.SliceData(t.Data))
	return ort.NewCustomDataTensor(shape, t.Data, natives[t.Datatype])
}

func (b *binding) destroy() {
	for _, v := range slices.Concat(b.in, b.out) {
		_ = v.Destroy() // cannot fail
	}
	b.pins.Unpin()
}

// runAllocating runs the model with outputs allocated by the library, because the size of the outputs depends on the
// values of the input.
func (w *worker) runAllocating(ctx context.Context, inputs []stream.Tensor, rows int) ([]stream.Tensor, error) {
	in, out := make([]ort.Value, len(inputs)), make([]ort.Value, len(w.outputs))
	var pins runtime.Pinner
	defer func() {
		pins.Unpin()
		for _, v := range append(in, out...) {
			if v != nil && !unreadable(v) {
				_ = v.Destroy()
			}
		}
	}()
	var err error
	for i, t := range inputs {
		if in[i], err = valueOf(t, w.inAxes[i], &pins); err != nil {
			return nil, runError(err)
		}
	}
	for i, spec := range w.outputs {
		switch {
		case w.scalar[i]:
			out[i], err = element[w.library(i)].scalar(nil)
		case !readable(w.library(i)):
			t := stream.Tensor{Name: spec.Name, Datatype: spec.Datatype, Shape: w.outputShape(i, spec.Shape, rows)}
			t.Data = make([]byte, stream.Elements(t.Shape)*t.Datatype.Size())
			out[i], err = valueOf(t, w.axes[i], &pins)
		}
		if err != nil {
			return nil, runError(err)
		}
	}
	if err := w.runUntil(ctx, in, out); err != nil {
		if i := slices.IndexFunc(out, unreadable); i >= 0 && errors.Is(err, ort.ZeroShapeLengthError) {
			w.scalar[i] = true // the binding can read only scalars made by the binding
			return w.runAllocating(ctx, inputs, rows)
		}
		return nil, runError(err)
	}
	for i := range w.outputs {
		if w.allocated[i], err = w.copied(i, out[i], rows); err != nil {
			return nil, err
		}
	}
	return w.allocated, nil
}

// unreadable reports whether the binding could not read an output.
func unreadable(v ort.Value) bool { return v != nil && reflect.ValueOf(v).IsNil() }

// copied returns a copy of output i, with a batch axis in front.
func (w *worker) copied(i int, v ort.Value, rows int) (stream.Tensor, error) {
	spec, a := w.outputs[i], w.axes[i]
	t := stream.Tensor{Name: spec.Name, Datatype: spec.Datatype, Shape: []int{rows}}
	shape := v.GetShape()
	switch {
	case a == none:
	case len(shape) > 0 && shape[0] == int64(rows):
		shape = shape[1:]
	case w.max > 1:
		return t, stream.Errorf(stream.Unsupported, "batch_axis", "does not hold: output %s of the model has the "+
			"shape %v for a batch of %d, so its first dimension is not the batch. If it is a list of what the "+
			"pictures or rows of a batch have, set batching.max_size: 1; otherwise set batch_axis: false (in a "+
			"config.pbtxt: max_batch_size: 0)", spec.Name, shape, rows)
	}
	for _, n := range shape {
		t.Shape = append(t.Shape, int(n))
	}
	var err error
	t.Data, err = bytesOf(v, w.library(i))
	if w.castToFP32[i] {
		t.Data = narrowed(t.Data, spec.Datatype)
	}
	return t, err
}

// runError returns the error of a failed run.
func runError(err error) error {
	var coded *stream.Error
	if errors.As(err, &coded) {
		return err
	}
	text := shortMessage(err)
	if whole := err.Error(); strings.Contains(whole, "Available memory of ") ||
		strings.Contains(whole, "Failed to allocate memory") {
		return &stream.Error{Code: stream.TooLarge, Field: "onnx.memory",
			Msg: "is less than the model needs for this input: send a smaller input, or raise the setting (" + text +
				")", Err: err}
	}
	return &stream.Error{Code: stream.Internal, Msg: fmt.Sprintf("the model failed: %s", text), Err: err}
}
