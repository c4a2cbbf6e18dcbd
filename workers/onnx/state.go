//go:build cgo

package onnx

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	ort "github.com/yalue/onnxruntime_go"

	"millrace/batching"
	"millrace/stream"
	"millrace/stream/buf"
)

// A model with state has outputs that are inputs of the next run: the hidden state of a recurrent network. The state
// tensors are invisible to clients. Each stream keeps its own values: the rows of a batch get the values of their
// streams before a run and return the new values afterwards. One-shot requests begin with the initial value and keep
// nothing.

// stateTensor is a pair of an input and an output with state.
type stateTensor struct {
	in, out      int           // their positions among the session's
	input        stream.Tensor // for a run, over memory of max rows; the shape has a 1 in front
	at           int           // the row dimension of input.Shape; 0 = none
	outer, inner int           // a row is outer pieces of inner bytes, because the row axis may come later
	initial      []byte        // the inner bytes of a piece
}

// size returns the bytes of a row.
func (s *stateTensor) size() int { return s.outer * s.inner }

// statePair is an entry of the setting.
type statePair struct {
	input, output string
	initial       float64
}

// statePairs reads the setting: "INPUT=OUTPUT[:INITIAL]; ...".
func statePairs(text string, outputs []ort.InputOutputInfo) (pairs []statePair, err error) {
	for entry := range strings.SplitSeq(text, ";") {
		var p statePair
		var ok bool
		if p.input, p.output, ok = strings.Cut(strings.TrimSpace(entry), "="); !ok {
			return nil, stream.Errorf(stream.InvalidArgument, "state",
				"has the entry %q: want INPUT=OUTPUT or INPUT=OUTPUT:INITIAL, with ; between entries",
				strings.TrimSpace(entry))
		}
		p.input, p.output = strings.TrimSpace(p.input), strings.TrimSpace(p.output)
		// names may have colons
		if i := strings.LastIndexByte(p.output, ':'); i >= 0 && position(outputs, p.output) < 0 {
			if p.initial, err = strconv.ParseFloat(strings.TrimSpace(p.output[i+1:]), 64); err != nil {
				return nil, stream.Errorf(stream.InvalidArgument, "state",
					"has %q as the initial value of input %s: want a number", p.output[i+1:], p.input)
			}
			p.output = strings.TrimSpace(p.output[:i])
		}
		pairs = append(pairs, p)
	}
	return pairs, nil
}

func position(of []ort.InputOutputInfo, name string) int {
	return slices.IndexFunc(of, func(t ort.InputOutputInfo) bool { return t.Name == name })
}

// withoutPositions returns the tensors without the given positions.
func withoutPositions(of []ort.InputOutputInfo, positions []int) (kept []ort.InputOutputInfo) {
	for i := range of {
		if !slices.Contains(positions, i) {
			kept = append(kept, of[i])
		}
	}
	return kept
}

// findStates finds the tensors named by the setting. describeStates reads the shapes later, with the known batch
// axis.
func (w *worker) findStates(text string) error {
	s := w.session
	pairs, err := statePairs(text, s.outputs)
	if err != nil {
		return err
	}
	w.states = make([]stateTensor, len(pairs))
	for k, p := range pairs {
		in, out := position(s.inputs, p.input), position(s.outputs, p.output)
		switch {
		case in < 0:
			return stream.Errorf(stream.InvalidArgument, "state", "names the input %q: the model has %s", p.input,
				names(s.inputs))
		case out < 0:
			return stream.Errorf(stream.InvalidArgument, "state", "names the output %q: the model has %s", p.output,
				names(s.outputs))
		case slices.Contains(w.stateInputs, in) || slices.Contains(w.stateOutputs, out):
			return stream.Errorf(stream.InvalidArgument, "state", "names %s or %s twice", p.input, p.output)
		case s.inputs[in].DataType != s.outputs[out].DataType:
			return stream.Errorf(stream.InvalidArgument, "state",
				"input %s and output %s have other datatypes: the one is fed back as the other", p.input, p.output)
		}
		d := datatypes[s.inputs[in].DataType]
		if d.Size() == 0 {
			return stream.Errorf(stream.Unsupported, "state", "input %s is not numeric", p.input)
		}
		initial, err := number(d, p.initial)
		if err != nil {
			return stream.Errorf(stream.InvalidArgument, "state", "the initial value of input %s: %w", p.input, err)
		}
		w.states[k] = stateTensor{in: in, out: out, initial: initial, input: stream.Tensor{Name: p.input, Datatype: d}}
		w.stateInputs, w.stateOutputs = append(w.stateInputs, in), append(w.stateOutputs, out)
	}
	if len(w.states) == len(s.inputs) || len(w.states) == len(s.outputs) {
		return stream.Errorf(stream.InvalidArgument, "state",
			"names all inputs or all outputs of the model: nothing is left for clients")
	}
	return nil
}

func names(of []ort.InputOutputInfo) string {
	list := make([]string, len(of))
	for i := range of {
		list[i] = of[i].Name
	}
	return strings.Join(list, ", ")
}

// number returns an element of the given type.
func number(d stream.Datatype, v float64) ([]byte, error) {
	out := make([]byte, d.Size())
	switch d {
	case stream.Float32:
		binary.LittleEndian.PutUint32(out, math.Float32bits(float32(v)))
	case stream.Float64:
		binary.LittleEndian.PutUint64(out, math.Float64bits(v))
	case stream.Float16, stream.BFloat:
		if v != 0 {
			return nil, fmt.Errorf("is %v, and of %s only 0 is possible", v, d)
		}
	default:
		bits, low := 8*d.Size(), 0.0
		if strings.HasPrefix(string(d), "INT") {
			bits--
			low = -math.Ldexp(1, bits)
		} else if d == stream.Bool {
			bits = 1
		}
		if v != math.Trunc(v) || v < low || v >= math.Ldexp(1, bits) {
			return nil, fmt.Errorf("is %v, which is not %s", v, d)
		}
		whole := uint64(int64(v))
		if v >= 1<<63 {
			whole = uint64(v)
		}
		var all [8]byte
		binary.LittleEndian.PutUint64(all[:], whole)
		copy(out, all[:])
	}
	return out, nil
}

// describeStates reads the shapes of the state's tensors, and sets max to 1 when one has
// no axis for rows. rows is the setting batching.max_size, or 0.
func (w *worker) describeStates(rows int) error {
	for k := range w.states {
		st := &w.states[k]
		in, out := w.session.inputs[st.in], w.session.outputs[st.out]
		shape := []int{1}
		for i, n := range in.Dimensions {
			switch {
			case n >= 0 && !(w.axis == fixed && w.max > 1 && st.at == 0 && i < 2 && n == int64(w.max)):
				shape = append(shape, int(n))
				continue
			case n < 0 && st.at > 0:
				return stream.Errorf(stream.Unsupported, "state", "input %s has the shape %v: all of its sizes but "+
					"that of the batch must be known: export it with fixed sizes", in.Name, in.Dimensions)
			}
			st.at = i + 1
			shape = append(shape, 1)
		}
		if len(out.Dimensions) > 0 && !fits(out.Dimensions, in.Dimensions) {
			return stream.Errorf(stream.InvalidArgument, "state",
				"input %s has the shape %v and output %s has %v: they must be equal", in.Name, in.Dimensions, out.Name,
				out.Dimensions)
		}
		switch {
		case st.at > 0 && w.axis != none:
		case w.axis == fixed && w.max > 1:
			return stream.Errorf(stream.Unsupported, "state",
				"input %s has the shape %v, in which no dimension is the batch of %d", in.Name, in.Dimensions, w.max)
		case w.axis == free && rows > 1:
			return stream.Errorf(stream.InvalidArgument, "batching.max_size", "is %d, and the state's input %s has "+
				"the shape %v, without a free dimension for the batch: leave it out", rows, in.Name, in.Dimensions)
		case w.axis == free:
			w.max = 1
			fallthrough
		default:
			st.at = 0
		}
		size := stream.Elements(shape)
		if size < 1 || size > math.MaxInt32 {
			return stream.Errorf(stream.Unsupported, "state", "input %s has the shape %v, which is empty or too large",
				in.Name, in.Dimensions)
		}
		st.outer = stream.Elements(shape[:st.at])
		st.inner = size / st.outer * st.input.Datatype.Size()
		for len(st.initial) < st.inner {
			st.initial = append(st.initial, st.initial[:min(len(st.initial), st.inner-len(st.initial))]...)
		}
		st.input.Shape = shape
		w.stateSize += st.size()
	}
	return nil
}

// fits reports whether two shapes can be equal: -1 is any size.
func fits(a, b ort.Shape) bool {
	return slices.EqualFunc(a, b, func(m, n int64) bool { return m < 0 || n < 0 || m == n })
}

// spec describes the state's input or output by one row, like other tensors.
func (s *stateTensor) spec(name string) stream.TensorSpec {
	shape := slices.Clone(s.input.Shape[1:])
	if s.at > 0 {
		shape = slices.Delete(shape, s.at-1, s.at)
	}
	return stream.TensorSpec{Name: name, Datatype: s.input.Datatype, Shape: shape}
}

// shape returns the shape for the given rows, with a 1 in front.
func (s *stateTensor) shape(rows int) []int {
	shape := slices.Clone(s.input.Shape)
	if s.at > 0 {
		shape[s.at] = rows
	}
	return shape
}

// tensor returns the input for the given rows, in the same memory for each call.
func (s *stateTensor) tensor(memory []byte, rows int) stream.Tensor {
	t := s.input
	if s.at > 0 {
		t.Shape[s.at] = rows
	}
	t.Data = memory[:s.size()*rows]
	return t
}

// put copies a row's pieces into a tensor of the given rows; nil is the initial value.
func (s *stateTensor) put(tensor, row []byte, i, rows int) {
	for k := range s.outer {
		from := s.initial
		if row != nil {
			from = row[k*s.inner : (k+1)*s.inner]
		}
		copy(tensor[(k*rows+i)*s.inner:], from)
	}
}

// get copies a row's pieces out of a tensor of the given rows.
func (s *stateTensor) get(row, tensor []byte, i, rows int) {
	for k := range s.outer {
		at := (k*rows + i) * s.inner
		copy(row[k*s.inner:(k+1)*s.inner], tensor[at:at+s.inner])
	}
}

// streamState is the state of one stream: a row of each of the state's tensors. Without state tensors, streamState
// means that the stream has begun.
type streamState struct{ lease *buf.Buf }

func (k *streamState) size() int {
	if k.lease == nil {
		return 0
	}
	return k.lease.Len()
}

func releaseState(v any) { v.(*streamState).lease.Release() }

// stateOf returns the state of a request's stream, or nil.
func (w *worker) stateOf(r *stream.Request) *streamState {
	if r.Stream.Options().OneShot {
		return nil
	}
	k, _ := r.State().(*streamState)
	if k != nil && k.size() != w.stateSize {
		return nil // of another model
	}
	return k
}

// keeps reports whether a stream's frames depend on earlier frames.
func (w *worker) keeps() bool { return len(w.states)+len(w.controls) > 0 }

// runStates runs a batch of a model with state.
func (w *worker) runStates(ctx context.Context, b *batching.Batch) error {
	if w.text {
		return w.runTexts(ctx, b)
	}
	for i, r := range b.Requests {
		if err := w.checkID(r); err != nil {
			b.Fail(i, err)
		}
		if r.Rows == 1 || r.Stream.Options().OneShot {
			continue
		}
		if w.axis == free {
			return w.runRows(ctx, b)
		}
		b.Fail(i, stream.Errorf(stream.InvalidArgument, "inputs.shape",
			"has %d rows, and model %s keeps state from one row of a stream to the next: send one in each frame",
			r.Rows, b.Model.Name))
	}
	rows := b.Rows
	if w.axis != free {
		rows = w.max
	}
	w.setStates(rows)
	for j, i := range w.clientInputs {
		w.all[i] = b.Inputs[j]
	}
	for i, r := range b.Requests {
		w.enter(r, b.Offsets[i], r.Rows, rows)
		w.control(r, b.Offsets[i], r.Rows, true)
	}
	for i := b.Rows; i < rows; i++ {
		w.enter(nil, i, 1, rows) // padding
		w.control(nil, i, 1, true)
	}
	w.setIDs(rows)
	outputs, err := w.compute(ctx, w.all, rows)
	if err == nil {
		err = w.checkStates(outputs, rows)
	}
	if err != nil {
		return err
	}
	for i := range b.Requests {
		w.storeState(b, i, outputs, b.Offsets[i], rows)
	}
	w.seen = w.seen[:0]
	for _, i := range w.clientOutputs {
		w.seen = append(w.seen, outputs[i])
	}
	b.Outputs = w.seen
	return nil
}

// runRows runs a batch row by row, because a frame has several rows, such as the windows of a sound: each row needs
// the state after the previous row.
func (w *worker) runRows(ctx context.Context, b *batching.Batch) error {
	seen := make([]stream.Tensor, len(w.clientOutputs))
	for i, r := range b.Requests {
		for row := b.Offsets[i]; row < b.Offsets[i]+r.Rows; row++ {
			for j, at := range w.clientInputs {
				t := b.Inputs[j]
				t.Shape, t.Data = append([]int{1}, t.Shape[1:]...), b.Row(j, row)
				w.all[at] = t
			}
			if err := w.runRow(ctx, b, i, row == b.Offsets[i]+r.Rows-1, seen); err != nil {
				return err
			}
		}
	}
	b.Outputs = seen
	return nil
}

// runRow runs one row of request i, with the inputs in all, and appends the outputs to seen.
func (w *worker) runRow(ctx context.Context, b *batching.Batch, i int, last bool, seen []stream.Tensor) error {
	r := b.Requests[i]
	w.setStates(1)
	w.enter(r, 0, 1, 1)
	w.control(r, 0, 1, last)
	w.setIDs(1)
	outputs, err := w.compute(ctx, w.all, 1)
	if err == nil {
		err = w.checkStates(outputs, 1)
	}
	if err != nil {
		return err
	}
	w.storeState(b, i, outputs, 0, 1)
	for k, at := range w.clientOutputs {
		t, sum := outputs[at], &seen[k]
		if sum.Shape == nil {
			*sum = stream.Tensor{Name: t.Name, Datatype: t.Datatype, Shape: append([]int{0}, t.Shape[1:]...)}
		}
		if !slices.Equal(sum.Shape[1:], t.Shape[1:]) {
			return stream.Errorf(stream.Unsupported, "batching.max_size",
				"must be 1: output %s has other sizes for other rows of a batch", t.Name)
		}
		sum.Shape[0]++
		sum.Data = append(sum.Data, t.Data...)
	}
	return nil
}

// runTexts runs the requests of a batch one by one, for a model with string inputs: each request has its own inputs.
func (w *worker) runTexts(ctx context.Context, b *batching.Batch) error {
	for i, r := range b.Requests {
		if r.Outcome() != stream.Pending {
			continue
		}
		err := w.checkID(r)
		var inputs []stream.Tensor
		if err == nil {
			inputs, err = w.inputsOf(r)
		}
		seen := make([]stream.Tensor, len(w.clientOutputs))
		for row := 0; row < r.Rows && err == nil; row++ {
			for j, at := range w.clientInputs {
				w.all[at] = rowOf(inputs[j], len(w.sent[j].Shape), row, r.Rows)
			}
			err = w.runRow(ctx, b, i, row == r.Rows-1, seen)
		}
		switch {
		case err != nil && w.ended():
			return err // of all remaining requests
		case err != nil:
			b.Fail(i, err)
		default:
			b.Finish(i, seen)
		}
	}
	return nil
}

// setStates sets the state's inputs for a run of the given rows.
func (w *worker) setStates(rows int) {
	w.setControls(rows)
	for k := range w.states {
		w.all[w.states[k].in] = w.states[k].tensor(w.stateMemory[k], rows)
	}
}

// enter copies the state of r's stream into n rows, from row on, of a run of the given rows. Without a request, or
// without a state, the rows get the initial value.
func (w *worker) enter(r *stream.Request, row, n, rows int) {
	var data []byte
	if r != nil {
		if state := w.stateOf(r); state != nil && w.stateSize > 0 {
			data = state.lease.Bytes()
		}
	}
	for k := range w.states {
		st := &w.states[k]
		var own []byte
		if data != nil {
			own, data = data[:st.size()], data[st.size():]
		}
		for i := row; i < row+n; i++ {
			st.put(w.all[st.in].Data, own, i, rows)
		}
	}
}

// checkStates checks that the state's outputs are as large as the state's inputs.
func (w *worker) checkStates(outputs []stream.Tensor, rows int) error {
	for k := range w.states {
		if st := &w.states[k]; len(outputs[st.out].Data) != st.size()*rows {
			return stream.Errorf(stream.Unsupported, "state", "output %s has the shape %v, and input %s needs %v",
				outputs[st.out].Name, outputs[st.out].Shape[1:], st.input.Name, st.input.Shape[1:])
		}
	}
	return nil
}

// storeState keeps the state computed by a run in a row with the stream of request i. A one-shot request keeps nothing.
func (w *worker) storeState(b *batching.Batch, i int, outputs []stream.Tensor, row, rows int) {
	r := b.Requests[i]
	if r.Stream.Options().OneShot || r.Outcome() != stream.Pending {
		return
	}
	state := w.stateOf(r)
	if w.stateSize == 0 {
		if state == nil {
			r.SetState(&streamState{}, releaseState)
		}
		return
	}
	if state == nil {
		lease, err := b.Lease(w.stateSize)
		if err != nil {
			r.Drop(stream.Memory)
			return
		}
		if old, _ := r.State().(*streamState); old != nil {
			old.lease.Release()
		}
		state = &streamState{lease}
		r.SetState(state, releaseState)
	}
	data := state.lease.Bytes()
	for k := range w.states {
		st := &w.states[k]
		st.get(data[:st.size()], outputs[st.out].Data, row, rows)
		data = data[st.size():]
	}
}
