//go:build cgo

package onnx

import (
	"fmt"
	"slices"

	"millrace/stream"
	"millrace/workers"
)

// A model's configuration may declare other shapes than the file, with as many elements: densenet's file has
// [1,3,224,224], and clients send [3,224,224].

// reshape is a tensor with such a declaration. Both shapes have the same free dimensions, in the same order. Both are
// without the axis of rows.
type reshape struct {
	at           int // index among the session's inputs or outputs
	outer, inner []int
}

// findReshapes reads the reshapes of a configuration.
func (w *worker) findReshapes(d workers.Declared) (err error) {
	for _, side := range []struct {
		name     string
		declared []workers.Tensor
		has      []stream.TensorSpec
		shown    []int
		to       *[]reshape
	}{{"input", d.Inputs, w.inputs, w.clientInputs, &w.inReshapes}, {"output", d.Outputs, w.outputs, w.clientOutputs,
		&w.outReshapes}} {
		for i, t := range side.declared {
			at := slices.IndexFunc(side.has, func(s stream.TensorSpec) bool { return s.Name == t.Name })
			if at < 0 || !slices.Contains(side.shown, at) { // missing tensors are reported later
				continue
			}
			spec := &side.has[at]
			if t.Reshape == nil && w.isNumber(side.name, at) && len(t.Shape) > 0 && stream.Elements(t.Shape) == 1 {
				*side.to = append(*side.to, reshape{at: at, outer: t.Shape, inner: spec.Shape})
				continue
			}
			if t.Reshape == nil {
				continue
			}
			if !slices.EqualFunc(spec.Shape, t.Reshape, func(a, b int) bool { return a == b || a < 0 || b < 0 }) {
				return stream.Errorf(stream.InvalidArgument, fmt.Sprintf("%s[%d].reshape.shape", side.name, i),
					"of %s is %v, and the shape in the model's file is %v", t.Name, t.Reshape, spec.Shape)
			}
			spec.Shape = t.Reshape
			*side.to = append(*side.to, reshape{at: at, outer: t.Shape, inner: t.Reshape})
		}
	}
	return nil
}

// isNumber reports whether the file gives an input or output no dimensions. A configuration may declare dimensions of
// 1 for clients without scalars.
func (w *worker) isNumber(side string, at int) bool {
	if side == "input" {
		return len(w.session.inputs[at].Dimensions) == 0
	}
	return len(w.session.outputs[at].Dimensions) == 0
}

func reshaped(all []reshape, at int) bool {
	return slices.ContainsFunc(all, func(r reshape) bool { return r.at == at })
}

// declare sets the shapes of m, made of the worker's inputs and outputs, to the clients' shapes.
func (w *worker) declare(m *stream.Model) {
	for _, r := range w.inReshapes {
		m.Inputs[slices.Index(w.clientInputs, r.at)].Shape = r.outer
	}
	for _, r := range w.outReshapes {
		m.Outputs[slices.Index(w.clientOutputs, r.at)].Shape = r.outer
	}
}

// toInner returns the inputs of a run with the shapes of the model's file.
func (w *worker) toInner(inputs []stream.Tensor, rows int) []stream.Tensor {
	if len(w.inReshapes) == 0 {
		return inputs
	}
	w.inner = append(w.inner[:0], inputs...)
	for _, r := range w.inReshapes {
		t := &w.inner[r.at]
		t.Shape = withFree(r.inner, r.outer, t.Shape, rows)
	}
	return w.inner
}

// toOuter returns the outputs of a run with the shapes of clients.
func (w *worker) toOuter(outputs []stream.Tensor, rows int) ([]stream.Tensor, error) {
	if len(w.outReshapes) == 0 {
		return outputs, nil
	}
	w.outer = append(w.outer[:0], outputs...)
	for _, r := range w.outReshapes {
		t := &w.outer[r.at]
		shape := withFree(r.outer, r.inner, t.Shape, rows)
		if stream.Elements(shape) != stream.Elements(t.Shape) {
			return nil, stream.Errorf(stream.Unsupported, "",
				"output %s of the model has the shape %v, which its configuration does not make %v of", t.Name,
				t.Shape[1:], r.outer)
		}
		t.Shape = shape
	}
	return w.outer, nil
}

// withFree returns the shape to with rows in front. The free dimensions come from of, which has the shape from with
// rows in front. Results share the returned shape, which is never written again.
func withFree(to, from, of []int, rows int) []int {
	shape := append(make([]int, 0, len(to)+1), rows)
	shape = append(shape, to...)
	next := 0
	for i, n := range to {
		if n >= 0 {
			continue
		}
		for next < len(from) && from[next] >= 0 {
			next++
		}
		if next++; next < len(of) { // after the rows
			shape[i+1] = of[next]
		}
	}
	return shape
}
