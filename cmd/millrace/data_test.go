package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"millrace/client"
	"millrace/tasks"
)

// TestDataCheck: the data folder of a server that runs is refused, of a stopped server is sound, and with a damaged
// result has a problem.
func TestDataCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, request := filepath.Join(dir, "data"), filepath.Join(dir, "request.json")
	if err := os.WriteFile(request, []byte(workInput), 0o600); err != nil {
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
	result := filepath.Join(data, "files", task.ID[30:], task.ID, "result-1")
	b, err := os.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if err := os.WriteFile(result, b, 0o600); err != nil {
		t.Fatal(err)
	}
	out, stderr, code = millrace(t, "data", "check", data, "--json")
	var report tasks.CheckReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 1 || len(report.Problems) != 1 ||
		report.Problems[0].Task != task.ID || !strings.Contains(stderr, "has 1 problems") {
		t.Errorf("a damaged result: exit status %d, %v: %s%s", code, err, out, stderr)
	}
	if out, _, code := millrace(t, "data", "check", data); code != 1 || !strings.Contains(out, "is damaged") {
		t.Errorf("the table: exit status %d: %s", code, out)
	}
}
