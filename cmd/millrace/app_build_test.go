package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/apps/build"
	"millrace/internal/gittest"
	"millrace/internal/testbuild"
	"millrace/internal/testneeds"
	"millrace/internal/wheeltest"
)

// greetingWheels makes a folder with the package greeting.
func greetingWheels(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	wheeltest.Wheel{Name: "greeting", Version: "1.0",
		Files: map[string]string{"greeting.py": "WORD = 'Hello'\n"}}.Write(t, dir)
	return dir
}

// TestAppBuild builds and serves a clone with packages. A killed build leaves nothing that hinders the next build.
func TestAppBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages")
	}
	testneeds.Python(t, "ensurepip")
	r := gittest.New(t)
	r.Commit(map[string]string{
		"millrace.yaml": "models:\n  - name: greet\n    source: ./greet.py\napplication:\n" +
			"  setup: ['echo done >made.txt']\n",
		"greet.py":         "import greeting\ndef infer(x: int) -> str:\n    return greeting.WORD\n",
		"requirements.txt": "greeting\n",
	})
	dir := t.TempDir()
	args := []string{"app", "--config", "file://" + r.Dir, "--wheels", greetingWheels(t)}
	with := func(more ...string) []string { return append(args[:len(args):len(args)], more...) }
	if _, stderr, code := finish(t, appCommandOf(t, dir, with("init")...)); code == 0 ||
		!strings.Contains(stderr, "--wheels: is for the command build or test") {
		t.Errorf("a flag of build for init: %d %s", code, stderr)
	}
	first := "app --config file://" + r.Dir + " init"
	if _, stderr, code := finish(t, appCommandOf(t, dir, strings.Fields(first)...)); code != 0 {
		t.Fatal(stderr)
	}
	killed := begin(t, appCommandOf(t, dir, with("build")...))
	venv := filepath.Join(dir, ".repo", ".millrace", "app.env", strings.Repeat("?", 20))
	for made := []string{}; len(made) == 0; time.Sleep(time.Millisecond) {
		made, _ = filepath.Glob(filepath.Join(venv, "pyvenv.cfg"))
	}
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.end()
	out, stderr, code := finish(t, appCommandOf(t, dir, with("build", "--json")...))
	var built appBuildResult
	if err := json.Unmarshal([]byte(out), &built); err != nil || code != 0 || !built.Made ||
		len(built.Environment.Packages) != 1 || len(built.Setup) != 1 {
		t.Fatalf("%d %s %s %v", code, out, stderr, err)
	}
	if all, _ := filepath.Glob(venv); len(all) != 1 {
		t.Errorf("environments: %q", all)
	}
	if _, stderr, code := finish(t, appCommandOf(t, dir, with("build", "lock")...)); code != 0 {
		t.Fatal(stderr)
	}
	var lock build.Lock
	text, err := os.ReadFile(filepath.Join(dir, ".repo", "app", "millrace.lock"))
	if err == nil {
		err = json.Unmarshal(text, &lock)
	}
	if err != nil || len(lock.Packages) != 1 || lock.Commit != r.Git("rev-parse", "HEAD") {
		t.Errorf("the lock file: %s %v", text, err)
	}
	r.Commit(map[string]string{"millrace.lock": strings.Replace(string(text), lock.Python, "3.2.1", 1)})
	if _, stderr, code := finish(t, appCommandOf(t, dir, strings.Fields(first)...)); code != 1 ||
		!strings.Contains(stderr, "has local changes, which init keeps: millrace.lock") {
		t.Errorf("a lock file that is only in the clone: %d %s", code, stderr)
	}
	if _, stderr, code := finish(t, appCommandOf(t, dir, with("init", "--discard", "build")...)); code != 1 ||
		!strings.Contains(stderr, "was written for Python 3.2.1, and here is 3.") {
		t.Errorf("a lock file of another Python: %d %s", code, stderr)
	}
	r.Commit(map[string]string{"millrace.lock": string(text)})
	p := begin(t, appCommandOf(t, dir, with("init", "build", "run", "--", "--http", "127.0.0.1:0", "--grpc", "off")...))
	p.until("is up to date")
	addr := httpAddr.FindString(p.until("millrace is ready: "))
	answer, err := http.Post(addr+"/apps/greet/infer", "application/json",
		strings.NewReader(`{"x": 4}`))
	var reply strings.Builder
	if err != nil || answer.Write(&reply) != nil || !strings.Contains(reply.String(), "Hello") {
		t.Errorf("%v %s", err, reply.String())
	}
	p.signal(os.Interrupt)
}

// TestAppUV: build takes uv of PATH, and an application with packages by uv passes its tests and runs.
func TestAppUV(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages")
	}
	testneeds.Python(t, "ensurepip")
	t.Setenv("PATH", filepath.Dir(testbuild.UV(t))+string(filepath.ListSeparator)+os.Getenv("PATH"))
	r := gittest.New(t)
	r.Commit(map[string]string{
		"millrace.yaml": "models:\n  - name: greet\n    source: ./greet.py\napplication:\n" +
			"  setup: ['python3 -c \"import greeting; print(greeting.WORD)\" >made.txt']\n" +
			"  test: ['test \"$(cat made.txt)\" = Hello']\n",
		"greet.py":         "import greeting\ndef infer(x: int) -> str:\n    return greeting.WORD\n",
		"requirements.txt": "greeting\n",
	})
	p := begin(t, appCommandOf(t, t.TempDir(), "app", "--config", "file://"+r.Dir, "--wheels", greetingWheels(t),
		"init", "build", "test", "run", "--", "--http", "127.0.0.1:0", "--grpc", "off"))
	p.until("1 package by uv ")
	addr := httpAddr.FindString(p.until("millrace is ready: "))
	answer, err := http.Post(addr+"/apps/greet/infer", "application/json", strings.NewReader(`{"x": 4}`))
	var reply strings.Builder
	if err != nil || answer.Write(&reply) != nil || !strings.Contains(reply.String(), "Hello") {
		t.Errorf("%v %s", err, reply.String())
	}
	p.signal(os.Interrupt)
}

// TestAppBuildForms builds an application of the other form, and packs its environment.
func TestAppBuildForms(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages")
	}
	testneeds.Python(t, "ensurepip")
	dir, app := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(app, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := func(more string) {
		write("ssf_config.yaml", "ssf_version: 1.0.0\napplication: {id: app, name: App, desc: d, version: 1.0, "+
			"module: app.py, "+more+"}\nendpoints:\n  - {id: Hi, version: 1, desc: d, inputs: [{id: x, type: Integer, "+
			"desc: d}], outputs: [{id: y, type: String, desc: d}]}\n")
	}
	write("app.py", `
import os
from ssf.application_interface.application import SSFApplicationInterface
from ssf.application_interface.results import *
import greeting

class App(SSFApplicationInterface):
    def build(self):
        with open("built.txt", "w") as f:
            f.write(greeting.WORD + os.environ.get("MILLRACE_TOKEN", ""))
        return RESULT_OK
    def startup(self): return RESULT_OK
    def shutdown(self): return RESULT_OK
    def request(self, params, meta): return {"y": greeting.WORD}
`)
	args := []string{"app", "--config", app, "--wheels", greetingWheels(t), "build"}
	for more, want := range map[string]string{
		"dependencies: {pip: greeting}":                     "dependencies.pip: is not known: there are python, poplar",
		"package: {tags: x}":                                "application.package.tags: is not known",
		"dependences: {python: greeting}":                   "dependences: is not known (did you mean dependencies?)",
		"dependencies: {python: 'a>1,<2'}":                  `"<2" begins within a requirement`,
		"dependencies: {python: '--index-url x'}":           "has options: write them into a requirements file",
		"dependencies: {python: none.txt}":                  "none.txt: no such file",
		"build_system_dependencies: [no-such-pack]":         "needs the system packages no-such-pack",
		"setup: [{a: b}]":                                   "application.setup: ",
		"dependencies: {python: greeting}, setup: 'exit 4'": "setup: exit 4",
	} {
		config(more)
		if _, stderr, code := finish(t, appCommandOf(t, dir, args...)); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s: %d %s, want %q", more, code, stderr, want)
		}
	}
	write("weights.tmp", "large")
	config("dependencies: {python: greeting}, package: {exclusions: ['*.tmp'], tag: 'team/{{application.id}}:v1'}")
	c := appCommandOf(t, dir, append(args, "run", "--", "--port", "0")...)
	c.Env = append(c.Env, "MILLRACE_TOKEN=secret")
	s := &octoaiServer{process: begin(t, c)}
	s.base = httpAddr.FindString(s.until("millrace is ready: "))
	if code, text := s.post("/v1/Hi", `{"x": 1}`); code != 200 || text != `{"y":"Hello"}` {
		t.Errorf("%d %s", code, text)
	}
	s.signal(os.Interrupt)
	if text, err := os.ReadFile(filepath.Join(app, "built.txt")); err != nil || string(text) != "Hello" {
		t.Errorf("%q %v", text, err)
	}
	out, stderr, code := finish(t, appCommandOf(t, dir, "app", "--config", app, "package", "--out", "image/", "--json"))
	if code != 0 || !strings.Contains(out, `"image": "localhost/team/app:v1"`) {
		t.Fatalf("%s %s", out, stderr)
	}
	bill, err := os.ReadFile(filepath.Join(dir, "image.cdx.json"))
	if err != nil || !strings.Contains(string(bill), "pkg:pypi/greeting@1.0") {
		t.Errorf("the packed packages: %v %s", err, bill)
	}
	config("dependencies: {python: greeting==1}")
	_, stderr, code = finish(t, appCommandOf(t, dir, "app", "--config", app, "run"))
	if code != 1 || !strings.Contains(stderr, "have changed since the last build: add the command build") {
		t.Errorf("other requirements than at the build: %d %s", code, stderr)
	}
}
