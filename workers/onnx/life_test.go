//go:build cgo

package onnx

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"

	ort "github.com/yalue/onnxruntime_go"

	"millrace/internal/onnxfile"
	"millrace/stream"
	"millrace/workers"
)

// scaled is a model that multiplies by a number.
func scaled(by float32) []byte {
	return graph([]onnxfile.Value{value("x", onnxfile.Float32, "N", 1)},
		[]onnxfile.Value{value("y", onnxfile.Float32, "N", 1)},
		[]onnxfile.Node{node("Mul", "x by", "y")},
		onnxfile.Tensor{Name: "by", Type: onnxfile.Float32, Dims: []int64{1}, Raw: floats(by)})
}

func TestInstancesShareASession(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	path := write(t, scaled(2))
	r.load(t, workers.Config{Source: path, Instances: 3})
	check := func(what string, wantN, wantUsers int) {
		t.Helper()
		if n, users := inUse(); n != wantN || users != wantUsers {
			t.Errorf("%s: %d sessions with %d users, want %d with %d", what, n, users, wantN, wantUsers)
		}
	}
	check("three instances", 1, 3)
	r.load(t, workers.Config{Name: "again", Source: path})
	check("another model of the same file", 1, 4)
	r.load(t, workers.Config{Name: "wide", Source: path, Params: stream.Params{"threads": 2.0}})
	check("another with other options", 2, 5)
	if err := r.Scale(ctx, "m", 1); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"again", "wide", "m"} {
		if err := r.Unload(ctx, name, ""); err != nil {
			t.Fatal(err)
		}
	}
	check("all are unloaded", 0, 0)
}

// A swap loads the present content of the model's file.
func TestSwapToAFileThatWasReplaced(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	path := write(t, scaled(2))
	cfg := workers.Config{Name: "m", Kind: "onnx", Source: path, Instances: 2}
	c := call(t, r.load(t, cfg))
	x := tensor("x", stream.Float32, floats(1), 1, 1)
	for i := range 4 {
		by := float32(i + 2)
		if got := c.send(t, x); got.err != nil {
			t.Fatal(got.err)
		} else {
			want(t, got.outputs, 0, floats(by), 1, 1)
		}
		// The new file is written under another name and renamed. The size is the same.
		if err := os.WriteFile(path+".new", scaled(by+1), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		if got := c.send(t, x); got.err != nil || string(got.outputs[0].Data) != string(floats(by)) {
			t.Fatalf("before the swap: %v %v", got.outputs, got.err)
		}
		if err := r.Swap(ctx, "m", cfg); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, []byte("not a model"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Swap(ctx, "m", cfg); err == nil {
		t.Error("swapped to a file that is not a model")
	}
	if got := c.send(t, x); got.err != nil {
		t.Errorf("after a swap that failed: %v", got.err)
	}
	if err := r.Unload(ctx, "m", ""); err != nil {
		t.Fatal(err)
	}
}

// Instances run the shared session in parallel, each with its own memory.
func TestInstancesInParallel(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Source: write(t, onnxfile.MLP(8, 32, 4, 3)), Instances: 4,
		Batching: workers.Batching{MaxSize: 4}})
	one := call(t, g)
	var inputs, outputs [][]float32
	for i := range 8 {
		in := random(8, uint32(i))
		got := one.send(t, tensor("x", stream.Float32, floats(in...), 1, 8))
		if got.err != nil {
			t.Fatal(got.err)
		}
		inputs, outputs = append(inputs, in), append(outputs, got.outputs[0].Float32s())
	}
	var wg sync.WaitGroup
	for s := range 8 {
		c := call(t, g)
		wg.Go(func() {
			for i := range 200 {
				k := (s + i) % len(inputs)
				got := c.send(t, tensor("x", stream.Float32, floats(inputs[k]...), 1, 8))
				if got.err != nil {
					t.Error(got.err)
					return
				}
				if err := near(got.outputs[0].Float32s(), outputs[k]); err != nil {
					t.Errorf("stream %d, frame %d: %v", s, i, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// A failed run ends its own frames with a short message; later frames are answered.
func TestRunsThatFail(t *testing.T) {
	I := onnxfile.Int64
	for name, c := range map[string]struct {
		model     []byte
		good, bad int64
		want      string
	}{
		"an index out of range": {graph([]onnxfile.Value{value("x", I, "N", 1)},
			[]onnxfile.Value{value("y", I, "N", 1)},
			[]onnxfile.Node{node("Gather", "table x", "y")}, ints("table", 5, 6, 7)), 2, 9, "out of data bounds"},
		"a shape that does not fit": {graph([]onnxfile.Value{value("x", I, 1, 1)},
			[]onnxfile.Value{value("y", I, "a", "b")}, []onnxfile.Node{
				node("Concat", "one x", "s", onnxfile.Attr{Name: "axis", Value: int64(1)}),
				node("Squeeze", "s", "shape"),
				node("Reshape", "data shape", "y")},
			onnxfile.Tensor{Name: "one", Type: I, Dims: []int64{1, 1}, Raw: int64s(1)}, ints("data", 5, 6, 7)), 3, 2,
			"cannot be reshaped"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			// a warm-up run of zeros would fail
			g := r.load(t, workers.Config{Source: write(t, c.model), Params: stream.Params{"warmup": false}})
			s := call(t, g)
			for range 3 {
				if got := s.send(t, tensor("x", stream.Int64, int64s(c.good), 1, 1)); got.err != nil {
					t.Fatal(got.err)
				}
				got := s.send(t, tensor("x", stream.Int64, int64s(c.bad), 1, 1))
				if got.err == nil {
					t.Fatalf("answered %v", got.outputs)
				}
				text := got.err.Error()
				if stream.CodeOf(got.err) != stream.Internal || !strings.Contains(text, c.want) || len(text) > 250 ||
					strings.Contains(text, "onnxruntime") {
					t.Errorf("%s: %s", stream.CodeOf(got.err), text)
				}
			}
			t.Log(s.send(t, tensor("x", stream.Int64, int64s(c.bad), 1, 1)).err)
			if st := g.Stats(); st.Workers != 1 || st.Restarts != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// The steady state allocates only in the binding of ONNX Runtime, for models of any shape: for a batch, the two lists
// of inputs and outputs, and a handle of each tensor.
func TestComputeAllocatesHandles(t *testing.T) {
	for name, model := range map[string][]byte{
		"sizes of the file": onnxfile.MLP(8, 16, 4, 2),
		"sizes of the first run": graph([]onnxfile.Value{value("x", onnxfile.Float32, "N", 8)},
			[]onnxfile.Value{value("y", onnxfile.Float32, "N", "a")}, []onnxfile.Node{node("Reshape", "x s", "y")},
			ints("s", 0, -1)),
		"an input with a free length": graph([]onnxfile.Value{value("x", onnxfile.Float32, "N", "L")},
			[]onnxfile.Value{value("y", onnxfile.Float32, "N", 1)},
			[]onnxfile.Node{node("ReduceMax", "x", "y", onnxfile.Attr{Name: "axes", Value: []int64{1}})}),
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := newWorker(t, &workers.Env{Name: "m", Source: write(t, model)}, nil)
			in := []stream.Tensor{tensor("x", stream.Float32, floats(random(16, 1)...), 2, 8)}
			run := func() {
				if _, err := w.compute(t.Context(), in, 2); err != nil {
					t.Fatal(err)
				}
			}
			run()
			if w.results == nil {
				t.Fatal("not bound")
			}
			if n := testing.AllocsPerRun(100, run); n > 4 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

// BenchmarkRun compares a worker on a small MLP with the library alone.
func BenchmarkRun(b *testing.B) {
	path := write(b, onnxfile.MLP(16, 16, 4, 2))
	ctx := b.Context()
	w, _ := newWorker(b, &workers.Env{Name: "m", Source: path}, nil)
	in := []stream.Tensor{tensor("x", stream.Float32, floats(random(16, 1)...), 1, 16)}
	b.Run("worker", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := w.compute(ctx, in, 1); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		bind, err := w.session.CreateIoBinding()
		if err != nil {
			b.Fatal(err)
		}
		defer bind.Destroy()
		x, err := ort.NewTensor(ort.NewShape(1, 16), random(16, 1))
		if err != nil {
			b.Fatal(err)
		}
		defer x.Destroy()
		y, err := ort.NewEmptyTensor[float32](ort.NewShape(1, 4))
		if err != nil {
			b.Fatal(err)
		}
		defer y.Destroy()
		if err := bind.BindInput("x", x); err != nil {
			b.Fatal(err)
		}
		if err := bind.BindOutput("y", y); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if err := w.session.RunWithBinding(bind); err != nil {
				b.Fatal(err)
			}
		}
	})
}
