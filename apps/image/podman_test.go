package image

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/internal/podmantest"
	"millrace/internal/testbuild"
	"millrace/internal/testneeds"
)

// container is a running container of Podman.
type container struct {
	*podmantest.Service
	t    *testing.T
	name string
}

// do runs a command of podman.
func (c container) do(args ...string) string {
	c.t.Helper()
	out, err := c.Do(args...)
	if err != nil {
		logs, _ := c.Do("logs", c.name)
		c.t.Fatalf("podman %v: %v: %s\n%s", args, err, out, logs)
	}
	return out
}

const key = "a-key-for-the-test-of-images"

// start loads an archive and runs the image without root, with a root file system that is only read.
func start(t *testing.T, service *podmantest.Service, archive, name string) container {
	t.Helper()
	c := container{service, t, name}
	if out := c.do("load", "--quiet", "--input", archive); !strings.Contains(out, "localhost/"+name+":v1") {
		t.Fatalf("podman load: %s", out)
	}
	c.do("run", "--detach", "--name", name, "--read-only", "--ulimit", "nofile=1024:1024", "--ulimit",
		"nproc=1024:1024", "--cap-drop", "all", "--security-opt", "no-new-privileges", "--network", "none",
		"--tmpfs", "/tmp", "--env", "MILLRACE_API_KEY="+key, "--env", "MILLRACE_TOKEN="+key,
		"--health-cmd", `["/usr/local/bin/millrace", "health"]`, "--health-interval", "disable",
		"localhost/"+name+":v1")
	t.Cleanup(func() { c.do("rm", "--force", "--time", "10", name) })
	c.do("exec", name, "/usr/local/bin/millrace", "health", "--wait", "120s")
	c.do("healthcheck", "run", name)
	if state := c.do("inspect", "--format", "{{.State.Health.Status}} {{.Config.User}}", name); state !=
		"healthy 65532:65532" {
		t.Errorf("the container is %s", state)
	}
	pid := c.do("inspect", "--format", "{{.State.Pid}}", name)
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil || !strings.Contains(string(status), "\nUid:\t65532\t65532\t65532\t65532\n") {
		t.Errorf("the first process is of another user: %v, %s", err, status)
	}
	return c
}

// Podman loads and runs the image of an application: of a configuration without Python, with ffmpeg, and of a service
// in Python with an environment. Each answers a request within the container.
func TestPodman(t *testing.T) {
	service := podmantest.Start(t)
	testneeds.Program(t, "ffmpeg")
	program := filepath.Join(t.TempDir(), "millrace")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-tags", testbuild.Tags(), "-o",
		program, "millrace/cmd/millrace").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	archive := func(t *testing.T, name string, o Options) string {
		t.Helper()
		o.Program, o.Title, o.Time, o.Configuration = program, name, commit, "millrace.yaml"
		img := build(t, o)
		if len(img.Notes) > 0 {
			t.Errorf("notes: %v", img.Notes)
		}
		file := filepath.Join(t.TempDir(), name+".tar")
		started := time.Now()
		if err := img.WriteArchive(file, "localhost/"+name+":v1"); err != nil {
			t.Fatal(err)
		}
		size, err := img.Size()
		t.Logf("%s: %d MiB, %v, archive in %v", name, size>>20, err, time.Since(started))
		return file
	}

	t.Run("plain", func(t *testing.T) {
		plain := filepath.Join(t.TempDir(), "plain")
		put(t, filepath.Join(plain, "millrace.yaml"), "models:\n  - {name: same, source: identity}\n"+
			"  - {name: eyes, source: motion}\n")
		put(t, filepath.Join(plain, "request.json"), `{"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2.5]}]}`)
		c := start(t, service, archive(t, "plain", Options{Application: plain, FFmpeg: true}), "plain")
		answer := c.do("exec", c.name, "/usr/local/bin/millrace", "infer", "same", "--request", "/app/request.json",
			"--json")
		if !strings.Contains(answer, "2.5") {
			t.Errorf("the model answers %s", answer)
		}
		if version := c.do("exec", c.name, "/usr/bin/ffmpeg", "-version"); !strings.HasPrefix(version, "ffmpeg version") {
			t.Errorf("ffmpeg: %s", version)
		}
	})
	t.Run("python", func(t *testing.T) {
		greet := application(t)
		environmentOf(t, filepath.Join(greet, ".venv"))
		c := start(t, service, archive(t, "greet", Options{Application: greet, Environment: filepath.Join(greet, ".venv"),
			Exclude: excludeNotes}), "greet")
		answer := c.do("exec", c.name, "python3", "-c", fmt.Sprintf(`import urllib.request as u
print(u.urlopen(u.Request("http://127.0.0.1:8000/apps/greet/infer", b'{"name": "Ann"}',
    {"content-type": "application/json", "api_key": "%s"})).read().decode())`, key))
		if strings.TrimSpace(answer) != `"Hello Ann 1.0 65532 OpenSSL"` {
			t.Errorf("the service answers %s", answer)
		}
		if word := c.do("exec", c.name, "/usr/local/venv/bin/greet"); word != "Hello" {
			t.Errorf("the script of the environment prints %s", word)
		}
		c.do("exec", c.name, "python3", "-m", "pip", "--version")
	})
}
