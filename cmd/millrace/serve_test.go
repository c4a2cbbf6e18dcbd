package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"millrace/examples/spotter"
)

func TestServe(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		c := command(t, "serve", "delay", "--http", "127.0.0.1:0", "--model", "cost=delay,fixed=5ms,instances=2",
			"--grpc", "127.0.0.1:0")
		p := begin(t, c)
		line, err := p.lines.ReadString('\n') // the first and only line
		if err != nil || !strings.HasPrefix(line, "millrace is ready: http://127.0.0.1:") ||
			!strings.Contains(line, " grpc://127.0.0.1:") {
			t.Fatalf("%q, %v\n%s", line, err, &p.stderr)
		}
		// When the line is printed, the server and all models are ready.
		for _, path := range []string{"/v2/health/ready", "/v2/models/cost/ready", "/v2/models/delay/ready"} {
			r, err := http.Get(httpAddr.FindString(line) + path)
			if err != nil {
				t.Fatal(err)
			}
			_ = r.Body.Close()
			if r.StatusCode != http.StatusOK {
				t.Errorf("%s answers %s", path, r.Status)
			}
		}
		if rest, code := p.signal(sig); code != 0 || rest != "" {
			t.Errorf("%v: exit status %d, then %q\n%s", sig, code, rest, &p.stderr)
		}
	}
}

// A flag overrides a variable, and a variable overrides the file.
func TestPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.yaml")
	if err := os.WriteFile(file,
		[]byte("http: 127.0.0.1:0\ngrpc: 127.0.0.1:0\nmodels:\n  - {name: a, source: delay}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env, args []string
		grpc      bool
	}{
		{nil, nil, true},
		{[]string{"MILLRACE_GRPC=off"}, nil, false},
		{[]string{"MILLRACE_GRPC=off"}, []string{"--grpc", "127.0.0.1:0"}, true},
		{[]string{"MILLRACE_GRPC=127.0.0.1:0"}, []string{"--grpc=off"}, false},
	} {
		cmd := command(t, append([]string{"serve"}, c.args...)...)
		cmd.Env = append(append(cmd.Env, "MILLRACE_CONFIG="+file, "MILLRACE_LOG_LEVLE=x"), c.env...)
		p := begin(t, cmd)
		line := p.until("ready")
		if strings.Contains(line, "grpc://") != c.grpc {
			t.Errorf("%v %v: %q", c.env, c.args, line)
		}
		out, _, code := millrace(t, "models", "--json", "--addr", httpAddr.FindStringSubmatch(line)[1])
		if code != 0 || !strings.Contains(out, `"name": "a"`) {
			t.Errorf("the model of the file is not there: %s", out)
		}
		if _, code := p.signal(syscall.SIGTERM); code != 0 ||
			!strings.Contains(p.stderr.String(), "MILLRACE_LOG_LEVLE (did you mean MILLRACE_LOG_LEVEL?)") {
			t.Errorf("exit status %d\n%s", code, &p.stderr)
		}
	}
}

func TestFailedStart(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("http: 127.0.0.1:0\nmodels:\n  - name: a\n    source: delay\n    batching: "+
		"{max_size: 9999}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--config", bad}, "bad.yaml:5: models[0].batching.max_size: 9999"},
		{[]string{"--config", "none.yaml"}, "none.yaml"},
		{[]string{"--http", ln.Addr().String(), "--grpc", "off"}, "millrace: --http: " + ln.Addr().String() +
			" is in use: "},
		{[]string{"--http", "off", "--grpc", "off", "--metrics-address", "127.0.0.1:0"}, "http: and grpc are both off"},
		{[]string{"./model.onnx"}, "model.onnx"},
		{[]string{"dealy"}, "did you mean delay?"},
	} {
		out, stderr, code := millrace(t, append([]string{"serve"}, c.args...)...)
		if code != 1 || out != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit status %d, %q\n%s\nwant %q", c.args, code, out, stderr, c.want)
		}
	}
}

func TestWrongUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"bogus", "bogus"},
		{"--bogus", "bogus"},
		{"serve a b", "takes [SOURCE]"},
		{"serve --bogus", "--bogus"},
		{"serve --model a", "--model: "},
		{"serve --model a=delay,batching.max_sise=3", "did you mean max_size?"},
		{"serve --model a=delay,fixed=soon", "a.fixed"},
		{"serve --drain soon", "--drain: \"soon\" is not a duration"},
		{"serve --memory-budget lots", "--memory-budget"},
		{"stream", "takes FILE|URL"},
		{"stream x.mp4", "--model is missing"},
		{"stream x.mp4 --model m --fps -1", "--fps"},
		{"stream x.mp4 --model m --policy newest", "newest"},
		{"stream x.mp4 --model m --addr ftp://x", "--addr"},
		{"infer m", "pictures or --request"},
		{"infer m a --request b", "pictures or --request"},
		{"models bogus", "bogus"},
		{"models load", "takes MODEL [FILE] [key=value...]"},
		{"models load m x", "key=value"},
		{"models unload", "takes ENDPOINT"},
		{"bench", "--model"},
		{"bench --model m --burst 3", "--burst"},
		{"bench --model m --option x", "--option"},
		{"demo --seconds 0", "--seconds"},
		{"check a b", "takes [SOURCE]"},
		{"version extra", "extra"},
	} {
		out, stderr, code := executed(t, strings.Fields(c.args)...)
		if code != 2 || out != "" || !strings.Contains(stderr, c.want) || !strings.Contains(stderr, "--help") {
			t.Errorf("%s: exit status %d, %q\n%s\nwant %q", c.args, code, out, stderr, c.want)
		}
	}
}

func TestHelp(t *testing.T) {
	out, _, code := executed(t)
	for _, name := range []string{"serve", "demo", "stream", "infer", "models", "check", "bench", "version"} {
		if code != 0 || !strings.Contains(out, "\n  "+name) {
			t.Errorf("exit status %d, and no %s in\n%s", code, name, out)
		}
		if help, _, code := executed(t, name, "--help"); code != 0 ||
			!strings.Contains(help, "Examples:\n  millrace "+name) {
			t.Errorf("%s --help: exit status %d\n%s", name, code, help)
		}
	}
	out, _, code = executed(t, "version")
	if code != 0 || !strings.HasPrefix(out, "millrace v1.2.3 ") {
		t.Errorf("exit status %d, %q", code, out)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	var found []finding
	state := func(what string) string {
		for _, f := range found {
			if f.What == what {
				return f.State
			}
		}
		return "nothing"
	}
	out, stderr, code := millrace(t, "check", "--json", "--http", "127.0.0.1:0", "--grpc", "off", "--model",
		"eyes=motion,instances=3")
	if err := json.Unmarshal([]byte(out), &found); err != nil || code != 0 {
		t.Fatalf("exit status %d, %v\n%s%s", code, err, out, stderr)
	}
	if state("configuration") != "ok" || state("model eyes") != "ok" || state("ffmpeg") != "ok" ||
		state("http") != "ok" || state("grpc") != "nothing" {
		t.Errorf("%+v", found)
	}

	clip, cfg := clipFile(t), filepath.Join(t.TempDir(), "m.yaml")
	text := "models: [{name: eyes, source: motion}]\nstreams:\n  - {name: good, source: \"" + clip +
		"\", model: eyes}\n  - {name: camera, source: \"rtsp://u:secret@192.0.2.1/\", model: eyes}\n" +
		"  - {name: six, source: gone.mp4, model: ghost}\n  - {name: shots, source: \"folder:nowhere\", models: " +
		"[{model: eyes}, {model: spirit}]}\n"
	if err := os.WriteFile(cfg, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, stderr, code = millrace(t, "check", "--json", "--http", "127.0.0.1:0", "--grpc", "off", "--config", cfg)
	if err := json.Unmarshal([]byte(out), &found); err != nil || code != 0 || strings.Contains(out, "secret") {
		t.Fatalf("exit status %d, %v\n%s%s", code, err, out, stderr)
	}
	if state("stream good") != "ok" || state("stream camera") != "ok" || state("stream six") != "missing" ||
		state("stream shots") != "missing" {
		t.Errorf("%+v", found)
	}
	for _, want := range []string{"1 models, 4 streams", `there is no model \"ghost\"`, `there is no model \"spirit\"`,
		"gone.mp4: no such file", "nowhere: no such file"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}

	models := t.TempDir()
	for name, text := range map[string]string{
		"good/config.yaml": "source: identity\n", "ill/config.pbtxt": "backend: \"identity\" foo: 3",
		"unused/config.pbtxt": "backend: \"identity\" optimization {} parameters { key: \"x\" value { string_value: " +
			"\"1\" } }",
	} {
		path := filepath.Join(models, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
			os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	text = "model_repository: " + models + "\nmodels: [{name: eyes, source: motion}]\nstreams: [{name: s, source: \"" +
		clip + "\", model: good}]\n"
	if err := os.WriteFile(cfg, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, stderr, code = millrace(t, "check", "--json", "--http", "127.0.0.1:0", "--grpc", "off", "--config", cfg)
	if err := json.Unmarshal([]byte(out), &found); err != nil || code != 1 {
		t.Fatalf("exit status %d, %v\n%s%s", code, err, out, stderr)
	}
	if state("model eyes") != "ok" || state("model good") != "ok" || state("model ill") != "wrong" ||
		state("model unused") != "ok" || state("stream s") != "ok" ||
		!strings.Contains(out, "unknown field: foo") ||
		!strings.Contains(stderr, `model=unused what="optimization; parameters.x"`) {
		t.Errorf("%s%s", out, stderr)
	}

	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("htpp: x\ndrian: y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, stderr, code = millrace(t, "check", "--config", bad)
	if code != 1 || !strings.Contains(out, "bad.yaml:1: htpp: is not a setting (did you mean http?)") ||
		!strings.Contains(out, "bad.yaml:2: drian") || !strings.Contains(stderr, "configuration is wrong") {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}

	out, _, code = millrace(t, "check", "--http", "127.0.0.1:0", "--grpc", "off", "--onnx-library", bad)
	if code != 0 || !strings.Contains(out, "ONNX models cannot be run: onnx.library: ") || !strings.Contains(out, bad) {
		t.Errorf("a library that is none: exit status %d\n%s", code, out)
	}

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	out, _, code = millrace(t, "check", "--http", ln.Addr().String(), "--grpc", "off")
	if code != 0 || !strings.Contains(out, "in use") {
		t.Errorf("a port that another server has: exit status %d\n%s", code, out)
	}
	out, _, code = millrace(t, "check", "--http", "192.0.2.1:8000", "--grpc", "off")
	if code != 1 || !strings.Contains(out, "not an address of this machine") {
		t.Errorf("an address of another machine: exit status %d\n%s", code, out)
	}
}

// TestCheckModels: each model is loaded and reported, also after one that fails.
func TestCheckModels(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, data := range map[string][]byte{"good.onnx": spotter.Model, "cut.onnx": spotter.Model[:3000],
		"config.yaml": []byte(
			"http: 127.0.0.1:0\ngrpc: off\nmodels:\n  - {name: cut, source: cut.onnx}\n  - {name: good, source: " +
				"good.onnx, instances: 2}\n" +
				"  - {name: large, source: motion, batching: {max_size: 4096}}\n  - {name: any, source: delay}\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := []string{"check", "--config", filepath.Join(dir, "config.yaml"), "--memory-budget", "64MiB"}
	out, stderr, code := finish(t, onnxRun(t, append(config, "--json")...))
	var found []finding
	if err := json.Unmarshal([]byte(out), &found); err != nil || code != 1 ||
		!strings.Contains(stderr, "model cut is wrong, model large is wrong") {
		t.Fatalf("exit status %d, %v\n%s%s", code, err, out, stderr)
	}
	models := map[string]finding{}
	for _, f := range found {
		models[f.What] = f
	}
	if f := models["model good"]; f.State != "ok" || len(f.Inputs) != 1 || len(f.Outputs) != 2 ||
		fmt.Sprint(f.Inputs[0]) != "{image FP32 [-1 3 240 320]}" {
		t.Errorf("%+v", f)
	}
	if f := models["model any"]; f.State != "ok" || f.Inputs != nil {
		t.Errorf("%+v", f)
	}
	for what, words := range map[string]string{"model cut": "is not an ONNX model, or it is truncated",
		"model large": "raise memory.budget"} {
		if f := models[what]; f.State != wrong || !strings.Contains(f.Detail, words) || f.Inputs != nil {
			t.Errorf("%+v", f)
		}
	}

	out, stderr, code = finish(t, onnxRun(t, "check", filepath.Join(dir, "good.onnx"), "--http", "127.0.0.1:0",
		"--grpc", "off"))
	if code != 0 || !strings.Contains(out, "input image FP32 [-1,3,240,320]") ||
		!strings.Contains(out, "output scores FP32 [-1,32,10]") {
		t.Errorf("exit status %d\n%s%s", code, out, stderr)
	}
}
