package graph_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
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
	sink := newResults()
	s, err := x.models.Open(model, "", o, sink)
	if err != nil {
		x.t.Fatal(err)
	}
	return s, sink
}

var oneShot = stream.Options{Policy: stream.Policy{Mode: stream.Every, Window: 1}, OneShot: true}

// infer sends one frame, as a caller, and returns the frame's ending.
func (x *machine) infer(model string, f stream.Frame) *stream.Result {
	x.t.Helper()
	s, sink := x.open(model, oneShot)
	by := stream.Caller{Ended: func() bool { return len(sink.c) > 0 }}
	offer := func() error {
		by.Open()
		defer by.Work()
		return s.Offer(f, &by)
	}
	err := offer()
	for ; stream.CodeOf(err) == stream.Unloaded; err = offer() { // a swap has ended the stream before the frame
		s.Close(stream.ByClient)
		<-sink.done
		s, sink = x.open(model, oneShot)
	}
	if err != nil {
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
		f.Inputs = append(f.Inputs, stream.Tensor{Name: name, Datatype: stream.Float32, Shape: []int{1, len(v)},
			Data: data[from:]})
	}
	return f
}

// output returns a required output of a result.
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

// scale is a kind that multiplies x by a number, returns the product as y, and can be told to fail, to wait and to
// answer in parts.
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
	Several  int     `yaml:"several" help:"answers to a request; its model is decoupled"`
	Never    bool    `yaml:"never" help:"answer never; its model is decoupled"`
	Stateful bool    `yaml:"stateful" help:"count the frames of a stream"`
}

// gate holds back the runs of models with wait.
var gate = struct {
	sync.Mutex
	open chan struct{}
	came chan struct{} // a run waits
}{open: make(chan struct{}), came: make(chan struct{}, 1024)}

// openGate lets the waiting runs go on, and returns when they do.
func openGate() {
	gate.Lock()
	defer gate.Unlock()
	close(gate.open)
	gate.open = make(chan struct{})
}

func init() {
	workers.Register(workers.Kind{Name: "scale", New: func() workers.Worker {
		return &scale{}
	}, Settings: func() any { return new(scaleSettings) }})
}

func (s *scale) Init(_ context.Context, env *workers.Env) (*stream.Model, error) {
	s.set = *env.Settings.(*scaleSettings)
	spec := func(name string) []stream.TensorSpec {
		return []stream.TensorSpec{{Name: name, Datatype: stream.Float32, Shape: []int{s.set.Size}}}
	}
	return &stream.Model{MaxBatch: 4, Ragged: true, Stateful: s.set.Stateful, Decoupled: s.set.Several > 0 ||
		s.set.Never, Inputs: spec("x"), Outputs: spec("y")}, nil
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
		for k := range s.set.Several {
			first := stream.AppendFloat32(nil, r.Inputs[0].Float32s()[0]*float32(s.set.By)+float32(k))
			b.Emit(i, []stream.Tensor{{Name: "y", Datatype: stream.Float32, Shape: r.Inputs[0].Shape,
				Data: append(first, data[4:]...)}})
			emitted.Add(1)
		}
		if s.set.Several > 0 || s.set.Never {
			b.Finish(i, nil)
			continue
		}
		b.Finish(i, []stream.Tensor{{Name: "y", Datatype: stream.Float32, Shape: r.Inputs[0].Shape, Data: data}})
	}
	return nil
}

func TestFanOutAndJoin(t *testing.T) {
	x := newMachine(t)
	x.load("double", "scale", stream.Params{"by": 2.0})
	x.load("triple", "scale", stream.Params{"by": 3.0})
	x.load("both", "identity", nil)
	x.graph(graph.Settings{
		Steps: []graph.Step{ // in any order
			{Model: "both", Input: map[string]string{"left": "doubled", "right": "tripled"},
				Output: map[string]string{"left": "a", "right": "b"}},
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

// TestFailingStepNamesItself checks that a model's error keeps its code and names the step.
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
	if want := "steps.bad.inputs.x: is not liked"; r.Outcome != stream.Failed || r.Err.Error() != want ||
		stream.CodeOf(r.Err) != stream.Unsupported {
		t.Errorf("%v: %v (%s), want %s", r.Outcome, r.Err, stream.CodeOf(r.Err), want)
	}
	if len(ended) != 2 || ended[0].Name != "double" || ended[0].Outcome != stream.Answered || ended[1].Name != "bad" ||
		ended[1].Outcome != stream.Failed {
		t.Errorf("the steps ended as %v", ended)
	}
}

// boxer is a kind that finds n boxes, each with an id; n is a parameter.
type boxer struct{ workers.Base }

func init() {
	workers.Register(workers.Kind{Name: "boxer", New: func() workers.Worker { return &boxer{} }})
	workers.Register(workers.Kind{Name: "mean", New: func() workers.Worker {
		return &mean{}
	}, Settings: func() any { return new(meanSettings) }})
}

func (*boxer) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{
		MaxBatch: 2, Image: &stream.ImageSpec{Width: 2, Height: 2, Color: "GRAY", Layout: "NHWC"},
		Inputs: []stream.TensorSpec{{Name: "image", Datatype: stream.Uint8, Shape: []int{2, 2, 1}}},
		Outputs: []stream.TensorSpec{
			{Name: "boxes", Datatype: stream.Float32, Shape: []int{-1, 4}},
			{Name: "ids", Datatype: stream.Int64, Shape: []int{-1}},
		},
	}, nil
}

// Run finds boxes of one column each, from the left.
func (*boxer) Run(_ context.Context, b *batching.Batch) error {
	for i, r := range b.Requests {
		n, _ := r.Params["n"].(int64)
		var boxes, ids []byte
		for k := range n {
			boxes = stream.AppendFloat32(boxes, float32(k), 0, float32(k+1), 2)
			ids = append(ids, byte(k+1), 0, 0, 0, 0, 0, 0, 0)
		}
		b.Finish(i, []stream.Tensor{
			{Name: "boxes", Datatype: stream.Float32, Shape: []int{1, int(n), 4}, Data: boxes},
			{Name: "ids", Datatype: stream.Int64, Shape: []int{1, int(n)}, Data: ids},
		})
	}
	return nil
}

// mean is a kind that answers a picture with the mean brightness, and with as many zeros. mean refuses a picture
// whose brightness is not below the setting.
type mean struct {
	workers.Base
	set meanSettings
}

type meanSettings struct {
	Below int `yaml:"below" default:"256" help:"brightness of the pictures that are taken"`
}

func (w *mean) Init(_ context.Context, env *workers.Env) (*stream.Model, error) {
	w.set = *env.Settings.(*meanSettings)
	return &stream.Model{
		MaxBatch: 8, Image: &stream.ImageSpec{Width: 2, Height: 2, Color: "GRAY", Layout: "NHWC"},
		Inputs: []stream.TensorSpec{{Name: "image", Datatype: stream.Uint8, Shape: []int{2, 2, 1}}},
		Outputs: []stream.TensorSpec{
			{Name: "mean", Datatype: stream.Float32, Shape: []int{1}},
			{Name: "list", Datatype: stream.Uint8, Shape: []int{-1}},
		},
	}, nil
}

func (w *mean) Run(_ context.Context, b *batching.Batch) error {
	for i, r := range b.Requests {
		sum := 0
		for _, v := range b.Row(0, i) {
			sum += int(v)
		}
		m := sum / 4
		if m >= w.set.Below {
			r.Fail(stream.Errorf(stream.Unsupported, "image", "is too bright"))
			continue
		}
		b.Finish(i, []stream.Tensor{
			{Name: "mean", Datatype: stream.Float32, Shape: []int{1, 1}, Data: stream.AppendFloat32(nil, float32(m))},
			{Name: "list", Datatype: stream.Uint8, Shape: []int{1, m / 10}, Data: slices.Repeat([]byte{7}, m/10)},
		})
	}
	return nil
}

// columns is a frame of RGB24, 40 pixels wide, whose column k has the brightness 5*k.
func (x *machine) columns(n int64) stream.Frame {
	x.t.Helper()
	lease, err := x.memory.Lease(40 * 2 * 3)
	if err != nil {
		x.t.Fatal(err)
	}
	f := stream.Frame{Codec: stream.RGB24, Width: 40, Height: 2, Lease: lease, Payload: lease.Bytes(),
		Params: stream.Params{"n": n}}
	for i := range f.Payload {
		f.Payload[i] = byte(5 * (i / 3 % 40))
	}
	return f
}

func cropping(c graph.Crop) graph.Settings {
	c.Boxes = "boxes"
	return graph.Settings{Steps: []graph.Step{
		{Name: "find", Model: "boxer", Input: map[string]string{"image": "frame"}},
		{Name: "look", Model: "mean", Input: map[string]string{"image": "frame"}, Crop: &c},
	}}
}

// TestCrop checks that each box has a row with the model's findings in the box, that boxes above the bound are cut
// and reported, and that an answer for no box has no rows.
func TestCrop(t *testing.T) {
	x := newMachine(t)
	x.load("boxer", "boxer", nil)
	x.load("mean", "mean", nil)
	x.graph(cropping(graph.Crop{Max: 6}))
	for _, n := range []int64{0, 1, 2, 6, 9} {
		r := x.infer("g", x.columns(n))
		rows := int(min(n, 6))
		means, list := output(t, r, "mean"), output(t, r, "list")
		if fmt.Sprint(means.Shape) != fmt.Sprint([]int{1, rows, 1}) || output(t, r, "boxes").Shape[1] != int(n) {
			t.Errorf("%d boxes: means %v of boxes %v", n, means.Shape, output(t, r, "boxes").Shape)
		}
		for k, v := range means.Float32s() {
			if d := v - float32(5*k); d < -1 || d > 1 {
				t.Errorf("%d boxes: the mean of box %d is %v, want %d", n, k, v, 5*k)
			}
		}
		longest := 0 // rows end with zeros
		if rows > 0 {
			longest = 5 * (rows - 1) / 10
		}
		if fmt.Sprint(list.Shape) != fmt.Sprint([]int{1, rows, longest}) || len(list.Data) != rows*longest ||
			bytes.Count(list.Data, []byte{7}) > len(list.Data) {
			t.Errorf("%d boxes: the lists are %v %v", n, list.Shape, list.Data)
		}
		if cut, _ := r.Params["look.boxes_cut"].(int64); cut != max(0, n-6) {
			t.Errorf("%d boxes: %v are cut", n, r.Params)
		}
		if r.Width != 40 || r.Height != 2 {
			t.Errorf("the frame has %dx%d pixels", r.Width, r.Height)
		}
		r.Release()
	}
}

// TestRefresh checks that a step runs for an id every third frame, and otherwise reuses the outputs of the last run.
func TestRefresh(t *testing.T) {
	x := newMachine(t)
	x.load("boxer", "boxer", nil)
	x.load("mean", "mean", nil)
	x.graph(cropping(graph.Crop{IDs: "ids", Refresh: graph.Refresh{Frames: 3}}))
	s, sink := x.open("g", stream.Options{Policy: stream.Policy{Mode: stream.Every}})
	for i, n := range []int64{1, 1, 2, 2, 2, 2, 2} {
		if err := s.Submit(x.columns(n)); err != nil {
			t.Fatal(err)
		}
		r := <-sink.c
		if got := output(t, r, "mean").Float32s(); len(got) != int(n) || got[0] > 1 ||
			n == 2 && (got[1] < 4 || got[1] > 6) {
			t.Errorf("frame %d: the means are %v", i, got)
		}
		r.Release()
	}
	s.Close(stream.ByClient)
	<-sink.done
	g, _ := x.models.Group("mean", "")
	if n := g.Stats().Frames.Results; n != 5 { // id 1 in frames 0, 3 and 6, id 2 in 2 and 5
		t.Errorf("the step ran %d times, want 5", n)
	}
}

// TestCropOfFailingBox checks that the outputs of a frame's other boxes, and the outputs kept for ids, are released
// when one box fails: finally the machine has no leases.
func TestCropOfFailingBox(t *testing.T) {
	x := newMachine(t)
	x.load("boxer", "boxer", nil)
	// A batch per box, so that some boxes have outputs when the bright box fails.
	if err := x.tryLoad(workers.Config{Name: "mean", Kind: "mean", Params: stream.Params{"below": int64(9)},
		Batching: workers.Batching{MaxSize: 1}}); err != nil {
		t.Fatal(err)
	}
	x.graph(cropping(graph.Crop{IDs: "ids", Refresh: graph.Refresh{Frames: 10}}))
	s, sink := x.open("g", stream.Options{Policy: stream.Policy{Mode: stream.Every}})
	for _, n := range []int64{3, 3, 3} {
		if err := s.Submit(x.columns(n)); err != nil {
			t.Fatal(err)
		}
		r := <-sink.c
		if r.Outcome != stream.Failed || r.Err.Error() != "steps.look.image: is too bright" {
			t.Errorf("%v %v", r.Outcome, r.Err)
		}
		r.Release()
	}
	s.Close(stream.ByClient)
	<-sink.done
}

// TestConditions checks that a step with a false condition, and the steps after, do not run, that their outputs are
// absent, and that the result names the steps.
func TestConditions(t *testing.T) {
	x := newMachine(t)
	x.load("double", "scale", stream.Params{"by": 2.0})
	var when graph.Condition
	if err := when.UnmarshalText([]byte("max(doubled) >= 10")); err != nil {
		t.Fatal(err)
	}
	x.graph(graph.Settings{Steps: []graph.Step{
		{Name: "one", Model: "double", Output: map[string]string{"y": "doubled"}},
		{Name: "two", Model: "double", Input: map[string]string{"x": "doubled"},
			Output: map[string]string{"y": "more"}, When: when},
		{Name: "three", Model: "double", Input: map[string]string{"x": "more"}, Output: map[string]string{"y": "most"}},
	}})
	r := x.infer("g", x.tensors(map[string][]float32{"x": {1, 4}}))
	if output(t, r, "doubled"); len(r.Outputs) != 1 || r.Params["steps_skipped"] != "two,three" {
		t.Errorf("%d outputs, parameters %v", len(r.Outputs), r.Params)
	}
	r.Release()
	r = x.infer("g", x.tensors(map[string][]float32{"x": {1, 5}}))
	if v := output(t, r, "most").Float32s(); v[1] != 40 || r.Params != nil {
		t.Errorf("most is %v, parameters %v", v, r.Params)
	}
	r.Release()
}

func TestConditionText(t *testing.T) {
	for text, want := range map[string]graph.Condition{
		"count(boxes) > 0":       {Func: "count", Tensor: "boxes", Op: ">", Value: 0},
		" min( a:0 )<=-1.5e3":    {Func: "min", Tensor: "a:0", Op: "<=", Value: -1500},
		"sum(x)!=1":              {Func: "sum", Tensor: "x", Op: "!=", Value: 1},
		"mean(x) > 1":            {},
		"max(x)":                 {},
		"max() > 1":              {},
		"max(x) > ":              {},
		"max(x) > NaN":           {},
		"max(x) > 1 and sum > 2": {},
		"":                       {},
	} {
		var c graph.Condition
		if err := c.UnmarshalText([]byte(text)); (err != nil) != (want == graph.Condition{}) || c != want {
			t.Errorf("%q is %+v: %v", text, c, err)
		}
	}
}

// TestCancel checks that a request of a leaving client gives up its steps, also a step waiting in the queue of a
// model.
func TestCancel(t *testing.T) {
	x := newMachine(t)
	x.load("slow", "scale", stream.Params{"wait": true})
	x.graph(graph.Settings{Steps: []graph.Step{
		{Name: "one", Model: "slow", Output: map[string]string{"y": "a"}},
		{Name: "two", Model: "slow", Input: map[string]string{"x": "a"}, Output: map[string]string{"y": "b"}},
	}})
	running, first := x.open("g", oneShot)
	if err := running.Submit(x.tensors(map[string][]float32{"x": {1, 2}})); err != nil {
		t.Fatal(err)
	}
	<-gate.came
	waiting, second := x.open("g", oneShot)
	if err := waiting.Submit(x.tensors(map[string][]float32{"x": {1, 2}})); err != nil {
		t.Fatal(err)
	}
	slow, _ := x.models.Group("slow", "")
	eventually(t, "a frame waits for the model", func() bool { return slow.Stats().Waiting == 1 })
	gone := stream.Errorf(stream.Canceled, "", "the client has left")
	waiting.Abandon(gone)
	if r := <-second.c; r.Err != gone {
		t.Errorf("the waiting request ended with %v", r.Err)
	}
	eventually(t, "the model's place is free", func() bool { return slow.Stats().Waiting == 0 })
	running.Abandon(gone)
	if r := <-first.c; r.Err != gone {
		t.Errorf("the running request ended with %v", r.Err)
	}
	eventually(t, "the steps are given up", func() bool { return slow.Stats().Frames.Errors[stream.Canceled] == 2 })
	openGate()
	eventually(t, "nothing runs", func() bool { return slow.Stats().Busy == 0 })
	if f := slow.Stats().Frames; f.Accepted != 2 || f.InFlight != 0 {
		t.Errorf("%d frames of the model, %d in flight: the second step has run", f.Accepted, f.InFlight)
	}
}

// eventually waits until ok: no event tells of the state.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// TestTimeout checks that a step above its time fails the request, and the next request works.
func TestTimeout(t *testing.T) {
	x := newMachine(t)
	x.load("slow", "scale", stream.Params{"wait": true, "stateful": true})
	x.graph(graph.Settings{Steps: []graph.Step{{Model: "slow", Timeout: 20 * time.Millisecond}}})
	s, sink := x.open("g", stream.Options{Policy: stream.Policy{Mode: stream.Every}})
	for range 2 {
		if err := s.Submit(x.tensors(map[string][]float32{"x": {1, 2}})); err != nil {
			t.Fatal(err)
		}
		r := <-sink.c
		if want := "steps.slow.timeout: model slow did not answer within 20ms"; r.Err == nil ||
			r.Err.Error() != want || stream.CodeOf(r.Err) != stream.Timeout {
			t.Errorf("%v, want %s", r.Err, want)
		}
		r.Release()
	}
	openGate()
	s.Close(stream.ByClient)
	<-sink.done
	slow, _ := x.models.Group("slow", "")
	for slow.Stats().Busy > 0 { // a run begun after the opening of the gate
		openGate()
	}
}

// TestPartsAreRefused checks the error of a model that answers in parts.
func TestPartsAreRefused(t *testing.T) {
	x := newMachine(t)
	x.load("parts", "scale", stream.Params{"parts": true})
	x.graph(graph.Settings{Steps: []graph.Step{{Model: "parts"}}})
	r := x.infer("g", x.tensors(map[string][]float32{"x": {1, 2}}))
	defer r.Release()
	if want :=
		"steps.parts: model parts answers in several parts, but does not say so (decoupled) when it is loaded"; r.Err == nil || r.Err.Error() != want {
		t.Errorf("%v, want %s", r.Err, want)
	}
}

// TestStatefulSteps checks that a model's state belongs to the graph's stream, and that one-shot requests have no
// state.
func TestStatefulSteps(t *testing.T) {
	x := newMachine(t)
	x.load("count", "scale", stream.Params{"stateful": true})
	x.graph(graph.Settings{Steps: []graph.Step{{Model: "count"}}})
	a, toA := x.open("g", stream.Options{Policy: stream.Policy{Mode: stream.Every}})
	b, toB := x.open("g", stream.Options{Policy: stream.Policy{Mode: stream.Every}})
	send := func(s *stream.Stream, sink *results) float32 {
		if err := s.Submit(x.tensors(map[string][]float32{"x": {0, 0}})); err != nil {
			t.Fatal(err)
		}
		r := <-sink.c
		defer r.Release()
		return output(t, r, "y").Float32s()[0]
	}
	for want := range 4 {
		if got := send(a, toA); got != float32(want) {
			t.Errorf("frame %v of the first stream: the state is %v", want, got)
		}
	}
	if got := send(b, toB); got != 0 {
		t.Errorf("the second stream has the state %v", got)
	}
	r := x.infer("g", x.tensors(map[string][]float32{"x": {0, 0}}))
	if got := output(t, r, "y").Float32s()[0]; got != 0 {
		t.Errorf("a one-shot request has the state %v", got)
	}
	r.Release()
	for _, s := range []struct {
		*stream.Stream
		*results
	}{{a, toA}, {b, toB}} {
		s.Stream.Close(stream.ByClient)
		<-s.done
	}
	g, _ := x.models.Group("count", "")
	eventually(t, "the streams of the step are closed", func() bool { return g.Stats().Streams == 0 })
}

// TestLiveStreamKeepsTheNewest checks that a live stream has its window's frames in the graph, and that a newer frame
// replaces the waiting frame.
func TestLiveStreamKeepsTheNewest(t *testing.T) {
	x := newMachine(t)
	if err := x.tryLoad(workers.Config{Name: "slow", Kind: "scale", Params: stream.Params{"wait": true},
		Batching: workers.Batching{MaxSize: 1}}); err != nil {
		t.Fatal(err)
	}
	x.graph(graph.Settings{Steps: []graph.Step{{Model: "slow"}}, Frames: 16})
	s, sink := x.open("g", stream.Options{Policy: stream.Policy{Mode: stream.Latest, Window: 2}})
	g, _ := x.models.Group("g", "")
	for seq := range uint64(8) {
		f := x.tensors(map[string][]float32{"x": {1, 2}})
		f.Seq = seq
		if err := s.Submit(f); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the frame is in the graph", func() bool { return g.Stats().Waiting == 0 && g.Stats().Busy == 0 })
	}
	if n := s.Counts(); n.Drops != 5 || n.Results+n.Errors > 0 { // frames 0 and 1 are in the step, 7 waits
		t.Errorf("before the first result: %+v", n)
	}
	var answered []uint64
	s.Close(stream.ByClient)
	for done := false; !done; {
		openGate()
		select {
		case <-sink.done:
			done = true
		case <-gate.came:
		}
	}
	for len(sink.c) > 0 {
		r := <-sink.c
		if r.Outcome == stream.Answered {
			answered = append(answered, r.Seq)
		} else if r.Reason != stream.Superseded {
			t.Errorf("frame %d: %v %v %v", r.Seq, r.Outcome, r.Reason, r.Err)
		}
		r.Release()
	}
	if fmt.Sprint(answered) != "[0 1 7]" {
		t.Errorf("the frames %v were answered, want those in the graph and the newest", answered)
	}
}

// TestGraphsThatDoNotFit checks the error of each mistake in the steps of a graph.
func TestGraphsThatDoNotFit(t *testing.T) {
	x := newMachine(t)
	x.load("two", "scale", nil)
	x.load("three", "scale", stream.Params{"size": int64(3)})
	x.load("free", "identity", nil)
	x.load("boxer", "boxer", nil)
	x.load("mean", "mean", nil)
	in := func(pairs ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	find := graph.Step{Name: "find", Model: "boxer", Input: in("image", "frame")}
	for _, c := range []struct {
		set  graph.Settings
		want string
	}{
		{graph.Settings{}, "steps: is missing"},
		{graph.Settings{Steps: []graph.Step{{Name: "a"}}}, "steps[0].model: is missing"},
		{graph.Settings{Steps: []graph.Step{{Model: "two"}, {Model: "two"}}},
			"steps.two.name: is the name of two steps"},
		{graph.Settings{Steps: []graph.Step{{Model: "none"}}},
			`steps.none.model: model g is made of it: model: "none" is not loaded`},
		{graph.Settings{Steps: []graph.Step{{Model: "boxxer"}}},
			`"boxxer" is not loaded: see the repository index (did you mean boxer?)`},
		{graph.Settings{Steps: []graph.Step{find, {Model: "free", Input: in("x", "idz"), Output: in("x", "z")}}},
			"steps: take the picture frame and the input idz (did you mean ids?): a request with a picture"},
		{graph.Settings{Steps: []graph.Step{{Model: "boxer", Input: in("imige", "frame")}}},
			"steps.boxer.input.imige: is not an input of model boxer (did you mean image?), which has image"},
		{graph.Settings{Steps: []graph.Step{{Model: "boxer", Output: in("box", "b")}}},
			"steps.boxer.output.box: is not an output of model boxer (did you mean boxes?), which has boxes"},
		{graph.Settings{Steps: []graph.Step{find}, Outputs: []string{"boxs"}},
			"outputs[0]: is boxs, which no step makes (did you mean boxes?): there are boxes"},
		{graph.Settings{Steps: []graph.Step{find,
			{Model: "two", When: graph.Condition{Func: "max", Tensor: "id", Op: ">"}}}},
			"steps.two.when: names the tensor id, which no step makes (did you mean ids?): there are boxes"},
		{graph.Settings{Steps: []graph.Step{{Model: "two", Version: "9"}}},
			"steps.two.model: model g is made of it: version:"},
		{graph.Settings{Steps: []graph.Step{{Model: "g"}}}, "steps.g.model: makes a circle of models: g, g"},
		{graph.Settings{Steps: []graph.Step{{Model: "two", Input: in("q", "x")}}},
			"steps.two.input.q: is not an input of model two, which has x"},
		{graph.Settings{Steps: []graph.Step{{Model: "two", Output: in("q", "x")}}},
			"steps.two.output.q: is not an output of model two, which has y"},
		{graph.Settings{Steps: []graph.Step{{Model: "free", Output: in("x", "y")}}}, "steps.free.input: is missing"},
		{graph.Settings{Steps: []graph.Step{{Model: "free", Input: in("x", "y")}}}, "steps.free.output: is missing"},
		{graph.Settings{Steps: []graph.Step{{Name: "a", Model: "two"}, {Name: "b", Model: "three", Input: in("x", "y"),
			Output: in("y", "z")}}}, "steps.b.input.x: wants the shape [3], but tensor y has [2]"},
		{graph.Settings{Steps: []graph.Step{{Name: "a", Model: "two"},
			{Name: "b", Model: "boxer", Input: in("image", "y")}}},
			"steps.b.input.image: wants UINT8, but tensor y is FP32"},
		{graph.Settings{Steps: []graph.Step{{Name: "a", Model: "two"}, {Name: "b", Model: "two"}}},
			"steps.b.output.y: makes the tensor y, which step a makes already"},
		{graph.Settings{Steps: []graph.Step{{Name: "a", Model: "two", Input: in("x", "v"), Output: in("y", "u")},
			{Name: "b", Model: "two", Input: in("x", "u"), Output: in("y", "v")}}},
			"steps.a.input: is part of a circle: each of a, b waits for the next"},
		{graph.Settings{Steps: []graph.Step{{Model: "two"}}, Outputs: []string{"y", "z"}},
			"outputs[1]: is z, which no step makes: there are y"},
		{graph.Settings{Steps: []graph.Step{{Model: "two"}}, Outputs: []string{"y", "y"}},
			"outputs[1]: is y a second time"},
		{graph.Settings{Steps: []graph.Step{{Model: "two", When: graph.Condition{Func: "max", Tensor: "w", Op: ">"}}}},
			"steps.two.when: names the tensor w, which no step makes"},
		{graph.Settings{Steps: []graph.Step{find, {Model: "two", Crop: &graph.Crop{Boxes: "boxes"}}}},
			"steps.two.crop: needs a model that takes pictures"},
		{graph.Settings{Steps: []graph.Step{find, {Model: "mean", Input: in("image", "frame"),
			Crop: &graph.Crop{Boxes: "ids"}}}}, "steps.mean.crop.boxes: tensor ids is INT64 [-1]: want boxes"},
		{graph.Settings{Steps: []graph.Step{find, {Model: "mean", Input: in("image", "frame"),
			Crop: &graph.Crop{Boxes: "boxes", IDs: "ids"}}}}, "steps.mean.crop: ids and refresh need each other"},
		{graph.Settings{Steps: []graph.Step{find, {Model: "two"}}}, "steps: take the picture frame and the input x"},
	} {
		err := x.tryLoad(workers.Config{Name: "g", Kind: "graph", Params: c.set.Params()})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.set, err, c.want)
		}
	}
	err := x.tryLoad(workers.Config{Name: "g", Kind: "graph",
		Params: (&graph.Settings{Steps: []graph.Step{find}}).Params(), Image: &stream.ImageSpec{Width: 3}})
	if err == nil || !strings.Contains(err.Error(), "has no input, window, output, gate or cache settings of its own") {
		t.Errorf("a graph with input.image: %v", err)
	}
}

// TestUnloadAndSwap checks that a graph is not ready without its model, that requests then fail naming the step, that
// the graph works again when the model is loaded, and that swaps of a model under traffic lose no request, although
// each swap opens streams to a model with state.
func TestUnloadAndSwap(t *testing.T) {
	x := newMachine(t)
	x.load("double", "scale", stream.Params{"by": 2.0})
	x.graph(graph.Settings{Steps: []graph.Step{
		{Name: "one", Model: "double", Output: map[string]string{"y": "a"}},
		{Name: "two", Model: "double", Input: map[string]string{"x": "a"}},
	}})
	ctx := context.Background()
	g, _ := x.models.Group("g", "")
	ask := func() *stream.Result { return x.infer("g", x.tensors(map[string][]float32{"x": {1, 2}})) }
	ask().Release()
	if err := x.models.Unload(ctx, "double", ""); err != nil {
		t.Fatal(err)
	}
	if st := g.Stats(); g.Ready() || st.State != workers.StateUnavailable ||
		!strings.HasPrefix(st.Reason, "steps.one: ") {
		t.Errorf("without its model the graph is %s: %s", st.State, st.Reason)
	}
	if r := ask(); r.Outcome != stream.Failed || !strings.HasPrefix(r.Err.Error(), "steps.one.model: ") ||
		stream.CodeOf(r.Err) != stream.NotFound {
		t.Errorf("without its model the graph answers %v", r.Err)
	}
	x.load("double", "scale", stream.Params{"by": 3.0})
	if r := ask(); !g.Ready() || output(t, r, "y").Float32s()[0] != 9 {
		t.Error("the graph does not use the model that was loaded again")
	} else {
		r.Release()
	}
	var clients sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if r := ask(); r.Outcome != stream.Answered {
					t.Errorf("during the swaps: %v %v", r.Reason, r.Err)
				} else {
					r.Release()
				}
			}
		})
	}
	for i := range 30 {
		if err := x.models.Swap(ctx, "double",
			workers.Config{Kind: "scale", Params: stream.Params{"by": float64(i%3 + 1), "stateful": true}}); err !=
			nil {
			t.Error(err)
		}
	}
	close(stop)
	clients.Wait()
}

// TestVersionsOfAStep: a step without a version uses, after each change, the same version as requests without a
// version; a step with a version does not go on with another version.
func TestVersionsOfAStep(t *testing.T) {
	x := newMachine(t)
	all := workers.Versions{All: true}
	version := func(v string, by float64) workers.Config {
		return workers.Config{Name: "times", Kind: "scale", Version: v, Versions: all, Params: stream.Params{"by": by}}
	}
	if err := x.models.Define(version("1", 10), version("2", 20)); err != nil {
		t.Fatal(err)
	}
	load := func(v string) {
		t.Helper()
		if _, err := x.models.Load(context.Background(), "times", workers.Load{Version: v}); err != nil {
			t.Fatal(err)
		}
	}
	load("1")
	x.graph(graph.Settings{Steps: []graph.Step{{Name: "one", Model: "times"}}})
	ask := func(want float32) {
		t.Helper()
		r := x.infer("g", x.tensors(map[string][]float32{"x": {1, 2}}))
		if got := output(t, r, "y").Float32s()[0]; got != want {
			t.Errorf("%v, want %v", got, want)
		}
		r.Release()
	}
	ask(10)
	for range 3 {
		load("2")
		ask(20)
		if err := x.models.Unload(context.Background(), "times", "2"); err != nil {
			t.Fatal(err)
		}
		ask(10)
	}
	load("2")
	named := graph.Settings{Steps: []graph.Step{{Name: "one", Model: "times", Version: "2"}}}
	x.load("named", "graph", named.Params())
	x.infer("named", x.tensors(map[string][]float32{"x": {1, 2}})).Release()
	if err := x.models.Unload(context.Background(), "times", "2"); err != nil {
		t.Fatal(err)
	}
	if r := x.infer("named", x.tensors(map[string][]float32{"x": {1, 2}})); r.Outcome != stream.Failed {
		t.Errorf("a step with an unloaded version has answered %v", output(t, r, "y").Float32s())
	}
}

// TestVersionOfSwappedStep checks that a step with a version is never run by another version, also during a swap of
// the model.
func TestVersionOfSwappedStep(t *testing.T) {
	x := newMachine(t)
	if err := x.tryLoad(workers.Config{Name: "m", Version: "1", Kind: "scale",
		Params: stream.Params{"by": 2.0}}); err != nil {
		t.Fatal(err)
	}
	x.graph(graph.Settings{Steps: []graph.Step{{Model: "m", Version: "1"}}})
	ask := func() *stream.Result { return x.infer("g", x.tensors(map[string][]float32{"x": {1, 2}})) }
	swap := func(version string, by float64) {
		if err := x.models.Swap(t.Context(), "m", workers.Config{Version: version, Kind: "scale",
			Params: stream.Params{"by": by}}); err != nil {
			t.Fatal(err)
		}
	}
	ask().Release()
	swap("2", 3)
	for range 2 {
		r := ask()
		if r.Outcome != stream.Failed || !strings.HasPrefix(r.Err.Error(), "steps.m.version: ") ||
			stream.CodeOf(r.Err) != stream.NotFound {
			t.Errorf("without its version the graph answers %v %v", r.Outcome, r.Err)
		}
		r.Release()
	}
	swap("1", 4)
	r := ask()
	defer r.Release()
	if got := output(t, r, "y").Float32s()[1]; got != 8 {
		t.Errorf("with its version again the graph answers %v", got)
	}
}

// TestCloseAnswersFramesInFlight checks that a frame in a graph is answered when the server shuts down: the graph's
// models, also of a nested graph, end after the frame.
func TestCloseAnswersFramesInFlight(t *testing.T) {
	x := newMachine(t)
	x.load("slow", "scale", stream.Params{"wait": true})
	x.load("double", "scale", stream.Params{"by": 2.0})
	x.load("inner", "graph", (&graph.Settings{Steps: []graph.Step{{Model: "double"}}}).Params())
	x.graph(graph.Settings{Steps: []graph.Step{
		{Model: "slow", Output: map[string]string{"y": "a"}},
		{Model: "inner", Input: map[string]string{"x": "a"}},
	}})
	s, sink := x.open("g", oneShot)
	if err := s.Submit(x.tensors(map[string][]float32{"x": {1, 2}})); err != nil {
		t.Fatal(err)
	}
	<-gate.came
	closed := make(chan error)
	go func() { closed <- x.models.Close(context.Background()) }()
	g, _ := x.models.Group("g", "")
	eventually(t, "the graph is being unloaded", func() bool { return g.Stats().State == workers.StateUnloading })
	time.Sleep(20 * time.Millisecond) // time enough for the models to end
	for _, name := range []string{"slow", "double", "inner"} {
		if m, err := x.models.Group(name, ""); err != nil || m.Stats().State == workers.StateUnloading {
			t.Errorf("%s ends before the graph has: %v", name, err)
		}
	}
	openGate()
	r := <-sink.c
	if v := output(t, r, "y").Float32s(); v[1] != 4 {
		t.Errorf("the answer is %v", v)
	}
	r.Release()
	<-sink.done
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestFailedReload checks that a load of a graph without its model fails and changes nothing: with the model the
// graph serves again.
func TestFailedReload(t *testing.T) {
	x := newMachine(t)
	if err := x.models.Define(workers.Config{Name: "g", Kind: "graph",
		Params: (&graph.Settings{Steps: []graph.Step{{Model: "double"}}}).Params()}); err != nil {
		t.Fatal(err)
	}
	load := func() error {
		_, err := x.models.Load(context.Background(), "g", workers.Load{})
		return err
	}
	x.load("double", "scale", stream.Params{"by": 2.0})
	if err := load(); err != nil {
		t.Fatal(err)
	}
	before, _ := x.models.Group("g", "")
	if err := x.models.Unload(context.Background(), "double", ""); err != nil {
		t.Fatal(err)
	}
	if err := load(); stream.CodeOf(err) != stream.NotFound ||
		!strings.Contains(err.Error(), "steps.double.model: model g is made of it: ") {
		t.Errorf("without its model the graph is loaded: %v", err)
	}
	if now, err := x.models.Group("g", ""); err != nil || now != before {
		t.Fatalf("the failed load has removed the graph: %v", err)
	}
	x.load("double", "scale", stream.Params{"by": 3.0})
	r := x.infer("g", x.tensors(map[string][]float32{"x": {1, 2}}))
	if got := output(t, r, "y").Float32s()[1]; got != 6 {
		t.Errorf("with its model again the graph answers %v", got)
	}
	r.Release()
	if err := load(); err != nil {
		t.Error(err)
	}
}

// TestUnloadAll checks that the models of a graph are unloaded with the graph, except models needed by another graph.
func TestUnloadAll(t *testing.T) {
	x := newMachine(t)
	x.load("mine", "scale", nil)
	x.load("shared", "scale", stream.Params{"by": 2.0})
	x.load("other", "graph", (&graph.Settings{Steps: []graph.Step{{Model: "shared"}}}).Params())
	x.graph(graph.Settings{Steps: []graph.Step{
		{Model: "mine", Output: map[string]string{"y": "a"}}, {Model: "shared", Input: map[string]string{"x": "a"}},
	}})
	if err := x.models.UnloadAll(context.Background(), "g", ""); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, g := range x.models.Groups() {
		left = append(left, g.Model().Name)
	}
	if fmt.Sprint(left) != "[other shared]" {
		t.Errorf("%v are left", left)
	}
}

// TestLoadOrder checks that models come before graphs made of the models, and that the error names a cycle.
func TestLoadOrder(t *testing.T) {
	of := func(name string, steps ...string) workers.Config {
		if len(steps) == 0 {
			return workers.Config{Name: name, Source: "identity"}
		}
		var s graph.Settings
		for i, model := range steps {
			s.Steps = append(s.Steps, graph.Step{Name: fmt.Sprint("s", i), Model: model})
		}
		return workers.Config{Name: name, Source: "graph", Params: s.Params()}
	}
	order, err := workers.LoadOrder([]workers.Config{of("a", "b", "c"), of("b", "d"), of("c"), of("d"), of("e")})
	if err != nil || fmt.Sprint(order) != "[3 1 2 0 4]" {
		t.Errorf("the order is %v: %v", order, err)
	}
	_, err = workers.LoadOrder([]workers.Config{of("c"), of("a", "c", "b"), of("b", "a")})
	if want := "[2].steps.s0.model: makes a circle of models: a, b, a"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestStale checks that a frame's deadline reaches the steps, and that a drop in a step drops the frame.
func TestStale(t *testing.T) {
	x := newMachine(t)
	if err := x.tryLoad(workers.Config{Name: "slow", Kind: "scale", Params: stream.Params{"wait": true},
		Batching: workers.Batching{MaxSize: 1}}); err != nil {
		t.Fatal(err)
	}
	x.graph(graph.Settings{Steps: []graph.Step{{Model: "slow"}}})
	busy, first := x.open("slow", oneShot)
	if err := busy.Submit(x.tensors(map[string][]float32{"x": {1, 2}})); err != nil {
		t.Fatal(err)
	}
	<-gate.came
	s, sink := x.open("g", oneShot)
	f := x.tensors(map[string][]float32{"x": {1, 2}})
	f.Deadline = 30 * time.Millisecond
	if err := s.Submit(f); err != nil {
		t.Fatal(err)
	}
	slow, _ := x.models.Group("slow", "")
	eventually(t, "the deadline has passed", func() bool {
		return slow.Stats().Oldest > 40*time.Millisecond || slow.Stats().Waiting == 0 && len(sink.c) > 0
	})
	openGate()
	(<-first.c).Release()
	r := <-sink.c
	if r.Outcome != stream.Dropped || r.Reason != stream.Stale {
		t.Errorf("%v %v %v, want a drop as stale", r.Outcome, r.Reason, r.Err)
	}
	for _, s := range []*stream.Stream{busy, s} {
		s.Close(stream.ByClient)
		<-s.Finished()
	}
}

// The cache of a step's model is filled and read by graphs, too.
func TestCacheOfAStep(t *testing.T) {
	x := newMachine(t)
	if err := x.tryLoad(workers.Config{Name: "identity", Kind: "identity",
		Cache: workers.Cache{Size: 1 << 20}}); err != nil {
		t.Fatal(err)
	}
	x.graph(graph.Settings{Steps: []graph.Step{{Model: "identity", Input: map[string]string{"x": "x"},
		Output: map[string]string{"x": "y"}}}, Outputs: []string{"y"}})
	for range 3 {
		x.infer("g", x.tensors(map[string][]float32{"x": {1, 2}})).Release()
	}
	g, err := x.models.Group("identity", "")
	if err != nil {
		t.Fatal(err)
	}
	if st := g.Stats(); st.Frames.CacheMisses != 1 || st.Frames.CacheHits != 2 || st.Batches != 1 {
		t.Errorf("%d misses, %d hits, %d batches", st.Frames.CacheMisses, st.Frames.CacheHits, st.Batches)
	}
}
