// Package delay is the worker kind that takes a known time for each batch, fixed +
// per_item * rows: a model of known capacity, for tests and benchmarks.
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
		Name:     "delay",
		Doc:      "takes fixed + per_item * rows for each batch, and returns that time",
		New:      func() workers.Worker { return &worker{} },
		Settings: func() any { return new(settings) },
	})
}

type settings struct {
	Fixed    *time.Duration `yaml:"fixed" default:"5ms" request:"any" advanced:"yes" help:"time of a batch"`
	PerItem  *time.Duration `yaml:"per_item" default:"1ms" request:"any" advanced:"yes" help:"time added for each row"`
	Busy     bool           `yaml:"busy" request:"any" advanced:"yes" help:"true: use the CPU for that time; false: sleep"`
	Stateful bool           `yaml:"stateful" request:"any" advanced:"yes" help:"true: run one frame of a stream at a time, as models with state do"`
}

type worker struct {
	workers.Base
	set  settings
	data [8]byte
	out  [1]stream.Tensor
}

// Init implements workers.Worker.
func (w *worker) Init(_ context.Context, env *workers.Env) (*stream.Model, error) {
	w.set = *env.Settings.(*settings)
	w.out[0] = stream.Tensor{Name: "delay_us", Datatype: stream.Int64, Shape: []int{1}, Data: w.data[:]}
	return &stream.Model{
		AcceptsAnyInput: true, Ragged: true, MaxBatch: 8, Stateful: w.set.Stateful,
		Outputs: []stream.TensorSpec{{Name: "delay_us", Datatype: stream.Int64, Shape: []int{1}}},
	}, nil
}

// Run implements workers.Worker.
func (w *worker) Run(ctx context.Context, b *batching.Batch) error {
	d := *w.set.Fixed + time.Duration(b.Rows)**w.set.PerItem
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
	if w.set.Busy {
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
		return stream.Errorf(stream.Timeout, "", "the run was abandoned: %w", ctx.Err())
	}
}
