package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"millrace/client"
	"millrace/internal/s3test"
	"millrace/tasks"
)

// TestDataCheck: the data folder of a server that runs is refused, of a stopped server is sound, and with a damaged
// input has a problem.
func TestDataCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, request := filepath.Join(dir, "data"), filepath.Join(dir, "request.json")
	if err := os.WriteFile(request, []byte(largeInput), 0o600); err != nil {
		t.Fatal(err)
	}
	p, addr := readyServer(t, command(t, "serve", "--http", "127.0.0.1:0", "--grpc", "off", "--model", "echo=identity",
		"--data", data))
	out, stderr, code := millrace(t, "tasks", "submit", "echo", "--request", request, "--wait", "1m", "--json",
		"--addr", addr)
	var task client.Task
	if err := json.Unmarshal([]byte(out), &task); err != nil || code != 0 {
		t.Fatalf("exit status %d: %s%s", code, out, stderr)
	}
	if _, stderr, code := millrace(t, "data", "check", data); code != 1 ||
		!strings.Contains(stderr, "another process") {
		t.Errorf("while the server runs: exit status %d: %s", code, stderr)
	}
	if rest, code := p.signal(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit status %d: %s", code, rest)
	}
	if out, stderr, code := millrace(t, "data", "check", data); code != 0 || !strings.Contains(out,
		"1 tasks, 2 files") {
		t.Errorf("a sound folder: exit status %d: %s%s", code, out, stderr)
	}
	input := filepath.Join(data, "files", task.ID[30:], task.ID, "input")
	b, err := os.ReadFile(input)
	if err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if err := os.WriteFile(input, b, 0o600); err != nil {
		t.Fatal(err)
	}
	out, stderr, code = millrace(t, "data", "check", data, "--json")
	var report tasks.CheckReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 1 || len(report.Problems) != 1 ||
		report.Problems[0].Task != task.ID || !strings.Contains(stderr, "has 1 problems") {
		t.Errorf("a damaged input: exit status %d, %v: %s%s", code, err, out, stderr)
	}
	if out, _, code := millrace(t, "data", "check", data); code != 1 || !strings.Contains(out, "is damaged") {
		t.Errorf("the table: exit status %d: %s", code, out)
	}
}

// stopServer ends the server of a farm.
func stopServer(t *testing.T, f *farm) {
	t.Helper()
	if rest, code := f.p.signal(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit status %d: %s", code, rest)
	}
}

// TestDataMove: the tasks of a server move to another folder through a file, or a pipe. The waiting task runs there,
// and the finished task has its result.
func TestDataMove(t *testing.T) {
	t.Parallel()
	f := newFarm(t)
	w := f.work("first", "1ms")
	done := f.finished(f.submit("echo").ID)
	if code := f.stop(w); code != 0 {
		t.Errorf("exit status %d: %s", code, &w.stderr)
	}
	waits := f.submit("echo")
	archive, next := filepath.Join(t.TempDir(), "tasks.tar"), filepath.Join(t.TempDir(), "next")
	refused := func(want string, status int, args ...string) {
		t.Helper()
		if _, stderr, code := millrace(t, args...); code != status || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit status %d: %s, want %d and %q", args, code, stderr, status, want)
		}
	}
	refused("another process", 1, "data", "export", archive, "--data", f.data)
	stopServer(t, f)
	refused("--data: is missing", 2, "data", "export", archive)
	var report tasks.ArchiveReport
	out, stderr, code := millrace(t, "data", "export", archive, "--data", f.data, "--json")
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 || report.Tasks[tasks.Finished] != 1 ||
		report.Tasks[tasks.Queued] != 1 || report.Version == "" {
		t.Fatalf("exit status %d: %s%s", code, out, stderr)
	}
	refused("exists", 1, "data", "export", archive, "--data", f.data)
	refused("is not empty", 1, "data", "import", archive, "--data", f.data)
	refused("no such file", 1, "data", "import", archive+"x", "--data", next)
	again := command(t, "data", "export", "-", "--data", f.data)
	piped, err := again.Output()
	if err != nil {
		t.Fatal(err)
	}
	in := command(t, "data", "import", "-", "--data", next)
	in.Stdin = bytes.NewReader(piped)
	if out, stderr, code := finish(t, in); code != 0 || !strings.Contains(out,
		"imported 2 tasks (1 queued, 1 finished) with 3 files") {
		t.Fatalf("exit status %d: %s%s", code, out, stderr)
	}
	f.data = next
	f.start("127.0.0.1:0")
	f.work("second", "1ms")
	for _, id := range []string{done.ID, waits.ID} {
		f.finished(id)
		r, err := f.cl.TaskResult(t.Context(), id, 0)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(r); err != nil || !strings.Contains(string(b), `[7,8]`) {
			t.Errorf("the result: %s, %v", b, err)
		}
		_ = r.Close()
	}
}

// TestDataS3: a server with inputs and results in S3 serves consumers and parts of results, its data is checked with
// its configuration, and is exported to a folder.
func TestDataS3(t *testing.T) {
	t.Parallel()
	of := s3test.Start(t, "tasks")
	secret, file := filepath.Join(t.TempDir(), "secret"), filepath.Join(t.TempDir(), "millrace.yaml")
	config := fmt.Sprintf("tasks: {blobs: \"s3://tasks/p\", s3: {endpoint: %q, access_key: %q, "+
		"secret_key: \"file:%s\"}}\n", of.Endpoint, of.AccessKey, secret)
	for name, text := range map[string]string{secret: of.SecretKey + "\n", file: config} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := newFarm(t, "--config", file)
	f.work("first", "1ms")
	task := f.finished(f.submit("echo").ID)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http://"+f.addr+"/v2/tasks/"+task.ID+"/result", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Range", "bytes=1-4")
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	part, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode != http.StatusPartialContent || len(part) != 4 {
		t.Errorf("%s: %q, %v", reply.Status, part, err)
	}
	_ = reply.Body.Close()
	of.Stop()
	body := strings.NewReader(workInput)
	_, err = f.cl.SubmitTask(t.Context(), client.TaskRequest{Model: "echo", Body: body, Size: body.Size()})
	if err == nil || !strings.Contains(err.Error(), "s3://tasks/p") {
		t.Errorf("without the S3 server: %v", err)
	}
	of.Run()
	stopServer(t, f)
	if out, stderr, code := millrace(t, "data", "check", f.data, "--config", file); code != 0 || !strings.Contains(out,
		"1 tasks, 2 files") {
		t.Errorf("exit status %d: %s%s", code, out, stderr)
	}
	if _, stderr, code := millrace(t, "data", "check", f.data); code != 1 ||
		!strings.Contains(stderr, "set tasks.blobs") {
		t.Errorf("without the configuration: exit status %d: %s", code, stderr)
	}
	archive, next := filepath.Join(t.TempDir(), "tasks.tar"), filepath.Join(t.TempDir(), "next")
	for _, args := range [][]string{{"export", archive, "--data", f.data, "--config", file},
		{"import", archive, "--data", next}, {"check", next}} {
		if out, stderr, code := millrace(t, append([]string{"data"}, args...)...); code != 0 {
			t.Errorf("%v: exit status %d: %s%s", args, code, out, stderr)
		}
	}
}
