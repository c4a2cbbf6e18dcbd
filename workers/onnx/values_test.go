//go:build cgo

package onnx

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ort "github.com/yalue/onnxruntime_go"

	"millrace/internal/onnxfile"
	"millrace/stream"
	"millrace/workers"
	"millrace/workers/results/postprocess"
)

// bare runs a file with the binding alone: one FP32 input of the given shape, FP32
// outputs.
func bare(t *testing.T, path, input string, shape []int64, data []float32,
	outputs map[string][]int64) map[string][]byte {
	t.Helper()
	options, err := ort.NewSessionOptions()
	if err != nil {
		t.Fatal(err)
	}
	defer options.Destroy()
	if err := options.SetIntraOpNumThreads(1); err != nil {
		t.Fatal(err)
	}
	in, err := ort.NewTensor(shape, data)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Destroy()
	var names []string
	var values []ort.Value
	tensors := map[string]*ort.Tensor[float32]{}
	for name, shape := range outputs {
		v, err := ort.NewEmptyTensor[float32](shape)
		if err != nil {
			t.Fatal(err)
		}
		defer v.Destroy()
		names, values, tensors[name] = append(names, name), append(values, v), v
	}
	s, err := ort.NewAdvancedSession(path, []string{input}, names, []ort.Value{in}, values, options)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Destroy()
	if err := s.Run(); err != nil {
		t.Fatal(err)
	}
	got := map[string][]byte{}
	for name, v := range tensors {
		got[name] = floats(v.GetData()...)
	}
	return got
}

func TestTheFaceDetectorComputesWhatTheLibraryDoes(t *testing.T) {
	path := fixture(t)
	r := newRig(t)
	g := r.load(t, workers.Config{Source: path})
	c := call(t, g)
	for seed := range uint32(3) {
		in := random(3*240*320, seed)
		want := bare(t, path, "input", []int64{1, 3, 240, 320}, in, map[string][]int64{"scores": {1, 4420, 2},
			"boxes": {1, 4420, 4}})
		got := c.send(t, tensor("input", stream.Float32, floats(in...), 1, 3, 240, 320))
		if got.err != nil {
			t.Fatal(got.err)
		}
		if len(got.outputs) != 2 {
			t.Fatalf("%d outputs", len(got.outputs))
		}
		for _, o := range got.outputs {
			if !bytes.Equal(o.Data, want[o.Name]) {
				t.Errorf("%s %v differs from the library's own", o.Name, o.Shape)
			}
		}
	}
}

// Rows of a free batch axis have the same results alone and in a batch.
func TestRowsOfABatch(t *testing.T) {
	const most = 6
	r := newRig(t)
	g := r.load(t, workers.Config{Source: write(t, onnxfile.MLP(16, 64, 5, 3)),
		Batching: workers.Batching{MaxSize: most}})
	c := call(t, g)
	rows := make([][]float32, most)
	alone := make([][]float32, most)
	for i := range rows {
		rows[i] = random(16, uint32(i))
		got := c.send(t, tensor("x", stream.Float32, floats(rows[i]...), 1, 16))
		if got.err != nil {
			t.Fatal(got.err)
		}
		alone[i] = got.outputs[0].Float32s()
	}
	for n := 1; n <= most; n++ {
		var in, want []float32
		for i := range n {
			in, want = append(in, rows[i]...), append(want, alone[i]...)
		}
		got := c.send(t, tensor("x", stream.Float32, floats(in...), n, 16))
		if got.err != nil {
			t.Fatal(got.err)
		}
		if o := got.outputs[0]; fmt.Sprint(o.Shape) != fmt.Sprint([]int{n, 5}) || o.Name != "y" {
			t.Errorf("%d rows make %s %v", n, o.Name, o.Shape)
		}
		if err := near(got.outputs[0].Float32s(), want); err != nil {
			t.Errorf("%d rows: %v", n, err)
		}
	}
	if got := c.send(t, tensor("x", stream.Float32, make([]byte, 4*16*(most+1)), most+1,
		16)); stream.CodeOf(got.err) != stream.InvalidArgument {
		t.Errorf("%d rows: %v", most+1, got.err)
	}
}

// Frames of several streams run together, and each frame gets its own rows.
func TestStreamsShareBatches(t *testing.T) {
	r := newRig(t)
	path := write(t, graph([]onnxfile.Value{value("x", onnxfile.Float32, "N", 1)},
		[]onnxfile.Value{value("y", onnxfile.Float32, "N", 1)},
		[]onnxfile.Node{node("Neg", "x", "y")}))
	g := r.load(t, workers.Config{Source: path, Batching: workers.Batching{Kind: "hard", MaxSize: 4}})
	c := call(t, g)
	for i := range 4 {
		if err := c.Submit(stream.Frame{Codec: stream.Tensors,
			Inputs: []stream.Tensor{tensor("x", stream.Float32, floats(float32(i)), 1)}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		got := <-c.sink
		if got.err != nil {
			t.Fatal(got.err)
		}
		want(t, got.outputs, 0, floats(-float32(i)), 1, 1)
		if got.batch != 4 {
			t.Errorf("a batch of %d", got.batch)
		}
	}
}

func TestFixedBatchAxisIsPadded(t *testing.T) {
	// The mean over the batch shows the values of the padding.
	path := write(t, graph([]onnxfile.Value{value("x", onnxfile.Float32, 3, 2)},
		[]onnxfile.Value{value("y", onnxfile.Float32, 3, 2)},
		[]onnxfile.Node{node("ReduceSum", "x first", "sum"), node("Add", "x sum", "y")}, ints("first", 0)))
	r := newRig(t)
	g := r.load(t, workers.Config{Source: path})
	if m := g.Model(); m.Axis != stream.FixedAxis || m.MaxBatch != 3 || fmt.Sprint(m.Inputs[0].Shape) != "[2]" {
		t.Fatalf("%+v", m)
	}
	c := call(t, g)
	for n := 1; n <= 3; n++ {
		for range 2 { // values of the previous run must not be in the padding
			in := []float32{1, 10, 2, 20, 3, 30}[:2*n]
			var sum [2]float32
			for i, v := range in {
				sum[i%2] += v
			}
			var out []float32
			for i, v := range in {
				out = append(out, v+sum[i%2])
			}
			got := c.send(t, tensor("x", stream.Float32, floats(in...), n, 2))
			if got.err != nil {
				t.Fatal(got.err)
			}
			want(t, got.outputs, 0, floats(out...), n, 2)
		}
	}
}

func TestTypesAndShapes(t *testing.T) {
	F, I := onnxfile.Float32, onnxfile.Int64
	free := stream.Params{"batch_axis": false}
	one := func(op string, in, out onnxfile.Value, constants ...onnxfile.Tensor) []byte {
		inputs := in.Name
		for _, c := range constants {
			inputs += " " + c.Name
		}
		return graph([]onnxfile.Value{in}, []onnxfile.Value{out}, []onnxfile.Node{node(op, inputs, out.Name)},
			constants...)
	}
	x := func(dt stream.Datatype, data []byte, shape ...int) []stream.Tensor {
		return []stream.Tensor{tensor("x", dt, data, shape...)}
	}
	type exchange struct {
		in    []stream.Tensor
		data  []byte
		shape []int
	}
	for _, c := range []struct {
		name   string
		model  []byte
		params stream.Params
		bound  bool // the outputs are in the worker's memory
		run    []exchange
	}{
		{"half floats", onnxfile.Identity(onnxfile.Float16, "N", 2), nil, true,
			[]exchange{{x(stream.Float16, []byte{1, 2, 3, 4}, 1, 2), []byte{1, 2, 3, 4}, []int{1, 2}}}},
		{"brain floats", onnxfile.Identity(onnxfile.BFloat16, "N", 2), nil, true,
			[]exchange{{x(stream.BFloat, []byte{1, 2, 3, 4}, 1, 2), []byte{1, 2, 3, 4}, []int{1, 2}}}},
		{"doubles", onnxfile.Identity(onnxfile.Float64, "N", 1), nil, true,
			[]exchange{{x(stream.Float64, int64s(-5, 7), 2, 1), int64s(-5, 7), []int{2, 1}}}},
		{"INT64", onnxfile.Identity(I, "N", 2), nil, true,
			[]exchange{{x(stream.Int64, int64s(1, -2), 1, 2), int64s(1, -2), []int{1, 2}}}},
		{"BOOL", onnxfile.Identity(onnxfile.Bool, "N", 3), nil, true,
			[]exchange{{x(stream.Bool, []byte{1, 0, 1}, 1, 3), []byte{1, 0, 1}, []int{1, 3}}}},
		{"UINT8", onnxfile.Identity(onnxfile.Uint8, "N", 3), nil, true,
			[]exchange{{x(stream.Uint8, []byte{9, 0, 255}, 1, 3), []byte{9, 0, 255}, []int{1, 3}}}},
		{"another axis that is free", onnxfile.Identity(F, "N", "L"), nil, false, []exchange{
			{x(stream.Float32, floats(1, 2, 3), 1, 3), floats(1, 2, 3), []int{1, 3}},
			{x(stream.Float32, floats(1, 2, 3, 4), 2, 2), floats(1, 2, 3, 4), []int{2, 2}},
			{x(stream.Float32, floats(7), 1, 1), floats(7), []int{1, 1}}}},
		{"another free axis of UINT8", onnxfile.Identity(onnxfile.Uint8, "N", "L"), nil, false,
			[]exchange{{x(stream.Uint8, []byte{1, 2, 3}, 1, 3), []byte{1, 2, 3}, []int{1, 3}}}},
		{"another free axis of BOOL", onnxfile.Identity(onnxfile.Bool, "N", "L"), nil, false,
			[]exchange{{x(stream.Bool, []byte{1, 0, 1}, 1, 3), []byte{1, 0, 1}, []int{1, 3}}}},
		{"half floats of a free size", onnxfile.Identity(onnxfile.Float16, "N", "L"), nil, false, []exchange{
			{x(stream.Float16, []byte{1, 2, 3, 4, 5, 6}, 1, 3), []byte{1, 2, 3, 4, 5, 6}, []int{1, 3}},
			{x(stream.Float16, []byte{1, 2, 3, 4}, 2, 1), []byte{1, 2, 3, 4}, []int{2, 1}},
			{x(stream.Float16, nil, 2, 0), nil, []int{2, 0}}}},
		{"half floats of a free size without a batch", onnxfile.Identity(onnxfile.Float16, "L"), free, false,
			[]exchange{
				{x(stream.Float16, []byte{1, 2, 3, 4, 5, 6}, 3), []byte{1, 2, 3, 4, 5, 6}, []int{3}}}},
		{"a scalar of half floats", graph([]onnxfile.Value{value("x", onnxfile.Float16, 3)},
			[]onnxfile.Value{value("y", onnxfile.Float16)},
			[]onnxfile.Node{node("ReduceSum", "x", "y", onnxfile.Attr{Name: "keepdims", Value: int64(0)})}), nil,
			false, []exchange{
				{x(stream.Float16, []byte{0, 0x3c, 0, 0x40, 0, 0}, 3), []byte{0, 0x42}, []int{}}}}, // 1 + 2 + 0
		{"no batch axis", one("Transpose", value("x", F, 2, 3), value("y", F, 3, 2)), nil, true, []exchange{
			{x(stream.Float32, floats(1, 2, 3, 4, 5, 6), 2, 3), floats(1, 4, 2, 5, 3, 6), []int{3, 2}}}},
		{"one row, and an output of others", one("Reshape", value("x", F, 1, 2, 3), value("y", F, 3, 2),
			ints("s", 3, 2)), nil, true, []exchange{
			{x(stream.Float32, floats(1, 2, 3, 4, 5, 6), 1, 2, 3), floats(1, 2, 3, 4, 5, 6), []int{3, 2}}}},
		{"told that there is none", onnxfile.Identity(F, "N", 2), free, false, []exchange{
			{x(stream.Float32, floats(1, 2, 3, 4), 2, 2), floats(1, 2, 3, 4), []int{2, 2}},
			{x(stream.Float32, floats(1, 2, 3, 4, 5, 6), 3, 2), floats(1, 2, 3, 4, 5, 6), []int{3, 2}}}},
		{"a scalar out", graph([]onnxfile.Value{value("x", F, 3)}, []onnxfile.Value{value("y", F)},
			[]onnxfile.Node{node("ReduceSum", "x", "y", onnxfile.Attr{Name: "keepdims", Value: int64(0)})}), nil,
			false, []exchange{
				{x(stream.Float32, floats(1, 2, 3), 3), floats(6), []int{}},
				{x(stream.Float32, floats(4, 5, 6), 3), floats(15), []int{}}}},
		{"a scalar of any rows", graph([]onnxfile.Value{value("x", F, "N", 2)}, []onnxfile.Value{value("y", F)},
			[]onnxfile.Node{node("ReduceSum", "x", "y", onnxfile.Attr{Name: "keepdims", Value: int64(0)})}), nil,
			false, []exchange{
				{x(stream.Float32, floats(1, 2, 3, 4), 2, 2), floats(10), []int{}}}},
		{"a scalar of a batch of one", graph([]onnxfile.Value{value("x", F, 1, 3)}, []onnxfile.Value{value("y", F)},
			[]onnxfile.Node{node("ReduceSum", "x", "y", onnxfile.Attr{Name: "keepdims", Value: int64(0)})}), nil,
			false, []exchange{
				{x(stream.Float32, floats(1, 2, 3), 3), floats(6), []int{}}}},
		{"a text without dimensions", graph([]onnxfile.Value{value("x", I, 1)},
			[]onnxfile.Value{value("y", onnxfile.String)}, []onnxfile.Node{
				node("Squeeze", "x", "s"), node("Cast", "s", "y",
					onnxfile.Attr{Name: "to", Value: int64(onnxfile.String)})}), nil, false, []exchange{
			{x(stream.Int64, int64s(12), 1), []byte("\x02\x00\x00\x0012"), []int{}}}},
		{"a scalar in", onnxfile.Identity(I), nil, false, []exchange{
			{x(stream.Int64, int64s(7), 1), int64s(7), []int{}},
			{x(stream.Int64, int64s(-8)), int64s(-8), []int{}}}},
		{"another rank than declared", one("Reshape", value("x", F, "N", 4), value("y", F, "N", 4),
			ints("s", 0, 2, 2)), nil, true, []exchange{
			{x(stream.Float32, floats(1, 2, 3, 4), 1, 4), floats(1, 2, 3, 4), []int{1, 2, 2}}}},
		{"a size that the content decides", one("NonZero", value("x", F, 4), value("y", I, 1, "n")), free, false,
			[]exchange{
				{x(stream.Float32, floats(0, 1, 0, 1), 4), int64s(1, 3), []int{1, 2}},
				{x(stream.Float32, floats(1, 1, 1, 1), 4), int64s(0, 1, 2, 3), []int{1, 4}},
				{x(stream.Float32, floats(0, 0, 0, 0), 4), nil, []int{1, 0}},
				{x(stream.Float32, floats(0, 0, 0, 5), 4), int64s(3), []int{1, 1}}}},
		{"text out", graph([]onnxfile.Value{value("x", I, "N", 1)},
			[]onnxfile.Value{value("y", onnxfile.String, "N", 1)},
			[]onnxfile.Node{node("Cast", "x", "y", onnxfile.Attr{Name: "to", Value: int64(onnxfile.String)})}), nil,
			false, []exchange{
				{x(stream.Int64, int64s(12, -3), 2, 1), []byte("\x02\x00\x00\x0012\x02\x00\x00\x00-3"), []int{2, 1}}}},
		{"sizes that follow the input", one("Reshape", value("x", F, "N", 2, 3), value("y", F, "N", "a"),
			ints("s", 0, -1)), nil, true, []exchange{
			{x(stream.Float32, floats(1, 2, 3, 4, 5, 6), 1, 2, 3), floats(1, 2, 3, 4, 5, 6), []int{1, 6}},
			{x(stream.Float32, floats(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), 2, 2, 3),
				floats(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), []int{2, 6}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := write(t, c.model)
			r := newRig(t)
			w, m := newWorker(t, &workers.Env{Name: "m", Source: path}, c.params)
			t.Logf("inputs %v, outputs %v, max %d", m.Inputs, m.Outputs, m.MaxBatch)
			if bound := w.results != nil; bound != c.bound {
				t.Errorf("bound: %t, want %t", bound, c.bound)
			}
			caller := call(t, r.load(t, workers.Config{Source: path, Params: c.params}))
			for range 2 { // the second time in the memory of the first
				for _, x := range c.run {
					got := caller.send(t, x.in...)
					if got.err != nil {
						t.Fatal(got.err)
					}
					want(t, got.outputs, 0, x.data, x.shape...)
				}
			}
		})
	}
}

func TestTwoInputs(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Source: write(t, graph(
		[]onnxfile.Value{value("a", onnxfile.Float32, "N", 2), value("b", onnxfile.Float32, "N", 2)},
		[]onnxfile.Value{value("sum", onnxfile.Float32, "N", 2), value("difference", onnxfile.Float32, "N", 2)},
		[]onnxfile.Node{node("Add", "a b", "sum"), node("Sub", "a b", "difference")}))})
	c := call(t, g)
	a, b := tensor("a", stream.Float32, floats(1, 2), 1, 2), tensor("b", stream.Float32, floats(10, 30), 1, 2)
	for _, in := range [][]stream.Tensor{{a, b}, {b, a}} {
		got := c.send(t, in...)
		if got.err != nil {
			t.Fatal(got.err)
		}
		want(t, got.outputs, 0, floats(11, 32), 1, 2)
		want(t, got.outputs, 1, floats(-9, -28), 1, 2)
	}
	if got := c.send(t, a); stream.CodeOf(got.err) != stream.InvalidArgument ||
		!strings.Contains(got.err.Error(), "missing required input(s) ['b']") {
		t.Errorf("%v", got.err)
	}
}

// A model with outputs of another size than in the warm-up run continues with allocated outputs: no client gets an
// error.
func TestOutputSizesChange(t *testing.T) {
	path := write(t, graph([]onnxfile.Value{value("x", onnxfile.Int64, "N", 1)},
		[]onnxfile.Value{value("y", onnxfile.Int64, "N", "n")}, []onnxfile.Node{
			node("ReduceMax", "x", "most", onnxfile.Attr{Name: "keepdims", Value: int64(0)}),
			node("Add", "most one", "n"),
			node("Concat", "one n", "lengths", onnxfile.Attr{Name: "axis", Value: int64(0)}),
			node("Expand", "x lengths", "y"), // the number of each row, repeated once more than the largest number
		}, ints("one", 1)))
	r := newRig(t)
	w, _ := newWorker(t, &workers.Env{Name: "m", Source: path}, nil)
	if w.results == nil {
		t.Error("no size was learned")
	}
	c := call(t, r.load(t, workers.Config{Source: path}))
	for _, n := range []int64{0, 3, 0, 2, 0} {
		data := bytes.Repeat(int64s(n), int(n)+1)
		got, err := w.compute(t.Context(), []stream.Tensor{tensor("x", stream.Int64, int64s(n), 1, 1)}, 1)
		if err != nil {
			t.Fatal(err)
		}
		want(t, got, 0, data, 1, int(n)+1)
		answer := c.send(t, tensor("x", stream.Int64, int64s(n), 1, 1))
		if answer.err != nil {
			t.Fatal(answer.err)
		}
		want(t, answer.outputs, 0, data, 1, int(n)+1)
	}
	if w.results != nil || len(w.bound) > 0 || w.memory != nil {
		t.Errorf("%d bindings and %d outputs' memory are kept", len(w.bound), len(w.memory))
	}
}

// With varying inputs and fixed outputs, bindings hold memory no longer used by the batches: few bindings are kept.
func TestBindingsOfInputsThatVary(t *testing.T) {
	path := write(t, graph([]onnxfile.Value{value("x", onnxfile.Float32, "N", "L")},
		[]onnxfile.Value{value("y", onnxfile.Float32, "N", 1)},
		[]onnxfile.Node{node("ReduceMax", "x", "y", onnxfile.Attr{Name: "axes", Value: []int64{1}})}))
	w, _ := newWorker(t, &workers.Env{Name: "m", Source: path}, nil)
	memory := make([]byte, 4*200)
	for i := range 100 {
		n := 1 + i%50 // the same memory, in other shapes
		copy(memory, floats(random(n, uint32(i))...))
		memory := memory[:4*n]
		if i%2 == 0 {
			memory = bytes.Clone(memory)
		}
		largest := float32(-2)
		for _, v := range random(n, uint32(i)) {
			largest = max(largest, v)
		}
		out, err := w.compute(t.Context(), []stream.Tensor{tensor("x", stream.Float32, memory, 1, n)}, 1)
		if err != nil {
			t.Fatal(err)
		}
		want(t, out, 0, floats(largest), 1, 1)
		if len(w.bound) > maxBoundFree {
			t.Fatalf("%d bindings", len(w.bound))
		}
	}
	w.Release()
	long := random(maxFree/4+1, 1)
	out, err := w.compute(t.Context(), []stream.Tensor{tensor("x", stream.Float32, floats(long...), 1, len(long))}, 1)
	if err != nil {
		t.Fatal(err)
	}
	want(t, out, 0, floats(slices.Max(long)), 1, 1)
	if len(w.bound) != 0 {
		t.Error("a binding holds a large frame's memory")
	}
}

// Half floats can be returned together with an output whose size varies.
func TestHalfFloatsAndVaryingOutputs(t *testing.T) {
	r := newRig(t)
	c := call(t, r.load(t, workers.Config{Source: write(t, graph([]onnxfile.Value{value("x", onnxfile.Float16, 1, 2)},
		[]onnxfile.Value{value("y", onnxfile.Float16, 1, 2), value("at", onnxfile.Int64, 2, "n")}, []onnxfile.Node{
			node("Identity", "x", "y"), node("Cast", "x", "f",
				onnxfile.Attr{Name: "to", Value: int64(onnxfile.Float32)}), node("NonZero", "f", "at")}))}))
	for _, x := range [][]byte{{0, 0, 0, 60}, {0, 60, 0, 60}, {0, 0, 0, 0}} {
		var at []int64
		for i := range 2 {
			if x[2*i+1] != 0 {
				at = append(at, int64(i))
			}
		}
		got := c.send(t, tensor("x", stream.Float16, x, 1, 2))
		if got.err != nil {
			t.Fatal(got.err)
		}
		want(t, got.outputs, 0, x, 1, 2)
		want(t, got.outputs, 1, int64s(append(make([]int64, len(at)), at...)...), 2, len(at))
	}
}

// Half floats whose size only the run decides equal the computed numbers, each bit.
func TestHalfFloatsOfAFreeSizeAreExact(t *testing.T) {
	r := newRig(t)
	all := make([]byte, 0, 2<<16)
	for bits := range 1 << 16 {
		all = binary.LittleEndian.AppendUint16(all, uint16(bits))
	}
	for d, c := range map[stream.Datatype]struct {
		datatype int32
		nan      uint16 // the exponent of infinite numbers and NaN
	}{stream.Float16: {onnxfile.Float16, 0x7c00}, stream.BFloat: {onnxfile.BFloat16, 0x7f80}} {
		caller := call(t, r.load(t, workers.Config{Name: string(d),
			Source: write(t, onnxfile.Identity(c.datatype, "N", "L"))}))
		got := caller.send(t, tensor("x", d, all, 1, 1<<16))
		if got.err != nil {
			t.Fatalf("%s: %v", d, got.err)
		}
		if o := got.outputs[0]; o.Datatype != d || len(o.Data) != len(all) {
			t.Fatalf("%s of %d bytes, want %s of %d", o.Datatype, len(o.Data), d, len(all))
		}
		for i := range 1 << 16 {
			bits, is := uint16(i), binary.LittleEndian.Uint16(got.outputs[0].Data[2*i:])
			if nan := bits&0x7fff > c.nan; !nan && is != bits || nan && is&0x7fff <= c.nan {
				t.Fatalf("%s %#04x became %#04x", d, bits, is)
			}
		}
	}
}

// Models with weights in separate files also return half floats of a free size.
func TestHalfFloatsOfAFreeSizeWithWeightsOutside(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "weights"), []byte{0, 0x3c, 0, 0x40}, 0o600); err != nil { // 1, 2
		t.Fatal(err)
	}
	path := filepath.Join(dir, "model.onnx")
	model := graph([]onnxfile.Value{value("x", onnxfile.Float16, "N", 2)},
		[]onnxfile.Value{value("y", onnxfile.Float16, "N", "L")},
		[]onnxfile.Node{node("Add", "x w", "y")}, onnxfile.Tensor{Name: "w", Type: onnxfile.Float16, Dims: []int64{2},
			External: "weights"})
	if err := os.WriteFile(path, model, 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	got := call(t, r.load(t, workers.Config{Source: path})).send(t, tensor("x", stream.Float16, []byte{0, 0x3c, 0, 0},
		1, 2))
	if got.err != nil {
		t.Fatal(got.err)
	}
	want(t, got.outputs, 0, []byte{0, 0x40, 0, 0x40}, 1, 2)
}

// A detector with its own suppression takes one picture and returns as many rows as objects found; the rows are not a
// batch.
func TestRowsThatAreNotABatch(t *testing.T) {
	F := onnxfile.Float32
	path := write(t, graph([]onnxfile.Value{value("x", F, 1, 6)}, []onnxfile.Value{value("boxes", F, "n", 4),
		value("scores", F, "n")}, []onnxfile.Node{
		node("NonZero", "x", "at"), node("Transpose", "at", "places"),
		node("Concat", "places places", "corners", onnxfile.Attr{Name: "axis", Value: int64(1)}),
		node("Cast", "corners", "boxes", onnxfile.Attr{Name: "to", Value: int64(F)}),
		node("GatherND", "x places", "scores"),
	}))
	r := newRig(t)
	g := r.load(t, workers.Config{Source: path})
	if got := fmt.Sprint(g.Model().Outputs); got != "[{boxes FP32 [-1 4] true  false} {scores FP32 [-1] true  false}]" {
		t.Error(got)
	}
	tensors := call(t, g)
	named := call(t, r.load(t, workers.Config{Name: "named", Source: path,
		Parts: []any{&postprocess.Config{Boxes: &postprocess.Boxes{IoU: 1}}}}))
	for _, x := range [][]float32{{5: 0}, {3: 0.9, 5: 0}, {2: 0.9, 4: 0.8, 5: 0.7}, {5: 0}, {5: 0.6}} {
		var boxes, scores []float32
		for i, v := range x {
			if v != 0 {
				boxes, scores = append(boxes, 0, float32(i), 0, float32(i)), append(scores, v)
			}
		}
		got := tensors.send(t, tensor("x", stream.Float32, floats(x...), 1, 6))
		if got.err != nil {
			t.Fatal(got.err)
		}
		want(t, got.outputs, 0, floats(boxes...), len(scores), 4)
		want(t, got.outputs, 1, floats(scores...), len(scores))
		got = named.send(t, tensor("x", stream.Float32, floats(x...), 1, 6))
		if got.err != nil {
			t.Fatal(got.err)
		}
		want(t, got.outputs, 0, floats(boxes...), 1, len(scores), 4)
		want(t, got.outputs, 1, floats(scores...), 1, len(scores))
	}
}

// The load of a model reports an output that cannot be returned.
func TestOutputsThatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		model []byte
		field string
		want  string
	}{
		"rows that are no batch": {graph([]onnxfile.Value{value("x", onnxfile.Float32, "N", 2)},
			[]onnxfile.Value{value("y", onnxfile.Float32, "n", 2)},
			[]onnxfile.Node{node("Concat", "x x", "y", onnxfile.Attr{Name: "axis", Value: int64(0)})}), "batch_axis",
			"not the batch"},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, c.model)
			if err := bad(t, path, nil); err.Field != c.field || err.Code != stream.Unsupported ||
				!strings.Contains(err.Msg, c.want) {
				t.Errorf("%s of %q: %s", err.Code, err.Field, err.Msg)
			}
			if c.field == "batch_axis" { // the message's advice works
				r := newRig(t)
				g := r.load(t, workers.Config{Source: path, Params: stream.Params{"batch_axis": false}})
				got := call(t, g).send(t, tensor("x", stream.Float32, floats(1, 2), 1, 2))
				if got.err != nil {
					t.Fatal(got.err)
				}
				want(t, got.outputs, 0, floats(1, 2, 1, 2), 2, 2)
			}
		})
	}
}
