package main

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/onnxfile"
	"millrace/internal/testneeds"
)

// A file that replaces SOURCE runs with the interpreter of --python.
func TestSwapKeepsTheInterpreter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	interpreter := filepath.Join(dir, "given")
	testneeds.WriteProgram(t, interpreter, fmt.Sprintf("#!/bin/sh\nGIVEN=1 exec %s \"$@\"\n", testneeds.Python(t)))
	program := filepath.Join(dir, "red.py")
	write := func(answer string) {
		t.Helper()
		text := "import os\nassert os.environ.get('GIVEN'), 'another interpreter'\ndef infer(x: str) -> str:\n    " +
			"return '" + answer + "'\n"
		if err := os.WriteFile(program, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	_, addr := serve(t, program, "--python", interpreter)
	write("second")
	for _, result := range []string{"reloaded", "unchanged"} {
		if out, stderr, code := millrace(t, "models", "load", "red", "--json", "--addr", addr); code != 0 ||
			!strings.Contains(out, `"result": "`+result+`"`) {
			t.Errorf("exit status %d: %s%s, want %s", code, out, stderr, result)
		}
	}
	write("third")
	if out, stderr, code := millrace(t, "models", "swap", program, "--addr", addr); code != 0 || out != "red\n" ||
		!strings.Contains(stderr, "changed: the file; all other settings stay") {
		t.Fatalf("exit status %d: %s%s", code, out, stderr)
	}
	if _, _, code := millrace(t, "models", "load", program, "--name", "blue", "--addr", addr); code == 0 {
		t.Error("a model of another name has the interpreter of SOURCE")
	}
}

// A swap without a file keeps the file of the previous swap, with changed parameters or without parameters. A failed
// swap also keeps the file. A load loads the model as configured.
func TestSwapKeepsTheFile(t *testing.T) {
	t.Parallel()
	configured, sent := filepath.Join(t.TempDir(), "red.py"), filepath.Join(t.TempDir(), "red.py")
	for path, answer := range map[string]string{configured: "configured", sent: "sent"} {
		text := "class Red:\n    def setup(self, parameters):\n        self.n = int(parameters.get('threshold', " +
			"1))\n        assert self.n < 9\n    def infer(self, x: str) -> str:\n        return f'" + answer +
			" {self.n}'\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, addr := serve(t, configured, "--python", testneeds.Python(t))
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"swap red threshold=2", 0, "configured 2"}, {"swap " + sent, 0, "sent 2"},
		{"swap red threshold=3", 0, "sent 3"}, {"swap red threshold=9", 1, "sent 3"},
		{"swap red", 0, "sent 3"}, {"swap red threshold=4", 0, "sent 4"}, {"load red threshold=4", 0, "configured 4"},
		{"swap red", 0, "configured 4"},
		{"swap red " + sent + " threshold=5", 0, "sent 5"}, {"swap red " + sent, 0, "sent 5"},
	} {
		args := append(append([]string{"models"}, strings.Fields(c.args)...), "--addr", addr)
		if _, stderr, code := millrace(t, args...); code != c.code {
			t.Fatalf("%s: exit status %d\n%s", c.args, code, stderr)
		}
		request := filepath.Join(t.TempDir(), "request.json")
		if err := os.WriteFile(request, []byte(
			`{"inputs":[{"name":"x","datatype":"BYTES","shape":[1],"data":["a"]}]}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, stderr, _ := millrace(t, "infer", "red", "--request", request, "--addr", addr); !strings.Contains(out,
			c.want) {
			t.Errorf("after %s: %s%s, want %s", c.args, out, stderr, c.want)
		}
	}
}

// A file that replaces a configured model keeps the model's settings input and output, and so does the next file. A
// file of another kind is refused.
func TestSwapKeepsPictureSettings(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, logits ...float32) string {
		t.Helper()
		m := onnxfile.Constant(map[string][]int{"logits": {3}}, map[string][]float32{"logits": logits})
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, m.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	labels, config, picture := filepath.Join(dir, "labels.txt"), filepath.Join(dir, "millrace.yaml"),
		filepath.Join(dir, "a.png")
	var pixels bytes.Buffer
	if err := png.Encode(&pixels, image.NewGray(image.Rect(0, 0, 8, 8))); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "other.py")
	for path, text := range map[string]string{
		labels: "cat\ndog\neel\n", picture: pixels.String(), program: "def infer(x: str) -> str:\n    return x\n",
		config: "models:\n  - name: live\n    source: " + write("first.onnx", 9, 0, 0) +
			"\n    input: {image: {width: 8, height: 8}}\n    output: {labels: " + labels +
			", classify: {activation: softmax, top_k: 1}}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, addr := readyServer(t, onnxRun(t, "serve", "--http", "127.0.0.1:0", "--grpc", "off", "--config", config))
	for _, c := range []struct {
		args []string
		code int
		said string
		want string
	}{
		{[]string{"live", write("second.onnx", 0, 9, 0)}, 0, "changed: the file; all other settings stay", "dog"},
		{[]string{write("third.onnx", 0, 0, 9), "--name", "live", "batching.max_size=2"}, 0,
			"changed: the file, batching.max_size=2; all other settings stay", "eel"},
		{[]string{"live", program}, 1, "file: is of kind python, and model live is of kind onnx", "eel"},
	} {
		if out, stderr, code := millrace(t, append([]string{"models", "swap", "--addr", addr},
			c.args...)...); code != c.code || !strings.Contains(stderr, c.said) {
			t.Errorf("%v: exit status %d, %s%s", c.args, code, out, stderr)
		}
		if out, stderr, code := millrace(t, "infer", "live", picture, "--addr", addr); code != 0 ||
			!strings.Contains(out, c.want) {
			t.Errorf("after %v: exit status %d, %s%s, want %s", c.args, code, out, stderr, c.want)
		}
	}
}

// After a load or swap that unfits a graph of the model, the command warns of the graph, with the reason.
func TestLoadThatUnfitsAGraph(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rows.onnx")
	write := func(input string) {
		t.Helper()
		m := onnxfile.Model{
			Inputs:  []onnxfile.Value{{Name: input, Type: onnxfile.Float32, Dims: []any{1, 4}}},
			Outputs: []onnxfile.Value{{Name: "y", Type: onnxfile.Float32, Dims: []any{1, 4}}},
			Nodes:   []onnxfile.Node{{Op: "Identity", Inputs: []string{input}, Outputs: []string{"y"}}},
		}
		if err := os.WriteFile(file, m.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("x")
	config := filepath.Join(t.TempDir(), "graph.yaml")
	text := "models:\n  - {name: rows, source: " + file +
		"}\n  - {name: drawn, source: graph, steps: [{model: rows, input: {x: x}}]}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, addr := readyServer(t, onnxRun(t, "serve", "--http", "127.0.0.1:0", "--grpc", "off", "--config", config))
	for _, c := range []struct {
		input, args string
		warned      bool
	}{{"x", "swap", false}, {"z", "swap", true}, {"x", "swap", false}, {"z", "load --json", true}} {
		write(c.input)
		args := append([]string{"models"}, strings.Fields(c.args)...)
		out, stderr, code := millrace(t, append(args, file, "--addr", addr)...)
		if code != 0 || !strings.Contains(out, "rows") {
			t.Fatalf("%s: exit status %d: %s%s", c.args, code, out, stderr)
		}
		if got := strings.Contains(stderr, "warning: model drawn is unavailable since this "+args[1]+
			": model rows was loaded with other inputs or outputs"); got != c.warned {
			t.Errorf("%s of input %s:\n%s", c.args, c.input, stderr)
		}
	}
}

// An argument is a file if the argument is a path or ends in .onnx, or if a file of this name is in the working
// directory and a kind of worker loads the file.
func TestModelFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"red.py", "motion", "notes.txt"} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for arg, want := range map[string]bool{
		"red.py": true, "./blue.py": true, "CAPITALS.ONNX": true, "blue.py": false, "motion": false,
		"notes.txt": false, "onnx": false, "127.0.0.1:8000": false,
	} {
		if isModelFile(arg) != want {
			t.Errorf("%s is a file: %v", arg, !want)
		}
	}
	if name, path, params, err := loadArgs([]string{"live", "red.py", "a=b"}, ""); name != "live" ||
		path != "red.py" || len(params) != 1 || err != nil {
		t.Error(name, path, params, err)
	}
}
