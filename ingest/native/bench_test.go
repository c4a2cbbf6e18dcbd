package native_test

import (
	"context"
	"fmt"
	"testing"

	"millrace/ingest/native"
	"millrace/stream"
	"millrace/workers"
)

// BenchmarkInfer calls the identity model, for the program itself and for a user with a quota.
func BenchmarkInfer(b *testing.B) {
	s, stop := start(workers.Config{Name: "echo", Source: "identity"})
	defer stop()
	user, err := s.Native().As(native.User{Name: "eva", Quotas: map[string]float64{"requests": 1e9}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, in := context.Background(), []stream.Tensor{{Name: "x", Datatype: stream.Float32, Shape: []int{1, 16},
		Data: make([]byte, 64)}}
	for name, c := range map[string]*native.Client{"program": s.Native(), "user": user} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r, err := c.Infer(ctx, "echo", in)
				if err != nil {
					b.Fatal(err)
				}
				r.Release()
			}
		})
	}
}

// BenchmarkGraph calls a graph of three identity steps.
func BenchmarkGraph(b *testing.B) {
	s, stop := start(workers.Config{Name: "echo", Source: "identity", Instances: 2}, threeSteps("graph", "echo", "x"))
	defer stop()
	in := []stream.Tensor{{Name: "x", Datatype: stream.Float32, Shape: []int{1, 16}, Data: make([]byte, 64)}}
	b.ReportAllocs()
	for b.Loop() {
		r, err := s.Native().Infer(context.Background(), "graph", in)
		if err != nil {
			b.Fatal(err)
		}
		r.Release()
	}
}

// threeSteps is a graph of three steps of model, with the input x and the output y. output is the output of model.
func threeSteps(name, model, output string) workers.Config {
	step := func(from, to string) string {
		return fmt.Sprintf(`{"name":%q,"model":%q,"input":{"x":%q},"output":{%q:%q}}`, to, model, from, output, to)
	}
	return workers.Config{Name: name, Source: "graph", Params: stream.Params{
		"steps": "[" + step("x", "a") + "," + step("a", "b") + "," + step("b", "y") + "]", "outputs": `["y"]`}}
}
