package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// SIGHUP applies changed settings of the configuration file; a wrong file changes nothing; the log names settings
// that need a restart.
func TestReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, log := filepath.Join(dir, "millrace.yaml"), filepath.Join(dir, "log")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("http: 127.0.0.1:0\ngrpc: \"off\"\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("models: [{name: a, source: identity}, {name: same, source: identity}, {name: work, source: delay, fixed: " +
		"1ms}]\n")
	audit := filepath.Join(dir, "audit.log")
	p := begin(t, command(t, "serve", "--config", file, "--log-file", log, "--audit", audit))
	addr := httpAddr.FindStringSubmatch(p.until("ready"))[1]
	logged := func() string {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	hangUp := func(until string, times int) {
		t.Helper()
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		for limit := time.Now().Add(30 * time.Second); strings.Count(logged(),
			until) < times; <-time.After(5 * time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("the log has no %q:\n%s", until, logged())
			}
		}
	}
	check := func(what, host, path string, want int) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		if a.StatusCode != want {
			t.Errorf("%s: %s of %s is %s, want %d", what, path, host, a.Status, want)
		}
	}
	const again = "the configuration was read again"
	check("at the start", "door.example", "/v2", 403)
	hangUp(`msg="the configuration was read again: nothing has changed"`+"\n", 1)

	write("models: [{name: b, source: identity}, {name: same, source: identity}, {name: work, source: delay, fixed: " +
		"2ms}]\nhosts: [door.example]\nlog: {level: debug}\nquotas: {requests: 1000}\nlimits: {max_streams: " +
		"7}\nstreams: [{name: door, source: /dev/nothing, model: b, paused: true}]\n")
	hangUp(again, 2)
	check("after a change", "door.example", "/v2", 200)
	check("after a change", "127.0.0.1", "/v2/models/a", 404)
	check("after a change", "127.0.0.1", "/v2/models/b/ready", 200)
	check("after a change", "127.0.0.1", "/v2/streams/door", 200)
	check("after a change", "127.0.0.1", "/v2/models/work/ready", 200)
	text := logged()
	if !strings.Contains(text, "need a restart") || !strings.Contains(text, "settings=[limits.max_streams]") ||
		!strings.Contains(text, "level=DEBUG") {
		t.Errorf("the log does not say what has changed:\n%s", text)
	}
	for model, want := range map[string]int{"a": 1, "b": 1, "same": 1, "work": 1} {
		if n := strings.Count(text, fmt.Sprintf(`msg="a model was loaded" model=%s `, model)); n != want {
			t.Errorf("model %s was loaded %d times, want %d:\n%s", model, n, want, text)
		}
	}

	if want := `msg="` + again + `" settings="[hosts quotas.requests log.level]" models.added=[b] ` +
		`models.changed=[work] models.removed=[a] streams.added=[door]` + "\n"; !strings.Contains(text, want) {
		t.Errorf("the log has no line with %s:\n%s", want, text)
	}

	write("models: [{name: c, source: identity}]\nhosts: [\"a/b\"]\n")
	hangUp("not all of the configuration", 1)
	write("models: [{name: c, sorce: identity}]\n")
	hangUp("not all of the configuration", 2)
	check("after a wrong one", "door.example", "/v2", 200)
	check("after a wrong one", "127.0.0.1", "/v2/models/b/ready", 200)
	check("after a wrong one", "127.0.0.1", "/v2/models/c", 404)

	for i, text := range []string{"", "# nothing yet\n",
		"http: 127.0.0.1:0\ngrpc: \"off\"\nmodels: [{name: b, source: identity}]",
		"http: 127.0.0.1:0\ngrpc: \"off\"\nmodels:\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		hangUp("not all of the configuration", 3+i)
		check("after an empty or cut one", "127.0.0.1", "/v2/models/b/ready", 200)
		check("after an empty or cut one", "127.0.0.1", "/v2/models/work/ready", 200)
	}

	if n := strings.Count(text, `msg="a model was swapped" model=work `); n != 1 {
		t.Errorf("the model whose settings have changed was swapped %d times:\n%s", n, text)
	}
	bad := filepath.Join(dir, "bad.onnx")
	if err := os.WriteFile(bad, []byte("no model"), 0o600); err != nil {
		t.Fatal(err)
	}
	write("models: [{name: b, source: " + bad + "}, {name: same, source: identity}]\n")
	hangUp("not all of the configuration", 7)
	check("after a model that cannot be loaded", "127.0.0.1", "/v2/models/b/ready", 200)
	check("after a model that cannot be loaded", "127.0.0.1", "/v2/models/work", 404)
	check("after a model that cannot be loaded", "door.example", "/v2", 403)
	last := logged()
	last = last[strings.LastIndex(last, again):]
	if want := again + `" settings="[hosts quotas.requests log.level]" models.removed=[work] streams.removed=[door]` +
		"\n"; !strings.HasPrefix(last, want) {
		t.Errorf("after a model that cannot be loaded, the log has %s, want %s", last, want)
	}
	hangUp("not all of the configuration", 8) // the model is loaded again, although its settings are as before
	for n, most := range []string{"7", "8"} {
		write("models: [{name: b, source: identity}, {name: same, source: identity}]\nlimits: {max_streams: " + most +
			"}\n")
		hangUp(again, 5+n)
	}
	if n := strings.Count(logged(), `msg="`+again+`"`+"\n"); n != 2 {
		t.Errorf("%d lines name no change, want 2: of the model that could not be loaded again, and of the setting "+
			"that needs a restart\n%s", n, logged())
	}
	if _, code := p.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("exit status %d\n%s", code, &p.stderr)
	}
	acts, err := os.ReadFile(audit)
	if done, failed := strings.Count(string(acts), `"outcome":"done"`),
		strings.Count(string(acts), `"outcome":"failed"`); err != nil || done != 4 || failed != 8 {
		t.Errorf("%v: of the signals, the audit log says that %d were done and %d failed, want 4 and 8:\n%s", err,
			done, failed, acts)
	}
}
