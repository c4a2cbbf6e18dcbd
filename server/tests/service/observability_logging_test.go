package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"millrace/client"
	"millrace/config"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// logged reads a JSON log: each line as "message key=value ...", with the given keys only.
func logged(t *testing.T, file string, keys ...string) (list []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(bytes.NewReader(text)); d.More(); {
		var r map[string]any
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprint(r["msg"])
		for _, k := range keys {
			if v, ok := r[k]; ok {
				line += fmt.Sprintf(" %s=%v", k, v)
			}
		}
		list = append(list, line)
	}
	return list
}

// TestLogOfChanges: at level info the log has the start, each change of models and server streams, and the drain with
// its reason.
func TestLogOfChanges(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	s, err := server.New(server.Config{
		HTTP: "127.0.0.1:0", GRPC: server.Off, Log: config.Log{File: file, Format: "json"},
		Models: []workers.Config{{Name: "echo", Source: "identity"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-s.Ready()
	c := clientOf(t, s)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	load := func(model string, p stream.Params) {
		t.Helper()
		_, err := c.Load(t.Context(), model, p)
		must(err)
	}
	load("delay", stream.Params{"fixed": "1ms", "instances": 2})
	load("delay", stream.Params{"fixed": "1ms", "instances": 2}) // changes nothing
	load("delay", stream.Params{"fixed": "2ms", "instances": 2, "swap": true})
	load("delay", stream.Params{"fixed": "2ms", "instances": 2, "share": false})
	must(c.Unload(t.Context(), "delay"))
	must(s.Models().Scale(t.Context(), "echo", 3))
	must(c.Unload(t.Context(), "delay"))
	if _, err := c.Load(t.Context(), "none", nil); err == nil {
		t.Error("a model that does not exist was loaded")
	}
	_, err = c.AddServerStream(t.Context(), client.StreamConfig{Name: "yard", Source: "http://user:secret@1.1.1.1:9/v",
		Model: "echo", Paused: true})
	must(err)
	_, err = c.ChangeServerStream(t.Context(), "yard", client.StreamChange{MaxAgeMS: new(70)})
	must(err)
	must(c.RemoveServerStream(t.Context(), "yard"))
	cancel(fmt.Errorf("the test is over"))
	must(<-done)

	got := logged(t, file, "model", "version", "workers", "from", "to", "reason", "stream", "source", "change", "http",
		"models", "file")
	want := []string{
		"a model was loaded model=echo version=1 workers=1",
		"the server is ready version=dev http=" + s.Addr("http") + " models=echo",
		"a model was loaded model=delay version=1 workers=2",
		"a model was swapped model=delay version=1 workers=2 from=1",
		"the workers of a model were changed model=delay version=1 from=2 to=3",
		"the workers of a model were changed model=delay version=1 from=3 to=2",
		"the workers of a model were changed model=echo version=1 from=1 to=3",
		"a model was unloaded model=delay version=1 reason=unloaded",
		"a stream was added model=echo stream=yard source=http://***@1.1.1.1:9/v",
		"a stream was changed stream=yard change=max_age_ms=70",
		"a stream was removed stream=yard",
		"the server drains reason=the test is over",
		"a model was unloaded model=echo version=1 reason=draining",
		"the server has ended",
	}
	got = without(got, "a stream has a problem") // its source is unreachable
	got = without(got, "ffmpeg")                 // not confined on kernels without support
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// without removes the lines with a prefix.
func without(lines []string, prefix string) (out []string) {
	for _, l := range lines {
		if !strings.HasPrefix(l, prefix) {
			out = append(out, l)
		}
	}
	return out
}

// TestLogOfRequestsAndFrames: at level debug the log has each request and each frame of every protocol, and at level
// info neither.
func TestLogOfRequestsAndFrames(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	s, end := servertest.RunWith(t, server.Config{
		HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: config.Log{File: file, Format: "json", DebugRate: 1000},
		Models: []workers.Config{{Name: "echo", Source: "identity"},
			{Name: "slow", Source: "delay", Params: stream.Params{"fixed": "50ms"}}},
	})
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	rest := func(body string) {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.Addr("http")+
			"/v2/models/echo/infer", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
	}
	const good = `{"inputs":[{"name":"x","shape":[1],"datatype":"INT32","data":[1]}]}`
	rest(good)
	if got := logged(t, file); len(without(without(without(got, "a model was loaded"), "the server is ready"),
		"ffmpeg")) != 0 {
		t.Errorf("at info: %q", got)
	}

	c := clientOf(t, s)
	if l, err := c.ChangeLogging(t.Context(), client.LoggingChange{Level: "debug"}); err != nil ||
		l.Level != "debug" || l.DebugRate != 1000 || l.File != file {
		t.Fatalf("%+v, %v", l, err)
	}
	rest(good)
	rest(`{}`)
	ws := servertest.Dial(t, s, "/v2/models/echo/stream")
	servertest.Ask(t, ws, websocket.BinaryMessage, []byte("hello"))
	ws.Close()
	in := []stream.Tensor{{Name: "x", Datatype: stream.Int32, Shape: []int{1}, Data: []byte{1, 2, 3, 4}}}
	r, err := s.Native().Infer(context.Background(), "echo", in)
	if err != nil {
		t.Fatal(err)
	}
	r.Release()
	conn, err := grpc.NewClient(s.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(),
		&grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	q, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr("http")+"/v2", nil)
	q.Host = "evil.example"
	if r, err := http.DefaultClient.Do(q); err != nil || r.StatusCode != http.StatusForbidden {
		t.Fatalf("%v, %v", r, err)
	}
	slow := servertest.Dial(t, s, "/v2/models/slow/stream?policy=latest")
	for range 3 { // a newer frame replaces a waiting frame
		if err := slow.WriteMessage(websocket.BinaryMessage, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if _, text, err := slow.ReadMessage(); err != nil || !strings.Contains(string(text), "superseded") {
		t.Fatalf("%s, %v", text, err)
	}
	slow.Close()
	_ = end()

	lines := strings.Join(logged(t, file, "model", "protocol", "method", "route", "path", "status", "outcome",
		"reason", "code", "bytes_in", "trace"), "\n")
	for _, want := range []string{
		"request protocol=http method=POST route=/v2/logging status=200",
		"request protocol=http method=POST route=/v2/models/:model/infer path=/v2/models/echo/infer status=200 " +
			"bytes_in=67 trace=" + trace,
		"request protocol=http method=POST route=/v2/models/:model/infer path=/v2/models/echo/infer status=400 " +
			"bytes_in=2 trace=" + trace,
		"request protocol=http method=GET route=/v2/models/:model/stream path=/v2/models/echo/stream status=101",
		"request protocol=grpc route=/grpc.health.v1.Health/Check status=0",
		"request protocol=http method=GET route=refused path=/v2 status=403",
	} {
		if !strings.Contains(lines, want) {
			t.Errorf("no %q", want)
		}
	}
	ended := 0
	for line := range strings.SplitSeq(lines, "\n") {
		if strings.HasPrefix(line, "frame ended model=echo") && strings.Contains(line, "outcome=result") &&
			strings.Contains(line, "trace=") {
			ended++
		}
	}
	if ended != 3 || !strings.Contains(lines, "outcome=drop reason=superseded") ||
		!strings.Contains(lines, "frame ended model=slow") {
		t.Errorf("%d frames of REST, WebSocket and the Go API", ended)
	}
	if t.Failed() {
		t.Logf("the log:\n%s", lines)
	}
}

// TestChangesOfTheLogThatAreRefused checks that refused changes return errors and change nothing.
func TestChangesOfTheLogThatAreRefused(t *testing.T) {
	s, end := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off,
		Log: config.Log{Level: "warn"}})
	defer func() { _ = end() }()
	for body, want := range map[string]string{
		"":                              "the body is not a change of the log",
		"[]":                            "the body is not a change of the log",
		`{"level":"loud"}`:              `level: "loud" is not a level`,
		`{"level":"debug","format":""}`: "format: is not a setting",
		`{"level":"debug"}{}`:           "more text",
		`{"level":"` + strings.Repeat("x", 8000) + `"}`: "",
	} {
		r, err := http.Post("http://"+s.Addr("http")+"/v2/logging", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		_, _ = text.ReadFrom(r.Body)
		r.Body.Close()
		if r.StatusCode/100 != 4 || !strings.Contains(text.String(), strings.ReplaceAll(want, `"`, `\"`)) {
			t.Errorf("%.40q: %d %s", body, r.StatusCode, &text)
		}
	}
	if code, body := servertest.Get(t, s, "/v2/logging?own=true"); code != 200 || !strings.Contains(body,
		`"level":"warn"`) {
		t.Errorf("%d %s", code, body)
	}
	for _, level := range []string{"", "loud"} {
		if err := s.SetLogLevel(level); stream.CodeOf(err) != stream.InvalidArgument {
			t.Errorf("%q: %v", level, err)
		}
	}
}
