package tasks_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/config"
	"millrace/ingest/access"
	"millrace/internal/role"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/stream"
	"millrace/tasks"
	"millrace/workers"
)

// rig is a running server with tasks.
type rig struct {
	*server.Server
	t   *testing.T
	dir string // the data folder
	end func()
}

func start(t *testing.T, dir string, change func(*server.Config)) *rig {
	t.Helper()
	cfg := server.Config{
		HTTP: "127.0.0.1:0", GRPC: server.Off, Data: dir, Log: config.Log{Level: "error"},
		Models: []workers.Config{
			{Name: "echo", Source: "identity"},
			{Name: "slow", Source: "delay", Params: stream.Params{"fixed": "50ms"}},
		},
	}
	if change != nil {
		change(&cfg)
	}
	s := servertest.Start(t, cfg)
	return &rig{Server: s.Server, t: t, dir: dir, end: func() { _ = s.Stop() }} // the end of the test shows an error
}

// do sends a request and returns the status and the body.
func (r *rig) do(method, path string, header map[string]string, body io.Reader) (*http.Response, string) {
	r.t.Helper()
	q, err := http.NewRequest(method, r.URL("http")+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	for k, v := range header {
		q.Header.Set(k, v)
	}
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return a, string(b)
}

const jsonBody = `{"inputs":[{"name":"x","datatype":"INT32","shape":[2],"data":[7,8]}]}`

func (r *rig) submit(query string, header map[string]string, body string) tasks.Task {
	r.t.Helper()
	a, text := r.do("POST", "/v2/tasks?"+query, header, strings.NewReader(body))
	if a.StatusCode != http.StatusCreated {
		r.t.Fatalf("submit: %d %s", a.StatusCode, text)
	}
	return r.task(text)
}

func (r *rig) task(text string) (t tasks.Task) {
	r.t.Helper()
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		r.t.Fatalf("%v: %s", err, text)
	}
	return t
}

// wait returns a task that has ended.
func (r *rig) wait(id string, header map[string]string) tasks.Task {
	r.t.Helper()
	a, text := r.do("GET", "/v2/tasks/"+id+"?wait=1m", header, nil)
	if a.StatusCode != 200 {
		r.t.Fatalf("wait: %d %s", a.StatusCode, text)
	}
	return r.task(text)
}

// TestTask: the result of a task is the answer of the infer route, in whole and in parts, also after a restart.
func TestTask(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, nil)
	_, want := r.do("POST", "/v2/models/echo/infer", nil, strings.NewReader(jsonBody))
	task := r.submit("model=echo&name=a.json", nil, jsonBody)
	if task = r.wait(task.ID, nil); task.State != tasks.Finished || task.Attempt != 1 {
		t.Fatalf("the task: %+v, error %+v", task, task.Error)
	}
	r.end()
	r = start(t, dir, nil)
	path := "/v2/tasks/" + task.ID + "/result"
	a, got := r.do("GET", path, nil, nil)
	if a.StatusCode != 200 || got != want || a.Header.Get("Content-Type") != "application/json" ||
		a.Header.Get("ETag") != `"`+task.Result.SHA256+`"` {
		t.Errorf("the result: %d %v %s, want %s", a.StatusCode, a.Header, got, want)
	}
	cannotRun(t, a.Header)
	a, got = r.do("GET", path, map[string]string{"Range": "bytes=3-9"}, nil)
	if a.StatusCode != 206 || got != want[3:10] || a.Header.Get("Content-Range") != fmt.Sprintf("bytes 3-9/%d",
		len(want)) {
		t.Errorf("a part: %d %q %s", a.StatusCode, got, a.Header.Get("Content-Range"))
	}
	if a, _ = r.do("GET", path, map[string]string{"Range": "bytes=100000-"}, nil); a.StatusCode != 416 {
		t.Errorf("a part behind the end: %d", a.StatusCode)
	}
	if a, got = r.do("DELETE", "/v2/tasks/"+task.ID, nil, nil); a.StatusCode != 204 {
		t.Errorf("delete: %d %s", a.StatusCode, got)
	}
	if a, got = r.do("GET", path, nil, nil); a.StatusCode != 404 || !strings.Contains(got, task.ID) {
		t.Errorf("after the deletion: %d %s", a.StatusCode, got)
	}
}

// TestDamagedResult: a client gets no damaged result, whatever the header Range asks for.
func TestDamagedResult(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, nil)
	task := r.wait(r.submit("model=echo", nil, fmt.Sprintf(`{"inputs":[{"name":"x","datatype":"INT32","shape":[4000],`+
		`"data":[1%s]}]}`, strings.Repeat(",1", 3999))).ID, nil)
	files, err := filepath.Glob(filepath.Join(dir, "files", "*", task.ID, "result-1"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the files of the result: %v, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(files[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		header string
		want   int
	}{
		{"", 500}, {"bytes=0-", 500}, {"bytes=0-1", 500}, {"bytes=00-", 500}, {"items=1-2", 500}, {"bytes=x-", 500},
		{"bytes=1-2", 500}, {"bytes=100000-", 500},
	} {
		a, text := r.do("GET", "/v2/tasks/"+task.ID+"/result", map[string]string{"Range": c.header}, nil)
		if a.StatusCode != c.want {
			t.Errorf("Range: %s: %d, want %d: %s", c.header, a.StatusCode, c.want, text)
		}
	}
}

// TestDamagedPart: after the first request, a part that the disk has changed is answered with 500, and other parts are
// sent until then.
func TestDamagedPart(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, nil)
	const size = 600 << 10
	head := fmt.Sprintf(`{"inputs":[{"name":"x","datatype":"UINT8","shape":[%d],"parameters":{"binary_data_size":%d}}],`+
		`"parameters":{"binary_data_output":true}}`, size, size)
	task := r.wait(r.submit("model=echo", map[string]string{"Inference-Header-Content-Length": fmt.Sprint(len(head)),
		"Content-Type": "application/octet-stream"}, head+strings.Repeat("a", size)).ID, nil)
	part := func(span string, want int) {
		t.Helper()
		a, text := r.do("GET", "/v2/tasks/"+task.ID+"/result", map[string]string{"Range": span}, nil)
		if a.StatusCode != want {
			t.Errorf("%s: %d, want %d: %.200s", span, a.StatusCode, want, text)
		}
	}
	part("bytes=0-0", 206)
	name := filepath.Join(dir, "files", task.ID[30:], task.ID, "result-1")
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("b"), task.Result.Size-5)
	}
	if err := errors.Join(err, f.Close(), os.Chtimes(name, info.ModTime(), info.ModTime())); err != nil {
		t.Fatal(err)
	}
	part("bytes=10-19", 206)
	part("bytes=-3", 500)
	part("bytes=10-19", 500)
}

// TestBinary: the header in front of binary tensors goes with the input and with the result.
func TestBinary(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	head := `{"inputs":[{"name":"x","datatype":"UINT8","shape":[3],"parameters":{"binary_data_size":3}}],` +
		`"parameters":{"binary_data_output":true}}`
	h := map[string]string{
		"Inference-Header-Content-Length": fmt.Sprint(len(head)), "Content-Type": "application/octet-stream",
	}
	task := r.wait(r.submit("model=echo", h, head+"abc").ID, nil)
	a, got := r.do("GET", "/v2/tasks/"+task.ID+"/result", nil, nil)
	n := 0
	if _, err := fmt.Sscan(a.Header.Get("Inference-Header-Content-Length"), &n); err != nil || len(got) < n ||
		got[n:] != "abc" {
		t.Errorf("the result: %d %q, %v", a.StatusCode, got, a.Header)
	}
}

// TestFailedTask: a wrong request fails at once with the error of the infer route, and has no result.
func TestFailedTask(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	task := r.wait(r.submit("model=echo", nil, `{"inputs":7}`).ID, nil)
	if task.State != tasks.Failed || task.Attempt != 1 || task.Error.Code != "invalid_argument" ||
		!strings.Contains(task.Error.Message, "inputs") {
		t.Errorf("the task: %+v, error %+v", task, task.Error)
	}
	if a, text := r.do("GET", "/v2/tasks/"+task.ID+"/result", nil, nil); a.StatusCode != 409 {
		t.Errorf("the result: %d %s", a.StatusCode, text)
	}
}

// TestWaitsForModel: a task waits until its model is loaded.
func TestWaitsForModel(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	if a, text := r.do("POST", "/v2/repository/models/echo/unload", nil, nil); a.StatusCode != 200 {
		t.Fatal(text)
	}
	task := r.submit("model=echo", nil, jsonBody)
	if a, text := r.do("GET", "/v2/tasks/"+task.ID+"?wait=20ms", nil, nil); r.task(text).State != tasks.Queued {
		t.Errorf("without the model: %d %s", a.StatusCode, text)
	}
	if a, text := r.do("POST", "/v2/repository/models/echo/load", nil, nil); a.StatusCode != 200 {
		t.Fatal(text)
	}
	if task = r.wait(task.ID, nil); task.State != tasks.Finished {
		t.Errorf("the task: %+v", task)
	}
}

// TestSubmitErrors: a wrong submission names the option or header.
func TestSubmitErrors(t *testing.T) {
	r := start(t, t.TempDir(), func(c *server.Config) { c.Tasks.MaxInput = 10 })
	for _, c := range []struct {
		query, header, body string
		status              int
		want                string
	}{
		{"", "", "", 400, "model: is missing"},
		{"model=echo&priority=x", "", "", 400, `priority: \"x\"`},
		{"model=echo&attempts=0", "", "", 400, "attempts"},
		{"model=echo&not_before=soon", "", "", 400, "not_before"},
		{"model=echo&not_before=2h&expires=1h", "", "", 400, "expires: is not after not_before"},
		{"model=echo&retention=0s", "", "", 400, "retention"},
		{"model=echo&retries=1", "", "", 400, "retries: is no option"},
		{"model=" + strings.Repeat("m", 300), "", "", 400, "model: is longer than 256 bytes"},
		{"model=echo", "Idempotency-Key: " + strings.Repeat("k", 300), "", 400, "Idempotency-Key: is longer"},
		{"model=echo", "Content-Encoding: gzip", "x", 415, "Content-Encoding"},
		{"model=echo", "", "01234567890", 413, "tasks.max_input"},
	} {
		h := map[string]string{}
		if k, v, ok := strings.Cut(c.header, ": "); ok {
			h[k] = v
		}
		a, text := r.do("POST", "/v2/tasks?"+c.query, h, strings.NewReader(c.body))
		if a.StatusCode != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s %s: %d %s, want %d %s", c.query, c.header, a.StatusCode, text, c.status, c.want)
		}
	}
	for path, status := range map[string]int{
		"/v2/tasks/x": 404, "/v2/tasks/" + strings.Repeat("0", 32): 404, "/v2/tasks?state=lost": 400,
		"/v2/tasks?limit=0": 400, "/v2/tasks?after=1": 400, "/v2/tasks?order=x": 400,
	} {
		if a, text := r.do("GET", path, nil, nil); a.StatusCode != status {
			t.Errorf("%s: %d %s, want %d", path, a.StatusCode, text, status)
		}
	}
}

// TestPages: the list has all tasks, the newest first, page by page.
func TestPages(t *testing.T) {
	r := start(t, t.TempDir(), func(c *server.Config) { c.Tasks.Consume = server.Off })
	for range 5 {
		r.submit("model=slow", nil, jsonBody)
	}
	r.submit("model=echo", nil, jsonBody)
	var seen []string
	for after := ""; ; {
		_, text := r.do("GET", "/v2/tasks?limit=2&model=slow&state=queued,running"+after, nil, nil)
		var page struct {
			Tasks []tasks.Task
			Next  string
		}
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			t.Fatal(err, text)
		}
		for _, one := range page.Tasks {
			seen = append(seen, one.ID)
		}
		if after = "&after=" + page.Next; page.Next == "" {
			break
		}
	}
	if len(seen) != 5 {
		t.Errorf("%d tasks are listed", len(seen))
	}
	for i := 1; i < len(seen); i++ {
		if seen[i] >= seen[i-1] {
			t.Errorf("%s follows %s", seen[i], seen[i-1])
		}
	}
}

// TestText: the list has the tasks with a text in the id, the name of the input, the consumer or the error.
func TestText(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	named := r.wait(r.submit("model=echo&name=Beach.JPG", nil, jsonBody).ID, nil)
	failed := r.wait(r.submit("model=echo&name=b.json", nil, `{"inputs":7}`).ID, nil)
	for text, want := range map[string][]string{
		"beach.jpg": {named.ID}, "BEACH": {named.ID}, failed.ID[20:]: {failed.ID}, "inputs": {failed.ID},
		"server": {failed.ID, named.ID}, "echo": {}, "": {failed.ID, named.ID},
	} {
		var page struct{ Tasks []tasks.Task }
		_, answer := r.do("GET", "/v2/tasks?text="+text, nil, nil)
		if err := json.Unmarshal([]byte(answer), &page); err != nil {
			t.Fatal(err, answer)
		}
		got := []string{}
		for _, one := range page.Tasks {
			got = append(got, one.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("tasks with %q: %v, want %v", text, got, want)
		}
	}
	if a, _ := r.do("GET", "/v2/tasks?text="+strings.Repeat("x", 300), nil, nil); a.StatusCode != 400 {
		t.Errorf("a text of 300 bytes: %d", a.StatusCode)
	}
}

// TestEvents: the events of a task end with its end.
func TestEvents(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	task := r.submit("model=slow", nil, jsonBody)
	_, text := r.do("GET", "/v2/tasks/"+task.ID+"/events", nil, nil)
	if !strings.HasPrefix(text, "event: task\ndata: {") || !strings.Contains(text, `"state":"finished"`) {
		t.Errorf("events: %s", text)
	}
}

// TestOwners: a client sees its own tasks only, may submit for its models only, and the role manage sees all tasks.
func TestOwners(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	header := map[string]map[string]string{}
	var all []access.Key
	for name, grant := range map[string]access.Grant{
		"eva": {Roles: []string{"infer"}}, "adam": {Roles: []string{"infer"}, Models: []string{"slow"}},
		"boss": {Roles: role.All.Names()}, "viewer": {Roles: []string{"watch"}},
	} {
		entry, text := access.NewKey(name, grant)
		all = append(all, entry)
		header[name] = map[string]string{"api_key": text}
	}
	if err := access.WriteKeys(file, all); err != nil {
		t.Fatal(err)
	}
	r := start(t, t.TempDir(), func(c *server.Config) { c.Auth.Keys = file })
	task := r.submit("model=echo", header["eva"], jsonBody)
	if task = r.wait(task.ID, header["eva"]); task.State != tasks.Finished ||
		task.Owner != "" && !strings.HasPrefix(task.Owner, "key:") {
		t.Errorf("the task: %+v", task)
	}
	for _, c := range []struct {
		who, method, path string
		want              int
	}{
		{"", "GET", "/v2/tasks/" + task.ID, 401},
		{"", "POST", "/v2/tasks?model=echo", 401},
		{"viewer", "GET", "/v2/tasks", 403},
		{"adam", "GET", "/v2/tasks/" + task.ID, 404},
		{"adam", "GET", "/v2/tasks/" + task.ID + "/result", 404},
		{"adam", "GET", "/v2/tasks/" + task.ID + "/logs", 404},
		{"adam", "GET", "/v2/tasks/" + task.ID + "/logs?follow=true", 404},
		{"", "GET", "/v2/tasks/" + task.ID + "/logs", 401},
		{"viewer", "GET", "/v2/tasks/" + task.ID + "/logs", 403},
		{"boss", "GET", "/v2/tasks/" + task.ID + "/logs", 200},
		{"adam", "GET", "/v2/tasks/" + task.ID + "/events", 404},
		{"adam", "POST", "/v2/tasks/" + task.ID + "/cancel", 404},
		{"adam", "POST", "/v2/tasks/" + task.ID + "/retry", 404},
		{"adam", "DELETE", "/v2/tasks/" + task.ID, 404},
		{"adam", "POST", "/v2/tasks?model=echo", 403},
		{"adam", "POST", "/v2/tasks?model=slow", 201},
		{"eva", "GET", "/v2/tasks/" + task.ID + "/result", 200},
		{"boss", "GET", "/v2/tasks/" + task.ID + "/result", 200},
	} {
		if a, text := r.do(c.method, c.path, header[c.who], strings.NewReader(jsonBody)); a.StatusCode != c.want {
			t.Errorf("%s of %q: %d %s, want %d", c.method+" "+c.path, c.who, a.StatusCode, text, c.want)
		}
	}
	for who, want := range map[string]int{"eva": 1, "adam": 1, "boss": 2} {
		_, text := r.do("GET", "/v2/tasks", header[who], nil)
		if n := strings.Count(text, `"id":`); n != want {
			t.Errorf("%s sees %d tasks, want %d: %s", who, n, want, text)
		}
	}
}

// TestIdempotencyKey: a repeated submission is answered with the first task.
func TestIdempotencyKey(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	h := map[string]string{"Idempotency-Key": "order 7"}
	first := r.submit("model=echo", h, jsonBody)
	a, text := r.do("POST", "/v2/tasks?model=echo", h, strings.NewReader(jsonBody))
	if a.StatusCode != 200 || r.task(text).ID != first.ID || !strings.HasSuffix(a.Header.Get("Location"), first.ID) {
		t.Errorf("the second submission: %d %s", a.StatusCode, text)
	}
}

// TestLargeInput: an input above limits.max_body is stored in pieces.
func TestLargeInput(t *testing.T) {
	r := start(t, t.TempDir(), func(c *server.Config) { c.Limits.MaxBody = 1 << 20; c.Tasks.Consume = server.Off })
	for name, body := range map[string]io.Reader{
		"with a length": bytes.NewReader(make([]byte, 8<<20)),
		"in chunks":     io.LimitReader(zeros{}, 8<<20),
	} {
		a, text := r.do("POST", "/v2/tasks?model=echo", nil, body)
		if task := r.task(text); a.StatusCode != 201 || task.Input.Size != 8<<20 {
			t.Errorf("%s: %d %s", name, a.StatusCode, text)
		}
	}
	if a, text := r.do("POST", "/v2/models/echo/infer", nil,
		bytes.NewReader(make([]byte, 8<<20))); a.StatusCode != 413 {
		t.Errorf("a request above the limit: %d %s", a.StatusCode, text)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestShutdown: a task that runs at the shutdown finishes, or is queued for the next start.
func TestShutdown(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, nil)
	var ids []string
	for range 10 {
		ids = append(ids, r.submit("model=slow", nil, jsonBody).ID)
	}
	time.Sleep(60 * time.Millisecond) // the second task runs
	r.end()
	r = start(t, dir, nil)
	for _, id := range ids {
		if task := r.wait(id, nil); task.State != tasks.Finished || task.Error != nil {
			t.Errorf("after a restart: %+v, error %+v", task, task.Error)
		}
	}
}
