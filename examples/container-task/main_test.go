package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/config"
	"millrace/internal/testneeds"
	"millrace/server"
	"millrace/tasks"
	"millrace/workers"
)

// TestExample: the README's way from the program to the result, with storage and a socket of the test.
func TestExample(t *testing.T) {
	if testing.Short() {
		t.Skip("make check runs the tests with podman")
	}
	podman := testneeds.Program(t, "podman")
	testneeds.Program(t, "runc")
	if os.Getuid() != 0 {
		t.Skip("podman with runc needs root here")
	}
	dir, err := os.MkdirTemp("", "millrace-pod-") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	flags := []string{"--root", dir + "/root", "--runroot", dir + "/run", "--storage-driver", "vfs", "--cgroup-manager",
		"cgroupfs", "--events-backend", "file", "--runtime", "runc", "--log-level", "error", "--tmpdir", dir + "/tmp"}
	t.Cleanup(func() {
		_ = exec.Command(podman, append(flags, "rm", "--all", "--force")...).Run()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	do := func(cmd *exec.Cmd) {
		t.Helper()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", cmd.Args, err, out)
		}
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "count"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	do(build)
	layer, err := exec.Command(testneeds.Program(t, "tar"), "-C", dir, "-c", "count").Output()
	if err != nil {
		t.Fatal(err)
	}
	load := exec.Command(podman, append(flags, "import", "--change", `ENTRYPOINT ["/count"]`, "-",
		"localhost/count:1")...)
	load.Stdin = bytes.NewReader(layer)
	do(load)
	socket := dir + "/s"
	service := exec.Command(podman, append(flags, "system", "service", "--time", "0", "unix://"+socket)...)
	service.Dir = dir
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = service.Process.Signal(os.Interrupt); _ = service.Wait() })
	for {
		if c, err := net.Dial("unix", socket); err == nil {
			_ = c.Close()
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	s, err := server.New(server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off, Data: t.TempDir(),
		Log:        config.Log{Level: "error"},
		Models:     []workers.Config{{Name: "count", Source: "container://localhost/count:1"}},
		Containers: config.Containers{Host: "unix://" + socket, Images: []string{"localhost/count"}}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context()) }()
	t.Cleanup(func() { <-done })
	select {
	case <-s.Ready():
	case err := <-done:
		done <- nil
		t.Fatal(err)
	}
	call := func(method, path, body string) string {
		q, _ := http.NewRequest(method, s.URL("http")+path, strings.NewReader(body))
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		b, _ := io.ReadAll(a.Body)
		return string(b)
	}
	var task tasks.Task
	_ = json.Unmarshal([]byte(call("POST", "/v2/tasks?model=count&name=a.txt", "two words\n")), &task)
	_ = json.Unmarshal([]byte(call("GET", "/v2/tasks/"+task.ID+"?wait=1m", "")), &task)
	if got := call("GET", "/v2/tasks/"+task.ID+"/result", ""); got != "a.txt: 1 lines, 2 words, 10 bytes\n" {
		t.Errorf("%s: %q, error %+v", task.State, got, task.Error)
	}
}
