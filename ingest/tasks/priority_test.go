package tasks_test

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"testing"

	"millrace/batching"
	"millrace/server"
	"millrace/stream"
	"millrace/tasks"
	"millrace/workers"
)

// ranks is a model that records the priorities of frames.
type ranks struct {
	workers.Base
	seen chan stream.Priority
}

var ranked = make(chan stream.Priority, 16)

func init() {
	workers.Register(workers.Kind{Name: "ranks", New: func() workers.Worker { return ranks{seen: ranked} }})
}

func (ranks) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 1}, nil
}

func (w ranks) Run(_ context.Context, b *batching.Batch) error {
	for i, r := range b.Requests {
		w.seen <- cmp.Or(r.Priority, r.Stream.Policy().Priority)
		b.Finish(i, nil)
	}
	return nil
}

// TestPriorityOfFrames: the frames of a task have low priority, unless the request in the task says another.
func TestPriorityOfFrames(t *testing.T) {
	r := start(t, t.TempDir(), func(c *server.Config) {
		c.Models = []workers.Config{{Name: "ranks", Source: "ranks"}}
	})
	body := func(parameters string) string { return strings.Replace(jsonBody, "{", "{"+parameters, 1) }
	for _, c := range []struct {
		body string
		want stream.Priority
	}{{jsonBody, stream.Low}, {body(`"parameters":{"priority":1},`), stream.High}} {
		if task := r.wait(r.submit("model=ranks", nil, c.body).ID, nil); task.State != tasks.Finished {
			t.Fatalf("%+v, error %+v", task, task.Error)
		}
		if got := <-ranked; got != c.want {
			t.Errorf("a frame of a task has the priority %v, want %v: %s", got, c.want, c.body)
		}
	}
	a, text := r.do("POST", "/v2/models/ranks/infer", nil, strings.NewReader(jsonBody))
	if a.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", a.StatusCode, text)
	}
	if got := <-ranked; got != stream.Normal {
		t.Errorf("a frame of a client has the priority %v", got)
	}
}

// TestYearsOfTimes: a time whose year in UTC has no four digits is refused.
func TestYearsOfTimes(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	for _, at := range []string{"9999-12-31T23:59:59-05:00", "0000-01-01T00:00:00%2B05:00"} {
		a, text := r.do("POST", "/v2/tasks?model=echo&not_before="+at, nil, strings.NewReader(jsonBody))
		if a.StatusCode != http.StatusBadRequest || !strings.Contains(text, "not_before") {
			t.Errorf("%s: %d %s", at, a.StatusCode, text)
		}
	}
}
