package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/client"
)

// TestTasks submits, lists, waits for, fetches, retries and deletes tasks with the program.
func TestTasks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, addr := serve(t, "--model", "echo=identity", "--model", "eyes=motion", "--data", filepath.Join(dir, "data"))
	want := func(code int, words string, args ...string) string {
		t.Helper()
		out, stderr, got := millrace(t, append(append([]string{"tasks"}, args...), "--addr", addr)...)
		if got != code || !strings.Contains(out+stderr, words) {
			t.Fatalf("%v: exit status %d, want %d and %q\n%s%s", args, got, code, words, out, stderr)
		}
		return out
	}
	request := filepath.Join(dir, "request.json")
	if err := os.WriteFile(request, []byte(`{"inputs":[{"name":"x","datatype":"INT32","shape":[2],"data":[7,8]}]}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	if out := want(0, "", "list", "--json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("%s", out)
	}
	saved := filepath.Join(dir, "answer.json")
	want(0, "finished", "submit", "echo", "--request", request, "--wait", "1m", "--out", saved)
	if b, err := os.ReadFile(saved); err != nil || !strings.Contains(string(b), `"data":[7,8]`) {
		t.Errorf("the saved result: %s, %v", b, err)
	}
	var task client.Task
	if err := json.Unmarshal([]byte(want(0, "", "submit", "echo", "--request", request, "--json")), &task); err != nil {
		t.Fatal(err)
	}
	want(0, task.ID+" finished", "wait", task.ID)
	want(0, `"data":[7,8]`, "result", task.ID)
	want(0, "request.json 69 application/json", "show", task.ID)
	if out := want(0, "", "logs", task.ID); out != "" { // identity writes nothing for people
		t.Errorf("the log: %q", out)
	}
	want(0, "", "logs", "--follow", task.ID)
	want(1, "it has a result", "retry", task.ID)
	want(0, "", "delete", task.ID)
	want(1, "there is no task", "show", task.ID)
	want(1, "there is no task", "logs", task.ID)

	if err := os.WriteFile(request, []byte(`{"inputs":7}`), 0o600); err != nil {
		t.Fatal(err)
	}
	want(1, "is failed: ", "submit", "echo", "--request", request, "--wait", "1m")
	want(0, "inputs", "list", "--state", "failed")
	if out := want(0, "", "list", "--text", "REQUEST", "--json"); !strings.Contains(out, "request.json") {
		t.Errorf("tasks with the text: %s", out)
	}
	if out := want(0, "", "list", "--text", "nothing", "--json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("tasks without the text: %s", out)
	}
	want(1, "is no state", "list", "--state", "lost")
	want(2, "FILE: is missing", "submit", "echo")
	want(2, "--out: needs --wait", "submit", "echo", "--request", request, "--out", "x")
	want(1, "priority", "submit", "echo", "--request", request, "--priority", "1000")
	if err := json.Unmarshal([]byte(want(0, "", "submit", "ghost", "--request", request, "--json")),
		&task); err != nil {
		t.Fatal(err)
	}
	want(0, "", "cancel", task.ID)
	want(1, "is cancelled", "wait", task.ID)
}

// TestTasksWithoutData: the error of a server without tasks names the setting.
func TestTasksWithoutData(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, "--model", "echo=identity")
	_, stderr, code := millrace(t, "tasks", "--addr", addr)
	if code != 1 || !strings.Contains(stderr, "start the server with --data FOLDER") {
		t.Errorf("exit status %d: %s", code, stderr)
	}
}
