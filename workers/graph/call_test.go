package graph_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
	"millrace/workers/graph"
)

// program is a kind that answers requests to routes: with the endpoint, and the body in parentheses. The status is
// 422 when the body contains the setting bad.
type program struct {
	workers.Base
	set programSettings
}

type programSettings struct {
	Bad   string `yaml:"bad" help:"bodies that are refused"`
	Parts int    `yaml:"parts" help:"parts before the answer"`
	Break bool   `yaml:"break" help:"fail"`
}

func init() {
	workers.Register(workers.Kind{Name: "program", New: func() workers.Worker {
		return &program{}
	}, Settings: func() any { return new(programSettings) }})
}

func (p *program) Init(_ context.Context, env *workers.Env) (*stream.Model, error) {
	p.set = *env.Settings.(*programSettings)
	return &stream.Model{MaxBatch: 4, Ragged: true, AcceptsAnyInput: true, Calls: true}, nil
}

func (p *program) Run(_ context.Context, b *batching.Batch) error {
	for i, r := range b.Requests {
		if r.Codec != stream.Opaque || r.Call == nil {
			return stream.Errorf(stream.Internal, "codec", "is %v", r.Codec)
		}
		if p.set.Break {
			return stream.Errorf(stream.Internal, "", "broken")
		}
		text := fmt.Sprintf("%s(%s)", r.Call.Endpoint, r.Payload)
		reply := &stream.Reply{Status: 200, ContentType: "text/" + r.Call.Endpoint}
		if p.set.Bad != "" && strings.Contains(text, p.set.Bad) {
			reply.Status = 422
		}
		for k := range p.set.Parts {
			r.Emit([]stream.Tensor{bodyOf(fmt.Sprintf("%s %d", text, k))}, nil)
		}
		r.SetReply(reply)
		b.Finish(i, []stream.Tensor{bodyOf(text)})
	}
	return nil
}

func bodyOf(text string) stream.Tensor {
	return stream.Tensor{Name: "body", Datatype: stream.Bytes, Shape: []int{1},
		Data: append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)}
}

// bodyIn returns the body of an answer.
func bodyIn(t *testing.T, r *stream.Result) string {
	t.Helper()
	data := output(t, r, r.Outputs[0].Name).Data
	return string(data[4:])
}

// programs is a machine with a graph of three programs.
func programs(t *testing.T, of ...stream.Params) *machine {
	x := newMachine(t)
	var s graph.Settings
	for i, params := range of {
		name := string(rune('a' + i))
		x.load(name, "program", params)
		from := "body"
		if i > 0 {
			from = fmt.Sprintf("body%d", i)
		}
		s.Steps = append(s.Steps, graph.Step{Model: name, Endpoint: "/" + name, Input: map[string]string{"body": from},
			Output: map[string]string{"body": fmt.Sprintf("body%d", i+1)}})
	}
	s.Outputs = []string{fmt.Sprintf("body%d", len(of))}
	x.graph(s)
	return x
}

func call(text string) stream.Frame {
	return stream.Frame{Codec: stream.Opaque, Payload: []byte(text),
		Call: &stream.Call{Endpoint: "route", Method: "POST", Path: "/route"}}
}

// TestCallRunsThroughSteps sends a body through three programs.
func TestCallRunsThroughSteps(t *testing.T) {
	x := programs(t, nil, nil, nil)
	for range 20 {
		r := x.infer("g", call("text"))
		if got, want := bodyIn(t, r), "/c(/b(/a(text)))"; got != want || r.Reply == nil ||
			r.Reply.ContentType != "text//c" || len(r.Outputs) != 1 {
			t.Fatalf("%s, %+v: want %s", got, r.Reply, want)
		}
		r.Release()
	}
}

func TestErrorReplyEndsTheCall(t *testing.T) {
	x := programs(t, nil, stream.Params{"bad": "wrong"}, nil)
	r := x.infer("g", call("wrong"))
	if got, want := bodyIn(t, r), "/b(/a(wrong))"; got != want || r.Reply == nil || r.Reply.Status != 422 {
		t.Errorf("%s, %+v: want %s and 422", got, r.Reply, want)
	}
	r.Release()
	r = x.infer("g", call("right"))
	if got, want := bodyIn(t, r), "/c(/b(/a(right)))"; got != want {
		t.Errorf("%s: want %s", got, want)
	}
	r.Release()
}

func TestFailureOfACallNamesTheStep(t *testing.T) {
	x := programs(t, nil, stream.Params{"break": true})
	r := x.infer("g", call("text"))
	defer r.Release()
	if r.Outcome != stream.Failed || r.Err.Error() != "steps.b: broken" {
		t.Errorf("%v, %v", r.Outcome, r.Err)
	}
}

// TestPartsOfACallArePassedOn checks that the parts arrive in order, before the ending.
func TestPartsOfACallArePassedOn(t *testing.T) {
	x := programs(t, nil, stream.Params{"parts": int64(100)})
	r, sink := x.open("g", oneShot)
	for range 10 {
		if err := r.Submit(call("x")); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			p := <-sink.c
			if got, want := bodyIn(t, p), fmt.Sprintf("/b(/a(x)) %d", i); !p.Partial || got != want {
				t.Fatalf("part %d is %s, partial: %v", i, got, p.Partial)
			}
			p.Release()
		}
		p := <-sink.c
		if got := bodyIn(t, p); p.Partial || got != "/b(/a(x))" {
			t.Fatalf("the answer is %s, partial: %v", got, p.Partial)
		}
		p.Release()
	}
	r.Close(stream.ByClient)
	<-sink.done
}

// TestCallNeedsABody checks the errors of graphs that no body can go through.
func TestCallNeedsABody(t *testing.T) {
	x := newMachine(t)
	x.load("double", "scale", nil)
	x.load("p", "program", nil)
	x.load("same", "identity", nil)
	x.graph(graph.Settings{Steps: []graph.Step{
		{Model: "p", Input: map[string]string{"body": "in"}, Output: map[string]string{"body": "a"}},
		{Model: "same", Input: map[string]string{"x": "a", "y": "b"}, Output: map[string]string{"x": "c"}},
		{Name: "q", Model: "p", Input: map[string]string{"body": "in"}, Output: map[string]string{"body": "b"}},
	}, Outputs: []string{"c"}})
	r := x.infer("g", call("text"))
	defer r.Release()
	if want := "steps.same.input: has 2 inputs"; r.Outcome != stream.Failed || !strings.HasPrefix(r.Err.Error(), want) {
		t.Errorf("%v, %v: want %s", r.Outcome, r.Err, want)
	}
}
