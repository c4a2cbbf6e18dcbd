package container_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/tasks"
	"millrace/workers"
)

// TestTasks: a container gets the files of a task and its files are the result; a container that fails, or writes no
// or other than ordinary files, fails the task with its last lines. The limits hold.
func TestTasks(t *testing.T) {
	p := startPodman(t)
	model := t.TempDir()
	if err := os.WriteFile(filepath.Join(model, "weights"), []byte("17"), 0o644); err != nil {
		t.Fatal(err)
	}
	// Every folder above a bind mount of this test must be readable by the container's user.
	r := start(t, p, t.TempDir(),
		workers.Config{Name: "task", Source: "container://" + testImage, Params: params("container.model", model)},
		workers.Config{Name: "small", Source: "container", Params: params("container.image", testImage,
			"container.output", "8MiB", "container.time", "20s", "container.pids", int64(20))},
		workers.Config{Name: "short", Source: "container://" + testImage, Params: params("container.time", "2s")})

	task, text := r.run("task", "a.txt", []byte("some text"))
	if task.State != tasks.Finished || text != "SOME TEXT" || task.Result.Name != "result.txt" ||
		!strings.HasPrefix(task.Result.Type, "text/plain") {
		t.Errorf("a file: %+v, error %+v, result %+v %q", task.State, task.Error, task.Result, text)
	}
	if _, log := r.do("GET", "/v2/tasks/"+task.ID+"/logs", "", nil); log != "the input: [/input/a.txt]\n" {
		t.Errorf("the log: %q", log)
	}
	var in bytes.Buffer
	z := zip.NewWriter(&in)
	w, _ := z.Create("a/b.txt")
	fmt.Fprint(w, "several")
	_ = z.Close()
	task, text = r.run("task", "in.zip", in.Bytes())
	if out, err := zip.NewReader(strings.NewReader(text), int64(len(text))); err != nil || len(out.File) != 3 ||
		task.Result.Type != "application/zip" {
		t.Errorf("a zip: %+v, error %+v, result %+v %v", task.State, task.Error, task.Result, err)
	}
	r.fails("task", "fail because", "internal", "status 3", "a reason: because", "/input/a.txt")
	r.fails("task", "nothing", "invalid_argument", "no file")
	r.fails("task", "link", "invalid_argument", "link", "refused")
	r.fails("task", "memory", "internal", "container.memory")
	r.fails("small", "fill", "too_large", "container.output")
	r.fails("short", "hang", "timeout", "container.time", "it was asked to end")
	if p := r.last.Progress; p != (tasks.Progress{Done: 1, Total: 3, Unit: "pages"}) {
		t.Errorf("the progress: %+v", p)
	}
	r.fails("short", "stubborn", "timeout", "container.time")
	task, text = r.run("small", "a", []byte("fork"))
	if n := 0; task.State != tasks.Finished || text == "" {
		t.Errorf("forks: %s %+v", task.State, task.Error)
	} else if _, err := fmt.Sscan(text, &n); err != nil || n < 1 || n > 20 {
		t.Errorf("%s processes with container.pids 20", text)
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, text = r.run("task", "a", []byte("about "+l.Addr().String()))
	want := "user 65532:65532\nNoNewPrivs: 1\nCapBnd: 0000000000000000\nmodel 17"
	got := strings.Split(text, "\n")
	for _, line := range strings.Split(want, "\n") {
		if !strings.Contains(text, line) {
			t.Errorf("the container has not %q: %s", line, text)
		}
	}
	if len(got) != 4 {
		t.Errorf("the container has more rights than these: %s", text)
	}
	// A request is refused with the way that works.
	status, text := r.do("POST", "/v2/models/task/infer", "application/json",
		[]byte(`{"inputs":[{"name":"input","datatype":"BYTES","shape":[1],"data":["x"]}]}`))
	if status == http.StatusOK || !strings.Contains(text, "/v2/tasks?model=task") {
		t.Errorf("a request: %d %s", status, text)
	}
}
