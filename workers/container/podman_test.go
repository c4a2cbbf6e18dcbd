package container_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"millrace/config"
	"millrace/internal/podmantest"
	"millrace/server"
	"millrace/stream"
	"millrace/tasks"
	"millrace/workers"
)

// testImage is the image with the program testdata/task.
const testImage = "localhost/task:1"

// podman is a Podman service with the image testImage.
type podman struct {
	*podmantest.Service
	t       *testing.T
	program string // path of the program of the image
}

func startPodman(t *testing.T) *podman {
	t.Helper()
	p := &podman{Service: podmantest.Start(t), t: t, program: podmantest.Build(t, "./testdata/task", "task")}
	p.importImage(testImage)
	return p
}

func (p *podman) importImage(name string) {
	p.t.Helper()
	p.Import(name, p.program, `ENTRYPOINT ["/task"]`)
}

// rig is a running server with models of the kind container.
type rig struct {
	*server.Server
	t    *testing.T
	data string
	last tasks.Task // of fails
	end  func()
}

// params are the parameters of the model of most tests.
func params(more ...any) stream.Params {
	p := stream.Params{"container.memory": "64MiB", "container.grace": "500ms"}
	for i := 0; i < len(more); i += 2 {
		p[more[i].(string)] = more[i+1]
	}
	return p
}

func start(t *testing.T, p *podman, data string, models ...workers.Config) *rig {
	t.Helper()
	return startServer(t, server.Config{
		HTTP: "127.0.0.1:0", GRPC: server.Off, Data: data, Log: config.Log{Level: "error"}, Models: models,
		Containers: config.Containers{Host: "unix://" + p.Socket, Images: []string{"localhost/task"}},
	})
}

func startServer(t *testing.T, cfg server.Config) *rig {
	t.Helper()
	data := cfg.Data
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	r := &rig{Server: s, t: t, data: data}
	r.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(filepath.Join(data, "containers", "runs", "*")); len(left) > 0 {
			t.Errorf("working folders are left: %v", left)
		}
	})
	t.Cleanup(r.end)
	select {
	case <-s.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("the server does not start: %v", err)
	}
	return r
}

func (r *rig) do(method, path, media string, body []byte) (int, string) {
	r.t.Helper()
	q, err := http.NewRequest(method, r.URL("http")+path, bytes.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	q.Header.Set("Content-Type", media)
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return a.StatusCode, string(b)
}

func (r *rig) submit(model, name string, body []byte) (t tasks.Task) {
	r.t.Helper()
	status, text := r.do("POST", "/v2/tasks?attempts=1&model="+model+"&name="+name, "", body)
	if status != http.StatusCreated || json.Unmarshal([]byte(text), &t) != nil {
		r.t.Fatalf("submit: %d %s", status, text)
	}
	return t
}

func (r *rig) get(id, wait string) (t tasks.Task) {
	r.t.Helper()
	status, text := r.do("GET", "/v2/tasks/"+id+"?wait="+wait, "", nil)
	if status != http.StatusOK || json.Unmarshal([]byte(text), &t) != nil {
		r.t.Fatalf("get: %d %s", status, text)
	}
	return t
}

// awaitCount waits for the metrics of a model's containers.
func (r *rig) awaitCount(model string, running, started int) {
	r.t.Helper()
	for r.t.Context().Err() == nil {
		_, text := r.do("GET", "/metrics", "", nil)
		of := fmt.Sprintf("{model=%q,version=\"1\"}", model)
		if strings.Contains(text, fmt.Sprintf("\nmillrace_model_containers%s %d\n", of, running)) &&
			strings.Contains(text, fmt.Sprintf("\nmillrace_model_container_starts_total%s %d\n", of, started)) {
			return
		}
	}
}

// run submits a task and returns the ended task, and the result.
func (r *rig) run(model, name string, body []byte) (tasks.Task, string) {
	r.t.Helper()
	t := r.get(r.submit(model, name, body).ID, "2m")
	if t.State != tasks.Finished {
		return t, ""
	}
	_, text := r.do("GET", "/v2/tasks/"+t.ID+"/result", "", nil)
	return t, text
}

// fails runs a task that must fail with a message that has all words.
func (r *rig) fails(model, text, code string, words ...string) {
	r.t.Helper()
	t, result := r.run(model, "a.txt", []byte(text))
	r.last = t
	if t.State != tasks.Failed || t.Error.Code != code {
		r.t.Errorf("%s: %s, error %+v, result %.100q, want the code %s", text, t.State, t.Error, result, code)
		return
	}
	for _, w := range words {
		if !strings.Contains(t.Error.Message, w) {
			r.t.Errorf("%s: %q has not %q", text, t.Error.Message, w)
		}
	}
}
