package streams_test

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"image/jpeg"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/ingest"
	"millrace/ingest/sinks"
	"millrace/ingest/streams"
	"millrace/internal/child"
	"millrace/stream"
)

type line struct {
	Stream, Model string
	Seq           *uint64
	PTS           int64 `json:"pts_us"`
	Outputs       []struct{ Name string }
	Width, Height int
	Error         *struct{ Code string }
}

func check(t *testing.T, text string) line {
	t.Helper()
	var l line
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if l.Stream != "door" || l.Seq == nil || l.Model != "eyes" || l.Error != nil || l.Width != 160 ||
		l.Height != 120 || len(l.Outputs) == 0 {
		t.Fatalf("%s", text)
	}
	return l
}

// A configured stream reads a file in mode Every: each frame is in the file of results, in order, and the webhook
// gets all results although two calls failed.
func TestFileToSinks(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "results.jsonl")
	var (
		mu      sync.Mutex
		calls   int
		got     []json.RawMessage
		numbers []string
	)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		sum := hmac.New(sha256.New, []byte("geheim"))
		sum.Write(body)
		mu.Lock()
		defer mu.Unlock()
		if want := "sha256=" + hex.EncodeToString(sum.Sum(nil)); req.Header.Get("X-Millrace-Signature") != want {
			t.Errorf("signed %q, want %q", req.Header.Get("X-Millrace-Signature"), want)
		}
		numbers = append(numbers, req.Header.Get("X-Millrace-Delivery"))
		if calls++; calls <= 2 {
			http.Error(w, "not now", http.StatusBadGateway)
			return
		}
		var m struct {
			Stream  string
			Results []json.RawMessage
		}
		if err := json.Unmarshal(body, &m); err != nil || m.Stream != "door" {
			t.Errorf("%v: %s", err, body)
		}
		got = append(got, m.Results...)
	}))
	defer hook.Close()
	r := start(t, streams.Options{Streams: []streams.Config{{
		Name: "door", Source: clip(t, 3), Model: "eyes", Policy: stream.Policy{Mode: stream.Every},
		Sinks: []sinks.Settings{&sinks.File{Path: out}, &sinks.Webhook{URL: hook.URL, Secret: "geheim"}},
	}}})
	// The test waits, since the video may end before enough attempts of the webhook.
	s := r.until("door", "ended", func(s shown) bool { return s.State == "ended" })
	if s.Frames != 30 || s.Results != 30 || s.Sinks["file"].Lost != 0 {
		t.Errorf("%+v", s)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 30 {
		t.Fatalf("%d lines", len(lines))
	}
	for i, text := range lines {
		if l := check(t, text); *l.Seq != uint64(i) || l.PTS != int64(i)*100_000 {
			t.Errorf("line %d: %s", i, text)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(got) != 30 || calls < 3 || numbers[0] != numbers[1] || numbers[1] != numbers[2] {
		t.Errorf("%d results in %d calls %v, %+v", len(got), calls, numbers, s.Sinks["webhook"])
	}
}

// Added and removed while the server runs; watched by several over HTTP.
func TestWatch(t *testing.T) {
	r := start(t, streams.Options{AllowPrivate: true})
	url := served(t, clip(t, 1))
	r.want(201, "POST", "/v2/streams", `{"name":"door","source":"`+url+`","model":"eyes","loop":true,"max_fps":30}`)
	r.want(409, "POST", "/v2/streams", `{"name":"door","source":"`+url+`","model":"eyes"}`)

	events := r.watch("results", "")
	if ct := events.Header.Get("Content-Type"); ct != "text/event-stream" {
		t.Error(ct)
	}
	in := bufio.NewReader(events.Body)
	var last uint64
	begun := time.Now()
	for i := 0; i < 15 || time.Since(begun) <= replyTime; {
		text, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if data, ok := strings.CutPrefix(text, "data: "); ok {
			l := check(t, data)
			if i > 0 && *l.Seq <= last {
				t.Errorf("seq %d after %d", *l.Seq, last)
			}
			last = *l.Seq
			i++
		}
	}
	plain := r.watch("results", "application/x-ndjson")
	text, err := bufio.NewReader(plain.Body).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	check(t, text)

	video := r.watch("video", "")
	_, boundary, _ := strings.Cut(video.Header.Get("Content-Type"), "boundary=")
	parts := multipart.NewReader(video.Body, boundary)
	for range 3 {
		p, err := parts.NextPart()
		if err != nil {
			t.Fatal(err)
		}
		img, err := jpeg.Decode(p)
		if err != nil || img.Bounds().Dx() != 160 || img.Bounds().Dy() != 120 {
			t.Fatalf("%v", err)
		}
	}
	r.until("door", "three watch", func(s shown) bool { return s.Watchers == 3 })
	_ = video.Body.Close()
	_ = plain.Body.Close()
	r.until("door", "two have left", func(s shown) bool { return s.Watchers == 1 })

	r.want(204, "DELETE", "/v2/streams/door", "")
	if rest, err := io.ReadAll(in); err != nil {
		t.Errorf("%v after %d bytes", err, len(rest))
	}
	r.want(404, "GET", "/v2/streams/door", "")
	if n := child.LiveChildren(); n != 0 {
		t.Errorf("%d children left", n)
	}
	r.want(201, "POST", "/v2/streams", `{"name":"door","source":"`+url+`","model":"eyes"}`)
	if s := r.over("door", "ended"); s.Results == 0 {
		t.Errorf("%+v", s)
	}
	if code, text := r.call("GET", "/v2/streams/door/results", ""); code != 409 {
		t.Errorf("%d %s", code, text)
	}
}

// watch makes a request with an endless reply.
func (r *rig) watch(what, accept string) *http.Response {
	r.t.Helper()
	req, _ := http.NewRequestWithContext(r.t.Context(), "GET", r.url+"/v2/streams/door/"+what, nil)
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 {
		text, _ := io.ReadAll(resp.Body)
		r.t.Fatalf("%s: %s", resp.Status, text)
	}
	return resp
}

// The model is unloaded and loaded again; the stream waits and continues.
func TestModelComesBack(t *testing.T) {
	r := start(t, streams.Options{Streams: []streams.Config{{Name: "door", Source: clip(t, 1), Model: "eyes",
		Loop: true}}})
	before := r.until("door", "results", func(s shown) bool { return s.Results > 2 })
	if err := r.models.Unload(t.Context(), "eyes", ""); err != nil {
		t.Fatal(err)
	}
	r.until("door", "waiting", func(s shown) bool { return s.State == "waiting" && s.Error != nil })
	r.until("door", "not found", func(s shown) bool { return s.Error != nil && s.Error.Code == "not_found" })
	if n := child.LiveChildren(); n != 0 {
		t.Errorf("%d children run without a model", n)
	}
	r.load(eyes)
	s := r.until("door", "results again", func(s shown) bool {
		return s.State == "running" && s.Results > before.Results+5
	})
	if s.Frames < s.Results {
		t.Errorf("%+v", s)
	}
}

func TestPatch(t *testing.T) {
	r := start(t, streams.Options{Streams: []streams.Config{{Name: "door", Source: clip(t, 1), Model: "eyes",
		Loop: true, Paused: true}}})
	r.until("door", "frames", func(s shown) bool { return s.Frames > 3 })
	if s := r.show("door"); s.Results != 0 || !s.Paused || s.Policy.Policy != "latest" {
		t.Errorf("%+v", s)
	}
	r.want(200, "PATCH", "/v2/streams/door", `{"paused":false,"max_age_ms":400,"max_fps":2,"priority":"high"}`)
	s := r.until("door", "results", func(s shown) bool { return s.Results > 0 })
	if s.Paused || s.Policy.MaxAgeMS != 400 || s.Policy.MaxFPS != 2 || s.Policy.Priority != "high" {
		t.Errorf("%+v", s)
	}
	r.until("door", "drops by rate", func(s shown) bool { return s.Drops["rate"] > 0 })
	for body, field := range map[string]string{
		`{"window":-1}`: "window: ", `{"policy":"sometimes"}`: "policy: ", `{"max_fps":-1}`: "max_fps: ",
		`{"priority":"urgent"}`: "priority: ",
		`{"source":"x"}`:        "source: ", `{"model":"nothing"}`: "model: ", `{"name":"x"}`: "name: cannot change",
		`{"paused":"yes"}`: "paused: ", ``: "body", `[]`: "", `{"paused":true} x`: "body",
	} {
		code, text := r.call("PATCH", "/v2/streams/door", body)
		if code/100 != 4 || !strings.Contains(text, field) {
			t.Errorf("%s: %d %s", body, code, text)
		}
	}
}

func TestRefusals(t *testing.T) {
	r := start(t, streams.Options{Limits: ingest.Limits{MaxStreams: 1}})
	for body, want := range map[string]string{
		`{"name":"a b","source":"rtsp://example.com/","model":"m"}`:                                        "400 name: ",
		`{"name":"../a","source":"rtsp://example.com/","model":"m"}`:                                       "400 name: ",
		`{"name":"a","source":"rtsp://example.com/"}`:                                                      "400 model: ",
		`{"name":"a","model":"m"}`:                                                                         "400 source: ",
		`{"name":"a","source":"/etc/passwd","model":"m"}`:                                                  "403 source: ",
		`{"name":"a","source":"exec:cat","model":"m"}`:                                                     "403 source: ",
		`{"name":"a","source":"rtsp://example.com/","model":"m","sinks":{"file":"/tmp/x"}}`:                "403 sinks.file: ",
		`{"name":"a","source":"rtsp://example.com/","model":"m","sinks":{"webhook":"ftp://x/"}}`:           "400 sinks.webhook: ",
		`{"name":"a","source":"rtsp://example.com/","model":"m","fps":-1}`:                                 "400 fps: ",
		`{"name":"a","source":"rtsp://example.com/","model":"m","policy":"newest"}`:                        "400 policy: ",
		`{"name":"a","source":"rtsp://example.com/","model":"m","colour":"red"}`:                           "400 colour: ",
		`{"name":"a","source":7,"model":"m"}`:                                                              "400 source: ",
		`{"name":"a","source":"rtsp://example.com/","model":"m","sinks":{"webhook_secret":"s"}}`:           "400 sinks.webhook_secret: ",
		`{"name":"a","source":"rtsp://example.com/","model":"m","x":"` + strings.Repeat("x", 70000) + `"}`: "413 ",
	} {
		code, text := r.call("POST", "/v2/streams", body)
		if got := fmt.Sprintf("%d %s", code, text); code == 201 ||
			!strings.Contains(strings.Replace(got, `{"error":"`, "", 1), want) {
			t.Errorf("%.120s: %s, want %s", body, got, want)
		}
	}
	// A private address is noticed when it is opened, and that is final.
	r.streams.AddRequested(t, streams.Config{Name: "a", Source: "http://me:geheim@127.0.0.1:9/", Model: "eyes"})
	s := r.until("a", "failed", func(s shown) bool { return s.State == "failed" })
	if s.Error == nil || s.Error.Code != string(stream.PermissionDenied) || strings.Contains(s.Source+s.Error.Message,
		"geheim") {
		t.Errorf("%+v %+v", s, s.Error)
	}
	if code, text := r.call("POST", "/v2/streams",
		`{"name":"b","source":"http://1.1.1.1/","model":"eyes"}`); code != 503 ||
		!strings.Contains(text, "limits.max_streams") {
		t.Errorf("%d %s", code, text)
	}
	r.want(404, "DELETE", "/v2/streams/none", "")
	var list struct{ Streams []shown }
	if err := json.Unmarshal([]byte(r.want(200, "GET", "/v2/streams", "")), &list); err != nil ||
		len(list.Streams) != 1 {
		t.Errorf("%v %+v", err, list)
	}
}

// Wrong types are described in terms of JSON, not of Go.
func TestWrongTypes(t *testing.T) {
	r := start(t, streams.Options{Streams: []streams.Config{looped(t)}})
	for _, c := range [][3]string{
		{"POST", `{"fps":"7"}`, "fps: "},
		{"POST", `{"loop":"yes"}`, "loop: "},
		{"POST", `{"width":640.5}`, "width: "},
		{"POST", `{"width":99999999999999999999}`, "width: "},
		{"POST", `{"fps":1e999}`, "fps: "},
		{"POST", `{"name":7}`, "name: "},
		{"POST", `{"name":["a"]}`, "name: "},
		{"POST", `{"sinks":true}`, "sinks: "},
		{"POST", `{"sinks":{"webhook":{}}}`, "sinks.webhook: "},
		{"POST", `[]`, "the body is not a JSON object"},
		{"PATCH", `{"window":"3"}`, "window: "},
		{"PATCH", `{"paused":1}`, "paused: "},
		{"PATCH", `"paused"`, "the body is not a JSON object"},
	} {
		path := "/v2/streams"
		if c[0] == "PATCH" {
			path += "/door"
		}
		if text := r.want(400, c[0], path, c[1]); !strings.HasPrefix(text, `{"error":"`+c[2]) {
			t.Errorf("%s: %s, want %s", c[1], text, c[2])
		}
	}
}

// A full file is renamed, and three are kept.
func TestRotation(t *testing.T) {
	out := filepath.Join(t.TempDir(), "results.jsonl")
	r := start(t, streams.Options{Streams: []streams.Config{{
		Name: "door", Source: clip(t, 4), Model: "eyes", Policy: stream.Policy{Mode: stream.Every},
		Sinks: []sinks.Settings{&sinks.File{Path: out, MaxSize: 1 << 10}},
	}}})
	r.until("door", "ended", func(s shown) bool { return s.State == "ended" })
	files, err := filepath.Glob(out + "*")
	if err != nil || len(files) != 4 {
		t.Fatalf("%v %v", files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil || len(text) == 0 || len(text) > 1<<10 {
			t.Errorf("%s: %d bytes, %v", f, len(text), err)
		}
		for _, l := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
			check(t, string(l))
		}
	}
}

// A watcher that does not read loses lines and delays nothing; one that reads gets them
// all.
func TestSlowWatcher(t *testing.T) {
	var h streams.FanoutForTest
	slow, fast := h.Watch(2), h.Watch(5)
	for i := range 5 {
		h.Send(fmt.Appendf(nil, "%d", i))
	}
	if n, lost := slow(); n != 2 || lost != 3 {
		t.Errorf("slow has %d and lost %d", n, lost)
	}
	if n, lost := fast(); n != 5 || lost != 0 {
		t.Errorf("fast has %d and lost %d", n, lost)
	}
}

// A camera that fails is logged once, with what ffmpeg has reported, and once more when it works again. Its state has
// one sentence without that.
func TestTroubleIsLogged(t *testing.T) {
	var text logged
	r := start(t, streams.Options{AllowPrivate: true, Log: slog.New(slog.NewTextHandler(&text, nil))})
	path := clip(t, 1)
	url := served(t, path)
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	r.want(201, "POST", "/v2/streams", `{"name":"door","source":"`+strings.Replace(url, "//", "//me:geheim@", 1)+
		`","model":"eyes"}`)
	s := r.until("door", "waiting", func(s shown) bool { return s.State == "waiting" && s.Error != nil })
	if want := "there is nothing at this address (the server answers 404 Not Found)"; s.Error.Message != want {
		t.Errorf("%q; want %q", s.Error.Message, want)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if err := r.models.Unload(t.Context(), "eyes", ""); err != nil { // the next opening comes soon, not after 15 s
		t.Fatal(err)
	}
	// The source's own error is not_found too, but has a kind.
	r.until("door", "without its model", func(s shown) bool {
		return s.Error != nil && s.Error.Code == "not_found" && s.Error.Kind == ""
	})
	r.load(eyes)
	r.until("door", "over", func(s shown) bool { return s.State == "ended" })
	got := text.String()
	if !strings.Contains(got, " detail=\"") || !strings.Contains(got, "Server returned 404 Not Found") {
		t.Errorf("without ffmpeg's output: %s", got)
	}
	if strings.Contains(got, "geheim") || strings.Count(got, "a stream runs again") != 1 ||
		!strings.Contains(got, "stream=door") ||
		// the source, the unloading, no model
		strings.Count(got, "WARN") != 3 || strings.Count(got, "a stream has a problem") != 3 {
		t.Errorf("%s", got)
	}
}

// logged is a log to be looked at.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A stream that is added again under its name is another one, whose counters begin again.
func TestIDOfAStream(t *testing.T) {
	r := start(t, streams.Options{AllowPrivate: true})
	seen := map[uint64]bool{}
	for range 3 {
		r.want(201, "POST", "/v2/streams", `{"name":"door","source":"http://127.0.0.1:9/","model":"eyes"}`)
		st := r.streams.Stats().Streams
		if len(st) != 1 || seen[st[0].ID] {
			t.Fatalf("%+v, IDs before %v", st, seen)
		}
		seen[st[0].ID] = true
		r.want(204, "DELETE", "/v2/streams/door", "")
	}
}
