package container_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"millrace/config"
	"millrace/internal/testneeds"
	"millrace/server"
	"millrace/stream"
	"millrace/tasks"
	"millrace/workers"
)

// testImage is the image with the program testdata/task.
const testImage = "localhost/task:1"

// podman is a Podman service with storage of its own.
type podman struct {
	t      *testing.T
	dir    string
	socket string
	flags  []string
	path   string
}

// program is the static program of the image, built once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "millrace-task-")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "task"), "./testdata/task")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return filepath.Join(dir, "task"), nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := program(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// startPodman starts the service. At the end of the test, no container may be left.
func startPodman(t *testing.T) *podman {
	t.Helper()
	if testing.Short() {
		t.Skip("make check runs the tests with podman")
	}
	path := testneeds.Program(t, "podman")
	testneeds.Program(t, "runc")
	if os.Getuid() != 0 {
		t.Skip("podman with runc needs root here")
	}
	dir, err := os.MkdirTemp("", "millrace-pod-") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	p := &podman{t: t, dir: dir, socket: filepath.Join(dir, "s"), path: path, flags: []string{
		"--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run"), "--storage-driver", "vfs",
		"--cgroup-manager", "cgroupfs", "--events-backend", "file", "--runtime", "runc", "--log-level", "error",
		"--tmpdir", filepath.Join(dir, "tmp"),
	}}
	t.Cleanup(func() {
		p.do("rm", "--all", "--force", "--time", "0")
		p.do("unshare", "true")
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	p.importImage(testImage)
	cmd := exec.Command(path, append(p.flags, "system", "service", "--time", "0", "unix://"+p.socket)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Dir = dir // conmon writes files to its folder
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left := p.containers(); left != "" {
			t.Errorf("containers are left: %s", left)
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("podman: %s", log.String())
		}
	})
	for {
		c, err := net.Dial("unix", p.socket)
		if err == nil {
			_ = c.Close()
			return p
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// do runs a command of podman and returns the output.
func (p *podman) do(args ...string) (string, error) {
	out, err := exec.Command(p.path, append(p.flags, args...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (p *podman) containers() string {
	out, err := p.do("ps", "--all", "--quiet", "--no-trunc")
	if err != nil {
		p.t.Fatalf("%v: %s", err, out)
	}
	return out
}

func (p *podman) importImage(name string, changes ...string) {
	p.t.Helper()
	task, err := program()
	if err != nil {
		p.t.Fatal(err)
	}
	b, err := os.ReadFile(task)
	if err != nil {
		p.t.Fatal(err)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	_ = w.WriteHeader(&tar.Header{Name: "task", Mode: 0o755, Size: int64(len(b))})
	if _, err := w.Write(b); err != nil || w.Close() != nil {
		p.t.Fatal(err)
	}
	args := []string{"import", "--change", `ENTRYPOINT ["/task"]`}
	for _, c := range changes {
		args = append(args, "--change", c)
	}
	cmd := exec.Command(p.path, append(p.flags, append(args, "-", name)...)...)
	cmd.Stdin = &layer
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("import: %v: %s", err, out)
	}
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
	s, err := server.New(server.Config{
		HTTP: "127.0.0.1:0", GRPC: server.Off, Data: data, Log: config.Log{Level: "error"}, Models: models,
		Containers: config.Containers{Host: "unix://" + p.socket, Images: []string{"localhost/task"}},
	})
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
