package process

import (
	"fmt"
	"log/slog"
	"slices"

	"millrace/batching"
	"millrace/stream"
	"millrace/stream/buf"
)

// data returns the bytes of an output. private means that the child cannot change the bytes.
func (w *Worker) data(s *slot, b *batching.Batch, m *message, t *tensor) (data []byte, private bool, err error) {
	if t.segment < 0 {
		if n := lenOf(m.data); t.offset > n || t.size > n-t.offset {
			return nil, false, fmt.Errorf("output %q has %d bytes at %d of the bytes after the text, which are %d",
				t.name, t.size, t.offset, n)
		}
		if t.size == 0 { // an empty output is valid
			return nil, true, nil
		}
		return m.data.Bytes()[t.offset:][:t.size:t.size], true, nil
	}
	switch {
	case m.kind == isPart:
		return nil, false, fmt.Errorf("output %q of a part is in shared memory: parts are sent in the bytes after "+
			"the text", t.name)
	case s.out == nil || t.segment != s.out.id:
		if data = s.input(b, t); data != nil {
			return data, true, nil
		}
		return nil, false, fmt.Errorf("output %q is in segment %d, and neither in the results nor in an input of "+
			"batch %d", t.name, t.segment, s.id)
	case t.offset > s.out.size() || t.size > s.out.size()-t.offset:
		return nil, false, fmt.Errorf("output %q has %d bytes at %d of a segment of %d", t.name, t.size, t.offset,
			s.out.size())
	}
	s.usedOut = max(s.usedOut, t.offset+t.size)
	return s.out.bytes[t.offset:][:t.size:t.size], false, nil
}

// input returns the bytes of an output that is a part of an input (read-only for the child), or nil for any other
// output.
func (s *slot) input(b *batching.Batch, t *tensor) []byte {
	if s.in != nil && t.segment == s.in.id {
		return bytesAt(s.in.bytes[:s.used], t.offset, t.size)
	}
	for k := range b.Inputs {
		if o := b.Offset(k); o >= 0 && s.batch > 0 && t.segment == s.batch {
			if data := bytesAt(b.Inputs[k].Data, t.offset-o, t.size); data != nil {
				return data
			}
		}
	}
	return nil
}

// bytesAt returns n bytes of data at at, or nil if data is too short.
func bytesAt(data []byte, at, n int) []byte {
	if at < 0 || at > len(data) || n > len(data)-at {
		return nil
	}
	return data[at:][:n:n]
}

func lenOf(b *buf.Buf) int {
	if b == nil {
		return 0
	}
	return b.Len()
}

// stringBuffers are copies of strings: the child could change strings in shared memory after the check.
type stringBuffers []*buf.Buf

func (h stringBuffers) release() {
	for _, b := range h {
		b.Release()
	}
}

// tensor returns an output with checked data. The returned tensor owns shape, which is placed in front of the
// output's own shape.
func (w *Worker) tensor(s *slot, b *batching.Batch, m *message, t *tensor, shape []int,
	h *stringBuffers) (out stream.Tensor, err error) {
	data, private, err := w.data(s, b, m, t)
	if err != nil {
		return out, err
	}
	if t.datatype == stream.Bytes && !private {
		copied, err := w.env.Memory.Copy(data)
		if err != nil {
			return out, err
		}
		*h = append(*h, copied)
		data = copied.Bytes()
	}
	out = stream.Tensor{Name: t.name, Datatype: t.datatype, Shape: shape, Data: data}
	if err := out.CheckSize("outputs."); err != nil {
		return out, fmt.Errorf("%w", err)
	}
	return out, nil
}

// answer ends the requests of a batch with the child's result.
func (w *Worker) answer(s *slot, b *batching.Batch, m *message) error {
	if m.lost > 0 {
		s.wantOut = max(s.wantOut, m.lost)
		for _, i := range s.sent {
			b.Requests[i].Drop(stream.Memory)
		}
		return nil
	}
	s.wantOut = lenOf(m.data) * 5 / 4
	switch {
	case !m.dense && !m.each:
		return fmt.Errorf("result has neither outputs nor requests")
	case m.each && len(m.answers) != len(s.sent):
		return fmt.Errorf("result has %d requests for a batch of %d", len(m.answers), len(s.sent))
	}
	for k := range m.answers {
		if err := w.answerOne(s, b, m, k); err != nil {
			return err
		}
	}
	switch {
	case !m.dense:
		return nil
	case s.hi-s.lo < len(b.Requests): // a batch run one by one
		r := b.Requests[s.lo]
		if r.Outcome() != stream.Pending {
			return nil
		}
		return w.outputs(s, b, m, r, m.outputs, func(out []stream.Tensor) { b.Finish(s.lo, out) })
	}
	return w.answerRows(s, b, m)
}

// answerOne ends request k of the message.
func (w *Worker) answerOne(s *slot, b *batching.Batch, m *message, k int) error {
	i, a := s.sent[k], &m.answers[k]
	r := b.Requests[i]
	if f := a.failure; f != nil {
		w.fail(r, f, a.reply)
		return nil
	}
	if a.drop != "" {
		r.Drop(a.drop)
		return nil
	}
	if r.Outcome() != stream.Pending {
		return nil
	}
	for key, value := range a.params {
		r.SetResultParam(key, value)
	}
	if a.reply != nil {
		r.SetReply(a.reply)
	}
	outputs := m.tensors[a.from:a.to]
	switch {
	case r.Call != nil:
		return w.answerCall(s, b, m, r, outputs)
	case a.outputs && len(outputs) == 0 && w.model.Decoupled: // the parts were the answers
		b.Finish(i, nil)
		return nil
	case a.outputs:
		return w.outputs(s, b, m, r, outputs, func(out []stream.Tensor) { b.Finish(i, out) })
	case m.dense:
		return nil
	case w.model.Decoupled: // the parts were the answers
		b.Finish(i, nil)
		return nil
	}
	return fmt.Errorf("result has no outputs and no error for request %d", k)
}

// fail ends a request with an error of the program.
func (w *Worker) fail(r *stream.Request, f *failure, reply *stream.Reply) {
	msg := f.message
	if msg == "" {
		msg = "the program failed without a message"
	}
	switch {
	case f.traceback != "":
		w.proc.logs.line(slog.LevelError, msg, "traceback", f.traceback)
	case f.code == stream.Internal: // such as an answer of a wrong type, which other clients must not see
		w.proc.logs.line(slog.LevelError, msg)
	}
	if f.status != 0 {
		if reply == nil {
			reply = &stream.Reply{}
		}
		reply.Status = f.status
	}
	if reply != nil && r.Outcome() == stream.Pending {
		r.SetReply(reply)
	}
	r.Fail(&stream.Error{Code: f.code, Field: f.field, Msg: msg})
}

// outputs calls finish with the outputs of one request.
func (w *Worker) outputs(s *slot, b *batching.Batch, m *message, r *stream.Request, of []tensor,
	finish func([]stream.Tensor)) error {
	if err := w.checkNames(of); err != nil {
		return err
	}
	var h stringBuffers
	defer func() { h.release() }()
	dims := 0
	for k := range of {
		dims += of[k].to - of[k].from + 1
	}
	memory := make([]int, 0, dims) // the result keeps the shapes
	s.tensors = s.tensors[:0]
	defer func() { clear(s.tensors) }()
	for k := range of {
		t := &of[k]
		start := len(memory)
		memory = append(memory, m.dims[t.from-1:t.to]...) // with a 1 in front
		shape := memory[start+1 : len(memory) : len(memory)]
		out, err := w.tensor(s, b, m, t, shape, &h)
		if err == buf.ErrBudget { //nolint:errorlint // returned unwrapped by the pool
			r.Drop(stream.Memory)
			return nil
		}
		if err == nil {
			err = w.checkShape(t, shape, r.Rows)
		}
		if err != nil {
			return err
		}
		if w.model.Axis == stream.NoAxis {
			out.Shape = memory[start:len(memory):len(memory)]
		}
		s.tensors = append(s.tensors, out)
	}
	finish(s.tensors)
	return nil
}

// checkNames returns an error unless the outputs are the model's.
func (w *Worker) checkNames(of []tensor) error {
	for k := range of {
		name := of[k].name
		for j := range k {
			if of[j].name == name {
				return fmt.Errorf("output %q is there twice", name)
			}
		}
		if len(w.model.Outputs) > 0 && w.declared(name) == nil {
			return fmt.Errorf("output %q is not one of the model's", name)
		}
	}
	if len(w.model.Outputs) > len(of) {
		for i := range w.model.Outputs {
			name := w.model.Outputs[i].Name
			if !slices.ContainsFunc(of, func(t tensor) bool { return t.name == name }) {
				return fmt.Errorf("output %q is missing", name)
			}
		}
	}
	return nil
}

func (w *Worker) declared(name string) *stream.TensorSpec {
	for i := range w.model.Outputs {
		if w.model.Outputs[i].Name == name {
			return &w.model.Outputs[i]
		}
	}
	return nil
}

// checkShape returns an error unless an output has the datatype and the shape declared by the model. rows are in
// front of the shape, if the model has a batch axis.
func (w *Worker) checkShape(t *tensor, shape []int, rows int) error {
	spec := w.declared(t.name)
	if spec == nil {
		return nil
	}
	if t.datatype != spec.Datatype {
		return fmt.Errorf("output %q is %s, and the model declares %s", t.name, t.datatype, spec.Datatype)
	}
	if w.spec.ServerProgram != nil {
		if len(shape) == 0 || shape[0] != rows {
			return fmt.Errorf("output %q has the shape %v for %d rows", t.name, shape, rows)
		}
		return nil
	}
	dims := shape
	if w.model.Axis == stream.FreeAxis && !w.model.AcceptsAnyInput {
		if len(shape) == 0 || shape[0] != rows {
			return fmt.Errorf("output %q has the shape %v for %d rows", t.name, shape, rows)
		}
		dims = shape[1:]
	}
	if !slices.EqualFunc(dims, spec.Shape, func(a, b int) bool { return a == b || b < 0 }) && !w.model.AcceptsAnyInput {
		return fmt.Errorf("output %q has the shape %v, and the model declares %v", t.name, shape, w.model.Shape(spec))
	}
	return nil
}

var one = []int{1}

// answerCall answers the call of a route.
func (w *Worker) answerCall(s *slot, b *batching.Batch, m *message, r *stream.Request, outputs []tensor) error {
	if len(outputs) == 0 {
		r.Finish(nil, nil, false)
		return nil
	}
	body, lease, err := w.body(s, b, m, outputs)
	switch {
	case err == buf.ErrBudget: //nolint:errorlint // returned unwrapped by the pool
		r.Drop(stream.Memory)
	case err != nil:
		return err
	default:
		r.FinishSingle(body, lease, true)
	}
	return nil
}

// body returns a copy of the body of a call's answer.
func (w *Worker) body(s *slot, b *batching.Batch, m *message,
	outputs []tensor) (out stream.Tensor, lease *buf.Buf, err error) {
	t := &outputs[0]
	if len(outputs) != 1 || t.datatype != stream.Bytes || t.to-t.from != 1 || m.dims[t.from] != 1 {
		return out, nil, fmt.Errorf("the answer of a route has %d outputs, the first %s of shape %v: want one, "+
			"BYTES of shape [1], or none", len(outputs), t.datatype, m.dims[t.from:t.to])
	}
	data, _, err := w.data(s, b, m, t)
	if err != nil {
		return out, nil, err
	}
	if lease, err = w.env.Memory.Copy(data); err != nil {
		return out, nil, err
	}
	out = stream.Tensor{Name: "body", Datatype: stream.Bytes, Shape: one, Data: lease.Bytes()}
	if err = out.CheckSize("outputs."); err != nil {
		lease.Release()
		return out, nil, err
	}
	return out, lease, nil
}

// answerRows answers the remaining requests with their rows of the outputs.
func (w *Worker) answerRows(s *slot, b *batching.Batch, m *message) error {
	if len(b.Inputs) == 0 {
		return fmt.Errorf("result has outputs for the whole batch, but its requests have inputs of their own: want " +
			"requests")
	}
	if err := w.checkNames(m.outputs); err != nil {
		return err
	}
	var h stringBuffers
	defer func() { h.release() }()
	rows := b.Rows
	if w.model.Axis == stream.FixedAxis {
		rows = w.model.MaxBatch
	}
	s.tensors = s.tensors[:0]
	defer func() { clear(s.tensors) }()
	for k := range m.outputs {
		t := &m.outputs[k]
		shape := m.dims[t.from:t.to] // Split copies shape
		out, err := w.tensor(s, b, m, t, shape, &h)
		if err == buf.ErrBudget { //nolint:errorlint // returned unwrapped by the pool
			for _, i := range s.sent {
				b.Requests[i].Drop(stream.Memory)
			}
			return nil
		}
		if err != nil {
			return err
		}
		if len(shape) == 0 || shape[0] != rows {
			return fmt.Errorf("output %q has the shape %v for a batch of %d rows", t.name, shape, rows)
		}
		if spec := w.declared(t.name); w.spec.ServerProgram == nil && spec != nil &&
			(spec.Datatype != t.datatype || !slices.EqualFunc(shape[1:], spec.Shape, func(a, b int) bool {
				return a == b || b < 0
			})) {
			return fmt.Errorf("output %q is %s of shape %v, and the model declares %s of shape %v without the batch",
				t.name, t.datatype, shape, spec.Datatype, spec.Shape)
		}
		s.tensors = append(s.tensors, out)
	}
	b.Outputs = s.tensors
	b.Split()
	b.Outputs = nil
	return nil
}

// part sends a part of the result of a request.
func (w *Worker) part(s *slot, b *batching.Batch, m *message) error {
	if m.request >= len(s.sent) {
		return fmt.Errorf("part is of request %d of a batch of %d", m.request, len(s.sent))
	}
	i := s.sent[m.request]
	r := b.Requests[i]
	if r.Outcome() != stream.Pending {
		return nil
	}
	if m.lost > 0 {
		r.Drop(stream.Memory)
		return nil
	}
	if m.reply != nil {
		r.SetReply(m.reply)
	}
	s.emitted[m.request] = true
	before := stream.Now()
	defer func() { // the program may not have been able to go on meanwhile
		d := stream.Now().Sub(before)
		s.waited += d
		extend(b, d)
	}()
	if r.Call == nil {
		return w.outputs(s, b, m, r, m.outputs, func(out []stream.Tensor) { b.Emit(i, out) })
	}
	if len(m.outputs) == 0 {
		return fmt.Errorf("part of a route has no outputs")
	}
	body, lease, err := w.body(s, b, m, m.outputs)
	switch {
	case err == buf.ErrBudget: //nolint:errorlint // returned unwrapped by the pool
		r.Drop(stream.Memory)
	case err != nil:
		return err
	default:
		r.Emit([]stream.Tensor{body}, lease)
	}
	return nil
}
