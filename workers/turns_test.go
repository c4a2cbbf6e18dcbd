package workers_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
)

// numbered answers with the number of the instance.
type numbered struct {
	workers.Base
	n byte
}

func init() {
	for name, ahead := range map[string]bool{"numbered": false, "numbered-ahead": true} {
		workers.Register(workers.Kind{Name: name, Ahead: ahead, New: func() workers.Worker { return &numbered{} }})
	}
}

func (w *numbered) Init(_ context.Context, env *workers.Env) (*stream.Model, error) {
	w.n = byte('0' + env.Instance)
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 4}, nil
}

func (w *numbered) Run(_ context.Context, b *batching.Batch) error {
	for i := range b.Requests {
		b.Finish(i, []stream.Tensor{{Name: "n", Datatype: stream.Uint8, Shape: []int{1}, Data: []byte{w.n}}})
	}
	return nil
}

// TestIdleWorkersTakeTurns: with instance_order turns, the requests of a lone client reach all instances in turn;
// otherwise the same instance answers.
func TestIdleWorkersTakeTurns(t *testing.T) {
	for _, kind := range []string{"numbered", "numbered-ahead"} {
		for order, want := range map[string]int{"": 1, "recent": 1, "turns": 4} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				g := r.load(t, workers.Config{Kind: kind, Instances: 4, Order: order})
				s, e := open(t, g, every)
				for i := range 12 {
					synctest.Wait() // until all workers are parked
					_ = s.Submit(r.frame(t, uint64(i), "x"))
					e.wait(t, i+1)
				}
				answers := e.wait(t, 12)
				for i := range 3 {
					var reached []string
					for _, x := range answers[4*i : 4*i+4] {
						reached = append(reached, x.data)
					}
					slices.Sort(reached)
					if n := len(slices.Compact(slices.Clone(reached))); n != want {
						t.Errorf("%s, order %q: 4 requests reached %v", kind, order, reached)
					}
				}
			})
		}
	}
}
