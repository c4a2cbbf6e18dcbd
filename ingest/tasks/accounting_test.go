package tasks_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/config"
	"millrace/ingest/access"
	"millrace/internal/role"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// withKeys writes a file of keys, one for each grant, and returns the headers of each key by name.
func withKeys(t *testing.T, grants map[string]access.Grant) (file string, header map[string]map[string]string) {
	t.Helper()
	file, header = filepath.Join(t.TempDir(), "keys.yaml"), map[string]map[string]string{}
	var all []access.Key
	for name, grant := range grants {
		entry, text := access.NewKey(name, grant)
		all, header[name] = append(all, entry), map[string]string{"api_key": text}
	}
	if err := access.WriteKeys(file, all); err != nil {
		t.Fatal(err)
	}
	return file, header
}

// TestTaskQuotas: a client at quotas.tasks or quotas.task_bytes is refused with the name of the quota, and other
// clients are not. After the end of a task, or its deletion, the client may submit again.
func TestTaskQuotas(t *testing.T) {
	file, header := withKeys(t, map[string]access.Grant{
		"few":   {Roles: []string{"infer"}, Quotas: map[string]float64{"tasks": 2}},
		"small": {Roles: []string{"infer"}, Quotas: map[string]float64{"task_bytes": 100}},
		"other": {Roles: []string{"infer"}},
	})
	r := start(t, t.TempDir(), func(c *server.Config) { c.Auth.Keys, c.Tasks.Consume = file, server.Off })
	refused := func(who, quota string) {
		t.Helper()
		a, text := r.do("POST", "/v2/tasks?model=echo", header[who], strings.NewReader(jsonBody))
		if a.StatusCode != 429 || !strings.Contains(text, quota) || a.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s, want 429 with %s", who, a.StatusCode, text, quota)
		}
	}
	first := r.submit("model=echo", header["few"], jsonBody)
	r.submit("model=echo", header["few"], jsonBody)
	refused("few", "quotas.tasks")
	r.submit("model=echo", header["other"], jsonBody)
	if a, text := r.do("POST", "/v2/tasks/"+first.ID+"/cancel", header["few"], nil); a.StatusCode != 200 {
		t.Fatal(text)
	}
	r.submit("model=echo", header["few"], jsonBody)

	big := r.submit("model=echo", header["small"], strings.Repeat("x", 100))
	refused("small", "quotas.task_bytes")
	if a, text := r.do("DELETE", "/v2/tasks/"+big.ID, header["small"], nil); a.StatusCode != 204 {
		t.Fatal(text)
	}
	r.submit("model=echo", header["small"], jsonBody)

	_, text := r.do("GET", "/metrics", nil, nil)
	for _, series := range []string{
		`millrace_quota_refused_total{principal="few",quota="tasks"} 1`,
		`millrace_quota_refused_total{principal="small",quota="task_bytes"} 1`,
	} {
		if !strings.Contains(text, series+"\n") {
			t.Errorf("the metrics lack %s", series)
		}
	}
}

// TestWatchersOfTasks: requests that wait for a task count in quotas.watchers, until they are answered.
func TestWatchersOfTasks(t *testing.T) {
	one := 1
	r := start(t, t.TempDir(), func(c *server.Config) { c.Quotas.Watchers, c.Tasks.Consume = &one, server.Off })
	task := r.submit("model=echo", nil, jsonBody)
	path := r.URL("http") + "/v2/tasks/" + task.ID
	events, err := http.Get(path + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	if a, text := r.do("GET", "/v2/tasks/"+task.ID+"?wait=1m", nil, nil); a.StatusCode != 429 ||
		!strings.Contains(text, "quotas.watchers") {
		t.Errorf("a second watcher: %d %s", a.StatusCode, text)
	}
	if a, text := r.do("POST", "/v2/tasks/"+task.ID+"/cancel", nil, nil); a.StatusCode != 200 {
		t.Fatal(text)
	}
	if _, err := new(bytes.Buffer).ReadFrom(events.Body); err != nil { // the events have ended with the task
		t.Fatal(err)
	}
	next := r.submit("model=echo", nil, jsonBody)
	for a, text := r.do("GET", "/v2/tasks/"+next.ID+"?wait=10ms", nil, nil); a.StatusCode != 200; a, text =
		r.do("GET", "/v2/tasks/"+next.ID+"?wait=10ms", nil, nil) { // the events release their place soon
		if a.StatusCode != 429 {
			t.Fatal(text)
		}
	}
}

// TestTaskMetrics: the metrics of tasks equal what the clients were told, and add up.
func TestTaskMetrics(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, nil)
	r.wait(r.submit("model=echo", nil, jsonBody).ID, nil)
	r.wait(r.submit("model=echo", nil, `{"inputs":7}`).ID, nil)
	waiting := r.submit("model=none", nil, jsonBody)
	for _, what := range []string{"cancel", "retry"} {
		if a, text := r.do("POST", "/v2/tasks/"+waiting.ID+"/"+what, nil, nil); a.StatusCode != 200 {
			t.Fatal(text)
		}
	}
	gone := r.submit("model=none", nil, jsonBody)
	if a, text := r.do("DELETE", "/v2/tasks/"+gone.ID, nil, nil); a.StatusCode != 204 {
		t.Fatal(text)
	}
	r.figures(`millrace_tasks_queued_total{origin="submitted"} 4`, `millrace_tasks_queued_total{origin="retried"} 1`,
		`millrace_tasks_ended_total{state="finished"} 1`, `millrace_tasks_ended_total{state="failed"} 1`,
		`millrace_tasks_ended_total{state="cancelled"} 1`, `millrace_tasks_ended_total{state="deleted"} 1`,
		`millrace_tasks{state="queued"} 1`, `millrace_tasks{state="finished"} 1`, `millrace_task_attempts_total 2`)
	r.end()
	r = start(t, dir, nil)
	r.figures(`millrace_tasks_queued_total{origin="submitted"} 0`, `millrace_tasks_queued_total{origin="found"} 1`,
		`millrace_tasks{state="queued"} 1`, `millrace_tasks{state="finished"} 1`)
}

// figures checks lines of the metrics.
func (r *rig) figures(want ...string) {
	r.t.Helper()
	_, text := r.do("GET", "/metrics", nil, nil)
	for _, line := range want {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, "{")
			var have []string
			for l := range strings.Lines(text) {
				if strings.HasPrefix(l, name) {
					have = append(have, l)
				}
			}
			r.t.Errorf("the metrics lack %s: %q", line, have)
		}
	}
}

// TestMemoryOfTasks: a task that has ended holds no memory of the budget.
func TestMemoryOfTasks(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	leases := func() string {
		_, text := r.do("GET", "/metrics", nil, nil)
		_, rest, _ := strings.Cut(text, "\nmillrace_memory_leases ")
		n, _, _ := strings.Cut(rest, "\n")
		return n
	}
	before := leases()
	for range 3 {
		r.wait(r.submit("model=echo", nil, jsonBody).ID, nil)
	}
	if after := leases(); before == "" || after != before {
		t.Errorf("%s leases after the tasks, %s before", after, before)
	}
}

// TestAuditOfTasks: cancelling, queueing again and deleting a task is audited with the acting client and the task.
func TestAuditOfTasks(t *testing.T) {
	file, header := withKeys(t, map[string]access.Grant{
		"owner": {Roles: []string{"infer"}}, "boss": {Roles: role.All.Names()}, "other": {Roles: []string{"infer"}},
	})
	log := filepath.Join(t.TempDir(), "audit.log")
	r := start(t, t.TempDir(), func(c *server.Config) {
		c.Auth.Keys, c.Audit, c.Log = file, log, config.Log{Level: "error"}
		c.Models = []workers.Config{{Name: "slow", Source: "delay", Params: stream.Params{"fixed": "1ms"}}}
	})
	task := r.submit("model=none", header["owner"], jsonBody)
	for _, act := range []struct {
		who, method, path string
		status            int
	}{
		{"other", "POST", "/cancel", 404}, {"boss", "POST", "/cancel", 200}, {"owner", "POST", "/retry", 200},
		{"boss", "DELETE", "", 204},
	} {
		if a, text := r.do(act.method, "/v2/tasks/"+task.ID+act.path, header[act.who],
			nil); a.StatusCode != act.status {
			t.Fatalf("%+v: %d %s", act, a.StatusCode, text)
		}
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		var l struct{ Principal, Verb, Target, Outcome string }
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Target != task.ID {
			t.Fatalf("%s: %v", line, err)
		}
		got = append(got, l.Principal+" "+l.Verb+" "+l.Outcome)
	}
	want := []string{
		"other POST /v2/tasks/:id/cancel failed", "boss POST /v2/tasks/:id/cancel done",
		"owner POST /v2/tasks/:id/retry done", "boss DELETE /v2/tasks/:id done",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
