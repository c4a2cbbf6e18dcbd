package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/podmantest"
)

// containersFile writes a configuration with two container models, and returns its path and the data folder.
func containersFile(t *testing.T, socket string) (file, data string) {
	t.Helper()
	dir := t.TempDir()
	file, data = filepath.Join(dir, "millrace.yaml"), filepath.Join(dir, "data")
	text := fmt.Sprintf(`{http: "127.0.0.1:0", grpc: off, data: %q,
containers: {host: "unix://%s", images: [localhost/count, localhost/serve]},
models: [
  {name: count, source: "container://localhost/count:1"},
  {name: sum, source: "container://localhost/serve:1", container: {serve: {port: 8000}}}]}`, data, socket)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, data
}

// Without an answer of the engine, the command says so, and leaves the data folder alone.
func TestCheckWithoutEngine(t *testing.T) {
	t.Parallel()
	file, data := containersFile(t, filepath.Join(t.TempDir(), "missing"))
	out, stderr, code := millrace(t, "check", "--config", file)
	if code != 1 || strings.Count(out, "the container engine fails") != 2 || strings.Contains(out, "is unset") {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("the data folder: %v", err)
	}
}

// The command loads container models, and leaves no files. podmantest looks for containers and networks that are left.
func TestCheckContainers(t *testing.T) {
	podman := podmantest.Start(t)
	podman.Import("localhost/count:1", podmantest.Build(t, "../../examples/container-task", "count"),
		`ENTRYPOINT ["/count"]`)
	podman.Import("localhost/serve:1", podmantest.Build(t, "../../workers/container/testdata/serve", "serve"),
		`ENTRYPOINT ["/serve", "serve"]`)
	file, data := containersFile(t, podman.Socket)
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	out, stderr, code := millrace(t, "check", "--config", file)
	if code != 0 || !strings.Contains(out, "model count    ok") || !strings.Contains(out, "model sum      ok") {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("the data folder: %v", err)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("temporary files: %v %v", left, err)
	}
}
