package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The service written by init is reloaded after a change while clients call the service. No client gets an error, and
// a change that cannot be loaded changes nothing.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	if _, stderr, code := millrace(t, "init", dir); code != 0 {
		t.Fatalf("exit status %d\n%s", code, stderr)
	}
	file, log := filepath.Join(dir, "service.py"), filepath.Join(t.TempDir(), "log")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, addr := serve(t, file, "--watch", "--log-file", log)

	var mu sync.Mutex
	answers := map[string]int{}
	done := make(chan struct{})
	var callers sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
	for range 4 {
		callers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				answer := ""
				r, err := client.Post("http://"+addr+"/infer", "application/json",
					strings.NewReader(`{"text": "to be or not to be"}`))
				if err == nil {
					var body []byte
					body, err = io.ReadAll(r.Body)
					r.Body.Close()
					answer = r.Status + " " + string(body)
				}
				if err != nil {
					answer = err.Error()
				}
				mu.Lock()
				answers[answer]++
				mu.Unlock()
			}
		})
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for limit := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("never: %s: %v", what, answers)
			}
		}
	}
	answered := func(answer string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return answers[answer] > 0
		}
	}
	const before, after = `200 OK {"words":6,"most":"to","counts":{"to":2,"be":2,"or":1,"not":1}}`,
		`200 OK {"words":1006,"most":"to","counts":{"to":2,"be":2,"or":1,"not":1}}`
	until("the first answer", answered(before))
	change := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change(strings.Replace(string(text), "words=sum", "words=1000 + sum", 1))
	until("an answer of the changed service", answered(after))
	change(string(text) + "def broken(:\n")
	until("the error in the log", func() bool {
		lines, err := os.ReadFile(log)
		return err == nil && strings.Contains(string(lines),
			"whose files have changed cannot be loaded: the previous program stays in service") &&
			strings.Contains(string(lines), "SyntaxError")
	})
	check := func() {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		for answer, n := range answers {
			if answer != before && answer != after {
				t.Errorf("%d times %s", n, answer)
			}
		}
		clear(answers)
	}
	check()
	until("an answer after the error", answered(after))
	close(done)
	callers.Wait()
	client.CloseIdleConnections()
	if answers[before] > 0 {
		t.Error("the first service answers again")
	}
	check()
	if _, code := p.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("exit status %d\n%s", code, &p.stderr)
	}
}

// When the only program has no worker left, the server ends with the reason.
func TestRunStops(t *testing.T) {
	file := filepath.Join(t.TempDir(), "service.py")
	service := `import os

class Service:
    def setup(self):
        if os.path.exists(__file__ + ".dies"):
            raise RuntimeError("there is no more of it")

    def infer(self, text: str):
        os._exit(3)
`
	if err := os.WriteFile(file, []byte(service), 0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "m.yaml")
	if err := os.WriteFile(config, []byte("root: service\nmodels:\n  - {name: service, source: "+file+
		", limits: {restarts: 1}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, addr := serve(t, "--config", config)
	if err := os.WriteFile(file+".dies", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := http.Post("http://"+addr+"/infer", "application/json", strings.NewReader(`{"text": ""}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode < 500 {
		t.Errorf("status %d of a service that ends", r.StatusCode)
	}
	if code := status(t, p.end()); code != 1 ||
		!strings.Contains(p.stderr.String(), "all workers of service are gone") {
		t.Errorf("exit status %d\n%s", code, &p.stderr)
	}
}

// When a required child process of the only program has ended, the server ends with the reason.
func TestDaemonExits(t *testing.T) {
	dir := t.TempDir()
	file, stop := filepath.Join(dir, "app.py"), filepath.Join(dir, "stop")
	app := `import subprocess, sys
from mosec import Server, Worker

class Echo(Worker):
    def forward(self, data):
        return data

if __name__ == "__main__":
    server = Server()
    server.append_worker(Echo)
    until = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)"
    with subprocess.Popen([sys.executable, "-c", until, "` + stop + `"]) as p:
        server.register_daemon("clock", p)
        server.run()
`
	if err := os.WriteFile(file, []byte(app), 0o600); err != nil {
		t.Fatal(err)
	}
	p := begin(t, command(t, "run", file, "--http", "127.0.0.1:0", "--grpc", "off"))
	p.until("millrace is ready: ")
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, stderr := status(t, p.end()), p.stderr.String(); code != 1 || !strings.Contains(stderr, "clock") ||
		!strings.Contains(stderr, "the main process of program app has ended") {
		t.Errorf("exit status %d\n%s", code, stderr)
	}
}
