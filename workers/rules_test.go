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

// balky is a walker that calls stumble at pictures of the shades 20 and 110. answer answers the picture.
type balky struct{ walker }

var stumble func(answer func())

func init() {
	workers.Register(workers.Kind{Name: "balky", New: func() workers.Worker { return &balky{} }})
}

func (w *balky) Run(c context.Context, b *batching.Batch) error {
	shade := b.Inputs[0].Data[0]
	if err := w.walker.Run(c, b); err != nil || shade != 20 && shade != 110 {
		return err
	}
	stumble(func() { b.Finish(0, b.Outputs) })
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

// show sends a gray picture.
func show(t *testing.T, r rig, s *stream.Stream, a *replies, seq uint64, shade int) reply {
	t.Helper()
	f := r.frame(t, seq, strings.Repeat(string([]byte{byte(shade)}), 3*160*120))
	f.Codec, f.Width, f.Height, f.CaptureUS = stream.RGB24, 160, 120, int64(1e6+33333*seq)
	if err := s.Submit(f); err != nil {
		t.Fatal(err)
	}
	return a.next(t)
}

// walk sends gray pictures of rising or falling brightness, and returns the events.
func walk(t *testing.T, r rig, s *stream.Stream, a *replies, from, to int) (said []string, ids []string) {
	t.Helper()
	for seq := range uint64(9) {
		x := show(t, r, s, a, seq, from+(to-from)*int(seq)/8)
		if x.outcome != stream.Answered {
			t.Fatalf("frame %d: %+v", seq, x)
		}
		shape, data, _ := strings.Cut(x.outputs[rules.Output], "]")
		n := 0
		for ; len(data) > 0; n++ {
			size := 4 + int(binary.LittleEndian.Uint32([]byte(data)))
			var v rules.Event
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

func awaitEnd(t *testing.T, s *stream.Stream) {
	t.Helper()
	select {
	case <-s.Finished():
	case <-time.After(20 * time.Second):
		t.Fatal("the stream goes on")
	}
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
	if !strings.HasSuffix(ids[0], "-1") {
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
	awaitEnd(t, s)

	s, a = open(handle)
	said, ids = walk(t, r, s, a, 250, 10)
	want(said, "gate cross door in 0")
	if !strings.HasSuffix(ids[0], "-3") {
		t.Errorf("after a stream: ids %q", ids)
	}
	handle.Set(mustRules(t, `{"zones":[{"name":"left","polygon":[[0,0],[0.5,0],[0.5,1],[0,1]]}]}`))
	if err := handle.Restore([]byte(`{"version":1,"events":[{"stream":"gate","type":"leave",
		"rule":"yard"}]}`)); err != nil { // while there is an engine
		t.Fatal(err)
	}
	said, _ = walk(t, r, s, a, 250, 10)
	want(said, "gate leave yard  ", "gate enter left  0")
	handle.Set(nil)
	said, _ = walk(t, r, s, a, 10, 250)
	want(said)
	handle.Use(func(live *rules.Live) {
		if live.Engine != nil || len(live.Tally.Rules) != 0 {
			t.Errorf("without rules: %+v", live)
		}
	})
	s.Close(stream.ByClient)
	awaitEnd(t, s)

	s, a = open(nil) // a stream without rules has no output for events
	said, _ = walk(t, r, s, a, 250, 10)
	want(said)
	s.Close(stream.ByClient)
	awaitEnd(t, s)
}

// The numbers of events go on after a run that hangs, and events of a frame without an answer come with the next frame.
func TestRulesAfterFramesWithoutAnswers(t *testing.T) {
	r := newRig(t)
	r.load(t, workers.Config{Name: "people", Kind: "balky", Parts: []any{boxesOfWalker,
		&tracking.Settings{Track: true}}, Limits: workers.Limits{Run: 300 * time.Millisecond, Quarantined: 4}})
	g, err := r.Group("people", "")
	if err != nil {
		t.Fatal(err)
	}
	a := newReplies()
	s, err := g.Open(stream.Options{Rules: rules.NewHandle(mustRules(t, `{"inertia":"1h",
		"zones":[{"name":"left","vanish":true,"polygon":[[0,0],[0.5,0],[0.5,1],[0,1]]}]}`)),
		Policy: stream.Policy{Mode: stream.Every, Window: 8}}, a)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	want := func(from, to int, want ...string) {
		t.Helper()
		said, ids := walk(t, r, s, a, from, to)
		if !slices.Equal(said, want) {
			t.Errorf("events %q, want %q", said, want)
		}
		for _, id := range ids {
			if seen++; !strings.HasSuffix(id, fmt.Sprint("-", seen)) {
				t.Errorf("event %d: id %s", seen, id)
			}
		}
	}
	want(250, 10, " enter left  0")
	hold, returned := make(chan struct{}), make(chan struct{})
	stumble = func(answer func()) { <-hold; answer(); close(returned) }
	if x := show(t, r, s, a, 9, 20); x.outcome != stream.Failed {
		t.Errorf("a frame of a run that hangs: %+v", x)
	}
	// the new tracker has new objects
	want(10, 250, " leave left  0", " vanish left  0", " enter left  0", " leave left  0")
	want(250, 40, " enter left  0")
	close(hold)
	<-returned
	want(40, 40)
	want(250, 130)

	var taken int64
	stumble = func(func()) {
		for n := int64(1 << 50); n > 0; n /= 2 {
			for r.mem.Charge(n) == nil {
				taken += n
			}
		}
	}
	if x := show(t, r, s, a, 9, 110); x.outcome != stream.Dropped {
		t.Errorf("a frame without memory for the answer: %+v", x)
	}
	r.mem.Refund(taken)
	want(100, 100, " enter left  0")
	s.Close(stream.ByClient)
	awaitEnd(t, s)
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
	if len(ids) == 2 && !strings.HasSuffix(ids[0], "-1") {
		t.Errorf("ids %q", ids)
	}
	s.Close(stream.ByClient)
	awaitEnd(t, s)
}

// An object without a box goes on for as long as the tracker keeps the id.
func TestRulesGoOnForTheAgeOfTracks(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Name: "people", Kind: "walker", Parts: []any{boxesOfWalker,
		&tracking.Settings{Track: true, Config: tracking.Config{MaxAge: 3 * time.Second}}}})
	a := newReplies()
	s, err := g.Open(stream.Options{Policy: stream.Policy{Mode: stream.Every, Window: 8}, Rules: rules.NewHandle(
		mustRules(t, `{"zones":[{"name":"left","polygon":[[0,0],[0.5,0],[0.5,1],[0,1]]}]}`))}, a)
	if err != nil {
		t.Fatal(err)
	}
	if said, _ := walk(t, r, s, a, 60, 60); !slices.Equal(said, []string{" enter left  0"}) {
		t.Errorf("events %q", said)
	}
	if x := show(t, r, s, a, 68, 250); x.outputs[rules.Output] != "[1 0]" { // after two seconds
		t.Errorf("the object has vanished: %q", x.outputs[rules.Output])
	}
	s.Close(stream.ByClient)
	awaitEnd(t, s)
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
	awaitEnd(t, s)
	g, err = r.Group("people", "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = g.Open(stream.Options{Rules: door}, newReplies())
	named(err)
}
