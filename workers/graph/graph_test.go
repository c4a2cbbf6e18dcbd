package graph_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/batching"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
	_ "millrace/workers/delay"
	"millrace/workers/graph"
	_ "millrace/workers/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine is a manager with loaded models.
type machine struct {
	t      testing.TB
	memory *buf.Pool
	models *workers.Manager
	steps  func(*stream.Step)
}

func newMachine(t testing.TB) *machine {
	x := &machine{t: t, memory: buf.NewPool(64 << 20)}
	var mu sync.Mutex
	x.models = workers.NewManager(workers.ManagerOptions{Memory: x.memory, Hooks: func(*stream.Model) workers.Hooks {
		return workers.Hooks{Step: func(s *stream.Step) {
			mu.Lock()
			defer mu.Unlock()
			if x.steps != nil {
				x.steps(s)
			}
		}}
	}})
	t.Cleanup(func() {
		if err := x.models.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if st := x.memory.Stats(); st.Leases != 0 || st.Leased != 0 || st.Reserved != 0 {
			t.Errorf("%d leases of %d bytes, and %d bytes reserved, are left", st.Leases, st.Leased, st.Reserved)
		}
	})
	return x
}

// load loads a model of a kind.
func (x *machine) load(name, kind string, params stream.Params) {
	x.t.Helper()
	if err := x.tryLoad(workers.Config{Name: name, Kind: kind, Params: params}); err != nil {
		x.t.Fatal(err)
	}
}

func (x *machine) tryLoad(c workers.Config) error {
	_, err := x.models.LoadConfig(context.Background(), c, true)
	return err
}

// graph loads a graph named g.
func (x *machine) graph(s graph.Settings) {
	x.t.Helper()
	x.load("g", "graph", s.Params())
}

// results is a sink that keeps the endings.
type results struct {
	c    chan *stream.Result
	done chan struct{}
}

func newResults() *results {
	return &results{make(chan *stream.Result, 1024), make(chan struct{})}
}

func (s *results) Push(r *stream.Result)   { s.c <- r }
func (s *results) Done(stream.CloseReason) { close(s.done) }

// open opens a stream to a model.
func (x *machine) open(model string, o stream.Options) (*stream.Stream, *results) {
	x.t.Helper()
	g, err := x.models.Group(model, "")
	if err != nil {
		x.t.Fatal(err)
	}
	sink := newResults()
	s, err := g.Open(o, sink)
	if err != nil {
		x.t.Fatal(err)
	}
	return s, sink
}

var oneShot = stream.Options{Policy: stream.Policy{Mode: stream.Every, Window: 1}, OneShot: true}

// infer sends one frame and returns its ending.
func (x *machine) infer(model string, f stream.Frame) *stream.Result {
	x.t.Helper()
	s, sink := x.open(model, oneShot)
	if err := s.Submit(f); err != nil {
		x.t.Fatal(err)
	}
	r := <-sink.c
	s.Close(stream.ByClient)
	<-sink.done
	return r
}

// tensors makes a frame of FP32 vectors in leased memory.
func (x *machine) tensors(named map[string][]float32) stream.Frame {
	x.t.Helper()
	n := 0
	for _, v := range named {
		n += 4 * len(v)
	}
	lease, err := x.memory.Lease(n)
	if err != nil {
		x.t.Fatal(err)
	}
	f, data := stream.Frame{Codec: stream.Tensors, Lease: lease}, lease.Bytes()[:0]
	for name, v := range named {
		from := len(data)
		data = stream.AppendFloat32(data, v...)
		f.Inputs = append(f.Inputs, stream.Tensor{Name: name, Datatype: stream.Float32, Shape: []int{1, len(v)}, Data: data[from:]})
	}
	return f
}

// output returns an output of a result that must have one.
func output(t testing.TB, r *stream.Result, name string) *stream.Tensor {
	t.Helper()
	if r.Outcome != stream.Answered {
		t.Fatalf("%v, %v %v: want a result", r.Outcome, r.Reason, r.Err)
	}
	for i := range r.Outputs {
		if r.Outputs[i].Name == name {
			return &r.Outputs[i]
		}
	}
	t.Fatalf("no output %s in %v", name, r.Outputs)
	return nil
}

// scale is a kind that multiplies x by a number, gives it as y, and can be told to fail,
// to wait and to answer in parts.
type scale struct {
	workers.Base
	set scaleSettings
}

type scaleSettings struct {
	By       float64 `yaml:"by" default:"1" help:"factor"`
	Size     int     `yaml:"size" default:"2" help:"elements"`
	Fail     bool    `yaml:"fail" help:"fail"`
	Wait     bool    `yaml:"wait" help:"wait for the gate"`
	Parts    bool    `yaml:"parts" help:"answer in parts"`
	Stateful bool    `yaml:"stateful" help:"count the frames of a stream"`
}

// gate holds back the runs of models with wait.
var gate = struct {
	sync.Mutex
	open chan struct{}
	came chan struct{} // a run waits
}{open: make(chan struct{}), came: make(chan struct{}, 1024)}

// openGate lets the runs go on that wait, and returns when they do.
func openGate() {
	gate.Lock()
	defer gate.Unlock()
	close(gate.open)
	gate.open = make(chan struct{})
}

func init() {
	workers.Register(workers.Kind{Name: "scale", New: func() workers.Worker { return &scale{} }, Settings: func() any { return new(scaleSettings) }})
}

func (s *scale) Init(_ context.Context, env *workers.Env) (*stream.Model, error) {
	s.set = *env.Settings.(*scaleSettings)
	spec := func(name string) []stream.TensorSpec {
		return []stream.TensorSpec{{Name: name, Datatype: stream.Float32, Shape: []int{s.set.Size}}}
	}
	return &stream.Model{MaxBatch: 4, Ragged: true, Stateful: s.set.Stateful, Inputs: spec("x"), Outputs: spec("y")}, nil
}

func (s *scale) Run(ctx context.Context, b *batching.Batch) error {
	if s.set.Wait {
		gate.Lock()
		open := gate.open
		gate.Unlock()
		gate.came <- struct{}{}
		select {
		case <-open:
		case <-ctx.Done():
		}
	}
	if s.set.Fail {
		return stream.Errorf(stream.Unsupported, "inputs.x", "is not liked")
	}
	for i, r := range b.Requests {
		if s.set.Parts {
			r.Emit(nil, nil)
		}
		add := float32(0)
		if s.set.Stateful {
			n, _ := r.State().(int)
			r.SetState(n+1, nil)
			add = float32(n)
		}
		var data []byte
		for _, v := range r.Inputs[0].Float32s() {
			data = stream.AppendFloat32(data, v*float32(s.set.By)+add)
		}
		b.Finish(i, []stream.Tensor{{Name: "y", Datatype: stream.Float32, Shape: r.Inputs[0].Shape, Data: data}})
	}
	return nil
}

// TestFanOutAndJoin sends one tensor to two steps, and their outputs to a third.
func TestFanOutAndJoin(t *testing.T) {
	x := newMachine(t)
	x.load("double", "scale", stream.Params{"by": 2.0})
	x.load("triple", "scale", stream.Params{"by": 3.0})
	x.load("both", "identity", nil)
	x.graph(graph.Settings{
		Steps: []graph.Step{ // in any order
			{Model: "both", Input: map[string]string{"left": "doubled", "right": "tripled"}, Output: map[string]string{"left": "a", "right": "b"}},
			{Model: "double", Input: map[string]string{"x": "in"}, Output: map[string]string{"y": "doubled"}},
			{Model: "triple", Input: map[string]string{"x": "in"}, Output: map[string]string{"y": "tripled"}},
		},
		Outputs: []string{"b", "a"},
	})
	for range 50 {
		r := x.infer("g", x.tensors(map[string][]float32{"in": {1, 10}}))
		a, b := output(t, r, "a").Float32s(), output(t, r, "b").Float32s()
		if a[0] != 2 || a[1] != 20 || b[0] != 3 || b[1] != 30 || r.Outputs[0].Name != "b" {
			t.Fatalf("a is %v and b is %v", a, b)
		}
		r.Release()
	}
}

// TestFailingStepNamesItself checks that a model's error keeps its code and gets the step.
func TestFailingStepNamesItself(t *testing.T) {
	x := newMachine(t)
	x.load("fails", "scale", stream.Params{"fail": true})
	x.load("double", "scale", nil)
	var ended []stream.Step
	x.steps = func(s *stream.Step) { ended = append(ended, *s) }
	x.graph(graph.Settings{Steps: []graph.Step{
		{Model: "double", Output: map[string]string{"y": "doubled"}},
		{Name: "bad", Model: "fails", Input: map[string]string{"x": "doubled"}},
		{Name: "never", Model: "double", Input: map[string]string{"x": "y"}, Output: map[string]string{"y": "z"}},
	}})
	r := x.infer("g", x.tensors(map[string][]float32{"x": {1, 2}}))
	defer r.Release()
	if want := "steps.bad.inputs.x: is not liked"; r.Outcome != stream.Failed || r.Err.Error() != want || stream.CodeOf(r.Err) != stream.Unsupported {
		t.Errorf("%v: %v (%s), want %s", r.Outcome, r.Err, stream.CodeOf(r.Err), want)
	}
	if len(ended) != 2 || ended[0].Name != "double" || ended[0].Outcome != stream.Answered || ended[1].Name != "bad" || ended[1].Outcome != stream.Failed {
		t.Errorf("the steps ended as %v", ended)
	}
}

var _ = errors.Is
var _ = strings.Contains
var _ = time.Second
