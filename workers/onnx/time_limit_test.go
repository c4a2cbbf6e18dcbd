//go:build cgo

package onnx

import (
	"context"
	"errors"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"millrace/batching"
	"millrace/internal/onnxfile"
	"millrace/stream"
	"millrace/workers"
)

// countdown is a model that adds 1 to y in a loop of the graph, with the input n as the count.
func countdown() []byte {
	loop, constants := countdownLoop("n yes zero", "y", 1)
	return graph([]onnxfile.Value{value("n", onnxfile.Int64, 1)}, []onnxfile.Value{value("y", onnxfile.Float32, 1)},
		[]onnxfile.Node{loop},
		append(constants, onnxfile.Tensor{Name: "zero", Type: onnxfile.Float32, Dims: []int64{1}, Raw: floats(0)})...)
}

// countdownLoop returns the loop of countdown, over a sum of the given sizes, and its constants.
func countdownLoop(inputs, output string, dims ...any) (onnxfile.Node, []onnxfile.Tensor) {
	body := onnxfile.Model{
		Inputs: []onnxfile.Value{value("i", onnxfile.Int64), value("go", onnxfile.Bool),
			value("sum", onnxfile.Float32, dims...)},
		Outputs: []onnxfile.Value{value("on", onnxfile.Bool), value("next", onnxfile.Float32, dims...)},
		Nodes:   []onnxfile.Node{node("Identity", "go", "on"), node("Add", "sum one", "next")},
	}
	return node("Loop", inputs, output, onnxfile.Attr{Name: "body", Value: body}), []onnxfile.Tensor{
		{Name: "yes", Type: onnxfile.Bool, Raw: []byte{1}},
		{Name: "one", Type: onnxfile.Float32, Dims: []int64{1}, Raw: floats(1)},
	}
}

// countdownOfTexts is countdown with string rows and a state of 0: each request of a batch has a separate run.
func countdownOfTexts() []byte {
	F := onnxfile.Float32
	loop, constants := countdownLoop("times yes s", "y", "N", 1)
	return graph([]onnxfile.Value{value("x", onnxfile.String, "N", 1), value("n", onnxfile.Int64, "N", 1),
		value("s", F, "N", 1)},
		[]onnxfile.Value{value("same", onnxfile.String, "N", 1), value("y", F, "N", 1), value("s_out", F, "N", 1)},
		[]onnxfile.Node{node("Identity", "x", "same"), node("Reshape", "n single", "times"), loop,
			node("Identity", "s", "s_out")},
		append(constants, ints("single", 1))...)
}

// TestEndlessRunsEnd: an endless run ends at limits.run with an error that names the setting. The worker goes on with
// the next request, any number of times, without quarantine or replacement.
func TestEndlessRunsEnd(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Source: write(t, countdown()), Params: stream.Params{"batch_axis": false},
		Limits: workers.Limits{Run: 200 * time.Millisecond}})
	c := call(t, g)
	for range 6 { // more often than limits.restarts and limits.quarantined allow
		var coded *stream.Error
		if got := c.send(t, tensor("n", stream.Int64, int64s(math.MaxInt64), 1)); !errors.As(got.err, &coded) ||
			coded.Code != stream.Timeout || coded.Field != "limits.run" {
			t.Fatalf("an endless run: %v", got.err)
		}
		got := c.send(t, tensor("n", stream.Int64, int64s(3), 1))
		if got.err != nil {
			t.Fatal(got.err)
		}
		want(t, got.outputs, 0, floats(3), 1)
	}
	if s := g.Stats(); s.Quarantined != 0 || s.Restarts != 0 {
		t.Errorf("%d workers are quarantined, %d were restarted", s.Quarantined, s.Restarts)
	}
}

// TestEndlessRunsOfABatch: limits.run is the limit of a batch, even with a separate run for each request. The worker
// goes on.
func TestEndlessRunsOfABatch(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Source: write(t, countdownOfTexts()), Params: stream.Params{"state": "s=s_out",
		"warmup": false},
		Batching: workers.Batching{Kind: batching.Hard, MaxSize: 2},
		Limits:   workers.Limits{Run: 200 * time.Millisecond}})
	callers := []caller{call(t, g), call(t, g)}
	send := func(n int64) (answers []got) {
		t.Helper()
		for _, c := range callers {
			if err := c.Submit(stream.Frame{Codec: stream.Tensors,
				Inputs: []stream.Tensor{tensor("x", stream.Bytes, texts("a"), 1, 1),
					tensor("n", stream.Int64, int64s(n), 1, 1)}}); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range callers {
			answers = append(answers, <-c.sink)
		}
		return answers
	}
	for range 2 {
		for _, got := range send(math.MaxInt64) {
			var coded *stream.Error
			if !errors.As(got.err, &coded) || coded.Code != stream.Timeout || coded.Field != "limits.run" {
				t.Errorf("an endless run: %v", got.err)
			}
		}
		for _, got := range send(3) {
			if got.err != nil {
				t.Fatal(got.err)
			}
			want(t, got.outputs, 1, floats(3), 1, 1)
		}
	}
	if s := g.Stats(); s.Quarantined != 0 || s.Restarts != 0 {
		t.Errorf("%d workers are quarantined, %d were restarted", s.Quarantined, s.Restarts)
	}
}

// TestInterruptOfSeveralRuns: an interrupt ends all runs until cleared, so an interrupt just before the first run of
// a batch, or between two runs of a batch, is not lost.
func TestInterruptOfSeveralRuns(t *testing.T) {
	w, _ := newWorker(t, &workers.Env{Name: "m", Source: write(t, countdown())},
		stream.Params{"batch_axis": false, "warmup": false})
	in := []stream.Tensor{tensor("n", stream.Int64, int64s(2), 1, 1)}
	for range 2 { // before the first run of the worker, and before a later one
		w.Interrupt()
		for range 2 {
			if _, err := w.compute(t.Context(), in, 1); err == nil || !w.ended() {
				t.Errorf("an interrupted run: %v", err)
			}
		}
		w.ClearInterrupt()
		if w.ended() {
			t.Error("runs are still interrupted")
		}
		out, err := w.compute(t.Context(), in, 1)
		if err != nil {
			t.Fatal(err)
		}
		want(t, out, 0, floats(2), 1, 1)
	}
}

// TestMemoryOfRunsIsBounded: an input of 8 bytes with an output larger than onnx.memory gets an error that names the
// setting, and the worker goes on.
func TestMemoryOfRunsIsBounded(t *testing.T) {
	w, _ := newWorker(t, &workers.Env{Name: "m", Source: write(t, graph(
		[]onnxfile.Value{value("n", onnxfile.Int64, 1)}, []onnxfile.Value{value("y", onnxfile.Float32, "k")},
		[]onnxfile.Node{node("ConstantOfShape", "n", "y")}))}, stream.Params{"batch_axis": false, "warmup": false})
	for range 3 {
		var coded *stream.Error
		_, err := w.compute(t.Context(), []stream.Tensor{tensor("n", stream.Int64, int64s(testMemory/2), 1, 1)}, 1)
		if !errors.As(err, &coded) || coded.Code != stream.TooLarge || coded.Field != "onnx.memory" {
			t.Errorf("%v", err)
		}
		out, err := w.compute(t.Context(), []stream.Tensor{tensor("n", stream.Int64, int64s(1<<20), 1, 1)}, 1)
		if err != nil || len(out[0].Data) != 4<<20 {
			t.Errorf("%d outputs, %v", len(out), err)
		}
	}
}

// TestReloadsKeepNoMemory: the resident memory of the process after 100 reloads is at most 1.2 times the memory after
// 10.
func TestReloadsKeepNoMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("loads a model 100 times")
	}
	r := newRig(t)
	cfg := workers.Config{Name: "m", Kind: "onnx", Source: write(t, onnxfile.MLP(256, 512, 256, 2))}
	after := map[int]float64{}
	for i := 1; i <= 100; i++ {
		if _, err := r.LoadConfig(t.Context(), cfg, true); err != nil {
			t.Fatal(err)
		}
		if err := r.Unload(t.Context(), "m", ""); err != nil {
			t.Fatal(err)
		}
		if i == 10 || i == 100 {
			debug.FreeOSMemory()
			statm, err := os.ReadFile("/proc/self/statm")
			if err != nil {
				t.Fatal(err)
			}
			if after[i], err = strconv.ParseFloat(strings.Fields(string(statm))[1], 64); err != nil {
				t.Fatal(err)
			}
		}
	}
	if ratio := after[100] / after[10]; ratio > 1.2 {
		t.Errorf("resident memory grows %.2f times", ratio)
	}
}

// TestRunsEndWithTheirContext: a run ends with its context, with bound and with allocated outputs, and the end of an
// earlier run's context does not end a later run.
func TestRunsEndWithTheirContext(t *testing.T) {
	w, _ := newWorker(t, &workers.Env{Name: "m", Source: write(t, countdown())},
		stream.Params{"batch_axis": false, "warmup": false})
	for _, how := range []string{"with memory", "allocating"} {
		first, stop := context.WithCancel(t.Context())
		in := []stream.Tensor{tensor("n", stream.Int64, int64s(2), 1, 1)}
		if _, err := w.compute(first, in, 1); err != nil {
			t.Fatal(how, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		stop()
		out, err := w.compute(ctx, in, 1)
		if err != nil {
			t.Fatal(how, err)
		}
		want(t, out, 0, floats(2), 1, 1)
		context.AfterFunc(first, cancel) // at once
		if _, err := w.compute(ctx, []stream.Tensor{tensor("n", stream.Int64, int64s(math.MaxInt64), 1, 1)},
			1); err == nil {
			t.Errorf("%s: the run ended without an error", how)
		}
		w.Release()
		w.freeOutputs()
	}
}
