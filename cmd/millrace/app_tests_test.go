package main

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/config"
	"millrace/internal/testneeds"
)

// testedApp writes an application with the files, and returns the command that tests it.
func testedApp(t *testing.T, files map[string]string) (app string, run func(args ...string) (string, string, int)) {
	t.Helper()
	app, dir := t.TempDir(), t.TempDir()
	for name, text := range files {
		path := filepath.Join(app, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return app, func(args ...string) (string, string, int) {
		t.Helper()
		c := appCommandOf(t, dir, append([]string{"app", "--config", app, "--pass", runsMain}, args...)...)
		c.Env = append(c.Env, "MILLRACE_TOKEN=server-secret", "GIT_TOKEN=server-secret")
		return finish(t, c)
	}
}

// junitReport is what readers of a report need.
type junitReport struct {
	Suites []struct {
		Name     string `xml:"name,attr"`
		Tests    int    `xml:"tests,attr"`
		Failures int    `xml:"failures,attr"`
		Cases    []struct {
			Name    string `xml:"name,attr"`
			Failure *struct {
				Message string `xml:"message,attr"`
				Text    string `xml:",chardata"`
			} `xml:"failure"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

const askDouble = `
import json, os, urllib.request

def ask(x):
    request = urllib.request.Request(os.environ["MILLRACE_ADDR"] + "/apps/double/infer", json.dumps({"x": x}).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["MILLRACE_TOKEN"]})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)
`

// TestAppTest runs the tests of an application of each kind against its service.
func TestAppTest(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles tests in Go")
	}
	testneeds.Python(t, "pytest")
	app, run := testedApp(t, map[string]string{
		"millrace.yaml": "models: [{name: double, source: ./double.py}]\napplication:\n  test: ['python3 check.py']\n",
		"double.py":     "print('the model is loaded')\ndef infer(x: int) -> int:\n    return 2 * x\n",
		"check.py":      askDouble + "assert ask(4) == 8, ask(4)\n",
		"tests/test_double.py": askDouble + `
import pytest

@pytest.mark.parametrize("x", [1, 2])
def test_double(x):
    assert ask(x) == 2 * x

def test_access():
    assert "server-secret" not in repr(dict(os.environ))
    with pytest.raises(OSError):
        open(os.path.join(os.path.dirname(__file__), "new.txt"), "w")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(os.environ["MILLRACE_ADDR"] + "/v2/models/double")
`,
		"go.mod": "module example.test/double\n\ngo 1.21\n",
		"double_test.go": `package double

import (
	"os"
	"testing"
)

func TestGRPC(t *testing.T) {
	if os.Getenv("MILLRACE_GRPC_ADDR") == "" {
		t.Fatal("no address")
	}
}

func TestSkipped(t *testing.T) { t.Skip("not today") }
`})
	report := filepath.Join(t.TempDir(), "report.xml")
	out, stderr, code := run("test", "--junit", report, "--json")
	var result appTestResult
	if err := json.Unmarshal([]byte(out), &result); err != nil || code != 0 || !result.Passed ||
		len(result.Suites) != 3 {
		t.Fatalf("%d %s %s %v", code, out, stderr, err)
	}
	read := func() (r junitReport) {
		t.Helper()
		text, err := os.ReadFile(report)
		if err == nil {
			err = xml.Unmarshal(text, &r)
		}
		if err != nil || len(r.Suites) != 3 {
			t.Fatalf("%v: %s", err, text)
		}
		return r
	}
	if r := read(); r.Suites[0].Tests != 1 || r.Suites[1].Tests != 3 || r.Suites[2].Tests != 2 {
		t.Errorf("%+v", r)
	}
	wrong, err := os.ReadFile(filepath.Join(app, "double.py"))
	if err == nil {
		err = os.WriteFile(filepath.Join(app, "double.py"), []byte(strings.Replace(string(wrong), "2 * x", "3 * x", 1)),
			0o600)
	}
	if err == nil { // a test that does not compile
		err = os.WriteFile(filepath.Join(app, "double_test.go"), []byte("package double\n\nvar x int = y\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, stderr, code = run("test", "--junit", report)
	if code != 1 || !strings.Contains(stderr, "test: 4 tests have failed") ||
		!strings.Contains(out, "pytest: 1 passed, 2 failed") || !strings.Contains(stderr, "undefined: y") ||
		!strings.Contains(stderr, "AssertionError: 12") || !strings.Contains(stderr, "the log of the service:") ||
		!strings.Contains(stderr, "the model is loaded") || strings.Contains(stderr, "server-secret") {
		t.Errorf("tests that fail: %d\n%s\n%s", code, out, stderr)
	}
	r := read()
	if r.Suites[0].Failures != 1 || r.Suites[1].Failures != 2 || r.Suites[2].Failures != 1 ||
		!strings.Contains(r.Suites[0].Cases[0].Failure.Text, "AssertionError") {
		t.Errorf("%+v", r)
	}
}

// TestAppTestSettings: the application's file gives its own code no access.
func TestAppTestSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "millrace.yaml")
	text := `
sandbox: "off"
confine: {programs: "off", read: [/root], write: [/srv], network: true}
containers: {host: "unix:///run/docker.sock", images: [evil]}
onnx: {library: ./evil.so, program: ./evil}
auth: {module: evil.py, python: ./evil}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, network := range []bool{false, true} {
		cfg, err := config.Load(file)
		if err != nil || cfg.ONNX.Library == "" {
			t.Fatal(cfg.ONNX, err)
		}
		env := map[string]string{}
		for _, v := range testSettings(network) {
			name, value, _ := strings.Cut(v, "=")
			env[name] = value
		}
		err = cfg.Env(func(name string) (string, bool) {
			value, ok := env[name]
			return value, ok
		})
		c := cfg.Confine
		if err != nil || c.Programs != "require" || len(c.Read)+len(c.Write) > 0 || c.Network != network ||
			cfg.Containers.Host != "" || len(cfg.Containers.Images) > 0 || cfg.ONNX.Library != "" ||
			cfg.ONNX.Program != "" || cfg.Auth.Module != "" || cfg.Auth.Python != "" || cfg.Sandbox != "auto" {
			t.Errorf("%+v %+v %+v %+v %s %v", c, cfg.Containers, cfg.ONNX, cfg.Auth, cfg.Sandbox, err)
		}
	}
}

// TestServiceOutput reads lines of any length.
func TestServiceOutput(t *testing.T) {
	s, ready := &service{}, make(chan string, 1)
	s.read(strings.NewReader("first\n"+strings.Repeat("x", 200_000)+"\nmillrace is ready: http://a\nlast"), ready)
	if len(ready) != 1 || <-ready != "http://a" || !strings.HasSuffix(s.log(), "  last\n") {
		t.Errorf("%.100s", s.log())
	}
}

// TestAppTestFails: what keeps tests from running is an error, and no test passes then.
func TestAppTestFails(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages")
	}
	testneeds.Python(t, "pytest", "ensurepip")
	const model = "models: [{name: same, source: identity}]\n"
	command := map[string]string{"millrace.yaml": model + "application: {test: [sleep 1000]}\n"}
	pytest := func(text, requirements string) map[string]string {
		files := map[string]string{"millrace.yaml": model, "tests/test_a.py": text}
		if requirements != "" {
			files["tests/requirements.txt"] = requirements
		}
		return files
	}
	for _, c := range []struct {
		files map[string]string
		args  string
		want  []string
	}{
		{map[string]string{"millrace.yaml": model}, "", []string{"has no tests: write commands into"}},
		{command, "--test-timeout 3s", []string{"sleep 1000: 0 passed, 1 failed", "1 test has failed"}},
		{command, "-- --no-flag", []string{"the service has not started: ", "--no-flag"}},
		{pytest("", "greeting\n"), "--wheels " + greetingWheels(t), []string{"write pytest into tests/requirements.txt"}},
		{pytest("x = 1\n", ""), "", []string{"1 test has failed", "no tests ran"}},
		{pytest("import greeting\n", ""), "", []string{"1 test has failed", "No module named 'greeting'"}},
	} {
		_, run := testedApp(t, c.files)
		out, stderr, code := run(append([]string{"test"}, strings.Fields(c.args)...)...)
		for _, w := range c.want {
			if code != 1 || !strings.Contains(out+stderr, w) {
				t.Errorf("%s: %d %s %s, want %q", c.files, code, out, stderr, w)
			}
		}
	}
	// with a package only for the tests
	_, run := testedApp(t, map[string]string{"millrace.yaml": model, "tests/requirements.txt": "greeting\n",
		"tests/test_a.py": "import greeting\ndef test_a(): assert greeting.WORD == 'Hello'\n"})
	if out, stderr, code := run("test", "--system-site-packages", "--wheels", greetingWheels(t)); code != 0 ||
		!strings.Contains(out, "pytest: 1 passed") {
		t.Errorf("with tests/requirements.txt: %d %s %s", code, out, stderr)
	}
}

// TestAppTestForms runs the tests in the module of an application of the other form.
func TestAppTestForms(t *testing.T) {
	testneeds.Python(t, "requests")
	app, run := testedApp(t, map[string]string{
		"ssf_config.yaml": "ssf_version: 1.0.0\napplication: {id: app, name: App, desc: d, version: 1.0, module: app.py, " +
			"test: 'test -n \"$MILLRACE_ADDR\"'}\nendpoints:\n  - {id: Double, version: 1, desc: d, inputs: [{id: x, " +
			"type: Integer, desc: d}], outputs: [{id: y, type: Integer, desc: d}]}\n",
		"app.py": `
from ssf.application_interface.application import *
from ssf.application_interface.results import *

class App(SSFApplicationInterface):
    def build(self): return RESULT_OK
    def startup(self): return RESULT_OK
    def shutdown(self): return RESULT_OK
    def request(self, params, meta): return {"y": 2 * params["x"]}

class Tests(SSFApplicationTestInterface):
    def begin(self, session, ipaddr): return RESULT_OK
    def end(self, session, ipaddr): return RESULT_OK
    def subtest(self, session, ipaddr, index):
        answer = session.post(f"{ipaddr}/v1/Double", json={"x": index}).json()
        return answer == {"y": 2 * index}, f"double of {index}", index < 2
`})
	if out, stderr, code := run("test"); code != 0 || !strings.Contains(out, "test of the application: 1 passed") {
		t.Errorf("%d %s %s", code, out, stderr)
	}
	text, err := os.ReadFile(filepath.Join(app, "app.py"))
	if err == nil {
		err = os.WriteFile(filepath.Join(app, "app.py"), []byte(strings.Replace(string(text), `{"y": 2 * params["x"]}`,
			`{"y": 2}`, 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := run("test"); code != 1 || !strings.Contains(stderr, "FAILED: 0: double of 0\npassed: 1") {
		t.Errorf("%d %s %s", code, out, stderr)
	}
}
