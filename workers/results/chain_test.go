package results_test

import (
	"errors"
	"strings"
	"testing"

	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers/results"
)

// The test turns the following stages on.
type first struct{ named }
type second struct{ named }
type third struct{ named }

type named struct {
	Stage results.Stage
	Make  func(*results.Env) error
	Is    bool
}

func (n named) On() bool { return n.Is }

func (n named) Validate() error {
	if n.Make == nil && n.Is {
		return errors.New("no way to make it")
	}
	return nil
}

func (n named) create(env *results.Env) (results.Stage, error) { return n.Stage, n.Make(env) }

func init() { // registered in another order than processed
	results.Register(results.Follow, "", third.create)
	results.Register(results.Reuse, "", second.create)
	results.Register(results.Reuse, "", first.create)
}

func on(s results.Stage, make func(*results.Env) error) named {
	if make == nil {
		make = func(*results.Env) error { return nil }
	}
	return named{Stage: s, Make: make, Is: true}
}

// add returns the After function of a stage that adds an output called name.
func add(name string) func(*stream.Request, results.Outputs) ([]stream.Tensor, error) {
	data := []byte{0}
	return func(_ *stream.Request, in results.Outputs) ([]stream.Tensor, error) {
		data[0]++ // valid until the next call
		return append(in.Tensors[:len(in.Tensors):len(in.Tensors)], stream.Tensor{Name: name, Data: data}), nil
	}
}

func names(outputs []stream.Tensor) string {
	var all []string
	for _, o := range outputs {
		all = append(all, o.Name)
	}
	return strings.Join(all, " ")
}

// queue and sink belong to a stream without a worker: the test itself takes the requests.
type queue struct{}

func (queue) Enqueue(*stream.Stream, any) {}
func (queue) Admit(bool) error            { return nil }
func (queue) AddWaiting(int)              {}
func (queue) Ended(*stream.Request)       {}
func (queue) Detach(*stream.Stream)       {}

type sink struct{ results []*stream.Result }

func (k *sink) Push(r *stream.Result)     { k.results = append(k.results, r) }
func (k *sink) Done(_ stream.CloseReason) {}

func request(t *testing.T, m *stream.Model, k *sink) *stream.Request {
	t.Helper()
	s := stream.New(m, queue{}, k, stream.Options{Policy: stream.Policy{Mode: stream.Every, Window: 8}})
	if err := s.Submit(stream.Frame{}); err != nil {
		t.Fatal(err)
	}
	r, _ := s.Take(stream.Now(), 1, nil, 0)
	if r == nil {
		t.Fatal("no request")
	}
	return r
}

var model = &stream.Model{Name: "m", AcceptsAnyInput: true, Ragged: true, MaxBatch: 1,
	Outputs: []stream.TensorSpec{{Name: "raw"}}}

func TestNoStages(t *testing.T) {
	c, m, err := results.New([]any{&first{}}, model, results.Tools{})
	if c != nil || m != model || err != nil || c.Transforms() {
		t.Fatalf("%v, %v, %v", c, m, err)
	}
}

// Outputs pass through the stages in the order of registration, and each stage gets its own outputs in Answered.
func TestOrder(t *testing.T) {
	var told []string
	tell := func(who string) func(*stream.Request, []stream.Tensor, *buf.Buf) {
		return func(_ *stream.Request, outputs []stream.Tensor, _ *buf.Buf) {
			told = append(told, who+": "+names(outputs))
		}
	}
	c, m, err := results.New([]any{
		&third{on(results.Stage{After: add("c"), Answered: tell("third")}, func(env *results.Env) error {
			if !env.Decoded || env.Model.Outputs != nil || len(env.Worker.Outputs) != 1 {
				t.Errorf("%+v", env)
			}
			return nil
		})},
		&second{on(results.Stage{Answered: tell("second")}, nil)},
		&first{on(results.Stage{After: add("a"), Answered: tell("first")}, func(env *results.Env) error {
			env.Model.Outputs = nil
			return nil
		})},
	}, model, results.Tools{})
	if err != nil || m == model || m.Outputs != nil || len(model.Outputs) != 1 || m.Stateful || !c.Transforms() {
		t.Fatalf("%+v, %v", m, err)
	}
	r := request(t, m, &sink{})
	if c.Before(r) {
		t.Fatal("no stage answers before the run")
	}
	out, err := c.After(r, []stream.Tensor{{Name: "raw"}}, 3)
	if err != nil || names(out) != "raw a c" {
		t.Fatalf("%s, %v", names(out), err)
	}
	c.Answered(r, out, nil)
	c.Answered(r, []stream.Tensor{{Name: "own"}}, nil) // of a worker that answers requests itself
	want := "first: raw a, second: raw a, third: raw a c, first: own, second: own, third: own"
	if got := strings.Join(told, ", "); got != want {
		t.Fatalf("%s\nwant %s", got, want)
	}
}

// An answer before a run passes through the later stages, and the outputs added by later stages stay as sent.
func TestAnswerBeforeARun(t *testing.T) {
	mem := buf.NewPool(0)
	lease, _ := mem.Copy([]byte("known"))
	skipped := 0
	c, m, err := results.New([]any{
		&first{on(results.Stage{After: add("a")}, nil)},
		&second{on(results.Stage{Before: func(*stream.Request) (results.Answer, bool) {
			return results.Answer{Outputs: []stream.Tensor{{Name: "known", Data: lease.Bytes()}},
				Lease: lease.Retain()}, true
		}}, nil)},
		&third{on(results.Stage{After: add("c")}, nil)},
	}, model, results.Tools{Skipped: func(*stream.Request) { skipped++ }})
	if err != nil {
		t.Fatal(err)
	}
	k := &sink{}
	for range 2 {
		if !c.Before(request(t, m, k)) {
			t.Fatal("not answered")
		}
	}
	if skipped != 2 || len(k.results) != 2 {
		t.Fatalf("%d skipped, %d results", skipped, len(k.results))
	}
	for i, r := range k.results {
		if names(r.Outputs) != "known c" || r.Outputs[1].Data[0] != byte(i+1) || r.Contiguous || r.Timing.Started == 0 {
			t.Errorf("%+v", r)
		}
		r.Release()
	}
	lease.Release()
	if n := mem.Stats().Leases; n != 0 {
		t.Fatalf("%d leases", n)
	}
}

// When a stage fails after an answer before the run, the frame is run.
func TestAnswerThatFails(t *testing.T) {
	mem := buf.NewPool(0)
	c, m, err := results.New([]any{
		&first{on(results.Stage{Before: func(*stream.Request) (results.Answer, bool) {
			lease, _ := mem.Copy([]byte("known"))
			return results.Answer{Lease: lease}, true
		}}, nil)},
		&second{on(results.Stage{After: func(*stream.Request, results.Outputs) ([]stream.Tensor, error) {
			return nil, errors.New("as told")
		}}, nil)},
	}, model, results.Tools{})
	if err != nil {
		t.Fatal(err)
	}
	r := request(t, m, &sink{})
	if c.Before(r) || r.Outcome() != stream.Pending || mem.Stats().Leases != 0 {
		t.Fatalf("%v, %d leases", r.Outcome(), mem.Stats().Leases)
	}
}

func TestPanics(t *testing.T) {
	c, m, err := results.New([]any{&first{on(results.Stage{
		Before: func(r *stream.Request) (results.Answer, bool) { panic("as told") },
		After:  func(*stream.Request, results.Outputs) ([]stream.Tensor, error) { panic("as told") },
	}, nil)}}, model, results.Tools{})
	if err != nil {
		t.Fatal(err)
	}
	k := &sink{}
	r := request(t, m, k)
	if !c.Before(r) || len(k.results) != 1 || stream.CodeOf(k.results[0].Err) != stream.Internal {
		t.Fatalf("%+v", k.results)
	}
	if _, err := c.After(request(t, m, k), nil, 0); stream.CodeOf(err) != stream.Internal {
		t.Fatal(err)
	}
}

func TestStagesCostNoMemory(t *testing.T) {
	tell := func(*stream.Request, []stream.Tensor, *buf.Buf) {}
	pass := func(_ *stream.Request, in results.Outputs) ([]stream.Tensor, error) { return in.Tensors, nil }
	ask := func(*stream.Request) (a results.Answer, ok bool) { return a, false }
	c, m, err := results.New([]any{
		&first{on(results.Stage{After: pass}, nil)}, &second{on(results.Stage{Before: ask, Answered: tell}, nil)},
		&third{on(results.Stage{After: pass}, nil)},
	}, model, results.Tools{})
	if err != nil {
		t.Fatal(err)
	}
	r := request(t, m, &sink{})
	outputs := []stream.Tensor{{Name: "raw"}}
	if n := testing.AllocsPerRun(100, func() {
		c.Before(r)
		out, _ := c.After(r, outputs, 0)
		c.Answered(r, out, nil)
	}); n != 0 {
		t.Fatalf("%v allocations a frame", n)
	}
}

// Each stage has its own place in a stream, and a model with such places runs one frame of a stream at a time.
func TestSlots(t *testing.T) {
	var slots []results.Slot
	take := func(env *results.Env) error {
		slots = append(slots, env.Slot())
		return nil
	}
	_, m, err := results.New([]any{&first{on(results.Stage{}, take)}, &third{on(results.Stage{}, take)}}, model,
		results.Tools{})
	if err != nil || !m.Stateful || model.Stateful {
		t.Fatalf("%+v, %v", m, err)
	}
	r := request(t, m, &sink{})
	if slots[0].Get(r) != nil || slots[1].Get(r) != nil {
		t.Fatal("a new stream has a state already")
	}
	released := ""
	r.SetState("worker", func(any) { released += "w" })
	slots[1].Set(r, "b", func(v any) { released += v.(string) })
	slots[0].Set(r, "a", func(v any) { released += v.(string) })
	slots[0].Set(r, "A", func(v any) { released += v.(string) })
	if slots[0].Get(r) != "A" || slots[1].Get(r) != "b" || r.State() != "worker" || released != "" {
		t.Fatalf("%v, %v, %v, %q", slots[0].Get(r), slots[1].Get(r), r.State(), released)
	}
	r.Fail(errors.New("over"))
	r.Unbind()
	r.Stream.Close(stream.ByClient)
	if released != "wAb" {
		t.Fatalf("released %q", released)
	}
}

func TestErrors(t *testing.T) {
	bad := []any{&first{on(results.Stage{}, func(*results.Env) error { return errors.New("as told") })}}
	if _, _, err := results.New(bad, model, results.Tools{}); err == nil {
		t.Error("the chain was made although its stage failed")
	}
	if err := results.Validate([]any{&second{named{Is: true}}}); err == nil {
		t.Error("invalid settings passed")
	}
	if err := results.Validate(bad); err != nil {
		t.Error(err)
	}
}
