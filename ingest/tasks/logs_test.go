package tasks_test

import (
	"bufio"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"millrace/client"
	"millrace/config"
	"millrace/ingest/access"
	"millrace/server"
	"millrace/tasks"
	"millrace/tasks/remote"
	"millrace/workers"
)

var upperModels = []workers.Config{{Name: "up", Source: "upper"}}

// logs returns the logs of a task.
func (r *rig) logs(id string, header map[string]string) string {
	r.t.Helper()
	a, text := r.do("GET", "/v2/tasks/"+id+"/logs", header, nil)
	if a.StatusCode != http.StatusOK || a.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		r.t.Fatalf("logs: %d %v %s", a.StatusCode, a.Header, text)
	}
	cannotRun(r.t, a.Header)
	return text
}

// cannotRun checks that a browser does not run what was answered as a page of the server.
func cannotRun(t *testing.T, h http.Header) {
	t.Helper()
	if h.Get("Content-Security-Policy") != "sandbox" || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("the answer could run as a page of the server: %v", h)
	}
}

// TestLogs: what a model writes for people is there while the task runs, when the task has ended, and until the task is
// deleted. A reader that follows gets lines as they come, and ends with the task.
func TestLogs(t *testing.T) {
	r := start(t, t.TempDir(), func(c *server.Config) { c.Models = upperModels })
	task := r.submit("model=up&name=a", nil, "hang")
	follow, err := http.Get(r.URL("http") + "/v2/tasks/" + task.ID + "/logs?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	defer follow.Body.Close()
	cannotRun(t, follow.Header)
	lines := bufio.NewReader(follow.Body)
	if line, err := lines.ReadString('\n'); err != nil || line != "read 4 bytes of a\n" {
		t.Fatalf("following: %q, %v", line, err)
	}
	if got := r.logs(task.ID, nil); got != "read 4 bytes of a\n" {
		t.Errorf("while the task runs: %q", got)
	}
	r.do("POST", "/v2/tasks/"+task.ID+"/cancel", nil, nil)
	if rest, err := lines.ReadString('\n'); rest != "" {
		t.Errorf("after the end: %q, %v", rest, err)
	}
	task = r.wait(r.submit("model=up&name=b", nil, "text").ID, nil)
	if got := r.logs(task.ID, nil); got != "read 4 bytes of b\n" || task.LogBytes != int64(len(got)) {
		t.Errorf("after the end: %q, %d bytes", got, task.LogBytes)
	}
	if a, text := r.do("GET", "/v2/tasks/"+task.ID+"/logs?follow=perhaps", nil, nil); a.StatusCode != 400 {
		t.Errorf("a wrong option: %d %s", a.StatusCode, text)
	}
	r.do("DELETE", "/v2/tasks/"+task.ID, nil, nil)
	if a, text := r.do("GET", "/v2/tasks/"+task.ID+"/logs", nil, nil); a.StatusCode != 404 {
		t.Errorf("after the deletion: %d %s", a.StatusCode, text)
	}
}

// work runs a consumer in this process with the models upper, as millrace work does.
func work(t *testing.T, r *rig, key string) {
	t.Helper()
	s, err := server.New(server.Config{HTTP: server.Off, GRPC: server.Off, Inside: true, Models: upperModels,
		Log: config.Log{Level: "error"}})
	if err != nil {
		t.Fatal(err)
	}
	cl, err := client.NewWith(strings.TrimPrefix(r.URL("http"), "http://"), client.Options{Token: key})
	if err != nil {
		t.Fatal(err)
	}
	from, err := remote.Open(remote.Options{Client: cl, Folder: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- s.Run(ctx) }()
	go func() {
		<-s.Ready()
		s.Work(ctx, from, server.Work{Name: "other", Slots: 1})
		done <- from.Close()
	}()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		cl.Close()
	})
}

// TestLogsOfConsumers: the log of a task that another host runs is at the server when the task ends. Only the consumer
// of the claim may append.
func TestLogsOfConsumers(t *testing.T) {
	file, header := withKeys(t, map[string]access.Grant{
		"eva": {Roles: []string{"infer"}}, "gpu": {Roles: []string{"work"}}, "late": {Roles: []string{"work"}},
	})
	r := start(t, t.TempDir(), func(c *server.Config) { c.Auth.Keys, c.Tasks.Consume = file, server.Off })
	work(t, r, header["gpu"]["api_key"])
	task := r.wait(r.submit("model=up&name=a", header["eva"], "text").ID, header["eva"])
	if got := r.logs(task.ID, header["eva"]); task.State != tasks.Finished || got != "read 4 bytes of a\n" {
		t.Errorf("the finished task: %q, %s %+v", got, task.State, task.Error)
	}
	task = r.wait(r.submit("model=up&name=b", header["eva"], "fail").ID, header["eva"])
	if got := r.logs(task.ID, header["eva"]); task.State != tasks.Failed || got != "read 4 bytes of b\n" {
		t.Errorf("the failed task: %q, %s", got, task.State)
	}
	task = r.submit("model=up&name=c", header["eva"], "hang")
	for task.State == tasks.Queued {
		_, text := r.do("GET", "/v2/tasks/"+task.ID+"?wait=1s", header["eva"], nil)
		task = r.task(text)
	}
	for _, c := range []struct {
		who, offset string
		status      int
	}{{"late", "0", 404}, {"eva", "0", 403}, {"", "0", 401}, {"gpu", "x", 400}} {
		h := map[string]string{"Upload-Offset": c.offset}
		for k, v := range header[c.who] {
			h[k] = v
		}
		a, text := r.do("POST", "/v2/work/claims/"+task.ID+"/1/log", h, strings.NewReader("forged"))
		if a.StatusCode != c.status {
			t.Errorf("appended by %q at %s: %d %s, want %d", c.who, c.offset, a.StatusCode, text, c.status)
		}
	}
	if got := r.logs(task.ID, header["eva"]); strings.Contains(got, "forged") {
		t.Errorf("the log: %q", got)
	}
	r.do("POST", "/v2/tasks/"+task.ID+"/cancel", header["eva"], nil)
}

// TestProgress: the progress of a running task is in the task, in lists and in events, whether the server or another
// host runs the task.
func TestProgress(t *testing.T) {
	const want = `"progress":{"done":3,"total":10,"unit":"words"}`
	for _, where := range []string{"server", "other host"} {
		t.Run(where, func(t *testing.T) {
			r := start(t, t.TempDir(), func(c *server.Config) {
				if c.Models = upperModels; where != "server" {
					c.Models, c.Tasks.Consume = nil, server.Off
				}
			})
			if where != "server" {
				work(t, r, "")
			}
			task := r.submit("model=up", nil, "hang")
			events, err := http.Get(r.URL("http") + "/v2/tasks/" + task.ID + "/events")
			if err != nil {
				t.Fatal(err)
			}
			defer events.Body.Close()
			lines := bufio.NewScanner(events.Body)
			for lines.Scan() && !strings.Contains(lines.Text(), want) {
			}
			if !strings.Contains(lines.Text(), want) {
				t.Fatalf("no event has %s: %v", want, lines.Err())
			}
			for _, path := range []string{"/v2/tasks", "/v2/tasks/" + task.ID} {
				if _, text := r.do("GET", path, nil, nil); !strings.Contains(text, want) {
					t.Errorf("%s: %s", path, text)
				}
			}
			r.do("POST", "/v2/tasks/"+task.ID+"/cancel", nil, nil)
		})
	}
}
