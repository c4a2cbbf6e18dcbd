package native_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"millrace/stream"
	"millrace/workers"
)

// TestCallsGetTheirOwnResults makes calls at the same time, some given up early, to a model, to a graph and to a graph
// of a graph: the requests of ended calls are reused, and must not mix up results.
func TestCallsGetTheirOwnResults(t *testing.T) {
	s, stop := start(workers.Config{Name: "echo", Source: "identity", Instances: 2}, threeSteps("graph", "echo", "x"),
		threeSteps("nested", "graph", "y"))
	models := []string{"echo", "graph", "nested"}
	const callers, calls = 8, 400
	var answered, wrong sync.Map
	var wg sync.WaitGroup
	for c := range uint64(callers) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, c))
			for n := range uint64(calls) {
				ctx, cancel := context.Background(), func() {}
				if r.IntN(2) == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(200))*time.Microsecond)
				}
				model, number := models[r.IntN(len(models))], c*calls+n
				f := stream.Frame{Codec: stream.Tensors, Seq: number, Inputs: []stream.Tensor{{Name: "x",
					Datatype: stream.Uint64, Shape: []int{1}, Data: binary.LittleEndian.AppendUint64(nil, number)}}}
				if r.IntN(4) == 0 {
					f.Deadline = time.Duration(1+r.IntN(200)) * time.Microsecond
				}
				res, err := s.Native().Do(ctx, model, "", f)
				cancel()
				if err != nil {
					continue
				}
				answered.Store(model, true)
				if res.Seq != number || binary.LittleEndian.Uint64(res.Outputs[0].Data) != number {
					wrong.Store(number, res)
				}
				res.Release()
			}
		})
	}
	wg.Wait()
	stop()
	wrong.Range(func(number, res any) bool {
		t.Errorf("call %d got the result %+v", number, res)
		return true
	})
	for _, model := range models {
		if _, ok := answered.Load(model); !ok {
			t.Errorf("no call to %s was answered", model)
		}
	}
	if m := s.Memory().Stats(); m.Leases != 0 {
		t.Errorf("%d leases left", m.Leases)
	}
}
