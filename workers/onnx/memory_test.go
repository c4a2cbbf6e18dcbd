//go:build cgo

package onnx

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"millrace/batching"
	"millrace/internal/onnxfile"
	"millrace/stream"
	"millrace/workers"
)

// The copy of a scalar input must come from the present frame, not from an earlier frame.
func TestScalarsAreThoseOfTheFrame(t *testing.T) {
	r := newRig(t)
	c := call(t, r.load(t, workers.Config{Source: write(t, graph(
		[]onnxfile.Value{value("x", onnxfile.Int64)}, []onnxfile.Value{value("y", onnxfile.Int64, 2)},
		[]onnxfile.Node{node("Expand", "x two", "y")}, ints("two", 2)))}))
	for _, n := range []int64{0, 5, 7, 7, -1} {
		got := c.send(t, tensor("x", stream.Int64, int64s(n)))
		if got.err != nil {
			t.Fatal(got.err)
		}
		want(t, got.outputs, 0, int64s(n, n), 2)
	}
}

// Batches may be allocated on the Go heap.
func TestBothKindsOfMemory(t *testing.T) {
	for _, memory := range []batching.Backend{batching.Heap, batching.C} {
		t.Run(string(memory), func(t *testing.T) {
			r := newRig(t)
			c := call(t, r.load(t, workers.Config{Source: write(t, scaled(2)),
				Batching: workers.Batching{Memory: memory}}))
			for i := range 20 {
				got := c.send(t, tensor("x", stream.Float32, floats(float32(i)), 1, 1))
				if got.err != nil {
					t.Fatal(got.err)
				}
				want(t, got.outputs, 0, floats(2*float32(i)), 1, 1)
			}
		})
	}
}

// The sizes of the outputs are also learned from the first frame.
func TestSizesAreLearnedWithoutWarmUp(t *testing.T) {
	w, _ := newWorker(t, &workers.Env{Name: "m", Source: write(t, graph(
		[]onnxfile.Value{value("x", onnxfile.Float32, "N", 8)},
		[]onnxfile.Value{value("y", onnxfile.Float32, "N", "a")},
		[]onnxfile.Node{node("Reshape", "x s", "y")}, ints("s", 0, -1)))}, stream.Params{"warmup": false})
	for n := range 4 {
		data := floats(random(8*(n+1), uint32(n))...)
		out, err := w.compute(t.Context(), []stream.Tensor{tensor("x", stream.Float32, data, n+1, 8)}, n+1)
		if err != nil {
			t.Fatal(err)
		}
		want(t, out, 0, data, n+1, 8)
		if w.results == nil {
			t.Fatal("no size was learned")
		}
	}
}

// Zeros are an invalid input for some models: the error tells the user what to do.
func TestWarmUpFails(t *testing.T) {
	path := write(t, graph([]onnxfile.Value{value("x", onnxfile.Int64, "N", 1)},
		[]onnxfile.Value{value("y", onnxfile.Int64, "N", 1)},
		[]onnxfile.Node{node("Div", "five x", "y")}, ints("five", 5)))
	if err := bad(t, path, nil); err.Field != "warmup" || err.Code != stream.InvalidArgument ||
		!strings.Contains(err.Msg, "warmup=false") {
		t.Errorf("%s of %q: %s", err.Code, err.Field, err.Msg)
	}
	r := newRig(t)
	c := call(t, r.load(t, workers.Config{Source: path, Params: stream.Params{"warmup": false}}))
	for range 2 {
		if got := c.send(t, tensor("x", stream.Int64, int64s(0), 1, 1)); stream.CodeOf(got.err) != stream.Internal {
			t.Errorf("%v", got.err)
		}
		got := c.send(t, tensor("x", stream.Int64, int64s(2), 1, 1))
		if got.err != nil {
			t.Fatal(got.err)
		}
		want(t, got.outputs, 0, int64s(2), 1, 1)
	}
}

// A run with outputs allocated by the library ends when the group abandons the run.
func TestRunEndsWithItsContext(t *testing.T) {
	const n, layers = 256, 5000 // seconds
	nodes := []onnxfile.Node{node("MatMul", "x x", "v0")}
	for i := range layers {
		nodes = append(nodes, node("MatMul", fmt.Sprintf("v%d x", i), fmt.Sprintf("v%d", i+1)))
	}
	nodes = append(nodes, node("Identity", fmt.Sprintf("v%d", layers), "y"))
	w, _ := newWorker(t, &workers.Env{Name: "m", Source: write(t, graph(
		[]onnxfile.Value{value("x", onnxfile.Float32, "n", "n")},
		[]onnxfile.Value{value("y", onnxfile.Float32, "n", "n")}, nodes))}, stream.Params{"batch_axis": false})
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	in := tensor("x", stream.Float32, make([]byte, 4*n*n), 1, n, n)
	if _, err := w.compute(ctx, []stream.Tensor{in}, 1); err == nil || !strings.Contains(err.Error(), "terminate") {
		t.Errorf("%v", err)
	}
}
