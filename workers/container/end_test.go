package container_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/config"
	"millrace/server"
	"millrace/stream"
	"millrace/tasks"
	"millrace/workers"
)

// awaitContainer returns the id of the only container when the container runs.
func (p *podman) awaitContainer() string {
	p.t.Helper()
	for p.t.Context().Err() == nil {
		out, err := p.Do("ps", "--quiet", "--no-trunc")
		if err != nil {
			p.t.Fatalf("%v: %s", err, out)
		}
		if out != "" {
			return out
		}
	}
	return ""
}

// TestCancel: the container of a cancelled task, and of a task that runs when the server shuts down, is removed. The
// second task is queued again.
func TestCancel(t *testing.T) {
	p := startPodman(t)
	data := t.TempDir()
	model := workers.Config{Name: "task", Source: "container://" + testImage, Params: params()}
	r := start(t, p, data, model)
	task := r.submit("task", "a", []byte("stubborn"))
	r.awaitCount("task", 1, 1)
	if status, text := r.do("POST", "/v2/tasks/"+task.ID+"/cancel", "", nil); status != http.StatusOK {
		t.Fatalf("cancel: %d %s", status, text)
	}
	next, text := r.run("task", "a", []byte("next")) // begins when the first container is removed
	if next.State != tasks.Finished || text != "NEXT" {
		t.Errorf("after the cancelled task: %s %+v", next.State, next.Error)
	}
	if left := p.Containers(); left != "" {
		t.Errorf("the container of the cancelled task is left: %s", left)
	}
	r.awaitCount("task", 0, 2)
	task = r.submit("task", "a", []byte("stubborn"))
	p.awaitContainer()
	r.end()
	if left := p.Containers(); left != "" {
		t.Errorf("a container is left after the shutdown: %s", left)
	}
	r = start(t, p, data)
	if got := r.get(task.ID, "0s"); got.State != tasks.Queued {
		t.Errorf("the task that was running is %s, error %+v", got.State, got.Error)
	}
}

// serveEnv makes the test's program a server: the socket and the data folder.
const serveEnv = "MILLRACE_TEST_CONTAINERS"

func init() {
	socket, data, found := strings.Cut(os.Getenv(serveEnv), ",")
	if !found {
		return
	}
	s, err := server.New(server.Config{
		HTTP: "127.0.0.1:0", GRPC: server.Off, Data: data, Log: config.Log{Level: "error"},
		Models:     []workers.Config{{Name: "task", Source: "container://" + testImage, Params: params()}},
		Containers: config.Containers{Host: "unix://" + socket, Images: []string{testImage}},
	})
	if err == nil {
		err = s.Run(context.Background())
	}
	if err != nil {
		panic(err)
	}
	os.Exit(0)
}

// TestKill: the container and the working folder of a server that SIGKILL has ended are removed at the next start, and
// the containers of other servers stay.
func TestKill(t *testing.T) {
	p := startPodman(t)
	data := t.TempDir()
	r := start(t, p, data)
	task := r.submit("task", "a", []byte("stubborn")) // waits for the model
	r.end()
	other, err := p.Do("run", "--detach", "--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit",
		"nproc=1024:1024", "--label", "millrace.data=other", testImage, "wait")
	if err != nil {
		t.Fatalf("%v: %s", err, other)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), serveEnv+"="+p.Socket+","+data)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(p.awaitContainer(), "\n") { // the second container
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if n := len(strings.Fields(p.Containers())); n != 2 {
		t.Fatalf("%d containers after SIGKILL", n)
	}
	if left, _ := filepath.Glob(filepath.Join(data, "containers", "runs", "*")); len(left) != 1 {
		t.Errorf("working folders after SIGKILL: %v", left)
	}
	r = start(t, p, data)
	if left := p.Containers(); left != other[strings.LastIndex(other, "\n")+1:] {
		t.Errorf("containers after the next start: %q, want %q", left, other)
	}
	if left, _ := filepath.Glob(filepath.Join(data, "containers", "runs", "*")); len(left) != 0 {
		t.Errorf("working folders after the next start: %v", left)
	}
	r.do("POST", "/v2/tasks/"+task.ID+"/cancel", "", nil)
	if out, err := p.Do("rm", "--force", "--time", "0", other); err != nil {
		t.Error(out)
	}
}

// TestLoads: a model loads only with a socket, a data folder, and an image that the list allows and the engine has. A
// request cannot change the parameters.
func TestLoads(t *testing.T) {
	p := startPodman(t)
	p.importImage("localhost/other:1")
	for _, c := range []struct {
		name   string
		model  stream.Params
		change func(*server.Config)
		want   string
	}{
		{"no socket", nil, func(c *server.Config) { c.Containers.Host = "" }, "containers.host: is unset"},
		{"no data folder", nil, func(c *server.Config) { c.Data = "" }, "data: is unset"},
		{"no list", nil, func(c *server.Config) { c.Containers.Images = nil }, "containers.images: has no entry"},
		{"not in the list", stream.Params{"container.image": "localhost/other:1"}, nil, "containers.images: has no entry"},
		{"another tag", nil, func(c *server.Config) { c.Containers.Images = []string{"localhost/task:2"} },
			"containers.images: has no entry"},
		{"no image", stream.Params{"container.image": "localhost/task:3"}, nil, "has no image localhost/task:3"},
		{"no registry", stream.Params{"container.image": "127.0.0.1:1/task:1", "container.pull": "missing"}, nil,
			"cannot be pulled"},
		{"no engine", nil, func(c *server.Config) { c.Containers.Host = "unix:///nowhere.sock" }, "the container engine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			params := stream.Params{"container.image": testImage}
			for k, v := range c.model {
				params[k] = v
			}
			cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off, Data: t.TempDir(),
				Log:    config.Log{Level: "error"},
				Models: []workers.Config{{Name: "task", Source: "container", Params: params}},
				Containers: config.Containers{Host: "unix://" + p.Socket,
					Images: []string{"localhost/task", "127.0.0.1:1/task"}}}
			if c.change != nil {
				c.change(&cfg)
			}
			s, err := server.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if err = s.Run(ctx); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	r := start(t, p, t.TempDir(), workers.Config{Name: "task", Source: "container://" + testImage, Params: params()})
	for _, body := range []string{`{"parameters":{"container.image":"localhost/other:1"}}`,
		`{"parameters":{"container.model":"/etc"}}`, `{"parameters":{"container.gpus":"all"}}`,
		`{"parameters":{"container.serve.port":8000}}`,
		`{"parameters":{"config":"{\"parameters\":{\"container.model\":{\"string_value\":\"/etc\"}}}"}}`,
		`{"parameters":{"config":"{\"parameters\":{\"container.serve.port\":{\"string_value\":\"80\"}}}"}}`} {
		if status, text := r.do("POST", "/v2/repository/models/task/load", "application/json", []byte(body)); status ==
			http.StatusOK {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
}
