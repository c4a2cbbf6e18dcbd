package graph_test

import (
	"testing"

	"millrace/stream"
	"millrace/workers"
	"millrace/workers/graph"
)

// BenchmarkCall compares a call of an identity model with a call of a graph of three.
func BenchmarkCall(b *testing.B) {
	x := newMachine(b)
	if err := x.tryLoad(workers.Config{Name: "identity", Kind: "identity", Instances: 1}); err != nil {
		b.Fatal(err)
	}
	pass := func(from, to string) graph.Step {
		return graph.Step{Name: to, Model: "identity", Input: map[string]string{"x": from},
			Output: map[string]string{"x": to}}
	}
	x.graph(graph.Settings{Steps: []graph.Step{pass("x", "a"), pass("a", "b"), pass("b", "y")}, Outputs: []string{"y"}})
	inputs := []stream.Tensor{{Name: "x", Datatype: stream.Float32, Shape: []int{1, 16}, Data: make([]byte, 64)}}
	for _, model := range []string{"identity", "g"} {
		b.Run(model, func(b *testing.B) {
			b.ReportAllocs()
			s, sink := x.open(model, oneShot)
			for b.Loop() {
				if err := s.Submit(stream.Frame{Codec: stream.Tensors, Inputs: inputs}); err != nil {
					b.Fatal(err)
				}
				(<-sink.c).Release()
			}
			s.Close(stream.ByClient)
			<-sink.done
		})
	}
}
