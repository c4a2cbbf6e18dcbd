package tasks_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"millrace/batching"
	"millrace/server"
	"millrace/stream"
	"millrace/tasks"
	"millrace/workers"
)

// upper is a model that takes files, and answers a text in capital letters.
type upper struct{ workers.Base }

var _ workers.FileWorker = upper{}

func init() {
	workers.Register(workers.Kind{Name: "upper", New: func() workers.Worker { return upper{} }})
}

func (upper) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{Files: true, AcceptsAnyInput: true, Ragged: true, MaxBatch: 1}, nil
}

func (upper) Run(context.Context, *batching.Batch) error {
	return stream.Errorf(stream.Unsupported, "", "tasks only")
}

// RunFile implements workers.FileWorker.
func (upper) RunFile(ctx context.Context, f *stream.FileRun) error {
	b, err := io.ReadAll(io.NewSectionReader(f.Input, 0, f.Size))
	if err != nil {
		return err
	}
	fmt.Fprintf(f.Log, "read %d bytes of %s\n", len(b), f.Name)
	f.Progress(3, 10, "words")
	switch text := string(b); {
	case text == "hang":
		<-ctx.Done()
		return context.Cause(ctx)
	case text == "empty":
		return nil
	case strings.HasPrefix(text, "fail"):
		return stream.Errorf(stream.InvalidArgument, "", "%s fails", f.Name)
	}
	w, err := f.Create(f.Name+".upper", "text/plain")
	if err == nil {
		_, err = io.WriteString(w, strings.ToUpper(string(b)))
	}
	return err
}

// TestFiles: a model that takes files gets the input as sent, with its name, and the file that the model writes is the
// result, with name and media type. Errors and the end of a claim reach the model and the client.
func TestFiles(t *testing.T) {
	r := start(t, t.TempDir(), func(c *server.Config) {
		c.Models = []workers.Config{{Name: "up", Source: "upper"}}
	})
	task := r.wait(r.submit("model=up&name=a.txt", nil, "text").ID, nil)
	if task.State != tasks.Finished || task.Result.Name != "a.txt.upper" || task.Result.Size != 4 {
		t.Fatalf("the task: %+v, result %+v, error %+v", task, task.Result, task.Error)
	}
	a, text := r.do("GET", "/v2/tasks/"+task.ID+"/result", nil, nil)
	if a.StatusCode != http.StatusOK || text != "TEXT" || a.Header.Get("Content-Type") != "text/plain" {
		t.Errorf("the result: %d %v %s", a.StatusCode, a.Header, text)
	}
	task = r.wait(r.submit("model=up&name=b", nil, "fail").ID, nil)
	if task.State != tasks.Failed || task.Error.Code != "invalid_argument" || task.Error.Message != "b fails" {
		t.Errorf("a failure: %+v, error %+v", task, task.Error)
	}
	task = r.wait(r.submit("model=up&attempts=1", nil, "empty").ID, nil)
	if task.State != tasks.Failed || !strings.Contains(task.Error.Message, "without a result") {
		t.Errorf("without a result: %+v, error %+v", task, task.Error)
	}
	task = r.submit("model=up", nil, "hang")
	for task.State == tasks.Queued {
		_, text = r.do("GET", "/v2/tasks/"+task.ID+"?wait=1s", nil, nil)
		task = r.task(text)
	}
	r.do("POST", "/v2/tasks/"+task.ID+"/cancel", nil, nil)
	if task = r.wait(task.ID, nil); task.State != tasks.Cancelled {
		t.Errorf("after the cancellation: %+v", task)
	}
	task = r.wait(r.submit("model=up", nil, "next").ID, nil) // the only place is free again
	if task.State != tasks.Finished {
		t.Errorf("after the cancelled task: %+v", task)
	}
}

// TestClaimsOfTheServer: on a server whose clients need no credentials, no request for claims reaches a task that the
// server itself runs.
func TestClaimsOfTheServer(t *testing.T) {
	r := start(t, t.TempDir(), func(c *server.Config) {
		c.Models = []workers.Config{{Name: "up", Source: "upper"}}
	})
	task := r.submit("model=up", nil, "hang")
	for task.State == tasks.Queued {
		_, text := r.do("GET", "/v2/tasks/"+task.ID+"?wait=1s", nil, nil)
		task = r.task(text)
	}
	claim := "/v2/work/claims/" + task.ID + "/1/"
	for _, name := range []string{"fail", "release", "renew"} {
		a, text := r.do("POST", claim+name, nil, strings.NewReader(`{"code":"internal"}`))
		if a.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d %s", name, a.StatusCode, text)
		}
	}
	_, text := r.do("GET", "/v2/tasks/"+task.ID, nil, nil)
	if task = r.task(text); task.State != tasks.Running {
		t.Errorf("the task: %s", text)
	}
	r.do("POST", "/v2/tasks/"+task.ID+"/cancel", nil, nil)
	r.wait(task.ID, nil)
}
