// Package delay is the worker kind that takes a known time for each batch,
// fixed + per_item * rows: a model whose capacity can be computed, for tests and
// measurements of everything around it.
package delay

import (
	"context"
	"encoding/binary"
	"time"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
)

func init() {
	workers.Register(workers.Kind{
		Name: "delay",
		Doc:  "takes fixed + per_item * rows for each batch and answers with that time",
		New:  func() workers.Worker { return &worker{} },
		Keys: map[string]string{
			"fixed":    "time of a batch, e.g. 5ms",
			"per_item": "time added for each row, e.g. 1ms",
			"busy":     "true: compute all the while; false: sleep",
			"stateful": "true: one frame of a stream at a time, as of models that keep a state",
		},
	})
}

type worker struct {
	workers.Base
	fixed, perItem time.Duration
	busy           bool
	data           [8]byte
	out            [1]stream.Tensor
}

// Init implements workers.Worker.
func (w *worker) Init(_ context.Context, env *workers.Env) (m *stream.Model, err error) {
	if w.fixed, err = workers.Duration(env.Params, "fixed", 5*time.Millisecond); err != nil {
		return nil, err
	}
	if w.perItem, err = workers.Duration(env.Params, "per_item", time.Millisecond); err != nil {
		return nil, err
	}
	if w.busy, err = workers.Flag(env.Params, "busy"); err != nil {
		return nil, err
	}
	stateful, err := workers.Flag(env.Params, "stateful")
	if err != nil {
		return nil, err
	}
	w.out[0] = stream.Tensor{Name: "delay_us", Datatype: stream.Int64, Shape: []int{1}, Data: w.data[:]}
	return &stream.Model{
		Any: true, Ragged: true, MaxBatch: 8, Stateful: stateful,
		Outputs: []stream.TensorSpec{{Name: "delay_us", Datatype: stream.Int64, Shape: []int{1}}},
	}, nil
}

// Run implements workers.Worker.
func (w *worker) Run(ctx context.Context, b *batching.Batch) error {
	d := w.fixed + time.Duration(b.Rows)*w.perItem
	if err := w.spend(ctx, d); err != nil {
		return err
	}
	binary.LittleEndian.PutUint64(w.data[:], uint64(d.Microseconds()))
	for i := range b.Requests {
		b.Finish(i, w.out[:])
	}
	return nil
}

func (w *worker) spend(ctx context.Context, d time.Duration) error {
	if w.busy {
		for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; {
		}
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return stream.Errorf(stream.Timeout, "", "the run was given up: %w", ctx.Err())
	}
}
