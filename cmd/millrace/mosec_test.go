package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"millrace/internal/testneeds"
)

// mosec prepares a run of a program written for mosec, with Debian's Python.
func mosec(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	interpreter := testneeds.Python(t)
	abs, err := filepath.Abs(program)
	if err != nil {
		t.Fatal(err)
	}
	c := command(t, append([]string{"run", abs, "--grpc", "off", "--"}, args...)...)
	c.Env = append(c.Env, "PATH="+filepath.Dir(interpreter)+string(os.PathListSeparator)+os.Getenv("PATH"))
	return c
}

// words is the example of a program for mosec.
const words = "../../examples/migrating/mosec/words.py"

// TestMosec serves only an application, at the port in its arguments: shared stages, errors, events, a batch with one
// bad request, metrics and documents.
func TestMosec(t *testing.T) {
	s := serveOctoai(t, mosec(t, words, "--port", "0", "--timeout", "20000", "--namespace", "words"))
	for _, c := range []struct {
		path, body   string
		status       int
		contentType  string
		answer, part string
	}{
		{"/inference", `{"text": "to be or not to be"}`, 200, "application/json", `{"to":2,"be":2,"or":1,"not":1}`, ""},
		{"/long", `{"text": "to be or not to be"}`, 200, "application/vnd.words+json", "", `"not": 1`},
		{"/inference", `{"txt": 1}`, 422, "text/plain; charset=utf-8", "",
			"request validation error: text is needed: 'text'"},
		{"/long", `{`, 400, "text/plain; charset=utf-8", "", "decoding error: decoding error"},
		{"/inference", `{"text": "divide"}`, 500, "text/plain; charset=utf-8", "", "inference internal error"},
		{"/inference", `{"text": "wait"}`, 408, "text/plain; charset=utf-8", "",
			"mosec timeout error: [14]`forward` timeout after 1.0s: "},
		{"/spell", `{"text": "to be"}`, 200, "text/event-stream; charset=utf-8", "", "data: t-o\n\ndata: b-e\n\n"},
		{"/spell", `{"text": "a stop"}`, 200, "text/event-stream; charset=utf-8", "",
			"data: a\n\ndata: s-t-o-p\n\nevent: error\ndata: SSE inference error: 422: Unprocessable Content: " +
				"request validation error: stop is no word\n\n"},
		{"/spell", `{}`, 200, "text/event-stream; charset=utf-8", "", "event: error\ndata: SSE inference error: " +
			"422: Unprocessable Content: request validation error: text is needed: 'text'\n\n"},
		{"/inference", `{"text": "crash"}`, 500, "text/plain; charset=utf-8", "", "steps.Count_2: "},
	} {
		status, header, text := s.ask("POST", c.path, inJSON, c.body)
		if status != c.status || header.Get("Content-Type") != c.contentType || !strings.Contains(text, c.part) ||
			c.part != "" && c.status == 200 && c.contentType[0] == 't' && text != c.part {
			t.Errorf("%s %s: %d %s %q, want %d %s %q", c.path, c.body, status, header.Get("Content-Type"), text,
				c.status, c.contentType, c.part)
		}
		if c.answer != "" && !sameJSON(text, c.answer) {
			t.Errorf("%s %s: %s, want %s", c.path, c.body, text, c.answer)
		}
	}
	s.batchWithOneBad()
	if status, _, text := s.ask("POST", "/v2/models/words.Count_2/infer", inJSON,
		`{"inputs":[{"name":"x","datatype":"BYTES","shape":[1],"data":["x"]}]}`); status == http.StatusOK {
		t.Errorf("a stage answered a request that came by no route: %s", text)
	}
	if _, _, text := s.ask("GET", "/", "", ""); text != "MOSEC service" {
		t.Errorf("/ is %q", text)
	}
	var document struct {
		Paths map[string]any
	}
	if _, _, text := s.ask("GET", "/openapi/metadata.json", "", ""); json.Unmarshal([]byte(text), &document) != nil ||
		document.Paths["/long"] == nil {
		t.Errorf("the document is %.300s", text)
	}
	_, _, text := s.ask("GET", "/metrics", "", "")
	for _, line := range []string{
		`words_throughput_total{code="400",endpoint="/long"} 1`,
		`words_throughput_total{code="408",endpoint="/inference"} 1`,
		`words_process_duration_second_count{stage="Count_2",connection="all"} `,
		`words_batch_size_bucket{le="1",stage="Spell_4",connection="all"} 2`, `words_remaining_task 0`,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no %s in the metrics", line)
		}
	}
	if _, code := s.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("exit status %d\n%s", code, &s.stderr)
	}
}

// batchWithOneBad checks that requests in a batch with a bad request are answered.
func (s *octoaiServer) batchWithOneBad() {
	s.t.Helper()
	var all sync.WaitGroup
	for i := range 24 {
		all.Go(func() {
			text, want := fmt.Sprintf("w%d", i), http.StatusOK
			if i%8 == 3 {
				text, want = "divide", http.StatusInternalServerError
			}
			status, _, answer := s.ask("POST", "/inference", inJSON, fmt.Sprintf(`{"text": %q}`, text))
			if status != want || want == http.StatusOK && !sameJSON(answer, fmt.Sprintf(`{%q: 1}`, text)) {
				s.t.Errorf("%s: %d %s", text, status, answer)
			}
		})
	}
	all.Wait()
}

func sameJSON(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return fmt.Sprint(x) == fmt.Sprint(y)
}

// daemonReason is how a server ends because of a daemon.
var daemonReason = regexp.MustCompile(`\nmillrace: the main process of program words has ended: .*mosec daemon ` +
	`\[keeper\] exited on error code: -9`)

// When a daemon exits, the server ends with the daemon's name.
func TestMosecDaemon(t *testing.T) {
	s := serveOctoai(t, mosec(t, words, "--port=0"))
	var found []string
	for end := time.Now().Add(30 * time.Second); found == nil; time.Sleep(time.Millisecond) { // until the log has come
		if time.Now().After(end) {
			t.Fatalf("no daemon in the log\n%s", &s.stderr)
		}
		found = regexp.MustCompile(`the keeper is (\d+)`).FindStringSubmatch(s.stderr.String())
	}
	pid, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	err = s.end()
	if text := s.stderr.String(); status(t, err) != exitFailure || !daemonReason.MatchString(text) {
		t.Errorf("%v\n%s", err, text)
	}
}

// The arguments of a program set the log level of the program's lines.
func TestMosecLogLevel(t *testing.T) {
	program := filepath.Join(t.TempDir(), "app.py")
	text := `
from mosec import Server, Worker, get_logger
logger = get_logger()
class W(Worker):
    def forward(self, data):
        logger.debug("a fine line")
        logger.info("a line")
        logger.error("a bad line")
        return data
if __name__ == "__main__":
    s = Server()
    s.append_worker(W)
    s.run()
`
	if err := os.WriteFile(program, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string][3]bool{
		"--log-level=debug": {true, true, true}, "--debug": {true, true, true}, "": {false, true, true},
		"--log-level error": {false, false, true},
	} {
		s := serveOctoai(t, mosec(t, program, append(strings.Fields(args), "--port=0")...))
		s.ask("POST", "/inference", "application/json", "{}")
		s.signal(syscall.SIGTERM)
		log := s.stderr.String()
		if got := [3]bool{strings.Contains(log, "a fine line"), strings.Contains(log, "a line"),
			strings.Contains(log, "a bad line")}; got != want {
			t.Errorf("%q: logged %v, want %v\n%s", args, got, want, log)
		}
	}
	stdout, stderr, code := finish(t, mosec(t, program, "--help"))
	if code != 0 || stderr != "" || !strings.HasPrefix(stdout, "usage: app.py") {
		t.Errorf("--help: exit code %d\n%s\n%s", code, stdout, stderr)
	}
}

// A check of the configuration loads all stages and graphs of a program.
func TestMosecCheck(t *testing.T) {
	program := filepath.Join(t.TempDir(), "app.py")
	const text = `
from mosec import Runtime, Server, Worker
class A(Worker):
    def forward(self, data): return data
class B(A): pass
class C(A):
    def __init__(self): raise RuntimeError("there are no weights")
if __name__ == "__main__":
    s = Server()
    s.register_runtime({"/one": [Runtime(CLASS)], "/two": [Runtime(A), Runtime(B)]})
    s.run()
`
	for class, want := range map[string][]string{
		"B": {"model app ok", "model app.B_1 ok", "model app.A_2 ok", "model app.B_3 ok", "model app.two ok"},
		"C": {"model app ok", "model app.C_1 wrong RuntimeError: there are no weights", "model app.A_2 ok",
			"model app.B_3 ok", "model app.two ok"},
	} {
		if err := os.WriteFile(program, []byte(strings.Replace(text, "CLASS", class, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		c := command(t, "check", program, "--json", "--http", "127.0.0.1:0", "--grpc", "off", "--replicas", "2")
		c.Env = append(c.Env, "PATH=/usr/bin"+string(os.PathListSeparator)+os.Getenv("PATH"))
		out, stderr, code := finish(t, c)
		var found []struct{ What, State, Detail string }
		if err := json.Unmarshal([]byte(out), &found); err != nil {
			t.Fatalf("%v\n%s%s", err, out, stderr)
		}
		for _, f := range found {
			if !strings.HasPrefix(f.What, "model ") {
				continue
			}
			if len(want) == 0 {
				t.Errorf("%s: also %+v", class, f)
				continue
			}
			name, detail, _ := strings.Cut(want[0], " wrong ")
			if name != want[0] {
				name += " wrong"
			}
			if f.What+" "+f.State != name || !strings.Contains(f.Detail, detail) {
				t.Errorf("%s: %+v, want %s", class, f, want[0])
			}
			if workers := map[string]string{"model app": "python, 1 workers",
				"model app.A_2": "python, 2 workers"}[f.What]; !strings.Contains(f.Detail, workers) {
				t.Errorf("%s: %+v, want %s", class, f, workers)
			}
			want = want[1:]
		}
		if len(want) > 0 || (code != 0) != (class == "C") {
			t.Errorf("%s: exit status %d, not found: %q\n%s", class, code, want, stderr)
		}
	}
}

// TestMosecDryRun checks the exit codes of dry runs.
func TestMosecDryRun(t *testing.T) {
	program := filepath.Join(t.TempDir(), "app.py")
	for example, want := range map[string]int{`{"x": 3}`: 0, `{"y": 3}`: 1} {
		text := "from mosec import Server, Worker\nclass W(Worker):\n    example = " + example +
			"\n    def forward(self, data):\n        return data['x']\n" +
			"if __name__ == '__main__':\n    s = Server()\n    s.append_worker(W)\n    s.run()\n"
		if err := os.WriteFile(program, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, stderr, code := finish(t, mosec(t, program, "--dry-run"))
		if code != want || want == 0 && !strings.Contains(stderr,
			`dry run result: {"request": {"x": 3}, "result_size": 1, `) ||
			want == 1 && !strings.Contains(stderr, "KeyError: 'x'") {
			t.Errorf("%s: exit code %d, want %d\n%s", example, code, want, stderr)
		}
	}
}
