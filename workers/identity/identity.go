// Package identity is the worker kind that returns each frame as the result, to benchmark the rest of the server, or
// each input as the output declared by the configuration. The worker copies a payload only when the lease has no room
// for the length in front of the payload.
package identity

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"millrace/batching"
	"millrace/internal/ctxio"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

func init() {
	workers.Register(workers.Kind{
		Name:     "identity",
		Doc:      "returns each frame as its result",
		New:      func() workers.Worker { return &worker{} },
		Settings: func() any { return new(settings) },
	})
}

// settings are the settings of Triton's identity backend, whose models are used in tests of clients.
type settings struct {
	Delay     *time.Duration `yaml:"delay" default:"0s" max:"1m" request:"1m" advanced:"yes" help:"time of a batch"`
	LoadDelay *time.Duration `yaml:"load_delay" default:"0s" max:"1m" request:"10s" advanced:"yes" help:"time of a load"`
	Stateful  bool           `yaml:"stateful" request:"any" advanced:"yes" help:"true: run the requests of a sequence one at a time, as models with state do"`
}

type worker struct {
	workers.Base
	set   settings
	names []string // of the outputs, in the order of the model's inputs; nil: the inputs' own
	model *stream.Model
}

// Init implements workers.Worker. Without declared inputs and outputs the model takes any.
func (w *worker) Init(ctx context.Context, env *workers.Env) (*stream.Model, error) {
	w.set = *env.Settings.(*settings)
	if *w.set.LoadDelay > 0 {
		if err := sleep(ctx, *w.set.LoadDelay); err != nil {
			return nil, err
		}
	}
	w.model = &stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 16, Stateful: w.set.Stateful}
	return w.model, w.declare(env.Declared)
}

// declare makes the model of a configuration: output i has the data of input i.
func (w *worker) declare(d workers.Declared) error {
	if len(d.Inputs)+len(d.Outputs) == 0 {
		return nil
	}
	m := w.model
	m.AcceptsAnyInput = false
	if m.Axis = stream.NoAxis; d.Batch {
		m.Axis = stream.FreeAxis
	} else {
		m.MaxBatch = 1
	}
	if len(d.Inputs) != len(d.Outputs) {
		return stream.Errorf(stream.InvalidArgument, "output",
			"has %d tensors, and input %d: an identity needs an output for each input", len(d.Outputs), len(d.Inputs))
	}
	for i, in := range d.Inputs {
		out, at := d.Outputs[i], fmt.Sprintf("output[%d].", i)
		switch {
		case in.Datatype == "" || out.Datatype != in.Datatype:
			return stream.Errorf(stream.InvalidArgument, at+"data_type",
				"of %s is %q, and that of input %s is %q: an identity needs equal ones", out.Name, out.Datatype,
				in.Name, in.Datatype)
		case !slices.Equal(in.Shape, out.Shape):
			return stream.Errorf(stream.InvalidArgument, at+"dims",
				"of %s are %v, and those of input %s are %v: an identity needs equal ones", out.Name, out.Shape,
				in.Name, in.Shape)
		}
		m.Inputs, m.Outputs = append(m.Inputs, in.TensorSpec), append(m.Outputs, out.TensorSpec)
		w.names = append(w.names, out.Name)
	}
	return nil
}

// Brief implements workers.Brief.
func (w *worker) Brief() bool { return *w.set.Delay == 0 }

// Run implements workers.Worker. Tensors are returned unchanged, under the names of the declared outputs if any; the
// bytes of a frame are returned as one BYTES tensor of shape [1], named output.
func (w *worker) Run(ctx context.Context, b *batching.Batch) error {
	if *w.set.Delay > 0 {
		if err := sleep(ctx, *w.set.Delay); err != nil {
			return err
		}
	}
	for i, r := range b.Requests {
		w.answer(b, i, r)
	}
	return nil
}

// answer ends request i of the batch.
func (w *worker) answer(b *batching.Batch, i int, r *stream.Request) {
	staged := b.After != nil // stages transform the outputs
	plain := w.names == nil && !staged && r.Codec != stream.Tensors
	if plain && inPlace(r) {
		return
	}
	out := r.Inputs
	var text *buf.Buf
	if r.Codec != stream.Tensors {
		t, lease, err := bytesOf(b, r)
		if err != nil {
			r.Drop(stream.Memory)
			return
		}
		if plain {
			r.FinishSingle(t, lease, true)
			return
		}
		out, text = []stream.Tensor{t}, lease
	}
	if w.names != nil {
		var err error
		if out, err = w.outputs(r, out, staged); err != nil {
			text.Release()
			b.Fail(i, err)
			return
		}
	}
	switch {
	case staged:
		b.Finish(i, out)
		text.Release()
	case text != nil:
		r.Finish(out, text, len(out) == 1)
	default:
		r.Finish(out, r.TakeLease(), false)
	}
}

// sleep sleeps for d. Errors: Timeout, when the run is abandoned.
func sleep(ctx context.Context, d time.Duration) error {
	if !ctxio.Sleep(ctx, d) {
		return stream.Errorf(stream.Timeout, "", "the run was abandoned: %w", ctx.Err())
	}
	return nil
}

// outputs returns the inputs of a request, or the one text of a frame, as the declared outputs. The rows
// are in front of their shapes if the model has a batch axis, or for stages.
func (w *worker) outputs(r *stream.Request, inputs []stream.Tensor, staged bool) ([]stream.Tensor, error) {
	out := make([]stream.Tensor, len(w.names))
	for i := range w.model.Inputs {
		in := &w.model.Inputs[i]
		var t stream.Tensor
		if r.Codec == stream.Tensors { // checked at the submission of the frame
			t = inputs[slices.IndexFunc(inputs, func(t stream.Tensor) bool { return t.Name == in.Name })]
		} else {
			t = inputs[0]
			t.Shape = nil
			for _, n := range in.Shape {
				t.Shape = append(t.Shape, max(n, 1))
			}
			if stream.Elements(t.Shape) != 1 {
				return nil, stream.Errorf(stream.InvalidArgument, "frame",
					"is one string, but input %s has the shape %v: send a tensor", in.Name, in.Shape)
			}
		}
		t.Name = w.names[i]
		t.Shape = t.Shape[len(t.Shape)-len(in.Shape):]
		if staged || w.model.Axis == stream.FreeAxis {
			t.Shape = append([]int{r.Rows}, t.Shape...)
		}
		out[i] = t
	}
	return out, nil
}

var one = []int{1}

// inPlace answers the request with its frame as a BYTES element, if the frame's lease has room for the length in
// front of the payload.
func inPlace(r *stream.Request) bool {
	lease := r.Lease
	if lease == nil || lease.Len() != len(r.Payload) {
		return false
	}
	head, ok := lease.Prepend(4)
	if ok {
		binary.LittleEndian.PutUint32(head, uint32(len(r.Payload)))
		r.FinishSingle(stream.Tensor{Name: "output", Datatype: stream.Bytes, Shape: one, Data: lease.Bytes()},
			r.TakeLease(), true)
	}
	return ok
}

// bytesOf returns the frame's bytes as an output in copied memory, with the memory. The request keeps the payload's
// memory, for other readers.
func bytesOf(b *batching.Batch, r *stream.Request) (stream.Tensor, *buf.Buf, error) {
	lease, err := b.Lease(4 + len(r.Payload))
	if err != nil {
		return stream.Tensor{}, nil, err
	}
	data := lease.Bytes()
	binary.LittleEndian.PutUint32(data, uint32(len(r.Payload)))
	copy(data[4:], r.Payload)
	return stream.Tensor{Name: "output", Datatype: stream.Bytes, Shape: one, Data: data}, lease, nil
}
