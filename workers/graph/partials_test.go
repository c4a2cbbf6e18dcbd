package graph_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/stream"
	"millrace/workers"
	"millrace/workers/graph"
)

// emitted counts the taken partial results of kind scale.
var emitted atomic.Int64

// parts returns the first elements of y of the parts of a frame's answer, and the ending.
func (x *machine) parts(model string, f stream.Frame) (firsts []float32, ending *stream.Result) {
	x.t.Helper()
	s, sink := x.open(model, oneShot)
	if err := s.Submit(f); err != nil {
		x.t.Fatal(err)
	}
	for r := range sink.c {
		if !r.Partial {
			s.Close(stream.ByClient)
			<-sink.done
			return firsts, r
		}
		firsts = append(firsts, output(x.t, r, "y").Float32s()[0])
		r.Release()
	}
	return nil, nil
}

// TestDecoupledSteps: the steps after a decoupled step run for each answer, in order, also with several decoupled
// steps, and the last answer has no outputs.
func TestDecoupledSteps(t *testing.T) {
	x := newMachine(t)
	x.load("first", "scale", stream.Params{"by": 2.0})
	x.load("three", "scale", stream.Params{"several": int64(3)})
	x.load("two", "scale", stream.Params{"several": int64(2), "by": 10.0})
	x.load("never", "scale", stream.Params{"never": true})
	x.load("sum", "identity", nil)
	for _, c := range []struct {
		name  string
		steps []graph.Step
		want  []float32
	}{
		{"alone", []graph.Step{{Model: "three"}}, []float32{1, 2, 3}},
		{"behind another", []graph.Step{{Model: "first", Output: map[string]string{"y": "a"}},
			{Model: "three", Input: map[string]string{"x": "a"}}}, []float32{2, 3, 4}},
		{"twice", []graph.Step{{Model: "three", Output: map[string]string{"y": "a"}},
			{Model: "two", Input: map[string]string{"x": "a"}}}, []float32{10, 11, 20, 21, 30, 31}},
		{"the same model twice", []graph.Step{{Model: "two", Name: "a", Output: map[string]string{"y": "a"}},
			{Model: "two", Input: map[string]string{"x": "a"}}}, []float32{100, 101, 110, 111}},
		{"joined", []graph.Step{{Model: "three", Output: map[string]string{"y": "a"}},
			{Model: "first", Input: map[string]string{"x": "a"}, Output: map[string]string{"y": "b"}},
			{Model: "sum", Input: map[string]string{"a": "a", "b": "b"},
				Output: map[string]string{"a": "c", "b": "y"}}}, []float32{2, 4, 6}},
		{"without an answer", []graph.Step{{Model: "never", Output: map[string]string{"y": "a"}},
			{Model: "first", Input: map[string]string{"x": "a"}}}, nil},
		{"under a condition", []graph.Step{{Model: "three", Output: map[string]string{"y": "a"}},
			{Model: "first", Input: map[string]string{"x": "a"}, When: graph.Condition{Func: "min", Tensor: "a",
				Op: ">=", Value: 2}}}, []float32{4, 6}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x.t = t
			x.load(strings.ReplaceAll(c.name, " ", "-"), "graph",
				(&graph.Settings{Steps: c.steps, Outputs: []string{"y"}}).Params())
			got, end := x.parts(strings.ReplaceAll(c.name, " ", "-"), x.tensors(map[string][]float32{"x": {1, 3}}))
			if !slices.Equal(got, c.want) || end.Err != nil || end.Outcome != stream.Answered ||
				len(end.Outputs) != 0 || !end.Model.Decoupled {
				t.Errorf("%v and then %v %v with %d outputs, want %v", got, end.Outcome, end.Err, len(end.Outputs),
					c.want)
			}
			end.Release()
		})
	}
	x.t = t
}

// TestDecoupledStepWaits: a decoupled step is only a bounded number of answers ahead of the steps after it.
func TestDecoupledStepWaits(t *testing.T) {
	const parts, ahead = 100, 16 + 2 // one answer is taken, another is made
	x := newMachine(t)
	x.load("many", "scale", stream.Params{"several": int64(parts)})
	x.load("slow", "scale", stream.Params{"wait": true})
	x.graph(graph.Settings{Steps: []graph.Step{{Model: "many", Output: map[string]string{"y": "a"}},
		{Model: "slow", Input: map[string]string{"x": "a"}}}, Outputs: []string{"y"}})
	s, sink := x.open("g", oneShot)
	before := emitted.Load()
	if err := s.Submit(x.tensors(map[string][]float32{"x": {1, 2}})); err != nil {
		t.Fatal(err)
	}
	for i := range parts {
		<-gate.came
		if n := emitted.Load() - before; n > int64(i+ahead) {
			t.Fatalf("%d answers were made when %d had been taken", n, i)
		}
		openGate()
		r := <-sink.c
		if y := output(t, r, "y").Float32s(); y[0] != float32(1+i) {
			t.Fatalf("answer %d is %v", i, y)
		}
		r.Release()
	}
	(<-sink.c).Release()
	s.Close(stream.ByClient)
	<-sink.done
}

// TestDecoupledStepEnds: a failing step, and a leaving client, end an earlier decoupled step.
func TestDecoupledStepEnds(t *testing.T) {
	x := newMachine(t)
	x.load("many", "scale", stream.Params{"several": int64(1000)})
	x.load("fails", "scale", stream.Params{"fail": true})
	x.load("slow", "scale", stream.Params{"wait": true})
	after := func(model string) stream.Params {
		return (&graph.Settings{Steps: []graph.Step{{Model: "many", Output: map[string]string{"y": "a"}},
			{Model: model, Input: map[string]string{"x": "a"}, Timeout: time.Minute}}, Outputs: []string{"y"}}).Params()
	}
	x.load("failing", "graph", after("fails"))
	x.load("left", "graph", after("slow"))
	got, end := x.parts("failing", x.tensors(map[string][]float32{"x": {1, 2}}))
	if len(got) != 0 || end.Err == nil || end.Err.Error() != "steps.fails.inputs.x: is not liked" {
		t.Errorf("%v, %v", got, end.Err)
	}
	end.Release()
	s, sink := x.open("left", oneShot)
	if err := s.Submit(x.tensors(map[string][]float32{"x": {1, 2}})); err != nil {
		t.Fatal(err)
	}
	<-gate.came
	s.Close(stream.ByClient)
	<-sink.done
	openGate()
	many, _ := x.models.Group("many", "")
	for many.Stats().Busy > 0 { // the rest of the answers are refused
		time.Sleep(time.Millisecond)
	}
}

// TestDecoupledStepsThatAreRefused: the load of a graph is refused if a step would be meaningless for each answer of
// a decoupled step.
func TestDecoupledStepsThatAreRefused(t *testing.T) {
	x := newMachine(t)
	x.load("three", "scale", stream.Params{"several": int64(3)})
	x.load("first", "scale", nil)
	x.load("counts", "scale", stream.Params{"stateful": true})
	to := map[string]string{"y": "a"}
	for want, steps := range map[string][]graph.Step{
		"steps.first: runs beside step three": {{Model: "three"}, {Model: "first", Output: to}},
		"steps.counts.model: keeps state (counts)": {{Model: "three", Output: to},
			{Model: "counts", Input: map[string]string{"x": "a"}}},
	} {
		s := graph.Settings{Steps: steps}
		r := x.tryLoad(workers.Config{Name: "g", Kind: "graph", Params: s.Params()})
		if r == nil || !strings.Contains(r.Error(), want) || stream.CodeOf(r) != stream.Unsupported {
			t.Errorf("%v, want %s", r, want)
		}
	}
}
