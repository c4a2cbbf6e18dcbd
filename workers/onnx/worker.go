//go:build cgo

package onnx

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	ort "github.com/yalue/onnxruntime_go"
	"golang.org/x/sys/unix"

	"millrace/stream"
	"millrace/workers"
)

const doc = "any ONNX model, with ONNX Runtime"

// defaultBatch is the default of batching.max_size for a free batch axis.
const defaultBatch = 8

// Bounds of the cache of bindings; beyond the bounds, all bindings are made again. Inputs with free dimensions get
// other memory as they grow, while bindings hold the old memory: for such inputs few bindings are kept, and no
// binding of more than maxFree bytes.
const (
	maxBound     = 1024
	maxBoundFree = 16
	maxFree      = 64 << 10
)

// worker is one instance. The workers of a group share a session.
type worker struct {
	workers.Base
	session       *session
	axis          axis
	max           int             // rows
	several       map[string]bool // outputs whose first dimension is not the batch, for a batch of one row
	warm          bool
	text          bool                // some input has strings
	inputs        []stream.TensorSpec // of the session
	outputs       []stream.TensorSpec
	inAxes        []axis              // of the inputs
	axes          []axis              // of the outputs
	clientInputs  []int               // inputs sent by clients
	sent          []stream.TensorSpec // inputs in the clients' shapes
	clientOutputs []int               // outputs for clients
	results       []stream.TensorSpec // the bound outputs, with all dimensions known
	varies        bool                // the sizes of outputs vary from run to run
	interrupter   interrupter
	memory        [][]byte // of each output, max rows
	bound         []*binding
	keep          int             // the most bindings in bound
	free          bool            // some input has free dimensions
	allocated     []stream.Tensor // the outputs of runAllocating
	scalar        []bool          // scalar outputs, as found in a run
	castToFP32    []bool          // outputs computed as FP32 by the library

	states        []stateTensor
	stateInputs   []int // their positions
	stateOutputs  []int
	controls      []control
	controlInputs []int // their positions
	inReshapes    []reshape
	outReshapes   []reshape
	inner         []stream.Tensor // the inputs of a run with reshapes
	outer         []stream.Tensor // outputs in the clients' shapes
	stateSize     int             // bytes of all states of a stream
	stateMemory   [][]byte        // of each state's input, max rows
	all           []stream.Tensor // the inputs of a run with state
	seen          []stream.Tensor // outputs for clients, of a run with state
}

var (
	_ workers.Worker      = (*worker)(nil)
	_ workers.Interrupter = (*worker)(nil)
)

// binding binds inputs and outputs to reused memory.
type binding struct {
	pins    runtime.Pinner
	in, out []ort.Value
	data    []*byte     // of each input
	shapes  []ort.Shape // of each input
	rows    int
	outputs []stream.Tensor
}

// Init loads the model, or shares the session of another worker.
func (w *worker) Init(_ context.Context, env *workers.Env) (m *stream.Model, err error) {
	set := env.Settings.(*settings)
	w.warm = *set.Warmup
	if w.session, err = acquire(env.Source, env.Digest, set.Session); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.Destroy()
		}
	}()
	s := w.session
	if len(s.inputs) == 0 || len(s.outputs) == 0 {
		hint := ""
		if len(s.others) > 0 {
			hint = ". Its outputs " + strings.Join(s.others, ", ") + " are maps or sequences: " + zipMap
		}
		return nil, stream.Errorf(stream.Unsupported, "source",
			"%s has %d inputs, and %d outputs that are tensors: it needs one of each%s", env.Source, len(s.inputs),
			len(s.outputs), hint)
	}
	if len(s.others) > 0 && env.Log != nil && env.Instance == 0 {
		env.Log.Warn("outputs of the model are left out: they are maps or sequences, not tensors", "model", env.Name,
			"outputs", strings.Join(s.others, ","), "hint", zipMap)
	}
	if set.State != "" {
		if err = w.findStates(set.State); err != nil {
			return nil, err
		}
	}
	if set.Controls != "" {
		if err = w.findControls(set.Controls); err != nil {
			return nil, err
		}
	}
	inputs, outputs := withoutPositions(s.inputs, w.stateInputs), withoutPositions(s.outputs, w.stateOutputs)
	rows := 1
	if *set.BatchAxis {
		w.axis, rows = batchAxis(inputs, outputs, s.scalars)
	}
	w.text = takesText(withoutPositions(s.inputs, append(slices.Clone(w.stateInputs), w.controlInputs...)))
	if w.text && rows > 1 {
		w.axis, rows = none, 1
	}
	w.max = max(rows, 1)
	if w.axis == free {
		if w.max = env.MaxBatch; w.max < 1 {
			w.max = defaultBatch
		}
	}
	if w.axis == free && w.max == 1 {
		w.several = otherDimensions(env.Source)
	}
	if err = w.describeStates(env.MaxBatch); err != nil {
		return nil, err
	}
	if err = w.describe(s); err != nil {
		return nil, err
	}
	if err = w.useFP32Outputs(env, set.Session); err != nil {
		return nil, err
	}
	if err = w.findReshapes(env.Declared); err != nil {
		return nil, err
	}
	m = &stream.Model{Name: env.Name, Inputs: pick(w.inputs, w.clientInputs), Outputs: pick(w.outputs, w.clientOutputs),
		Ragged: w.text, JoinRagged: w.text, Axis: w.axis.described(), Metadata: s.metadata}
	w.declare(m)
	m.MaxBatch = w.max
	if w.keeps() {
		m.Stateful, m.StateRow = true, w.stateSize
		m.Policy.Mode = stream.Every // an omitted frame would be missing in the state
	}
	if env.Image != nil || env.Window != (workers.Window{}) {
		if err = workers.ApplyInputs(m, env.Image, env.Window, nil); err != nil {
			return nil, err
		}
		for j, i := range w.clientInputs {
			if !reshaped(w.inReshapes, i) {
				w.inputs[i] = m.Inputs[j]
			}
		}
	}
	w.sent = m.Inputs
	return m, nil
}

// pick returns the elements at these positions.
func pick[T any](of []T, positions []int) []T {
	out := make([]T, len(positions))
	for k, i := range positions {
		out[k] = of[i]
	}
	return out
}

// describe sets inputs and outputs.
func (w *worker) describe(s *session) error {
	for i, t := range s.inputs {
		if k := slices.Index(w.stateInputs, i); k >= 0 {
			w.inputs, w.inAxes = append(w.inputs, w.states[k].spec(t.Name)), append(w.inAxes, none)
			continue
		}
		in, err := spec(t, w.axis)
		if err != nil {
			return err
		}
		if in.Datatype == stream.Bytes && len(t.Dimensions) == 0 {
			return stream.Errorf(stream.Unsupported, "source",
				"input %s of the model is a string without dimensions, which cannot be bound: export it with one",
				in.Name)
		}
		w.inputs, w.inAxes = append(w.inputs, in), append(w.inAxes, w.axis)
		if k := slices.Index(w.controlInputs, i); k >= 0 {
			if err := w.describeControl(&w.controls[k], &w.inputs[i]); err != nil {
				return err
			}
			continue
		}
		w.clientInputs = append(w.clientInputs, i)
	}
	for i, t := range s.outputs {
		if k := slices.Index(w.stateOutputs, i); k >= 0 {
			w.outputs, w.axes, w.castToFP32 = append(w.outputs, w.states[k].spec(t.Name)), append(w.axes, none),
				append(w.castToFP32, false)
			continue
		}
		of, shown := w.axis, w.axis
		switch {
		case len(t.Dimensions) == 0 && s.scalars[t.Name]: // a number
			of, shown = none, none
		case len(t.Dimensions) == 0: // of unknown rank
			t.Dimensions, shown = ort.Shape{-1}, none
		// for example the objects found in the row
		case w.axis == fixed && w.max == 1 && t.Dimensions[0] != 1, w.several[t.Name]:
			of, shown = none, none
		}
		out, err := spec(t, shown)
		if err != nil {
			return err
		}
		out.Unbatched = of == none && w.axis != none
		w.castToFP32 = append(w.castToFP32, !readable(out.Datatype) && (stream.Elements(out.Shape) < 1 ||
			len(t.Dimensions) == 0))
		w.outputs, w.axes, w.clientOutputs = append(w.outputs, out), append(w.axes, of), append(w.clientOutputs, i)
	}
	return nil
}

// useFP32Outputs replaces the session by a session that computes outputs as FP32, if needed.
func (w *worker) useFP32Outputs(env *workers.Env, o Session) error {
	var names []string
	for i, wide := range w.castToFP32 {
		if wide {
			names = append(names, w.session.outputs[i].Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	s, err := acquire(env.Source, env.Digest, o, names...)
	if err != nil {
		return err
	}
	_ = w.session.release() // an error has no consequence
	w.session = s
	return nil
}

// Allocate allocates the outputs, if all sizes are known.
func (w *worker) Allocate(context.Context) error {
	w.allocated, w.scalar = make([]stream.Tensor, len(w.outputs)), make([]bool, len(w.outputs))
	w.keep, w.varies = maxBound, w.text
	if w.text && !w.keeps() {
		return nil
	}
	w.all = make([]stream.Tensor, len(w.inputs))
	for k := range w.controls {
		c := &w.controls[k]
		c.memory = make([]byte, w.max*c.input.Datatype.Size())
		if c.input.Datatype == stream.Bytes {
			c.texts, w.varies = make([]string, w.max), true
		}
	}
	for k := range w.states {
		mem, err := mapped(w.states[k].size() * w.max)
		if err != nil {
			w.Deallocate()
			return err
		}
		w.stateMemory = append(w.stateMemory, mem)
	}
	for i, in := range w.inputs {
		if stream.Elements(in.Shape) < 0 {
			w.keep, w.varies, w.free = maxBoundFree, true, true
		}
		if w.inAxes[i] == none && len(in.Shape) == 0 { // scalars are copied, not bound
			w.varies = true
			return nil
		}
		if in.Datatype == stream.Bytes { // an id: strings are not bound
			return nil
		}
	}
	return w.allocateOutputs(w.outputs)
}

// allocateOutputs allocates outputs of these shapes, if all are known and not scalars.
func (w *worker) allocateOutputs(of []stream.TensorSpec) error {
	sizes := make([]int, len(of))
	for i, t := range of {
		if w.axes[i] == none && len(t.Shape) == 0 {
			return nil
		}
		if sizes[i] = stream.Elements(t.Shape) * t.Datatype.Size() * w.max; sizes[i] <= 0 {
			return nil
		}
	}
	for _, n := range sizes {
		mem, err := mapped(n)
		if err != nil {
			w.Deallocate()
			return err
		}
		w.memory = append(w.memory, mem)
	}
	w.results = of
	return nil
}

// mapped returns n bytes outside of the Go heap.
func mapped(n int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes for outputs or state: %w", n, err)
	}
	return mem, nil
}

// Acquire warms the model up: the first run of a size allocates the library's memory.
func (w *worker) Acquire(ctx context.Context) error {
	if !w.warm {
		return nil
	}
	defer w.Release() // of the bindings to the inputs below
	for _, rows := range []int{1, w.max} {
		if w.axis != free {
			rows = w.max
		}
		inputs, ok := w.zeros(rows)
		if !ok {
			return nil // the sizes depend on requests
		}
		_, err := w.compute(ctx, inputs, rows)
		if stream.CodeOf(err) == stream.Internal {
			err = stream.Errorf(stream.InvalidArgument, "warmup", "the first run, of zeros, failed: %w. If zeros "+
				"are not a valid input of the model, load it with warmup=false", err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// zeros returns inputs of zeros, if their sizes are known.
func (w *worker) zeros(rows int) ([]stream.Tensor, bool) {
	out := make([]stream.Tensor, len(w.inputs))
	for i, in := range w.inputs {
		if k := slices.Index(w.stateInputs, i); k >= 0 {
			out[i] = w.states[k].tensor(w.stateMemory[k], rows)
			for row := range rows {
				w.states[k].put(out[i].Data, nil, row, rows)
			}
			continue
		}
		n := stream.Elements(in.Shape) * in.Datatype.Size() * rows
		if n <= 0 {
			return nil, false
		}
		out[i] = stream.Tensor{Name: in.Name, Datatype: in.Datatype, Shape: append([]int{rows}, in.Shape...),
			Data: make([]byte, n)}
	}
	return out, true
}

// learn uses the dimensions of a run's outputs for the dimensions left free by the file: most depend only on the
// input's size. If the dimensions vary with the input's values, the first differing run sets varies.
func (w *worker) learn(got []stream.Tensor, rows int) error {
	of := make([]stream.TensorSpec, len(got))
	for i, t := range got {
		if slices.Contains(w.stateOutputs, i) {
			of[i] = w.outputs[i]
			continue
		}
		if len(t.Shape) == 0 || t.Shape[0] != rows || t.Datatype == stream.Bytes || w.scalar[i] || w.castToFP32[i] ||
			w.axes[i] != w.axis {
			return nil
		}
		of[i] = stream.TensorSpec{Name: t.Name, Datatype: t.Datatype, Shape: t.Shape[1:]}
	}
	return w.allocateOutputs(of)
}

// Release drops the bindings.
func (w *worker) Release() {
	for _, b := range w.bound {
		b.destroy()
	}
	w.bound = w.bound[:0]
}

// Deallocate frees the memory of outputs and state.
func (w *worker) Deallocate() {
	w.freeOutputs()
	for _, mem := range w.stateMemory {
		_ = unix.Munmap(mem)
	}
	w.stateMemory = nil
}

func (w *worker) freeOutputs() {
	for _, mem := range w.memory {
		_ = unix.Munmap(mem) // fails only for an unmapped address
	}
	w.memory, w.results = nil, nil
}

// Destroy releases the session; the last worker closes the session.
func (w *worker) Destroy() {
	if w.session == nil {
		return
	}
	w.interrupter.destroy()
	_ = w.session.release() // an error has no consequence
	w.session = nil
}
