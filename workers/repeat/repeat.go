// Package repeat is the worker kind that answers each request several times, for tests and examples of partial
// results. The inputs and outputs are those of the model repeat_int32 in Triton's examples. A setting selects a
// single answer for each request.
package repeat

import (
	"context"
	"encoding/binary"
	"time"

	"millrace/batching"
	"millrace/internal/ctxio"
	"millrace/stream"
	"millrace/workers"
)

func init() {
	workers.Register(workers.Kind{
		Name:     "repeat",
		Doc:      "answers each element of its input IN with a partial result",
		New:      func() workers.Worker { return &worker{} },
		Settings: func() any { return new(settings) },
	})
}

type settings struct {
	Count     int           `yaml:"count" default:"1" min:"1" max:"1000000" request:"1000" advanced:"yes" help:"partial results for each element of IN"`
	Decoupled *bool         `yaml:"decoupled" default:"true" request:"any" advanced:"yes" help:"answer once for each element of IN; false: answer once, and IN has one element"`
	Delay     time.Duration `yaml:"delay" max:"1m" request:"1m" advanced:"yes" help:"time before each partial result, added to the input DELAY"`
}

type worker struct {
	workers.Base
	set settings
}

// Init implements workers.Worker.
func (w *worker) Init(_ context.Context, env *workers.Env) (*stream.Model, error) {
	w.set = *env.Settings.(*settings)
	if !*w.set.Decoupled && w.set.Count > 1 {
		return nil, stream.Errorf(stream.InvalidArgument, "count",
			"is %d, and with decoupled: false a request is answered once: leave one of the two out", w.set.Count)
	}
	return &stream.Model{
		Inputs: []stream.TensorSpec{
			{Name: "IN", Datatype: stream.Int32, Shape: []int{-1}},
			{Name: "DELAY", Datatype: stream.Uint32, Shape: []int{-1}},
			{Name: "WAIT", Datatype: stream.Uint32, Shape: []int{1}},
		},
		Outputs: []stream.TensorSpec{
			{Name: "OUT", Datatype: stream.Int32, Shape: []int{1}},
			{Name: "IDX", Datatype: stream.Uint32, Shape: []int{1}},
		},
		Ragged: true, MaxBatch: 1, Axis: stream.NoAxis, Decoupled: *w.set.Decoupled,
	}, nil
}

// one is the shape of the outputs, and row the shape with the axis of rows in front. Both are constant.
var one, row = []int{1}, []int{1, 1}

// Run implements workers.Worker. Element i of IN, after DELAY[i] milliseconds, is the output OUT of a partial result
// with IDX i. WAIT is the time in milliseconds between the last partial result and the ending, which has no outputs.
func (w *worker) Run(ctx context.Context, b *batching.Batch) error {
	for i := range b.Requests {
		if err := w.answer(ctx, b, i); err != nil {
			b.Fail(i, err)
		}
	}
	return nil
}

func (w *worker) answer(ctx context.Context, b *batching.Batch, i int) error {
	r := b.Requests[i]
	in, delays, wait := input(r, "IN"), input(r, "DELAY"), input(r, "WAIT")
	if len(delays) != len(in) {
		// clients of Triton look for these words
		return stream.Errorf(stream.InvalidArgument, "inputs.DELAY.shape",
			"expected IN and DELAY shape to match, got [%d] and [%d]: send as many elements", len(in)/4, len(delays)/4)
	}
	if !*w.set.Decoupled {
		if len(in) != 4 {
			return stream.Errorf(stream.InvalidArgument, "inputs.IN.shape",
				"is [%d], and the model answers once (decoupled: false): send one element", len(in)/4)
		}
		return w.answerSingle(ctx, b, i, in, milliseconds(delays))
	}
	for k := range len(in) / 4 {
		pause := w.set.Delay + milliseconds(delays[4*k:])
		for range w.set.Count {
			if err := sleep(ctx, r, pause); err != nil {
				return err
			}
			index := binary.LittleEndian.AppendUint32(nil, uint32(k))
			if !b.Emit(i, []stream.Tensor{
				{Name: "OUT", Datatype: stream.Int32, Shape: one, Data: in[4*k : 4*k+4]},
				{Name: "IDX", Datatype: stream.Uint32, Shape: one, Data: index},
			}) {
				return nil // the request has ended
			}
		}
	}
	if err := sleep(ctx, r, milliseconds(wait)); err != nil {
		return err
	}
	b.Finish(i, nil)
	return nil
}

// answerSingle answers a request with its only element.
func (w *worker) answerSingle(ctx context.Context, b *batching.Batch, i int, in []byte, pause time.Duration) error {
	if err := sleep(ctx, b.Requests[i], w.set.Delay+pause); err != nil {
		return err
	}
	b.Finish(i, []stream.Tensor{
		{Name: "OUT", Datatype: stream.Int32, Shape: row, Data: in},
		{Name: "IDX", Datatype: stream.Uint32, Shape: row, Data: make([]byte, 4)},
	})
	return nil
}

func input(r *stream.Request, name string) []byte {
	for i := range r.Inputs {
		if r.Inputs[i].Name == name {
			return r.Inputs[i].Data
		}
	}
	return nil
}

func milliseconds(b []byte) time.Duration {
	return time.Duration(binary.LittleEndian.Uint32(b)) * time.Millisecond
}

// pollInterval is how often a pause looks whether somebody still waits for the request.
const pollInterval = 50 * time.Millisecond

// sleep waits for d. sleep returns an error when the run is abandoned, and returns early when the request has ended.
func sleep(ctx context.Context, r *stream.Request, d time.Duration) error {
	for ; d > 0 && r.Wanted(); d -= pollInterval {
		if !ctxio.Sleep(ctx, min(d, pollInterval)) {
			return stream.Errorf(stream.Timeout, "", "the run was abandoned: %w", ctx.Err())
		}
	}
	return nil
}
