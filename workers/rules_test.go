package workers_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/batching"
	"millrace/stream"
	"millrace/stream/rules"
	"millrace/workers"
	"millrace/workers/results/events"
	"millrace/workers/results/gate"
	"millrace/workers/results/postprocess"
	"millrace/workers/results/tracking"
)

// walker finds a box whose middle is as far to the right as the picture is bright.
type walker struct{ looker }

func init() {
	workers.Register(workers.Kind{Name: "walker", New: func() workers.Worker { return &walker{} }})
}

func (w *walker) Run(_ context.Context, b *batching.Batch) error {
	w.boxes, w.score = w.boxes[:0], w.score[:0]
	for i := range b.Rows {
		x := float32(b.Inputs[0].Data[256*i]) / 16
		w.boxes, w.score = stream.AppendFloat32(w.boxes, x-2, 4, x+2, 12), stream.AppendFloat32(w.score, 1)
	}
	b.Outputs = []stream.Tensor{
		{Name: "b", Datatype: stream.Float32, Shape: []int{b.Rows, 1, 4}, Data: w.boxes},
		{Name: "s", Datatype: stream.Float32, Shape: []int{b.Rows, 1, 1}, Data: w.score},
	}
	return nil
}

var boxesOfWalker = &postprocess.Config{Boxes: &postprocess.Boxes{Boxes: "b", Scores: "s"}}

func mustRules(t *testing.T, text string) *rules.Rules {
	t.Helper()
	r, err := rules.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// walk sends gray pictures of rising or falling brightness, and returns the events.
func walk(t *testing.T, r rig, s *stream.Stream, a *replies, from, to int) (said []string, ids []string) {
	t.Helper()
	for seq := range uint64(9) {
		shade := from + (to-from)*int(seq)/8
		f := r.frame(t, seq, strings.Repeat(string([]byte{byte(shade)}), 3*160*120))
		f.Codec, f.Width, f.Height, f.CaptureUS = stream.RGB24, 160, 120, int64(1e6+33333*seq)
		if err := s.Submit(f); err != nil {
			t.Fatal(err)
		}
		x := a.next(t)
		if x.outcome != stream.Answered {
			t.Fatalf("frame %d: %+v", seq, x)
		}
		shape, data, _ := strings.Cut(x.outputs[events.Output], "]")
		n := 0
		for ; len(data) > 0; n++ {
			size := 4 + int(binary.LittleEndian.Uint32([]byte(data)))
			var v events.Event
			if err := json.Unmarshal([]byte(data[4:size]), &v); err != nil {
				t.Fatal(err)
			}
			said = append(said, fmt.Sprint(v.Stream, " ", v.Type, " ", v.Rule, " ", v.Direction, " ", v.Class))
			ids, data = append(ids, v.ID), data[size:]
		}
		if want := fmt.Sprint("[1 ", n); shape != want && s.Rules().Rules() != nil {
			t.Fatalf("frame %d: the shape of the events is %q, want %q", seq, shape, want)
		}
	}
	return said, ids
}

// The rules of a stream make events of a model with tracks. The state of the rules outlives the stream and the model.
func TestRulesOfAStream(t *testing.T) {
	r := newRig(t)
	cfg := workers.Config{Name: "people", Kind: "walker", Parts: []any{boxesOfWalker,
		&tracking.Settings{Track: true}}}
	r.load(t, cfg)
	door := mustRules(t, `{"lines":[{"name":"door","from":[0.5,0],"to":[0.5,1]}]}`)
	handle := rules.NewHandle(door)
	open := func(handle *rules.Handle) (*stream.Stream, *replies) {
		t.Helper()
		g, err := r.Group("people", "")
		if err != nil {
			t.Fatal(err)
		}
		a := newReplies()
		s, err := g.Open(stream.Options{Name: "gate", Rules: handle, Policy: stream.Policy{Mode: stream.Every,
			Window: 8}}, a)
		if err != nil {
			t.Fatal(err)
		}
		return s, a
	}
	want := func(said []string, want ...string) {
		t.Helper()
		if !slices.Equal(said, want) {
			t.Errorf("events %q, want %q", said, want)
		}
	}
	s, a := open(handle)
	said, ids := walk(t, r, s, a, 250, 10)
	want(said, "gate cross door in 0")
	if !strings.HasPrefix(ids[0], "gate-people-") || !strings.HasSuffix(ids[0], "-1") {
		t.Errorf("ids %q", ids)
	}
	if err := r.Swap(context.Background(), "people", cfg); err != nil {
		t.Fatal(err)
	}
	said, ids = walk(t, r, s, a, 10, 250)
	want(said, "gate cross door out 0")
	if !strings.HasSuffix(ids[0], "-2") {
		t.Errorf("after a swap: ids %q", ids)
	}
	s.Close(stream.ByClient)
	<-s.Finished()

	s, a = open(handle)
	said, ids = walk(t, r, s, a, 250, 10)
	want(said, "gate cross door in 0")
	if !strings.HasSuffix(ids[0], "-3") {
		t.Errorf("after a stream: ids %q", ids)
	}
	handle.Set(mustRules(t, `{"zones":[{"name":"left","polygon":[[0,0],[0.5,0],[0.5,1],[0,1]]}]}`))
	said, _ = walk(t, r, s, a, 250, 10)
	want(said, "gate enter left  0")
	handle.Set(nil)
	said, _ = walk(t, r, s, a, 10, 250)
	want(said)
	if kept := handle.Kept(); kept != nil {
		t.Errorf("without rules: %s", kept)
	}
	s.Close(stream.ByClient)
	<-s.Finished()

	s, a = open(nil) // a stream without rules has no output for events
	said, _ = walk(t, r, s, a, 250, 10)
	want(said)
	s.Close(stream.ByClient)
	<-s.Finished()
}

// Frames that the gate answers with an earlier result are frames for the rules, too.
func TestRulesSeeUnchangedFrames(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Name: "people", Kind: "walker", Parts: []any{boxesOfWalker,
		&tracking.Settings{Track: true}, &gate.Settings{Changed: 0.005}}}.WithDefaults())
	a := newReplies()
	s, err := g.Open(stream.Options{Policy: stream.Policy{Mode: stream.Every, Window: 8}, Rules: rules.NewHandle(
		mustRules(t, `{"zones":[{"name":"left","dwell":"200ms","polygon":[[0,0],[0.5,0],[0.5,1],[0,1]]}]}`))}, a)
	if err != nil {
		t.Fatal(err)
	}
	said, ids := walk(t, r, s, a, 60, 60)
	if want := []string{" enter left  0", " dwell left  0"}; !slices.Equal(said, want) {
		t.Errorf("events %q, want %q", said, want)
	}
	if len(ids) == 2 && !strings.HasPrefix(ids[0], "people-1033333-1") {
		t.Errorf("ids %q", ids)
	}
	s.Close(stream.ByClient)
	<-s.Finished()
}

// A stream with rules needs a model with tracks, also after a swap.
func TestRulesNeedTracks(t *testing.T) {
	r := newRig(t)
	plain := workers.Config{Name: "people", Kind: "walker", Parts: []any{boxesOfWalker}}
	door := rules.NewHandle(mustRules(t, `{"lines":[{"name":"door","from":[0.5,0],"to":[0.5,1]}]}`))
	named := func(err error) {
		t.Helper()
		if e := new(stream.Error); !errors.As(err, &e) || e.Field != "rules" ||
			!strings.Contains(e.Msg, "people has none: set output.track") {
			t.Errorf("the error %v", err)
		}
	}
	_, err := r.load(t, plain).Open(stream.Options{Rules: door}, newReplies())
	named(err)
	tracked := plain
	tracked.Parts = []any{boxesOfWalker, &tracking.Settings{Track: true}}
	if err := r.Swap(context.Background(), "people", tracked); err != nil {
		t.Fatal(err)
	}
	g, err := r.Group("people", "")
	if err != nil {
		t.Fatal(err)
	}
	s, err := g.Open(stream.Options{Rules: door}, newReplies())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Swap(context.Background(), "people", plain); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Finished():
	case <-time.After(20 * time.Second):
		t.Fatal("the stream goes on without tracks")
	}
	g, err = r.Group("people", "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = g.Open(stream.Options{Rules: door}, newReplies())
	named(err)
}
