package workers_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace/batching"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
	_ "millrace/workers/delay"
	_ "millrace/workers/identity"
)

// faulty is a worker that fails as told by the bytes of the frames.
type faulty struct {
	workers.Base
	stateful bool
}

// hangs blocks hanging runs.
var hangs = struct {
	sync.Mutex
	*hung
}{hung: newHung()}

type hung struct {
	gate chan struct{}
	runs int // hanging runs
}

func newHung() *hung { return &hung{gate: make(chan struct{})} }

// hang returns after releaseHung.
func hang() {
	hangs.Lock()
	gate := hangs.gate
	hangs.runs++
	hangs.Unlock()
	<-gate
}

// hanging returns how many runs wait for releaseHung.
func hanging() int {
	hangs.Lock()
	defer hangs.Unlock()
	return hangs.runs
}

// releaseHung lets the hung runs return.
func releaseHung() {
	hangs.Lock()
	defer hangs.Unlock()
	close(hangs.gate)
	hangs.hung = newHung()
}

// inBubble runs a test of time-outs in a synctest bubble, where time passes only when
// all goroutines wait, so that a slow machine causes no time-out.
func inBubble(t *testing.T, test func(*testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		swap := func(by *hung) (before *hung) {
			hangs.Lock()
			defer hangs.Unlock()
			before, hangs.hung = hangs.hung, by
			return before
		}
		outside := swap(newHung())
		t.Cleanup(func() { close(swap(outside).gate) })
		test(t)
	})
}

var released atomic.Int64

func init() {
	for _, stateful := range []bool{false, true} {
		name := "faulty"
		if stateful {
			name = "faulty-stateful"
		}
		workers.Register(workers.Kind{Name: name, New: func() workers.Worker { return &faulty{stateful: stateful} }})
	}
	workers.Register(workers.Kind{Name: "affine", New: func() workers.Worker { return &affine{} }})
	workers.Register(workers.Kind{Name: "taker", New: func() workers.Worker { return &taker{} }})
	workers.Register(workers.Kind{Name: "gauge", New: func() workers.Worker { return &gauge{} }})
	workers.Register(workers.Kind{Name: "starter", New: func() workers.Worker {
		return &starter{}
	}, Settings: func() any { return new(startSettings) }})
	workers.Register(workers.Kind{Name: "dense", New: func() workers.Worker { return &dense{} }})
}

func (f *faulty) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, Stateful: f.stateful, MaxBatch: 4}, nil
}

func (f *faulty) Run(_ context.Context, b *batching.Batch) error {
	if f.stateful {
		for _, r := range b.Requests {
			n, _ := r.State().(int)
			r.SetState(n+1, func(any) { released.Add(1) })
		}
	}
	for i, r := range b.Requests {
		switch string(r.Payload) {
		case "panic":
			panic("as told")
		case "hang":
			hang()
		case "die":
			return fmt.Errorf("requested: %w", workers.ErrBroken)
		case "error":
			b.Fail(i, errors.New("as told"))
		case "slow":
			time.Sleep(time.Millisecond)
		case "silent":
			continue
		}
		b.Finish(i, []stream.Tensor{{Name: "n", Datatype: stream.Uint8, Shape: []int{len(r.Payload)}, Data: r.Payload}})
	}
	return nil
}

// affine keeps a count for each stream in the instance, and answers with the instance's address and the count.
type affine struct {
	workers.Base
	broken bool
}

type tally struct {
	of *affine
	n  int
}

var tallies atomic.Int64 // kept and not released

func (*affine) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, Stateful: true, Affinity: true, MaxBatch: 4}, nil
}

func (a *affine) Run(_ context.Context, b *batching.Batch) error {
	for i, r := range b.Requests {
		c, _ := r.State().(*tally)
		if c == nil {
			c = &tally{of: a}
			tallies.Add(1)
			r.SetState(c, func(any) { tallies.Add(-1) })
		}
		if c.of != a || a.broken {
			b.Fail(i, errors.New("the state lives in another worker"))
			continue
		}
		switch string(r.Payload) {
		case "die":
			a.broken = true
			return fmt.Errorf("requested: %w", workers.ErrBroken)
		case "hang":
			hang()
		}
		c.n++
		b.Finish(i, []stream.Tensor{{Name: "n", Datatype: stream.Uint8, Shape: []int{1},
			Data: fmt.Appendf(nil, "%p %d", a, c.n)}})
	}
	return nil
}

// gauge records the largest number of concurrent runs.
type gauge struct{ workers.Base }

var running, most atomic.Int64

func (*gauge) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 4}, nil
}

func (*gauge) Run(_ context.Context, b *batching.Batch) error {
	n := running.Add(1)
	defer running.Add(-1)
	for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
	}
	time.Sleep(100 * time.Microsecond)
	for i := range b.Requests {
		b.Finish(i, nil)
	}
	return nil
}

// starter fails or hangs in the configured steps of its start, and records the calls.
type starter struct {
	how   string
	calls []string
}

var started = struct {
	sync.Mutex
	all  []*starter
	gate chan struct{}
}{}

type startSettings struct {
	How string `yaml:"how" request:"any" help:"it starts"`
}

func (s *starter) call(what string) error {
	started.Lock()
	s.calls = append(s.calls, what)
	gate := started.gate
	started.Unlock()
	switch s.how {
	case what + " fails":
		return errors.New("as told")
	case what + " panics":
		panic("as told")
	case what + " hangs":
		<-gate
	}
	return nil
}

func (s *starter) Init(ctx context.Context, env *workers.Env) (*stream.Model, error) {
	s.how = env.Settings.(*startSettings).How
	started.Lock()
	started.all = append(started.all, s)
	started.Unlock()
	started.Lock()
	again := len(started.all) == 2
	started.Unlock()
	if s.how == "restart hangs" && again {
		s.how = "init hangs"
	}
	if s.how == "waits" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 4}, s.call("init")
}

func (s *starter) Allocate(context.Context) error { return s.call("allocate") }
func (s *starter) Acquire(context.Context) error  { return s.call("acquire") }
func (s *starter) Release()                       { _ = s.call("release") }
func (s *starter) Deallocate()                    { _ = s.call("deallocate") }
func (s *starter) Destroy()                       { _ = s.call("destroy") }

func (s *starter) Run(_ context.Context, b *batching.Batch) error {
	for i, r := range b.Requests {
		if string(r.Payload) == "die" {
			return fmt.Errorf("requested: %w", workers.ErrBroken)
		}
		b.Finish(i, nil)
	}
	return nil
}

// dense doubles FP32 rows of three, through the batch's contiguous tensors.
type dense struct {
	workers.Base
	out []byte
}

func (d *dense) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{
		MaxBatch: 4,
		Inputs:   []stream.TensorSpec{{Name: "x", Datatype: stream.Float32, Shape: []int{3}}},
		Outputs:  []stream.TensorSpec{{Name: "y", Datatype: stream.Float32, Shape: []int{3}}},
	}, nil
}

func (d *dense) Run(_ context.Context, b *batching.Batch) error {
	d.out = d.out[:0]
	for _, v := range b.Inputs[0].Float32s() {
		d.out = stream.AppendFloat32(d.out, 2*v)
	}
	b.Outputs = []stream.Tensor{{Name: "y", Datatype: stream.Float32, Shape: b.Inputs[0].Shape, Data: d.out}}
	return nil
}

// fullOnly reports whether batchers of a kind form full batches only.
func fullOnly(kind string) bool {
	b, err := batching.NewBatcher(kind, 1, nil)
	return err == nil && b.Needs().Full
}

// endings is a sink that keeps the pushed endings.
type endings struct {
	mu   sync.Mutex
	all  []ending
	done []stream.CloseReason
	more chan struct{}
}

type ending struct {
	seq     uint64
	outcome stream.Outcome
	reason  stream.Reason
	err     error
	data    string
}

func newEndings() *endings { return &endings{more: make(chan struct{}, 1)} }

func (e *endings) Push(r *stream.Result) {
	x := ending{seq: r.Seq, outcome: r.Outcome, reason: r.Reason, err: r.Err}
	if len(r.Outputs) > 0 {
		x.data = string(r.Outputs[0].Data)
	}
	r.Release()
	e.mu.Lock()
	e.all = append(e.all, x)
	e.mu.Unlock()
	select {
	case e.more <- struct{}{}:
	default:
	}
}

func (e *endings) Done(why stream.CloseReason) {
	e.mu.Lock()
	e.done = append(e.done, why)
	e.mu.Unlock()
	select {
	case e.more <- struct{}{}:
	default:
	}
}

// wait returns the endings after n have arrived.
func (e *endings) wait(t *testing.T, n int) []ending {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		e.mu.Lock()
		if len(e.all) >= n {
			out := append([]ending(nil), e.all...)
			e.mu.Unlock()
			return out
		}
		e.mu.Unlock()
		select {
		case <-e.more:
		case <-limit:
			e.mu.Lock()
			defer e.mu.Unlock()
			t.Fatalf("%d endings of %d: %+v", len(e.all), n, e.all)
		}
	}
}

type rig struct {
	*workers.Manager
	mem *buf.Pool
}

func newRig(t *testing.T) rig {
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
	})
	return rig{m, mem}
}

func (r rig) load(t *testing.T, cfg workers.Config) *workers.Group {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = cfg.Kind
	}
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

func (r rig) frame(t *testing.T, seq uint64, data string) stream.Frame {
	t.Helper()
	l, err := r.mem.Copy([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	return stream.Frame{Seq: seq, Payload: l.Bytes(), Lease: l}
}
