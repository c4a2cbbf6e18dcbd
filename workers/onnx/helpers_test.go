//go:build cgo

package onnx

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"millrace/internal/onnxfile"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

// childSetting makes this binary print the path of the loaded library, and end.
const childSetting = "MILLRACE_TEST_ONNX_SETTING"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == IsolatedCommand {
		if err := ServeIsolated(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	SetProgram(self)
	SetMemory(testMemory)
	if set, child := os.LookupEnv(childSetting); child {
		SetLibrary(set)
		path, err := Library()
		fmt.Printf("%s\n%v\n", path, err)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// write writes a model into a new file.
// testMemory is the limit onnx.memory of the tests.
const testMemory = 256 << 20

func write(t testing.TB, model []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := os.WriteFile(path, model, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// graph is a model with one node per operator, in a chain from the first input to the
// first output; constants are the further inputs of the first.
func graph(inputs, outputs []onnxfile.Value, nodes []onnxfile.Node, constants ...onnxfile.Tensor) []byte {
	return onnxfile.Model{Inputs: inputs, Outputs: outputs, Nodes: nodes, Initializers: constants}.Bytes()
}

func value(name string, datatype int32, dims ...any) onnxfile.Value {
	return onnxfile.Value{Name: name, Type: datatype, Dims: dims}
}

func node(op, inputs, outputs string, attrs ...onnxfile.Attr) onnxfile.Node {
	return onnxfile.Node{Op: op, Inputs: strings.Fields(inputs), Outputs: strings.Fields(outputs), Attrs: attrs}
}

// ints is a constant of INT64.
func ints(name string, v ...int64) onnxfile.Tensor {
	return onnxfile.Tensor{Name: name, Type: onnxfile.Int64, Dims: []int64{int64(len(v))}, Raw: int64s(v...)}
}

func int64s(v ...int64) (raw []byte) {
	for _, n := range v {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(n))
	}
	return raw
}

func floats(v ...float32) []byte { return stream.AppendFloat32(nil, v...) }

func tensor(name string, d stream.Datatype, data []byte, shape ...int) stream.Tensor {
	return stream.Tensor{Name: name, Datatype: d, Shape: shape, Data: data}
}

// random returns floats between -1 and 1, equal for equal seeds.
func random(n int, seed uint32) []float32 {
	out := make([]float32, n)
	for i := range out {
		seed = seed*1664525 + 1013904223
		out[i] = float32(seed)/(1<<31) - 1
	}
	return out
}

// newWorker starts a worker as a group does; it is stopped at the end of the test.
func newWorker(t testing.TB, env *workers.Env, params stream.Params) (*worker, *stream.Model) {
	t.Helper()
	kind, _ := workers.Lookup("onnx")
	var err error
	if env.Settings, err = kind.Decode(params); err != nil {
		t.Fatal(err)
	}
	w := &worker{}
	ctx := context.Background()
	m, err := w.Init(ctx, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Destroy)
	if err := w.Allocate(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Deallocate)
	if err := w.Acquire(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Release)
	return w, m
}

// rig is a manager whose models must release everything.
type rig struct {
	*workers.Manager
	mem *buf.Pool
}

func newRig(t testing.TB) rig {
	t.Helper()
	mem := buf.NewPool(0)
	m := workers.NewManager(workers.ManagerOptions{Memory: mem})
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if s := mem.Stats(); s.Leases != 0 {
			t.Errorf("%d leases were not given back", s.Leases)
		}
		if n, _ := inUse(); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	})
	return rig{m, mem}
}

func (r rig) load(t testing.TB, cfg workers.Config) *workers.Group {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = "m"
	}
	cfg.Kind = "onnx"
	name, err := r.LoadConfig(context.Background(), cfg, true)
	if err != nil {
		t.Fatal(err)
	}
	g, err := r.Group(name, "")
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// inUse counts the sessions and their users.
func inUse() (n, users int) {
	sessions.Lock()
	defer sessions.Unlock()
	for _, s := range sessions.m {
		users += s.users
	}
	return len(sessions.m), users
}

// got is a pushed ending.
type got struct {
	outputs []stream.Tensor
	batch   int
	err     error
}

// sink sends endings to a channel, with room for all frames that the stream may have waiting.
type sink chan got

func (s sink) Push(r *stream.Result) {
	g := got{err: r.Err, batch: r.BatchSize}
	if r.Outcome == stream.Dropped {
		g.err = fmt.Errorf("dropped: %s", r.Reason)
	}
	for _, o := range r.Outputs {
		o.Data = append([]byte(nil), o.Data...)
		g.outputs = append(g.outputs, o)
	}
	r.Release()
	s <- g
}

func (sink) Done(stream.CloseReason) {}

// caller opens a stream that sends frames in sequence.
type caller struct {
	*stream.Stream
	sink sink
}

func call(t testing.TB, g *workers.Group) caller {
	t.Helper()
	c := caller{sink: make(sink, 64)}
	var err error
	if c.Stream, err = g.Open(stream.Options{Policy: stream.Policy{Mode: stream.Every}}, c.sink); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close(stream.ByClient)
		<-c.Finished()
	})
	return c
}

// send submits tensors; want waits for their answer.
func (c caller) send(t testing.TB, in ...stream.Tensor) got {
	t.Helper()
	if err := c.Submit(stream.Frame{Codec: stream.Tensors, Inputs: in}); err != nil {
		return got{err: err}
	}
	return <-c.sink
}

// want checks an output's shape and data.
func want(t testing.TB, out []stream.Tensor, i int, data []byte, shape ...int) {
	t.Helper()
	if i >= len(out) {
		t.Fatalf("no output %d: %v", i, out)
	}
	o := out[i]
	if fmt.Sprint(o.Shape) != fmt.Sprint(shape) || string(o.Data) != string(data) {
		t.Errorf("%s is %v of %v %x, want %v %x", o.Name, o.Datatype, o.Shape, o.Data, shape, data)
	}
}

// near compares floats with a tolerance, because kernels for other batch sizes add in another order.
func near(a, b []float32) error {
	if len(a) != len(b) {
		return fmt.Errorf("%d values, want %d", len(a), len(b))
	}
	for i := range a {
		if math.Abs(float64(a[i]-b[i])) > 1e-5*(1+math.Abs(float64(b[i]))) {
			return fmt.Errorf("value %d is %v, want %v", i, a[i], b[i])
		}
	}
	return nil
}

// coded returns the error's field and message, and fails if it has no code.
func coded(t testing.TB, err error) *stream.Error {
	t.Helper()
	var e *stream.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is not coded", err)
	}
	return e
}
