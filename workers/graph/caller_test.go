package graph_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
	"millrace/workers/graph"
)

// place answers with the number of the goroutine that runs the batch, after the bytes of the request.
type place struct{ workers.Base }

func init() {
	workers.Register(workers.Kind{Name: "place", New: func() workers.Worker { return &place{} }})
}

func (*place) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 16}, nil
}

func (*place) Brief() bool { return true }

func (*place) Run(_ context.Context, b *batching.Batch) error {
	for i, r := range b.Requests {
		data := append(bytes.Clone(r.Inputs[0].Data), goroutine()...)
		b.Finish(i, []stream.Tensor{{Name: "y", Datatype: stream.Uint8, Shape: []int{1, len(data)}, Data: data}})
	}
	return nil
}

// goroutine returns the number of the current goroutine and a space.
func goroutine() []byte {
	text := make([]byte, 64)
	return append(bytes.Fields(text[:runtime.Stack(text, false)])[1], ' ')
}

// TestCallerRunsTheSteps: with idle workers, the goroutine of a caller runs the graph and all steps one after the
// other, and any number of callers gets all answers.
func TestCallerRunsTheSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMachine(t)
		x.load("place", "place", nil)
		step := func(from, to string) graph.Step {
			return graph.Step{Name: to, Model: "place", Input: map[string]string{"x": from},
				Output: map[string]string{"y": to}}
		}
		x.graph(graph.Settings{Steps: []graph.Step{step("x", "a"), step("a", "b"), step("b", "c")},
			Outputs: []string{"c"}})
		request := func() []byte {
			r := x.infer("g", stream.Frame{Codec: stream.Tensors, Inputs: []stream.Tensor{{Name: "x",
				Datatype: stream.Uint8, Shape: []int{1, 1}, Data: []byte(" ")}}})
			defer r.Release()
			if r.Outcome != stream.Answered {
				t.Error(r.Err)
				return nil
			}
			return bytes.Clone(r.Outputs[0].Data)
		}
		for range 3 {
			synctest.Wait() // the workers are idle
			if got, want := string(request()), " "+string(bytes.Repeat(goroutine(), 3)); got != want {
				t.Errorf("the steps ran in goroutines %q, want %q", got, want)
			}
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 50 {
					if n := len(bytes.Fields(request())); n != 3 {
						t.Errorf("%d steps ran, want 3", n)
					}
				}
			})
		}
		all.Wait()
	})
}

// TestNoPlaceInTime: each request of a batch without a place fails after the same time, before the run counts as hung.
func TestNoPlaceInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMachine(t)
		x.load("slow", "delay", stream.Params{"fixed": "20s"})
		set := graph.Settings{Frames: 2, Outputs: []string{"y"}, Steps: []graph.Step{{Model: "slow",
			Input: map[string]string{"input": "input"}, Output: map[string]string{"delay_us": "y"}}}}
		if err := x.tryLoad(workers.Config{Name: "g", Kind: "graph", Params: set.Params(),
			Batching: workers.Batching{Kind: batching.Hard, MaxSize: 2}, Limits: workers.Limits{Run: 8 * time.Second},
		}); err != nil {
			t.Fatal(err)
		}
		s, sink := x.open("g", stream.Options{Policy: stream.Policy{Mode: stream.Every, Window: 4}})
		begun := time.Now()
		for i := range uint64(4) { // two batches: the first takes both places
			if err := s.Submit(stream.Frame{Seq: i, Payload: []byte("x")}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		for i := range 4 {
			r := <-sink.c
			if late := time.Since(begun) > 9*time.Second; late || r.Outcome != stream.Failed {
				t.Errorf("frame %d ended after %v: %v %v", i, time.Since(begun), r.Outcome, r.Err)
			}
			if noPlace := r.Err != nil && strings.Contains(r.Err.Error(), "had no place"); noPlace != (i >= 2) {
				t.Errorf("frame %d: %v", i, r.Err)
			}
			r.Release()
		}
		s.Close(stream.ByClient)
		<-sink.done
	})
}

// TestTimesOfSteps: a step begins when the step before has ended, and its frame is received by its model then.
func TestTimesOfSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMachine(t)
		times := []time.Duration{time.Second, 2 * time.Second}
		var steps []graph.Step
		for i, from := range []string{"x", "a"} {
			name := fmt.Sprint("slow", i)
			x.load(name, "delay", stream.Params{"fixed": times[i].String(), "per_item": "0s"})
			steps = append(steps, graph.Step{Name: name, Model: name, Input: map[string]string{"input": from},
				Output: map[string]string{"delay_us": string('a' + rune(i))}})
		}
		x.graph(graph.Settings{Steps: steps, Outputs: []string{"b"}})
		begun := stream.Now()
		var ended []stream.Step
		x.steps = func(s *stream.Step) { ended = append(ended, *s) }
		x.infer("g", stream.Frame{Payload: []byte("x")}).Release()
		for i, s := range ended {
			if s.From != begun || s.To != begun.Add(times[i]) {
				t.Errorf("step %d ran from %v to %v, want %v to %v", i, s.From, s.To, begun, begun.Add(times[i]))
			}
			begun = s.To
			g, err := x.models.Group(s.Name, "")
			if err != nil {
				t.Fatal(err)
			}
			if waited := g.Stats().RunTotals.Queue; waited != 0 {
				t.Errorf("the frame of step %d waited for %v", i, waited)
			}
		}
		if len(ended) != 2 {
			t.Errorf("%d steps ended, want 2", len(ended))
		}
	})
}
