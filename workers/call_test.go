package workers_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
	"millrace/workers/results/postprocess"
)

// routed finds one box in each frame, and answers calls with their body in parentheses.
type routed struct {
	counting
	axis stream.BatchAxis
}

// together records batches that held both frames and calls, or that had the wrong form.
var together struct {
	sync.Mutex
	faults []string
}

func init() {
	for name, axis := range map[string]stream.BatchAxis{"routed": stream.FreeAxis, "routed-fixed": stream.FixedAxis,
		"routed-single": stream.NoAxis} {
		workers.Register(workers.Kind{Name: name, New: func() workers.Worker { return &routed{axis: axis} }})
	}
}

func (w *routed) Init(ctx context.Context, env *workers.Env) (*stream.Model, error) {
	m, err := w.counting.Init(ctx, env)
	m.Stateful, m.App, m.Axis = false, &stream.App{}, w.axis
	if w.axis == stream.NoAxis {
		m.MaxBatch = 1
	}
	return m, err
}

func (w *routed) Run(_ context.Context, b *batching.Batch) error {
	fault := func(format string, args ...any) {
		together.Lock()
		defer together.Unlock()
		together.faults = append(together.faults, fmt.Sprintf(format, args...))
	}
	for _, r := range b.Requests {
		if (r.Call != nil) != b.Calls() {
			fault("frames and calls are in one batch")
		}
	}
	if b.Ragged() != b.Calls() || b.Ragged() != (len(b.Inputs) == 0) || b.Rows < len(b.Requests) {
		fault("ragged %v, calls %v, %d inputs, %d rows for %d requests", b.Ragged(), b.Calls(), len(b.Inputs), b.Rows,
			len(b.Requests))
	}
	if !b.Calls() {
		n := b.Rows
		if w.axis == stream.FixedAxis {
			n = b.Model.MaxBatch
		}
		w.boxes, w.scores = w.boxes[:0], w.scores[:0]
		for range n {
			w.boxes, w.scores = stream.AppendFloat32(w.boxes, 0, 0, 100, 100), stream.AppendFloat32(w.scores, 1)
		}
		b.Outputs = []stream.Tensor{
			{Name: "b", Datatype: stream.Float32, Shape: []int{n, 1, 4}, Data: w.boxes},
			{Name: "s", Datatype: stream.Float32, Shape: []int{n, 1, 1}, Data: w.scores},
		}
		return nil
	}
	for i, r := range b.Requests {
		r.SetReply(&stream.Reply{Status: 201, ContentType: "text/" + r.Call.Endpoint})
		text := "(" + string(r.Payload) + ")"
		b.Finish(i, []stream.Tensor{{Name: "body", Datatype: stream.Bytes, Shape: []int{1},
			Data: append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)}})
	}
	return nil
}

// callReplies is a sink that keeps the replies to calls.
type callReplies struct {
	mu   sync.Mutex
	all  []string
	more chan struct{}
}

func (k *callReplies) Push(r *stream.Result) {
	told := fmt.Sprint(r.Outcome, r.Err)
	if r.Outcome == stream.Answered {
		told = r.Outputs[0].Name
		if r.Reply != nil {
			told = fmt.Sprintf("%d %s %s%v %s", r.Reply.Status, r.Reply.ContentType, told, r.Outputs[0].Shape,
				r.Outputs[0].Data[4:])
		}
	}
	r.Release()
	k.mu.Lock()
	k.all = append(k.all, told)
	k.mu.Unlock()
	k.more <- struct{}{}
}

func (*callReplies) Done(stream.CloseReason) {}

// TestCallsShareNoBatchWithFrames checks that calls of routes and frames of the same model, which arrive in turn, run
// in separate batches, that calls get neither the rows of the model's inputs nor the model's stages, and that calls
// get the replies of the program, for any batch axis of the model.
func TestCallsShareNoBatchWithFrames(t *testing.T) {
	for _, kind := range []string{"routed", "routed-fixed", "routed-single"} {
		t.Run(kind, func(t *testing.T) {
			const streams, each = 6, 30 // within the window
			r := newRig(t)
			g := r.load(t, workers.Config{Kind: kind, Instances: 2,
				Parts: []any{&postprocess.Config{Boxes: &postprocess.Boxes{Boxes: "b", Scores: "s"}}}})
			k := &callReplies{more: make(chan struct{}, streams*each)}
			for i := range streams {
				s, err := g.Open(every, k)
				if err != nil {
					t.Fatal(err)
				}
				for j := range each {
					f := r.frame(t, uint64(j), fmt.Sprint(i))
					if (i+j)%2 == 0 {
						f.Call = &stream.Call{Endpoint: "plain"}
					} else {
						f.Lease.Release()
						l, _ := r.mem.Copy(stream.AppendFloat32(nil, 1, 2, 3))
						f = stream.Frame{Seq: uint64(j), Codec: stream.Tensors, Lease: l,
							Inputs: []stream.Tensor{{Name: "x", Datatype: stream.Float32, Shape: []int{3},
								Data: l.Bytes()}}}
					}
					if err := s.Submit(f); err != nil {
						t.Fatal(err)
					}
				}
			}
			for range streams * each {
				<-k.more
			}
			told := map[string]int{}
			for _, x := range k.all {
				told[x]++
			}
			want := map[string]int{"boxes": streams * each / 2}
			for i := range streams {
				want[fmt.Sprintf("201 text/plain body[1] (%d)", i)] = each / 2
			}
			if fmt.Sprint(told) != fmt.Sprint(want) {
				t.Errorf("got  %v\nwant %v", told, want)
			}
			together.Lock()
			defer together.Unlock()
			if len(together.faults) > 0 {
				t.Error(together.faults)
			}
			together.faults = nil
		})
	}
}

// TestShadowCopiesNoCalls checks that a shadow gets no copies of calls, because a call may have side effects.
func TestShadowCopiesNoCalls(t *testing.T) {
	r, shelf := newShelf(t)
	shelf.put("m", workers.Config{Kind: "routed", Version: "1"}, workers.Config{Kind: "routed", Version: "2",
		Shadow: workers.Shadow{Version: "2", Sample: 1}, Versions: workers.Versions{All: true}})
	r.mustLoad(t, "m", workers.Load{})
	to, _ := r.Group("m", "2")
	g, err := r.Group("m", "1")
	if err != nil {
		t.Fatal(err)
	}
	k := &callReplies{more: make(chan struct{}, 8)}
	s, err := g.Open(every, k)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		f := r.frame(t, uint64(i), "x")
		f.Call = &stream.Call{}
		if err := s.Submit(f); err != nil {
			t.Fatal(err)
		}
		<-k.more
	}
	if err := r.Close(t.Context()); err != nil { // waits for the shadow's copies
		t.Fatal(err)
	}
	if c := to.Stats().Shadow; c != (workers.ShadowStats{}) {
		t.Errorf("the shadow got copies: %+v", c)
	}
}
