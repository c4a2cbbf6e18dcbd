package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/gittest"
	"millrace/internal/onnxfile"
	"millrace/internal/testneeds"
)

// check fetches the sources, and tells their states; offline, it names what the cache lacks.
func TestCheckSources(t *testing.T) {
	r := gittest.New(t)
	model := string(onnxfile.Identity(onnxfile.Float32, "N", 4))
	commit := r.Commit(map[string]string{"m.onnx": model, "models/digits/1/model.onnx": model})
	dir := t.TempDir()
	file := filepath.Join(dir, "millrace.yaml")
	write := func(inside string) {
		t.Helper()
		text := fmt.Sprintf(`{http: "127.0.0.1:0", grpc: off, model_sources: {cache: cache}, onnx: {library: %q},
model_repository: "git+file://%s#models", models: [{name: m, source: "git+file://%s%s"}]}`, onnxLibrary(t), r.Dir, r.Dir,
			inside)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("#m.onnx")
	out, stderr, code := millrace(t, "check", "--config", file, "--model-sources-offline")
	if code != 1 || strings.Count(out, "is not in the cache") != 2 || !strings.Contains(out, "git+file://"+r.Dir) {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
	for _, more := range [][]string{nil, {"--model-sources-offline"}} {
		out, stderr, code = millrace(t, append([]string{"check", "--config", file}, more...)...)
		if code != 0 || strings.Count(out, " at "+commit+", ") != 2 || !strings.Contains(out, "model digits ") ||
			!strings.Contains(out, "model m ") {
			t.Errorf("exit status %d\n%s%s", code, out, stderr)
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, "cache", "use")); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
	write("#n.onnx")
	out, stderr, code = millrace(t, "check", "--config", file)
	if code != 1 || !strings.Contains(out, "has no n.onnx: the folder has m.onnx") {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
	write("@none#m.onnx")
	out, stderr, code = millrace(t, "check", "--config", file)
	if code != 1 || !strings.Contains(out, "no branch and no tag none: there is main") &&
		!strings.Contains(out, "there are main") {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
}

// Programs of check and serve have no variable with a token of a source.
func TestSourceTokensAreHidden(t *testing.T) {
	dir := t.TempDir()
	file, r := filepath.Join(dir, "millrace.yaml"), gittest.New(t)
	r.Commit(map[string]string{"service.py": "import os\nraise Exception('sees ' + ' '.join(sorted(n for n in " +
		"os.environ if 'TOKEN' in n or 'SEEN' in n)))\n"})
	text := fmt.Sprintf(`{http: "127.0.0.1:0", grpc: off,
model_sources: {cache: cache, tokens: ["h.example.org=MY_TOKEN"]}, models: [{name: m, source: "git+file://%s#service.py", python: %q}]}`, r.Dir, testneeds.Python(t))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"check", "serve"} {
		c := command(t, name, "--config", file)
		c.Env = append(c.Env, "MY_TOKEN=planted", "MILLRACE_GIT_TOKEN=planted", "SEEN=yes")
		if out, stderr, code := finish(t, c); code != 1 || !strings.Contains(out+stderr, "sees SEEN") {
			t.Errorf("%s: exit status %d\n%s%s", name, code, out, stderr)
		}
	}
}
