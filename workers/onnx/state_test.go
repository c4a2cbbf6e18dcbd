//go:build cgo

package onnx

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"millrace/internal/onnxfile"
	"millrace/stream"
	"millrace/workers"
)

const gruInput, gruHidden = 5, 7

// gru is a recurrent network. Stepwise, gru takes one step [N, 5] and the hidden state h, and returns y [N, 7] and
// the new state h_out; otherwise a whole sequence [T, 1, 5].
func gru(stepwise bool) []byte {
	weights := func(name string, seed uint32, dims ...int64) onnxfile.Tensor {
		n := int64(1)
		for _, d := range dims {
			n *= d
		}
		return onnxfile.Tensor{Name: name, Type: onnxfile.Float32, Dims: dims, Raw: floats(random(int(n), seed)...)}
	}
	m := onnxfile.Model{Initializers: []onnxfile.Tensor{
		weights("W", 1, 1, 3*gruHidden, gruInput), weights("R", 2, 1, 3*gruHidden, gruHidden),
		weights("B", 3, 1, 6*gruHidden), ints("first", 0), ints("flat", -1, gruHidden),
	}}
	F, hidden := onnxfile.Float32, onnxfile.Attr{Name: "hidden_size", Value: int64(gruHidden)}
	if !stepwise {
		m.Inputs, m.Outputs = []onnxfile.Value{value("x", F, "T", 1, gruInput)},
			[]onnxfile.Value{value("y", F, "T", gruHidden)}
		m.Nodes = []onnxfile.Node{
			{Op: "GRU", Inputs: []string{"x", "W", "R", "B"}, Outputs: []string{"all"}, Attrs: []onnxfile.Attr{hidden}},
			node("Reshape", "all flat", "y"),
		}
		return m.Bytes()
	}
	m.Inputs = []onnxfile.Value{value("h", F, 1, "N", gruHidden), value("x", F, "N", gruInput)}
	m.Outputs = []onnxfile.Value{value("y", F, "N", gruHidden), value("h_out", F, 1, "N", gruHidden)}
	m.Nodes = []onnxfile.Node{
		node("Unsqueeze", "x first", "step"),
		{Op: "GRU", Inputs: []string{"step", "W", "R", "B", "", "h"}, Outputs: []string{"", "h_out"},
			Attrs: []onnxfile.Attr{hidden}},
		node("Squeeze", "h_out first", "y"),
	}
	return m.Bytes()
}

// Each stream in a common batch computes the same values as the network does for the stream's whole sequence at once.
func TestStateOfRecurrentNetwork(t *testing.T) {
	const streams, frames = 8, 50
	r := newRig(t)
	whole := call(t, r.load(t, workers.Config{Name: "whole", Source: write(t, gru(false)),
		Params: stream.Params{"batch_axis": false}}))
	g := r.load(t, workers.Config{Source: write(t, gru(true)), Params: stream.Params{"state": "h=h_out"},
		Batching: workers.Batching{Kind: "hard", MaxSize: streams}})
	m := g.Model()
	if got := fmt.Sprint(m.Inputs, m.Outputs, m.Stateful, " ",
		m.Policy.Mode); got != "[{x FP32 [5] false  false}] [{y FP32 [7] false  false}] true every" {
		t.Error(got)
	}
	var callers []caller
	var steps, want [][]float32
	for i := range streams {
		callers, steps = append(callers, call(t, g)), append(steps, random(frames*gruInput, uint32(100+i)))
		got := whole.send(t, tensor("x", stream.Float32, floats(steps[i]...), frames, 1, gruInput))
		if got.err != nil {
			t.Fatal(got.err)
		}
		want = append(want, got.outputs[0].Float32s())
	}
	if near(want[0], want[1]) == nil {
		t.Fatal("all sequences are equal")
	}
	for n := range frames {
		for i, c := range callers {
			x := steps[i][n*gruInput : (n+1)*gruInput]
			if err := c.Submit(stream.Frame{Codec: stream.Tensors,
				Inputs: []stream.Tensor{tensor("x", stream.Float32, floats(x...), 1, gruInput)}}); err != nil {
				t.Fatal(err)
			}
		}
		for i, c := range callers {
			got := <-c.sink
			if got.err != nil || len(got.outputs) != 1 || got.batch != streams {
				t.Fatalf("frame %d of stream %d: %+v", n, i, got)
			}
			if err := near(got.outputs[0].Float32s(), want[i][n*gruHidden:(n+1)*gruHidden]); err != nil {
				t.Fatalf("frame %d of stream %d: %v", n, i, err)
			}
		}
	}
	if held := r.mem.Stats().Leases; held < streams {
		t.Errorf("%d leases for %d states", held, streams)
	}
}

// sums is a model with the answer y [N, 3], twice the sum of all inputs so far: each of the two halves of the state
// [2, N, 3] has the sum.
func sums(kind int32, batch any) []byte {
	return graph([]onnxfile.Value{value("x", kind, batch, 3), value("s", kind, 2, batch, 3)},
		[]onnxfile.Value{value("s_out", kind, 2, batch, 3), value("y", kind, batch, 3)}, []onnxfile.Node{
			node("Add", "s x", "s_out"),
			node("ReduceSum", "s_out first", "y", onnxfile.Attr{Name: "keepdims", Value: int64(0)}),
		}, ints("first", 0))
}

// A stream begins with the initial value, and the state ends with the stream. One-shot requests begin anew each time.
func TestStateBeginsAndEnds(t *testing.T) {
	r := newRig(t)
	for batch, params := range map[any]stream.Params{"N": nil, 1: nil, 4: nil, "none": {"batch_axis": false}} {
		config := workers.Config{Name: fmt.Sprint("m", batch), Source: write(t, sums(onnxfile.Float32, batch)),
			Params: stream.Params{"state": " s = s_out : 5 "}}
		x := func(n float32) stream.Tensor { return tensor("x", stream.Float32, floats(n, 2*n, 0), 1, 3) }
		for k, v := range params {
			config.Params[k] = v
		}
		g := r.load(t, config)
		for range 2 {
			one, two := call(t, g), call(t, g)
			for i := 1; i <= 3; i++ {
				for k, c := range []caller{one, two} {
					n := float32(i * (1 + 2*k))
					got := c.send(t, x(float32(1+2*k)))
					if got.err != nil {
						t.Fatal(batch, got.err)
					}
					want(t, got.outputs, 0, floats(10+2*n, 10+4*n, 10), 1, 3)
				}
			}
			one.Close(stream.ByClient)
			two.Close(stream.ByClient)
			<-one.Finished()
			<-two.Finished()
		}
		single := caller{sink: make(sink, 8)}
		var err error
		if single.Stream, err = g.Open(stream.Options{OneShot: true, Policy: stream.Policy{Mode: stream.Every}},
			single.sink); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			got := single.send(t, x(1))
			if got.err != nil {
				t.Fatal(got.err)
			}
			want(t, got.outputs, 0, floats(12, 14, 10), 1, 3)
		}
		single.Close(stream.ByClient)
		<-single.Finished()
	}
	// The run releases its own reference to an answer after the delivery.
	for end := time.Now().Add(10 * time.Second); r.mem.Stats().Leases != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d leases are left", r.mem.Stats().Leases)
		}
	}
}

// The windows completed by one frame of sound run in sequence, each with the state left by the previous window.
func TestStateOfWindows(t *testing.T) {
	path := write(t, graph([]onnxfile.Value{value("x", onnxfile.Float32, "N", 4), value("s", onnxfile.Float32, "N", 1)},
		[]onnxfile.Value{value("y", onnxfile.Float32, "N", 1), value("s_out", onnxfile.Float32, "N", 1)},
		[]onnxfile.Node{
			node("ReduceSum", "x last", "sum"), node("Add", "sum s", "s_out"), node("Identity", "s_out", "y"),
		}, ints("last", 1)))
	r := newRig(t)
	g := r.load(t, workers.Config{Source: path, Params: stream.Params{"state": "s=s_out"},
		Window: workers.Window{Length: 4, Hop: 2}})
	c := call(t, g)
	for _, x := range []struct{ in, out []float32 }{
		{[]float32{1, 1, 1, 1}, []float32{4}},
		{[]float32{2, 2, 2, 2, 2, 2}, []float32{4 + 6, 4 + 6 + 8, 4 + 6 + 8 + 8}},
		{[]float32{0, 0}, []float32{30}},
	} {
		got := c.send(t, tensor("x", stream.Float32, floats(x.in...), len(x.in)))
		if got.err != nil {
			t.Fatal(got.err)
		}
		want(t, got.outputs, 0, floats(x.out...), len(x.out), 1)
	}
}

func TestStateOfOtherTypes(t *testing.T) {
	r := newRig(t)
	c := call(t, r.load(t, workers.Config{Source: write(t, sums(onnxfile.Int64, "N")),
		Params: stream.Params{"state": "s=s_out:-3"}}))
	for i := range int64(3) {
		got := c.send(t, tensor("x", stream.Int64, int64s(1, 0, 0), 1, 3))
		if got.err != nil {
			t.Fatal(got.err)
		}
		want(t, got.outputs, 0, int64s(2*(i+1)-6, -6, -6), 1, 3)
	}
}

func TestStateRefused(t *testing.T) {
	F := onnxfile.Float32
	path := write(t, sums(F, "N"))
	for state, says := range map[string]string{
		"s":                  `the entry "s": want INPUT=OUTPUT`,
		"s=s_out;":           `the entry ""`,
		"t=s_out":            `names the input "t": the model has x, s`,
		"s=t":                `names the output "t": the model has s_out, y`,
		"s=s_out:much":       `"much" as the initial value`,
		"s=s_out; s=y":       "twice",
		"s=y":                "must be equal",
		"s=s_out; x=y":       "nothing is left for clients",
		"s=s_out:1; x=s_out": "twice",
	} {
		if err := bad(t, path, stream.Params{"state": state}); err.Field != "state" ||
			!strings.Contains(err.Msg, says) {
			t.Errorf("%s: %s: %s", state, err.Field, err.Msg)
		}
	}
	if err := bad(t, write(t, sums(onnxfile.Int32, "N")),
		stream.Params{"state": "s=s_out:1.5"}); !strings.Contains(err.Msg, "1.5, which is not INT32") {
		t.Error(err.Msg)
	}
	free := graph([]onnxfile.Value{value("x", F, "N", 3), value("s", F, "N", "L")},
		[]onnxfile.Value{value("y", F, "N", 3), value("s_out", F, "N", "L")},
		[]onnxfile.Node{node("Identity", "x", "y"), node("Identity", "s", "s_out")})
	if err := bad(t, write(t, free), stream.Params{"state": "s=s_out"}); !strings.Contains(err.Msg,
		"all of its sizes but that of the batch must be known") {
		t.Error(err.Msg)
	}
}
