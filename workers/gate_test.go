package workers_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
	"millrace/workers/results/gate"
	"millrace/workers/results/postprocess"
	"millrace/workers/results/tracking"
)

// looker returns a different box in each run, fails for a white picture and panics for a black picture.
type looker struct {
	workers.Base
	boxes []byte
	score []byte
}

var looks atomic.Int64

func init() {
	workers.Register(workers.Kind{Name: "looker", New: func() workers.Worker { return &looker{} }})
	workers.Register(workers.Kind{Name: "learner", New: func() workers.Worker { return learner{} }})
}

func (*looker) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{
		MaxBatch: 4, Image: &stream.ImageSpec{Width: 16, Height: 16, Color: "GRAY", Layout: "NHWC"},
		Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{16, 16, 1}}},
		Outputs: []stream.TensorSpec{{Name: "b", Datatype: stream.Float32, Shape: []int{1, 4}},
			{Name: "s", Datatype: stream.Float32, Shape: []int{1, 1}}},
	}, nil
}

func (l *looker) Run(_ context.Context, b *batching.Batch) error {
	n := float32(looks.Add(1)%64) / 64
	l.boxes, l.score = l.boxes[:0], l.score[:0]
	for i := range b.Rows {
		switch b.Inputs[0].Data[256*i] {
		case 255:
			b.Fail(i, fmt.Errorf("too bright"))
		case 0:
			panic("too dark")
		}
		l.boxes, l.score = stream.AppendFloat32(l.boxes, n, n, n+4, n+4), stream.AppendFloat32(l.score, 1)
	}
	b.Outputs = []stream.Tensor{
		{Name: "b", Datatype: stream.Float32, Shape: []int{b.Rows, 1, 4}, Data: l.boxes},
		{Name: "s", Datatype: stream.Float32, Shape: []int{b.Rows, 1, 1}, Data: l.score},
	}
	return nil
}

// learner keeps a state per stream.
type learner struct{ workers.Base }

func (learner) Init(context.Context, *workers.Env) (*stream.Model, error) {
	m, err := (&looker{}).Init(context.TODO(), nil)
	m.Stateful = true
	return m, err
}

func (learner) Run(context.Context, *batching.Batch) error { return nil }

// replies is a sink that keeps the checked parts of results.
type replies struct {
	more chan reply
	done chan struct{}
}

type reply struct {
	seq     uint64
	outcome stream.Outcome
	err     error
	outputs map[string]string
	params  stream.Params
	width   int
}

func newReplies() *replies {
	return &replies{more: make(chan reply, 4096), done: make(chan struct{})}
}

func (a *replies) Push(r *stream.Result) {
	x := reply{seq: r.Seq, outcome: r.Outcome, err: r.Err, outputs: map[string]string{}, params: r.Params,
		width: r.Width}
	for _, o := range r.Outputs {
		x.outputs[o.Name] = fmt.Sprint(o.Shape) + string(o.Data)
	}
	r.Release()
	a.more <- x
}

func (a *replies) Done(stream.CloseReason) { close(a.done) }

func (a *replies) next(t testing.TB) reply {
	t.Helper()
	select {
	case x := <-a.more:
		return x
	case <-time.After(20 * time.Second):
		t.Fatal("no answer")
	}
	return reply{}
}

// scene is a raw picture with a bright square at x.
func scene(x int, noise uint64) []byte {
	const w, h = 160, 120
	b := make([]byte, 3*w*h)
	rng := rand.New(rand.NewPCG(noise, 1))
	for i := range b {
		b[i] = 60 + byte(rng.IntN(12))
	}
	for y := 40; y < 70; y++ {
		for i := 3 * (y*w + x); i < 3*(y*w+x+30); i++ {
			b[i] = 200
		}
	}
	return b
}

type gated struct {
	t *testing.T
	r rig
	g *workers.Group
	s *stream.Stream
	a *replies
	n uint64

	late time.Duration // how much later the frames' capture times are
}

func newGated(t *testing.T, cfg workers.Config) *gated {
	r := newRig(t)
	cfg.Kind, cfg.Policy = "looker", stream.Policy{Mode: stream.Every, Window: 64}
	if cfg.Parts == nil {
		cfg.Parts = []any{&gate.Settings{Changed: 0.005}}
	}
	x := &gated{t: t, r: r, g: r.load(t, cfg.WithDefaults()), a: newReplies()}
	x.s = x.open(x.a, stream.Options{})
	return x
}

func (x *gated) open(a *replies, o stream.Options) *stream.Stream {
	x.t.Helper()
	s, err := x.g.Open(o, a)
	if err != nil {
		x.t.Fatal(err)
	}
	return s
}

// ask sends one frame, changed by other.
func (x *gated) ask(pixels []byte, other ...func(*stream.Frame)) reply {
	x.t.Helper()
	return x.askOf(x.s, x.a, pixels, other...)
}

func (x *gated) askOf(s *stream.Stream, a *replies, pixels []byte, other ...func(*stream.Frame)) reply {
	x.t.Helper()
	f := x.r.frame(x.t, x.n, string(pixels))
	f.Codec, f.Width, f.Height, f.CaptureUS = stream.RGB24, 160, 120, int64(1e6+33333*x.n)
	x.n++
	for _, o := range other {
		o(&f)
	}
	if err := s.SubmitAt(f, stream.Now().Add(x.late)); err != nil {
		x.t.Fatal(err)
	}
	got := a.next(x.t)
	if got.seq != f.Seq {
		x.t.Fatalf("seq %d, want %d", got.seq, f.Seq)
	}
	return got
}

func (x *gated) ran(a reply) {
	x.t.Helper()
	if a.outcome != stream.Answered || a.params["skipped"] != nil || len(a.outputs) == 0 {
		x.t.Fatalf("frame %d did not run: %+v", a.seq, a)
	}
}

func (x *gated) skipped(a, source reply) {
	x.t.Helper()
	if a.outcome != stream.Answered || a.params["skipped"] != true || a.params["source_seq"] != int64(source.seq) ||
		a.width != source.width {
		x.t.Fatalf("frame %d was not skipped for %d: %+v", a.seq, source.seq, a)
	}
	if fmt.Sprint(a.outputs) != fmt.Sprint(source.outputs) {
		x.t.Fatalf("frame %d: %q, its source has %q", a.seq, a.outputs, source.outputs)
	}
}

// An unchanged picture is skipped, also with noise; a frame with any relevant difference is run.
func TestGate(t *testing.T) {
	x := newGated(t, workers.Config{Instances: 2})
	still := func() []byte { return scene(30, x.n) }
	first := x.ask(still())
	x.ran(first)
	for range 5 {
		x.skipped(x.ask(still()), first)
	}
	moved := x.ask(scene(34, 0))
	x.ran(moved)
	x.skipped(x.ask(scene(34, 9)), moved)
	back := x.ask(still())
	x.ran(back)
	x.skipped(x.ask(still()), back)

	for what, other := range map[string]func(*stream.Frame){
		"must be processed":   func(f *stream.Frame) { f.Must = true },
		"a new scene":         func(f *stream.Frame) { f.Discontinuity = true },
		"another region":      func(f *stream.Frame) { f.Region = stream.Region{X: 1, Width: 100, Height: 100} },
		"other parameters":    func(f *stream.Frame) { f.Params = stream.Params{"a": int64(1)} },
		"another size":        func(f *stream.Frame) { f.Width, f.Height = 120, 160 },
		"a second later":      func(f *stream.Frame) { f.CaptureUS += 1e6 },
		"earlier than before": func(f *stream.Frame) { f.CaptureUS = 5 },
	} {
		t.Log(what)
		x.ran(x.ask(still(), other))
		before := x.ask(still(), func(f *stream.Frame) { f.Must = true })
		x.ran(before)
		x.skipped(x.ask(still()), before)
	}

	x.s.Flush()
	after := x.ask(still())
	x.ran(after)
	x.skipped(x.ask(still()), after)

	// Another stream is independent of the first stream, and one-shot requests are never skipped.
	other := newReplies()
	s := x.open(other, stream.Options{})
	x.ran(x.askOf(s, other, still()))
	s.Close(stream.ByClient)
	<-s.Finished()
	once := newReplies()
	s = x.open(once, stream.Options{OneShot: true})
	for range 3 {
		x.ran(x.askOf(s, once, still()))
	}
	s.Close(stream.ByClient)
	<-s.Finished()

	// After an error, a panic or a picture that cannot be decoded, the next frame runs.
	for what, bad := range map[string][]byte{"error": bytes.Repeat([]byte{255}, 57600), "panic": make([]byte, 57600)} {
		before := last(x, still)
		x.skipped(x.ask(still()), before)
		if a := x.ask(bad); a.outcome != stream.Failed {
			t.Fatalf("%s: %+v", what, a)
		}
		x.ran(x.ask(still()))
	}
	if a := x.ask([]byte("short")); a.outcome != stream.Failed || !strings.Contains(a.err.Error(), "frame") {
		t.Fatalf("%+v", a)
	}
	x.s.Close(stream.ByClient)
	<-x.s.Finished()
	until(t, "all memory is given back", func() bool { return x.r.mem.Stats().Leases == 0 })
}

// A client with no clock, or with a stopped clock, gets a refresh by the server's clock.
func TestGateRefreshWithoutAClock(t *testing.T) {
	for _, capture := range []int64{0, 1234567} {
		x := newGated(t, workers.Config{Parts: []any{&gate.Settings{Changed: 0.005, Refresh: time.Hour}}})
		still := func() reply {
			return x.ask(scene(30, x.n), func(f *stream.Frame) { f.CaptureUS = capture })
		}
		for range 2 {
			run := still()
			x.ran(run)
			x.skipped(still(), run)
			x.late += 30 * time.Minute
			x.skipped(still(), run)
			x.late += 30 * time.Minute
		}
		x.s.Close(stream.ByClient)
		<-x.s.Finished()
	}
}

// A stream may be flushed between the binding of a frame and the frame's preparation: no frame after the flush gets
// an answer from before the flush.
func TestGateAndAFlushOfABoundFrame(t *testing.T) {
	x := newGated(t, workers.Config{Batching: workers.Batching{Kind: batching.Hard, MaxSize: 2}})
	first := &flushing{replies: newReplies()}
	other, err := x.g.Open(stream.Options{}, first)
	if err != nil {
		t.Fatal(err)
	}
	// The stale frame shares a batch with the next frame, is prepared before the next frame, and fails.
	ahead := func() {
		t.Helper()
		f := x.r.frame(t, x.n, "short")
		f.Codec, f.Width, f.Height = stream.RGB24, 160, 120
		if err := other.Submit(f); err != nil {
			t.Fatal(err)
		}
	}
	first.at.Store(x.s)
	ahead()
	x.ran(x.ask(scene(30, 0)))
	first.at.Store(nil)
	ahead()
	after := x.ask(scene(30, 1))
	x.ran(after)
	ahead()
	x.skipped(x.ask(scene(30, 2)), after)
	for range 3 {
		if a := first.next(t); a.outcome != stream.Failed {
			t.Fatalf("%+v", a)
		}
	}
	for _, s := range []*stream.Stream{x.s, other} {
		s.Close(stream.ByClient)
		<-s.Finished()
	}
}

// flushing is a sink that flushes another stream with each ending.
type flushing struct {
	*replies
	at atomic.Pointer[stream.Stream]
}

func (f *flushing) Push(r *stream.Result) {
	if s := f.at.Load(); s != nil {
		s.Flush()
	}
	f.replies.Push(r)
}

// last runs a frame and returns the answer.
func last(x *gated, still func() []byte) reply {
	x.t.Helper()
	a := x.ask(still(), func(f *stream.Frame) { f.Must = true })
	x.ran(a)
	return a
}

// Tracked boxes keep their ids while frames are skipped, however many, and the tracker
// counts all frames.
func TestGateAndIDs(t *testing.T) {
	x := newGated(t, workers.Config{
		Parts: []any{
			&postprocess.Config{Boxes: &postprocess.Boxes{Boxes: "b", Scores: "s"}}, &tracking.Settings{Track: true},
			&gate.Settings{Changed: 0.005, Refresh: time.Hour},
		},
	})
	first := x.ask(scene(30, 0))
	x.ran(first)
	if first.outputs["ids"] == "" {
		t.Fatalf("%+v", first)
	}
	var second reply // a box gets an id after a few frames
	for range 3 {
		second = x.ask(scene(30, 1))
	}
	if second.params["skipped"] != true || second.outputs["boxes"] != first.outputs["boxes"] ||
		second.outputs["ids"] == first.outputs["ids"] {
		t.Fatalf("%+v after %+v", second, first)
	}
	for range 60 { // two seconds, more than the time after which an unseen id ends
		if a := x.ask(scene(30, x.n)); fmt.Sprint(a.outputs) != fmt.Sprint(second.outputs) ||
			a.params["skipped"] != true {
			t.Fatalf("%+v, want %+v", a, second)
		}
	}
	run := x.ask(scene(30, x.n), func(f *stream.Frame) { f.Must = true })
	if run.params["skipped"] != nil || run.outputs["ids"] != second.outputs["ids"] ||
		run.outputs["boxes"] == second.outputs["boxes"] {
		t.Fatalf("%+v, want the id of %+v", run, second)
	}
	x.s.Close(stream.ByClient)
	<-x.s.Finished()
}

// The gate releases its memory when a stream is silent for long and when the model is swapped.
func TestGateForgets(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := newGated(t, workers.Config{Limits: workers.Limits{IdleState: 20 * time.Millisecond}})
		first := x.ask(scene(30, 0))
		x.ran(first)
		x.skipped(x.ask(scene(30, 1)), first)
		until(t, "the idle stream's result is given back", func() bool { return x.r.mem.Stats().Leases == 0 })
		next := x.ask(scene(30, 1))
		x.ran(next)

		x.skipped(x.ask(scene(30, 2)), next)
		if err := x.r.Swap(t.Context(), "looker", x.g.Config()); err != nil {
			t.Fatal(err)
		}
		next = x.ask(scene(30, 3))
		x.ran(next)
		x.skipped(x.ask(scene(30, 4)), next)
		x.s.Close(stream.ByClient)
		<-x.s.Finished()
	})
}

// Many streams in latest mode over several workers: each frame has one ending, a skipped frame has the result of the
// frame named in the result, and seqs increase.
func TestGateUnderLoad(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Kind: "looker", Instances: 3,
		Parts: []any{&gate.Settings{Changed: 0.005}}}.WithDefaults())
	var wg sync.WaitGroup
	var skips atomic.Int64
	var scenes [3][4][]byte // by place and noise; slow to make
	for at := range scenes {
		for noise := range scenes[at] {
			scenes[at][noise] = scene(30+9*at, uint64(noise))
		}
	}
	for i := range 8 {
		wg.Go(func() {
			a := newReplies()
			mode := stream.Latest
			if i%2 == 0 {
				mode = stream.Every
			}
			s, err := g.Open(stream.Options{Policy: stream.Policy{Mode: mode, Window: 512}}, a)
			if err != nil {
				t.Error(err)
				return
			}
			const n = 150
			for k := range uint64(n) {
				l, err := r.mem.Copy(scenes[k/25%3][k%4])
				if err != nil {
					t.Error(err)
					return
				}
				if err := s.Submit(stream.Frame{Seq: k, Codec: stream.RGB24, Width: 160, Height: 120,
					Payload: l.Bytes(), Lease: l}); err != nil {
					t.Error(err)
				}
				if k == 60 {
					s.Flush()
				}
			}
			real := map[int64]string{}
			newest := int64(-1)
			for range n {
				x := a.next(t)
				if x.outcome == stream.Failed {
					t.Error(x.err)
				}
				if x.outcome != stream.Answered {
					continue
				}
				if int64(x.seq) <= newest {
					t.Errorf("%d after %d", x.seq, newest)
				}
				newest = int64(x.seq)
				source, skipped := x.params["source_seq"].(int64)
				if !skipped {
					real[int64(x.seq)] = fmt.Sprint(x.outputs)
					continue
				}
				skips.Add(1)
				if real[source] != fmt.Sprint(x.outputs) {
					t.Errorf("%d repeats %d and differs from it", x.seq, source)
				}
			}
			s.Close(stream.ByClient)
			<-s.Finished()
		})
	}
	wg.Wait()
	if skips.Load() == 0 {
		t.Error("nothing was skipped")
	}
}

func TestGateRefusals(t *testing.T) {
	r := newRig(t)
	for want, cfg := range map[string]workers.Config{
		"gate.changed": {Kind: "looker", Parts: []any{&gate.Settings{Changed: 1.5}}},
		"gate.refresh": {Kind: "looker", Parts: []any{&gate.Settings{Refresh: 2 * time.Second}}},
		"takes none":   {Kind: "dense", Parts: []any{&gate.Settings{Changed: 0.1}}},
		"keeps state":  {Kind: "learner", Parts: []any{&gate.Settings{Changed: 0.1}}},
	} {
		cfg.Name = "a"
		if _, err := r.LoadConfig(t.Context(), cfg.WithDefaults(), true); err == nil ||
			!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "gate") {
			t.Errorf("%s: %v", want, err)
		}
	}
}
