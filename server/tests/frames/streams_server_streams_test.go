package frames_test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/config"
	"millrace/ingest/streams"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/workers"
)

// TestStreamsOfTheConfiguration reads a file with a stream, runs the stream, and watches its results.
func TestStreamsOfTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	servertest.Film(t, filepath.Join(dir, "clip.mp4"))
	path := filepath.Join(dir, "millrace.yaml")
	text := `
http: 127.0.0.1:0
grpc: off
models:
  - {name: find, source: motion}
streams:
  - name: door
    source: clip.mp4
    model: find
    loop: true
    max_age_ms: 5000
    sinks: {file: results.jsonl, max_size: 1MiB}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	s, stop := servertest.RunWith(t, cfg)
	resp, err := http.Get(s.URL("http") + "/v2/streams/door/results")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewScanner(resp.Body)
	for n := 0; n < 3; {
		if !in.Scan() {
			t.Fatalf("%d results: %v", n, in.Err())
		}
		if data, ok := strings.CutPrefix(in.Text(), "data: "); ok {
			var l struct{ Stream, Model string }
			if err := json.Unmarshal([]byte(data), &l); err != nil || l.Stream != "door" || l.Model != "find" {
				t.Fatalf("%v: %s", err, data)
			}
			n++
		}
	}
	code, metrics := servertest.Get(t, s, "/metrics")
	for _, words := range []string{
		`millrace_stream_state{state="running",stream="door"} 1`,
		`millrace_stream_frames_total{model="find",outcome="error",stream="door"} 0`,
		`millrace_stream_watchers{stream="door"} 1`,
		`millrace_stream_delivered_results_total{model="find",stream="door"} `,
		`millrace_goroutines{group="streams_stream"} 1`,
	} {
		if code != 200 || !strings.Contains(metrics, words) {
			t.Errorf("metrics: %d, without %s", code, words)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if st := s.Memory().Stats(); st.Leases != 0 {
		t.Errorf("%d leases left", st.Leases)
	}
	if out, err := os.ReadFile(filepath.Join(dir, "results.jsonl")); err != nil || len(out) == 0 {
		t.Errorf("%d bytes in the file, %v", len(out), err)
	}
}

// TestStreamFaults: each mistake is reported with its line and key.
func TestStreamFaults(t *testing.T) {
	for text, want := range map[string]string{
		"- {source: a.mp4, model: m}":                                                "streams[0].name: ",
		"- {name: a, model: m}":                                                      "streams[0].source: ",
		"- {name: a, source: a.mp4}":                                                 "streams[0].model: ",
		"- {name: a, source: a.mp4, model: m, polcy: latest}":                        "did you mean policy?",
		"- {name: a, source: a.mp4, model: m, policy: newest}":                       "streams[0].policy: ",
		"- {name: a, source: a.mp4, model: m, sinks: {fil: x}}":                      "streams[0].sinks.fil: ",
		"- {name: a, source: a.mp4, model: m, sinks: {webhook: nowhere}}":            "streams[0].sinks.webhook: ",
		"- {name: a, source: a.mp4, model: m, rtsp_transport: udp}":                  "streams[0].rtsp_transport: ",
		"- {name: a, source: a.mp4, model: m, fps: x}":                               "streams[0].fps: ",
		"- {name: a, source: a.mp4, model: m}\n- {name: a, source: b.mp4, model: m}": "streams[1].name: ",
		"- {name: a, source: a.mp4, model: m, sinks: {file: x}}\n- {name: b, source: b.mp4, model: m, sinks: {file: " +
			"./x}}": "streams[1].sinks.file: ",
		"a: b": "streams: is not a list",
	} {
		text = "streams:\n  " + strings.ReplaceAll(text, "\n", "\n  ")
		_, err := config.Parse([]byte(text), "f.yaml")
		if got := fmt.Sprint(err); !strings.Contains(got, want) || !strings.HasPrefix(got, "f.yaml:") {
			t.Errorf("%s\n%s, want %q", text, got, want)
		}
	}
}

// TestStreamsFile: an invalid file of kept streams fails the start, and its relative path begins at the
// configuration's folder.
func TestStreamsFile(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"millrace.yaml": "http: 127.0.0.1:0\ngrpc: off\nstreams_file: kept.json\n", "kept.json": "{"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := config.Load(filepath.Join(dir, "millrace.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = server.New(cfg); err == nil ||
		!strings.HasPrefix(err.Error(), "streams_file: "+filepath.Join(dir, "kept.json")) {
		t.Fatalf("%v", err)
	}
	if err := os.Remove(filepath.Join(dir, "kept.json")); err != nil {
		t.Fatal(err)
	}
	const yard = `{"name":"yard","source":"https://camera.invalid/","model":"find"}`
	for again := range 2 {
		s, stop := servertest.RunWith(t, cfg)
		if again == 0 {
			resp, err := http.Post(s.URL("http")+"/v2/streams", "application/json", strings.NewReader(yard))
			if err != nil || resp.StatusCode != http.StatusCreated {
				t.Fatalf("%v %v", resp, err)
			}
			resp.Body.Close()
		}
		if code, body := servertest.Get(t, s, "/v2/streams/yard"); code != 200 {
			t.Errorf("%d %s", code, body)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	cfg.HTTP, cfg.GRPC = server.Off, "127.0.0.1:0"
	if err := cfg.Validate(); err == nil || !strings.HasPrefix(err.Error(), "http: ") {
		t.Errorf("%v", err)
	}
}

// TestStreamOverTLS watches a stream over an encrypted WebSocket to the server's
// end.
func TestStreamOverTLS(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	path := filepath.Join(t.TempDir(), "clip.mp4")
	servertest.Film(t, path)
	door := streams.Config{Name: "door", Source: path, Model: "find", Loop: true}
	s, stop := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off,
		TLS:    config.TLS{SelfSigned: true},
		Models: []workers.Config{{Name: "find", Source: "motion"}}, Streams: []streams.Config{door}})
	// the certificate is not checked here
	d := websocket.Dialer{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	ws, _, err := d.Dial(strings.Replace(s.URL("http"), "https", "wss", 1)+"/v2/streams/door/results",
		http.Header{"Origin": {s.URL("http")}})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	_ = ws.SetReadDeadline(time.Now().Add(30 * time.Second))
	_, line, err := ws.ReadMessage()
	if err != nil || !strings.HasPrefix(string(line), `{"stream":"door","seq":`) {
		t.Fatalf("%s %v", line, err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	for err == nil {
		var text []byte
		if _, text, err = ws.ReadMessage(); err == nil {
			line = text
		}
	}
	if !websocket.IsCloseError(err, websocket.CloseGoingAway) ||
		string(line) != `{"stream":"door","closed":"draining"}` {
		t.Errorf("%v after %s", err, line)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
