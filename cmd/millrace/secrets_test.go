//go:build !notracing

package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/internal/testneeds"
)

// seesService answers with all secrets of the server and all parts of a request that a program can see.
const seesService = `import os, subprocess

class Service:
    def infer(self, context, a: int = 0, b: int = 0) -> dict:
        server = subprocess.run(["cat", f"/proc/{os.getppid()}/environ"], capture_output=True, text=True)
        with open("/proc/self/environ") as f:
            environ = f.read()
        return {"environ": environ, "server": server.stdout + server.stderr, "now": dict(os.environ), "headers": dict(context.headers), "query": context.query}
`

// powerless runs its arguments without capabilities. With capabilities, root may read data that processes hide from
// their own user; other users have no capabilities.
const powerless = `import ctypes, os, sys
PR_CAPBSET_DROP = 24
libc = ctypes.CDLL(None)
for cap in range(64):
    libc.prctl(PR_CAPBSET_DROP, cap, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
`

// A program has no variable with a secret of the server, cannot read the server's variables, and receives requests
// without the key but otherwise complete.
func TestProgramsSeeNoSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "service.py")
	if err := os.WriteFile(file, []byte(seesService), 0o600); err != nil {
		t.Fatal(err)
	}
	c := command(t, "run", file, "--http", "127.0.0.1:0", "--grpc", "off")
	c.Path, c.Args = testneeds.Python(t), append([]string{"python3", "-c", powerless}, c.Args...)
	c.Env = append(c.Env, "MILLRACE_API_KEY=planted-key", "MILLRACE_TOKEN=planted-token",
		"MILLRACE_TRACING_EXPORTER=otlp-http", "MILLRACE_TRACING_ENDPOINT=http://127.0.0.1:9",
		"MILLRACE_TRACING_HEADERS=x=planted-header", "OTEL_EXPORTER_OTLP_HEADERS=x=planted-otel",
		"MILLRACE_NAME=millrace")
	_, addr := readyServer(t, c)
	req, err := http.NewRequest("POST", "http://"+addr+"/infer?a=1&api_key=planted-query&b=2", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"api_key": "planted-key",
		"Cookie": "one=1; api_key=planted-cookie; two=2", "X-Own": "kept"} {
		req.Header.Set(name, value)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != 200 {
		t.Fatalf("%s %s %v", r.Status, body, err)
	}
	if strings.Contains(string(body), "planted") || strings.Contains(string(body), "MILLRACE_API_KEY") {
		t.Errorf("the program sees a secret: %s", body)
	}
	for _, want := range []string{"/environ: Permission denied", "MILLRACE_NAME", "one=1; two=2", "kept", "a=1&b=2"} {
		if !strings.Contains(string(body), want) {
			t.Errorf("the program does not see %s: %s", want, body)
		}
	}
}

// TestSourcesSeeNoSecrets: neither has the program of an exec source.
func TestSourcesSeeNoSecrets(t *testing.T) {
	dir := t.TempDir()
	seen, script, settings := filepath.Join(dir, "seen"), filepath.Join(dir, "script"),
		filepath.Join(dir, "millrace.yaml")
	for name, text := range map[string]string{
		script: "env >" + seen + ".part; mv " + seen + ".part " + seen + "; sleep 1000\n",
		settings: "models: [{name: m, source: motion}]\nstreams: [{name: door, model: m, source: 'exec:/bin/sh " +
			script + "'}]\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := command(t, "serve", "--config", settings, "--http", "127.0.0.1:0", "--grpc", "off")
	c.Env = append(c.Env, "MILLRACE_API_KEY=planted-key", "OTEL_EXPORTER_OTLP_HEADERS=x=planted-otel", "CAMERA=yard")
	readyServer(t, c)
	var text []byte
	for end := time.Now().Add(time.Minute); len(text) == 0; time.Sleep(5 * time.Millisecond) { // no event to wait for
		if text, _ = os.ReadFile(seen); time.Now().After(end) {
			t.Fatal("the program was not started")
		}
	}
	if strings.Contains(string(text), "planted") || !strings.Contains(string(text), "CAMERA=yard") {
		t.Errorf("the program sees %s", text)
	}
}

// The key may be in a file; an unreadable file ends the start.
func TestKeyFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("hidden\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, addr := serve(t, "--model", "m=identity", "--api-key", "file:"+file)
	for key, want := range map[string]int{"hidden": 200, "file:" + file: 401, "": 401} {
		req, err := http.NewRequest("GET", "http://"+addr+"/v2/models/m", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("api_key", key)
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("key %q: %s, want %d", key, r.Status, want)
		}
	}
	if _, stderr, code := millrace(t, "serve", "--api-key", "file:"+file+".none"); code != 1 ||
		!strings.Contains(stderr, "--api-key: cannot be read") {
		t.Errorf("exit status %d, %s", code, stderr)
	}
}
