package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"millrace/batching"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

// worker is one instance, with one request at a time in progress at the upstream server.
type worker struct {
	workers.Base
	link  *link
	model *stream.Model
	mem   *buf.Pool
	limit time.Duration // of a batch
}

var _ workers.Worker = (*worker)(nil)

// sharedLink is the value of Env.Shared: the link of the group, or the error of making the link.
type sharedLink struct {
	link *link
	err  error
}

// Init implements workers.Worker: Init connects, or shares the connection of other instances.
func (w *worker) Init(ctx context.Context, env *workers.Env) (*stream.Model, error) {
	m := env.Shared(func() any {
		l, err := newLink(env)
		return sharedLink{l, err}
	}).(sharedLink)
	if m.err != nil {
		return nil, m.err
	}
	return w.start(ctx, env, m.link)
}

// start makes the worker ready to send to the server of l.
func (w *worker) start(ctx context.Context, env *workers.Env, l *link) (*stream.Model, error) {
	about, err := l.open(ctx)
	if err != nil {
		return nil, err
	}
	w.link, w.mem, w.limit = l, env.Memory, env.Limit
	if w.model, err = about.describe(env); err != nil {
		w.Destroy()
		return nil, err
	}
	given := *w.model
	w.model = &given
	if env.Image != nil || env.Window != (workers.Window{}) {
		err = workers.ApplyInputs(w.model, env.Image, env.Window, nil)
	}
	if err != nil {
		w.Destroy()
		return nil, err
	}
	return &given, nil
}

// Destroy implements workers.Worker.
func (w *worker) Destroy() { w.link.release() }

// Run implements workers.Worker: requests with equal parameters are sent together, if the upstream model batches.
func (w *worker) Run(ctx context.Context, b *batching.Batch) error {
	for from := 0; from < len(b.Requests); {
		to := from + 1
		for !w.model.AcceptsAnyInput && to < len(b.Requests) && maps.Equal(b.Requests[from].Params,
			b.Requests[to].Params) {
			to++
		}
		w.send(ctx, b, from, to)
		from = to
	}
	return nil
}

// send sends requests from to to of the batch together, and ends the requests.
func (w *worker) send(ctx context.Context, b *batching.Batch, from, to int) {
	requests := b.Requests[from:to]
	ctx, cancel := w.runContext(ctx, requests)
	defer cancel()
	c := &call{params: requests[0].Params, mem: w.mem}
	defer c.free()
	err := w.inputs(c, b, from, to)
	if err == nil {
		err = w.link.infer(ctx, c)
	}
	if err == nil {
		err = w.finish(c, b, from, to)
	}
	for _, r := range requests {
		switch {
		case err == nil:
		case errors.Is(err, buf.ErrBudget):
			r.Drop(stream.Memory)
		default:
			r.Fail(err)
		}
	}
}

// runContext returns a context that ends with the last deadline of the requests, somewhat before limits.run, and when
// all requests have ended otherwise, since their clients have gone.
func (w *worker) runContext(ctx context.Context, requests []*stream.Request) (context.Context, func()) {
	now := stream.Now()
	last := stream.Instant(0)
	left := new(atomic.Int32)
	left.Store(int32(len(requests)))
	ctx, gone := context.WithCancel(ctx)
	for i, r := range requests {
		if i == 0 || last != 0 && (r.Deadline == 0 || r.Deadline > last) {
			last = r.Deadline
		}
		end := func() {
			if left.Add(-1) == 0 {
				gone()
			}
		}
		if !r.OnEnd(end) {
			end()
		}
	}
	limit := w.limit - min(w.limit/10, time.Second)
	if last != 0 {
		limit = min(limit, last.Sub(now))
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	return ctx, func() { cancel(); gone() }
}

// inputs puts the tensors of the requests into the call, with the shapes for the upstream server.
func (w *worker) inputs(c *call, b *batching.Batch, from, to int) error {
	switch {
	case w.model.AcceptsAnyInput:
		r := b.Requests[from]
		if c.inputs = r.Inputs; r.Codec != stream.Tensors {
			c.inputs = []stream.Tensor{{Name: "input", Datatype: stream.Bytes, Shape: []int{1},
				Data: element(r.Payload)}}
		}
		return c.chargeInputs(c.inputs, r.Codec != stream.Tensors)
	case b.Ragged():
		return w.join(c, b.Requests[from:to])
	}
	first, last := b.Offsets[from], b.Offsets[to-1]+b.Requests[to-1].Rows
	for _, t := range b.Inputs {
		row := len(t.Data) / max(t.Shape[0], 1)
		t.Data = t.Data[first*row : last*row]
		t.Shape = w.shape(last-first, t.Shape[1:])
		c.inputs = append(c.inputs, t)
	}
	return nil
}

// shape returns the shape of the given rows for the upstream server.
func (w *worker) shape(rows int, dims []int) []int {
	if w.model.Axis == stream.NoAxis {
		return slices.Clone(dims)
	}
	return append([]int{rows}, dims...)
}

func (c *call) chargeInputs(of []stream.Tensor, copied bool) error {
	n := 0
	for _, t := range of {
		n += len(t.Data)
	}
	if !copied {
		return nil
	}
	return c.charge(int64(n))
}

// join concatenates the inputs of requests with rows of no fixed size.
func (w *worker) join(c *call, requests []*stream.Request) error {
	rows := 0
	c.inputs = make([]stream.Tensor, len(w.model.Inputs))
	for _, r := range requests {
		rows += r.Rows
		for k, spec := range w.model.Inputs {
			t := &c.inputs[k]
			if r.Codec == stream.Tensors { // checked at the submission of the frame
				got := r.Inputs[slices.IndexFunc(r.Inputs, func(t stream.Tensor) bool { return t.Name == spec.Name })]
				t.Data, t.Shape = append(t.Data, got.Data...), got.Shape[len(got.Shape)-len(spec.Shape):]
				continue
			}
			dims := make([]int, len(spec.Shape))
			for i, n := range spec.Shape {
				dims[i] = max(n, 1)
			}
			if stream.Elements(dims) != 1 {
				return stream.Errorf(stream.InvalidArgument, "frame",
					"is one string, but input %s has the shape %v: send a tensor", spec.Name, spec.Shape)
			}
			t.Data, t.Shape = append(t.Data, element(r.Payload)...), dims
		}
	}
	for k, spec := range w.model.Inputs {
		t := &c.inputs[k]
		t.Name, t.Datatype, t.Shape = spec.Name, spec.Datatype, w.shape(rows, t.Shape)
	}
	return c.chargeInputs(c.inputs, true)
}

// element returns data as one element of BYTES.
func element(data []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(data))), data...)
}

// finish answers the requests with their rows of the outputs.
func (w *worker) finish(c *call, b *batching.Batch, from, to int) error {
	rows := 0
	for _, r := range b.Requests[from:to] {
		rows += r.Rows
	}
	outputs, err := w.outputs(c, rows)
	if err != nil {
		return err
	}
	if w.model.AcceptsAnyInput {
		b.Finish(from, outputs)
		return nil
	}
	first := 0
	for i, r := range b.Requests[from:to] {
		parts := make([]stream.Tensor, len(outputs))
		for k := range outputs {
			parts[k] = outputs[k]
			parts[k].Data = batching.RowsOf(&outputs[k], first, r.Rows)
			parts[k].Shape = append([]int{r.Rows}, outputs[k].Shape[1:]...)
		}
		first += r.Rows
		b.Finish(from+i, parts)
	}
	return nil
}

// outputs returns the answer's outputs in the order of the metadata and with an axis of rows in front. An answer that
// does not fit the metadata is an error, because clients rely on the metadata.
func (w *worker) outputs(c *call, rows int) ([]stream.Tensor, error) {
	bad := func(format string, args ...any) ([]stream.Tensor, error) {
		return nil, stream.Errorf(stream.Internal, "", "the server of model "+w.model.Name+" answers "+format, args...)
	}
	for i := range c.outputs {
		if err := c.outputs[i].CheckSize("outputs."); err != nil {
			return bad("with a wrong size: %w", err)
		}
	}
	if w.model.AcceptsAnyInput {
		return c.outputs, nil
	}
	out := make([]stream.Tensor, len(w.model.Outputs))
	for k, spec := range w.model.Outputs {
		i := slices.IndexFunc(c.outputs, func(t stream.Tensor) bool { return t.Name == spec.Name })
		if i < 0 {
			return bad("without the output %s", spec.Name)
		}
		t := c.outputs[i]
		if w.model.Axis == stream.NoAxis {
			t.Shape = append([]int{1}, t.Shape...)
		}
		fits := t.Datatype == spec.Datatype && len(t.Shape) == len(spec.Shape)+1 && t.Shape[0] == rows
		for d := 0; fits && d < len(spec.Shape); d++ {
			fits = spec.Shape[d] < 0 || spec.Shape[d] == t.Shape[d+1]
		}
		if !fits {
			return bad("with output %s of type %s and shape %v for %d rows: its metadata say %s and %v", t.Name,
				t.Datatype, t.Shape, rows, spec.Datatype, spec.Shape)
		}
		out[k] = t
	}
	return out, nil
}
