package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// health --wait waits for the start of a server; infer, bench and stream wait for a loading model.
func TestWaits(t *testing.T) {
	dir, addr := t.TempDir(), freeAddr(t)
	file, opened := filepath.Join(dir, "slow.py"), filepath.Join(dir, "opened")
	service := "import os, time\n\nclass Slow:\n    def setup(self):\n        while not os.path.exists(" + `"` +
		opened + `"` +
		"):\n            time.sleep(0.02)\n\n    def infer(self, n: int) -> dict:\n        return {\"n\": n}\n"
	request := filepath.Join(dir, "request.json")
	for name, text := range map[string]string{file: service,
		request: `{"inputs":[{"name":"n","datatype":"INT64","shape":[1],"data":[3]}]}`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, stderr, code := millrace(t, "health", "--addr", addr); code != 1 || !strings.Contains(stderr, "refused") {
		t.Errorf("without a server: exit status %d\n%s", code, stderr)
	}
	live := begin(t, command(t, "health", "--live", "--wait", "5m", "--addr", addr))
	begin(t, command(t, "serve", file+",python=/usr/bin/python3", "--http", addr, "--grpc", "off"))
	live.until("live")
	if _, stderr, code := millrace(t, "health", "--addr", addr); code != 1 ||
		!strings.Contains(stderr, "is not ready") {
		t.Errorf("while the model is loaded: exit status %d\n%s", code, stderr)
	}
	ready := begin(t, command(t, "health", "--wait", "5m", "--addr", addr))
	waiting := map[string]*process{
		"infer": begin(t, command(t, "infer", "slow", "--request", request, "--addr", addr)),
		"bench": begin(t, command(t, "bench", "--model", "slow", "--frames", "1", "--protocol", "rest", "--file",
			request, "--addr", addr)),
		"stream": begin(t, command(t, "stream", filepath.Join(dir, "none.mp4"), "--model", "slow", "--addr", addr)),
	}
	for name, p := range waiting {
		for !strings.Contains(p.stderr.String(), "waiting for model slow, which is being loaded") {
			if t.Context().Err() != nil || p.cmd.ProcessState != nil {
				t.Fatalf("%s does not wait\n%s", name, &p.stderr)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	if err := os.WriteFile(opened, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ready.until("ready")
	waiting["infer"].until("3")
	if code := status(t, waiting["infer"].end()); code != 0 {
		t.Errorf("infer: exit status %d\n%s", code, &waiting["infer"].stderr)
	}
	// answers of the loaded model
	for name, want := range map[string]string{"stream": "none.mp4", "bench": "invalid_argument"} {
		if _ = waiting[name].end(); !strings.Contains(waiting[name].stderr.String(), want) {
			t.Errorf("%s: no %q in\n%s", name, want, &waiting[name].stderr)
		}
	}
}
