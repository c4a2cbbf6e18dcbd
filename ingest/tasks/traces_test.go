//go:build !notracing

package tasks_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/server"
	"millrace/tasks"
	"millrace/tracing/spans"
)

const (
	clientTrace = "0af7651916cd43dd8448eb211c80319c"
	clientSpan  = "b7ad6b7169203331"
)

// kept waits for a kept root of a trace with this name.
func (r *rig) kept(trace, name string) *spans.KeptFrame {
	r.t.Helper()
	var names []string
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		a, text := r.do("GET", "/v2/traces?trace="+trace, nil, nil)
		var list struct{ Traces []*spans.KeptFrame }
		if err := json.Unmarshal([]byte(text), &list); err != nil || a.StatusCode != 200 {
			r.t.Fatalf("%d %s: %v", a.StatusCode, text, err)
		}
		names = nil
		for _, k := range list.Traces {
			if names = append(names, k.Spans[0].Name); k.TraceID != trace {
				r.t.Fatalf("the trace %s among those of %s", k.TraceID, trace)
			}
		}
		if i := slices.Index(names, name); i >= 0 {
			return list.Traces[i]
		}
	}
	r.t.Fatalf("no root %s is kept, but %q", name, names)
	return nil
}

// TestTrace: the submission, the attempt with its wait, and the frame of a task are spans of the client's trace, which
// the task and the answer to the submission name.
func TestTrace(t *testing.T) {
	keep := spans.Config{Sampler: "ratio", Ratio: new(1.0)}
	r := start(t, t.TempDir(), func(c *server.Config) { c.Parts = []any{&keep} })
	a, text := r.do("POST", "/v2/tasks?model=echo", map[string]string{"traceparent": "00-" + clientTrace + "-" +
		clientSpan + "-01"}, strings.NewReader(jsonBody))
	task := r.wait(r.task(text).ID, nil)
	submit := r.kept(clientTrace, "submit echo")
	want := "00-" + clientTrace + "-" + submit.SpanID + "-01"
	if task.State != tasks.Finished || task.Trace != want || a.Header.Get("traceresponse") != want ||
		submit.ParentID != clientSpan || submit.Stream != task.ID {
		t.Errorf("the task %+v, traceresponse %s, submission %+v", task, a.Header.Get("traceresponse"), submit)
	}
	run := r.kept(clientTrace, "task echo")
	if run.ParentID != submit.SpanID || len(run.Spans) != 3 || run.Spans[1].Name != "wait" ||
		run.Spans[2].Name != "attempt" || run.Spans[1].ParentID != run.SpanID || run.Spans[2].ParentID != run.SpanID ||
		run.Spans[2].StartUS != run.Spans[1].DurationUS {
		t.Fatalf("the attempt %+v", run)
	}
	for key, want := range map[string]any{"millrace.task.attempt": 1.0, "millrace.task.outcome": "finished",
		"millrace.model": "echo", "messaging.message.id": task.ID} {
		if got := run.Spans[0].Attributes[key]; got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	if frame := r.kept(clientTrace, "rest echo"); frame.ParentID != run.Spans[2].SpanID {
		t.Errorf("the frame is no child of the attempt: %+v", frame)
	}
}

// TestTraceOfServer: without a context of the client, the sampler of the server decides for the whole task. A failed
// attempt is kept anyway, with its error.
func TestTraceOfServer(t *testing.T) {
	keep := spans.Config{Sampler: "ratio", Ratio: new(1.0)}
	r := start(t, t.TempDir(), func(c *server.Config) { c.Parts = []any{&keep} })
	trace := func(task tasks.Task, flags string) string {
		t.Helper()
		if len(task.Trace) != 55 || task.Trace[53:] != flags {
			t.Fatalf("the trace context of the task: %q, want the flags %s", task.Trace, flags)
		}
		return task.Trace[3:35]
	}
	id := trace(r.submit("model=echo", nil, jsonBody), "01")
	if submit, run := r.kept(id, "submit echo"), r.kept(id, "task echo"); submit.ParentID != "" ||
		run.ParentID != submit.SpanID {
		t.Errorf("the submission %+v, the attempt %+v", submit, run)
	}
	r.end()

	none := spans.Config{Ratio: new(0.0)}
	r = start(t, t.TempDir(), func(c *server.Config) { c.Parts = []any{&none} })
	done, broken := r.submit("model=echo", nil, jsonBody), r.submit("model=echo", nil, `{"inputs":7}`)
	r.wait(done.ID, nil)
	run := r.kept(trace(broken, "00"), "task echo")
	if a := run.Spans[2].Attributes; run.Code != "invalid_argument" || run.Message == "" ||
		a["millrace.task.outcome"] != "failed" || !slices.Equal(run.Kept, []string{"failed"}) {
		t.Errorf("the failed attempt: %+v", run)
	}
	if a, text := r.do("GET", "/v2/traces?trace="+trace(done, "00"), nil, nil); text != `{"traces":[]}` {
		t.Errorf("a trace that was not sampled: %d %s", a.StatusCode, text)
	}
}

// TestTraceOfFrames: the frames of an archive are children of the attempt.
func TestTraceOfFrames(t *testing.T) {
	keep := spans.Config{Sampler: "ratio", Ratio: new(1.0)}
	r := start(t, t.TempDir(), func(c *server.Config) {
		withEyes(c)
		c.Parts = []any{&keep}
	})
	task := r.wait(r.submit("model=eyes", map[string]string{"Content-Type": "application/zip"}, pictures(t, 1)).ID, nil)
	if task.State != tasks.Finished {
		t.Fatalf("%+v", task.Error)
	}
	id := task.Trace[3:35]
	if run, frame := r.kept(id, "task eyes"), r.kept(id, "tasks eyes"); frame.ParentID != run.Spans[2].SpanID {
		t.Errorf("the frame %+v is no child of the attempt %+v", frame, run)
	}
}
