package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// serveSSFLogged runs millrace ssf in a new working folder with the log of Simple Server Framework.
func serveSSFLogged(t *testing.T, args ...string) (s *octoaiServer, log func() string) {
	t.Helper()
	c := ssfCommandOf(t, args...)
	c.Env = slices.DeleteFunc(c.Env, func(v string) bool { return strings.HasPrefix(v, "MILLRACE_LOG_FORMAT=") })
	c.Dir = t.TempDir()
	p := begin(t, c)
	s = &octoaiServer{p, httpAddr.FindString(p.until("millrace is ready: "))}
	return s, func() string {
		text, err := os.ReadFile(filepath.Join(c.Dir, "ssf.log"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// wantLog finds each of the expressions in the log.
func wantLog(t *testing.T, log string, patterns ...string) {
	t.Helper()
	for _, p := range patterns {
		if !regexp.MustCompile("(?m)^[0-9]{4}-[0-9-]+ [0-9:]+,[0-9]{3} " + p).MatchString(log) {
			t.Errorf("no %s in\n%s", p, log)
		}
	}
}

// The file ssf.log has the steps, the lines of the application with its process, failures, and the exit status.
func TestSSFLog(t *testing.T) {
	config := ssfApplication(t, "ipus: 0", oneEndpoint, `        logging.getLogger().info("request of x=%s", params["x"])
        return {"x": 1 // params["x"], "n": 0}
import logging
`)
	s, log := serveSSFLogged(t, "--config", config, "-p", "0", "--stdout-log-level", "DEBUG", "--mine", "init", "build",
		"run", "X")
	s.want("/v1/E", `{"x": 1}`, 200, `{"x":1,"n":0}`)
	s.want("/v1/E", `{"x": 0}`, 400, "error")
	s.want("/v1/E", `{"x": 1}`, 200, "")
	out, code := s.signal(syscall.SIGINT)
	if code != 32 {
		t.Errorf("ended with %d\n%s", code, &s.stderr)
	}
	text := log()
	wantLog(t, text, `\d+ +WARNING   Ignoring unknown arguments \['--mine'\]`,
		`\d+ +WARNING   Ignoring unknown SSF commands \['X'\]`,
		`\d+ +INFO      > ==== Init ====`, `\d+ +INFO      > ==== Build ====`, `\d+ +INFO      > ==== Run ====`,
		`\d+ +INFO      > \[0\] Worker of app \[\d+->\d+\]`, `\d+ +INFO      > Dispatcher ready`,
		`\d+ +INFO      Found <class 'app.App'>`, `\d+ +ERROR     .* is not alive: .*ZeroDivisionError`,
		`\d+ +ERROR     Application has errored \(32\): .*ZeroDivisionError`, `\d+ +INFO      Exit with 32`)
	pids := regexp.MustCompile(`Worker of app \[\d+->(\d+)\]`).FindAllStringSubmatch(text, -1)
	if len(pids) != 2 || pids[0][1] == pids[1][1] {
		t.Fatalf("the processes are %q", pids)
	}
	wantLog(t, text, pids[0][1]+` +INFO      request of x=1`, pids[0][1]+` +INFO      request of x=0`,
		pids[1][1]+` +INFO      request of x=1`)
	if strings.Contains(text, "DEBUG") || strings.Contains(text, "Stopping server") {
		t.Errorf("the file has too much:\n%s", text)
	}
	if strings.Count(out, "DEBUG     [0] Dispatcher issuing request") != 3 {
		t.Errorf("the output is\n%s", out)
	}
}

// Without --stop-on-error, the server serves health although the application does not start; the exit status is the
// result code of the application.
func TestSSFStartFails(t *testing.T) {
	config := ssfApplication(t, "ipus: 0", oneEndpoint, "        return {}\n    def startup(self): raise "+
		"SSFExceptionUnmetRequirement('no device')\n")
	s, log := serveSSFLogged(t, "--config", config, "-p", "0", "run")
	for path, want := range map[string]int{"/health/startup": 200, "/health/live": 503, "/health/ready": 503} {
		if code, _, text := s.ask("GET", path, "", ""); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, text, want)
		}
	}
	if code, text := s.post("/v1/E", `{"x": 1}`); code < 400 {
		t.Errorf("a request: %d %s", code, text)
	}
	if _, code := s.signal(syscall.SIGINT); code != 255 {
		t.Errorf("ended with %d\n%s", code, &s.stderr)
	}
	wantLog(t, log(), `\d+ +ERROR     Dispatcher failed to start: .*no device`,
		`\d+ +ERROR     Application has errored \(255\)`, `\d+ +INFO      Exit with 255`)
}

// Tests of the application run against its server, by the command test. The exit status is 33 when a test fails, and 35
// when the tests cannot be loaded.
func TestSSFTest(t *testing.T) {
	for ends, want := range map[string]int{"True": 0, "False": 33, "1 / 0": 33, "": 35} {
		config := ssfApplication(t, "ipus: 0", oneEndpoint, `        return {"x": params["x"] + 1, "n": 0}

from ssf.application_interface.application import SSFApplicationTestInterface
class Tests(SSFApplicationTestInterface):
    def begin(self, session, address): return RESULT_OK
    def end(self, session, address): return RESULT_OK
    def subtest`+map[bool]string{true: "s", false: ""}[ends == ""]+`(self, session, address, index):
        x = session.post(address + "/v1/E", json={"x": 4}, timeout=60).json()["x"]
        return x == 5 and `+map[bool]string{true: "True", false: ends}[ends == ""]+`, "adds one", False
`)
		c := ssfCommandOf(t, "--config", config, "--port", "0", "--key", "secret", "build", "test")
		c.Dir = t.TempDir()
		c.Env = slices.DeleteFunc(c.Env, func(v string) bool { return strings.HasPrefix(v, "MILLRACE_LOG_FORMAT=") })
		if stdout, stderr, code := finish(t, c); code != want ||
			want == 0 && !strings.Contains(stdout, "passed: 0: adds one") {
			t.Errorf("%q: exit status %d, want %d\n%s%s", ends, code, want, stdout, stderr)
		}
	}
}
