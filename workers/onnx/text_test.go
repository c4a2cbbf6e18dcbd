//go:build cgo

package onnx

import (
	"fmt"
	"strings"
	"testing"

	"millrace/batching"
	"millrace/internal/onnxfile"
	"millrace/stream"
	"millrace/workers"
)

// Texts differ in length; each request of a batch gets its own text.
func TestTextsOfABatch(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Batching: workers.Batching{Kind: batching.Hard, MaxSize: 3}, Source: write(t, graph(
		[]onnxfile.Value{value("x", onnxfile.Int64, "N", 1)}, []onnxfile.Value{value("y", onnxfile.String, "N", 1)},
		[]onnxfile.Node{node("Cast", "x", "y", onnxfile.Attr{Name: "to", Value: int64(onnxfile.String)})}))})
	one, two := call(t, g), call(t, g)
	for i := range 5 {
		if err := one.Submit(stream.Frame{Codec: stream.Tensors,
			Inputs: []stream.Tensor{tensor("x", stream.Int64, int64s(7), 1, 1)}}); err != nil {
			t.Fatal(err)
		}
		got := two.send(t, tensor("x", stream.Int64, int64s(-12345, int64(i)), 2, 1))
		if got.err != nil || got.batch != 3 {
			t.Fatalf("batch of %d: %v", got.batch, got.err)
		}
		want(t, got.outputs, 0, texts("-12345", fmt.Sprint(i)), 2, 1)
		if got = <-one.sink; got.err != nil {
			t.Fatal(got.err)
		}
		want(t, got.outputs, 0, texts("7"), 1, 1)
	}
}

// texts are elements of BYTES.
func texts(words ...string) (data []byte) {
	for _, w := range words {
		data = append(append(data, byte(len(w)), 0, 0, 0), w...)
	}
	return data
}

// numbers is a model that reads numbers from strings, and returns the other input unchanged.
func numbers(dims ...any) []byte {
	return graph([]onnxfile.Value{value("text", onnxfile.String, dims...), value("x", onnxfile.Float32, dims...)},
		[]onnxfile.Value{value("n", onnxfile.Int64, dims...), value("same", onnxfile.String, dims...),
			value("y", onnxfile.Float32, dims...)},
		[]onnxfile.Node{node("Cast", "text", "n", onnxfile.Attr{Name: "to", Value: int64(onnxfile.Int64)}),
			node("Identity", "text", "same"), node("Identity", "x", "y")})
}

func TestTextInputs(t *testing.T) {
	for name, dims := range map[string][]any{"a free batch": {"N", 1}, "one of a fixed row": {1, 1},
		"fixed rows": {2, 1}, "a vector": {"N"}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c := call(t, r.load(t, workers.Config{Source: write(t, numbers(dims...))}))
			for i := range 3 {
				words, shape := []string{fmt.Sprint(10 + i)}, []int{1, 1}
				switch name {
				case "a vector":
					shape = []int{1}
				case "fixed rows": // no batch: all rows belong to one request
					words, shape = append(words, "-1"), []int{2, 1}
				}
				in := tensor("text", stream.Bytes, texts(words...), shape...)
				got := c.send(t, tensor("x", stream.Float32, floats(random(len(words), 1)...), shape...), in)
				if got.err != nil {
					t.Fatal(got.err)
				}
				n := []int64{int64(10 + i)}
				if name == "fixed rows" {
					n = append(n, -1)
				}
				want(t, got.outputs, 0, int64s(n...), shape...)
				want(t, got.outputs, 1, texts(words...), shape...)
				want(t, got.outputs, 2, floats(random(len(words), 1)...), shape...)
			}
		})
	}
}

// Requests with texts run together, and only a request with an invalid text fails.
func TestTextsAreJoined(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Source: write(t, numbers("N", 2)), Batching: workers.Batching{Kind: batching.Hard,
		MaxSize: 4}})
	var callers []caller
	var in [][]string
	for _, words := range [][]string{{"1", "-20"}, {"3\x00", "4"}, {"5", "6", "700", "8"}} {
		c := call(t, g)
		rows := len(words) / 2
		if err := c.Submit(stream.Frame{Codec: stream.Tensors, Inputs: []stream.Tensor{
			tensor("text", stream.Bytes, texts(words...), rows, 2),
			tensor("x", stream.Float32, floats(random(len(words), 1)...), rows, 2)}}); err != nil {
			t.Fatal(err)
		}
		callers, in = append(callers, c), append(in, words)
	}
	for i, numbers := range [][]int64{{1, -20}, nil, {5, 6, 700, 8}} {
		got := <-callers[i].sink
		switch {
		case numbers == nil:
			if stream.CodeOf(got.err) != stream.Unsupported ||
				!strings.Contains(got.err.Error(), "inputs.text.data: has a string with a zero byte") {
				t.Errorf("%v", got.err)
			}
			continue
		case got.err != nil || got.batch != 4: // the sent rows
			t.Fatalf("batch of %d: %v", got.batch, got.err)
		}
		rows := len(numbers) / 2
		want(t, got.outputs, 0, int64s(numbers...), rows, 2)
		want(t, got.outputs, 1, texts(in[i]...), rows, 2)
		want(t, got.outputs, 2, floats(random(len(numbers), 1)...), rows, 2)
	}
}

// Texts of different shapes are run in batches of their own.
func TestTextsOfOtherShapes(t *testing.T) {
	r := newRig(t)
	path := write(t, onnxfile.Identity(onnxfile.String, "N", "L"))
	g := r.load(t, workers.Config{Source: path})
	if m := g.Model(); m.MaxBatch != 8 || m.Axis != stream.FreeAxis {
		t.Errorf("%+v", m)
	}
	c := call(t, g)
	for _, words := range [][]string{{"a"}, {"", "b", strings.Repeat("c", 200)}, {"", ""}, {"\u00e9\U0001f600"}} {
		got := c.send(t, tensor("x", stream.Bytes, texts(words...), 1, len(words)))
		if got.err != nil {
			t.Fatal(got.err)
		}
		want(t, got.outputs, 0, texts(words...), 1, len(words))
	}
	got := c.send(t, tensor("x", stream.Bytes, nil, 1, 0))
	if got.err != nil {
		t.Fatal(got.err)
	}
	want(t, got.outputs, 0, nil, 1, 0)
}

func TestOpaqueFrameIsOneString(t *testing.T) {
	r := newRig(t)
	send := func(c caller, payload string) got {
		if err := c.Submit(stream.Frame{Codec: stream.Opaque, Payload: []byte(payload)}); err != nil {
			return got{err: err}
		}
		return <-c.sink
	}
	one := call(t, r.load(t, workers.Config{Name: "one", Source: write(t, onnxfile.Identity(onnxfile.String, "N", 1))}))
	for _, text := range []string{"hello", "", "mill race"} {
		got := send(one, text)
		if got.err != nil {
			t.Fatal(got.err)
		}
		want(t, got.outputs, 0, texts(text), 1, 1)
	}
	if got := send(one, "a\x00b"); stream.CodeOf(got.err) != stream.Unsupported || coded(t, got.err).Field != "frame" {
		t.Errorf("%v", got.err)
	}
	two := call(t, r.load(t, workers.Config{Name: "two", Source: write(t, onnxfile.Identity(onnxfile.String, "N", 2))}))
	if got := send(two, "hello"); stream.CodeOf(got.err) != stream.InvalidArgument ||
		coded(t, got.err).Field != "frame" {
		t.Errorf("%v", got.err)
	}
}

// TestWithoutElements: tensors of every type may have no elements.
func TestWithoutElements(t *testing.T) {
	r := newRig(t)
	c := call(t, r.load(t, workers.Config{Source: write(t, numbers("N", "K"))}))
	for range 2 {
		got := c.send(t, tensor("x", stream.Float32, nil, 2, 0), tensor("text", stream.Bytes, nil, 2, 0))
		if got.err != nil {
			t.Fatal(got.err)
		}
		for k := range got.outputs {
			want(t, got.outputs, k, nil, 2, 0)
		}
	}
	got := c.send(t, tensor("x", stream.Float32, floats(1), 1, 1), tensor("text", stream.Bytes, texts("5"), 1, 1))
	if got.err != nil {
		t.Fatal(got.err)
	}
	want(t, got.outputs, 1, texts("5"), 1, 1)
	for of, datatype := range map[stream.Datatype]int32{stream.Float16: onnxfile.Float16,
		stream.BFloat: onnxfile.BFloat16} {
		c := call(t, r.load(t, workers.Config{Name: string(of),
			Source: write(t, graph([]onnxfile.Value{value("h", datatype, "N", "K")},
				[]onnxfile.Value{value("y", onnxfile.Float32, "N", "K")},
				[]onnxfile.Node{node("Cast", "h", "y", onnxfile.Attr{Name: "to", Value: int64(onnxfile.Float32)})}))}))
		got := c.send(t, tensor("h", of, nil, 3, 0))
		if got.err != nil {
			t.Fatalf("%s: %v", of, got.err)
		}
		want(t, got.outputs, 0, nil, 3, 0)
	}
}

// counted is a model with string inputs, which are also outputs. The other outputs show the controls and the state: y
// is the state, to which each row with x adds 1, n is the control start.
func counted() []byte {
	F := onnxfile.Float32
	return graph([]onnxfile.Value{value("x", onnxfile.String, "N", "L"), value("begin", F, "N", 1),
		value("end", F, "N", 1), value("s", F, "N", 1)},
		[]onnxfile.Value{value("y", onnxfile.String, "N", "L"), value("n", F, "N", 3), value("s_out", F, "N", 1)},
		[]onnxfile.Node{
			node("Identity", "x", "y"), node("Add", "s one", "s_out"),
			node("Concat", "begin end s_out", "n", onnxfile.Attr{Name: "axis", Value: int64(1)}),
		}, onnxfile.Tensor{Name: "one", Type: F, Dims: []int64{1}, Raw: floats(1)})
}

// TestTextsOfSequences: a model with string inputs may have the controls of sequences and state, and the rows of a
// request run in sequence.
func TestTextsOfSequences(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Source: write(t, counted()), Params: stream.Params{"state": "s=s_out",
		"controls": "begin=start; end=end"}})
	one, two := call(t, g), call(t, g)
	send := func(c caller, params stream.Params, rows int, words ...string) got {
		t.Helper()
		if err := c.Submit(stream.Frame{Codec: stream.Tensors, Params: params,
			Inputs: []stream.Tensor{tensor("x", stream.Bytes, texts(words...), rows, len(words)/rows)}}); err != nil {
			t.Fatal(err)
		}
		return <-c.sink
	}
	check := func(g got, numbers []float32, rows int, words ...string) {
		t.Helper()
		if g.err != nil {
			t.Fatal(g.err)
		}
		want(t, g.outputs, 0, texts(words...), rows, len(words)/rows)
		want(t, g.outputs, 1, floats(numbers...), rows, 3)
	}
	check(send(one, nil, 1, "a", "bcd"), []float32{1, 0, 1}, 1, "a", "bcd")
	check(send(two, nil, 1, "e"), []float32{1, 0, 1}, 1, "e")
	check(send(one, nil, 2, "f", "", "ghi", "j"), []float32{0, 0, 2, 0, 0, 3}, 2, "f", "", "ghi", "j")
	check(send(two, stream.Params{"sequence_end": true}, 1, "k"), []float32{0, 1, 2}, 1, "k")
	got := send(one, nil, 1, "a\x00")
	if stream.CodeOf(got.err) != stream.Unsupported {
		t.Errorf("%v", got.err)
	}
	check(send(one, nil, 1, "l"), []float32{0, 0, 4}, 1, "l")
}
