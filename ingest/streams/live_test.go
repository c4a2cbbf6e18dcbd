package streams_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/ingest"
	"millrace/ingest/sinks"
	"millrace/ingest/streams"
	"millrace/internal/codec"
	"millrace/stream"
)

// watched is a line received by a watcher of results.
type watched struct {
	Model         string
	Seq           uint64
	Width, Height int
	Lost          uint64
	Closed        string
	Outputs       []struct {
		Name string
		Data []any
	}
}

// following returns a function that returns the next line of a stream's results.
func (r *rig) following(name string) (next func() watched) {
	r.t.Helper()
	req, _ := http.NewRequestWithContext(r.t.Context(), "GET", r.url+"/v2/streams/"+name+"/results", nil)
	req.Header.Set("Accept", "application/x-ndjson")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	return func() (l watched) {
		for lines.Scan() {
			if len(lines.Bytes()) == 0 {
				continue
			}
			if err := json.Unmarshal(lines.Bytes(), &l); err != nil || l.Lost > 0 || l.Closed != "" {
				r.t.Fatalf("%s: %v", lines.Bytes(), err)
			}
			return l
		}
		r.t.Fatalf("the watcher was disconnected: %v", lines.Err())
		return l
	}
}

// exact checks that each frame of a paused stream has one ending for each of n models.
func (r *rig) exact(name string, n uint64) {
	r.t.Helper()
	r.until(name, "as many endings as frames", func(s shown) bool {
		total := s.Results
		for _, d := range s.Drops {
			total += d
		}
		return total == n*s.Frames && s.Frames > 0
	})
}

// camera is a live source: a program that writes 25 pictures a second until killed.
func camera(size string) string {
	return "exec:ffmpeg -nostdin -v error -re -f lavfi -i testsrc2=size=" + size + ":rate=25 -c:v mjpeg -f mjpeg -"
}

// The model, the models, the mode, the source and the sinks of a running stream change. The watcher stays, gaps
// between frames are counted, and each frame has one ending.
func TestChangesInPlace(t *testing.T) {
	r := start(t, streams.Options{})
	others(r, "a", "b")
	dir := t.TempDir()
	c := streams.Config{Name: "door", Source: camera("160x120"), Model: "eyes",
		Sinks: []sinks.Settings{&sinks.File{Path: filepath.Join(dir, "one")}}}
	r.streams.Add(t, c)
	next := r.following("door")
	next()
	for _, step := range []struct {
		body  string
		until func(watched) bool
	}{
		{`{"model":"a"}`, func(l watched) bool { return l.Model == "a" }},
		{`{"policy":"every"}`, func(l watched) bool { return r.show("door").Policy.Policy == "every" }},
		{`{"models":[{"model":"b"}]}`, func(l watched) bool { return l.Model == "b" }},
		{`{"models":[{"model":"a","remove":true}]}`, func(l watched) bool {
			return len(r.show("door").Models) == 1 && l.Model == "b"
		}},
		{`{"model":"eyes","policy":""}`, func(l watched) bool { return l.Model == "eyes" }},
	} {
		r.want(200, "PATCH", "/v2/streams/door", step.body)
		for !step.until(next()) {
		}
	}
	if s := r.show("door"); s.Restarts != 0 || s.Watchers != 1 {
		t.Errorf("%+v", s)
	}
	c.Sinks = []sinks.Settings{&sinks.File{Path: filepath.Join(dir, "two")}}
	c.Policy = stream.Policy{}
	r.streams.Change(t, c)
	for { // the watcher may have lines of before the change
		if _, err := os.Stat(filepath.Join(dir, "two")); err == nil {
			break
		}
		next()
	}
	r.want(204, "DELETE", "/v2/streams/door", "")
	for _, name := range []string{"one", "two"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil ||
			!strings.Contains(string(text), `"model":"eyes"`) {
			t.Errorf("sink %s: %v: %d bytes", name, err, len(text))
		}
	}
}

// A new source replaces the old source with its first frame: until then results come from the old source, the watcher
// stays, and every frame counts.
func TestSourceChangesInPlace(t *testing.T) {
	first, second := newMotionJPEG(t, 64, 48), newMotionJPEG(t, 32, 24) // closed after the server
	r := start(t, streams.Options{AllowPrivate: true})
	second.hold()
	r.want(201, "POST", "/v2/streams", `{"name":"door","source":"`+first.URL+`","model":"eyes"}`)
	next := r.following("door")
	last := next()
	r.want(200, "PATCH", "/v2/streams/door", `{"source":"`+second.URL+`"}`)
	<-second.asked
	for range 20 {
		if l := next(); l.Width != 64 || l.Seq <= last.Seq {
			t.Fatalf("while the other source has no frame: %+v", l)
		}
	}
	second.release()
	for last = next(); last.Width != 32; last = next() {
		if l := last; l.Width != 64 {
			t.Fatalf("%+v", l)
		}
	}
	<-first.left
	// A source that fails to open also replaces the old source: the stream says why the new source waits.
	r.want(200, "PATCH", "/v2/streams/door", `{"source":"http://127.0.0.1:1/","paused":true}`)
	s := r.until("door", "a failure", func(s shown) bool { return s.State == "waiting" && s.Error != nil })
	if s.Watchers != 1 || s.Frames <= last.Seq {
		t.Errorf("%+v", s)
	}
	r.want(200, "PATCH", "/v2/streams/door", `{"paused":false}`) // a paused stream keeps the frame that waits
	r.exact("door", 1)
	r.want(200, "PATCH", "/v2/streams/door", `{"source":"`+first.URL+`"}`)
	for l := next(); l.Width != 64; l = next() {
	}
}

// motionJPEG is a camera that sends pictures unless held.
type motionJPEG struct {
	*httptest.Server
	free        atomic.Pointer[chan struct{}]
	asked, left chan struct{} // a value for each client on arrival and departure, at most 9
}

// newMotionJPEG returns a camera with 20 pictures a second.
func newMotionJPEG(t *testing.T, width, height int) *motionJPEG {
	return motionJPEGEvery(t, 50*time.Millisecond, width, height)
}

func motionJPEGEvery(t *testing.T, interval time.Duration, width, height int) *motionJPEG {
	picture, err := codec.EncodeJPEG(nil, make([]byte, 3*width*height), width, height, 80)
	if err != nil {
		t.Fatal(err)
	}
	m := &motionJPEG{asked: make(chan struct{}, 9), left: make(chan struct{}, 9)}
	m.release()
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		select {
		case m.asked <- struct{}{}:
		default:
		}
		defer func() {
			select {
			case m.left <- struct{}{}:
			default:
			}
		}()
		w.Header().Set("Content-Type", "multipart/x-mixed-replace; boundary=frame")
		w.(http.Flusher).Flush()
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-*m.free.Load():
			case <-q.Context().Done():
				return
			}
			if _, err := fmt.Fprintf(w, "--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n",
				len(picture), picture); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			select {
			case <-tick.C:
			case <-q.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(m.Close)
	return m
}

func (m *motionJPEG) hold() { held := make(chan struct{}); m.free.Store(&held) }
func (m *motionJPEG) release() {
	if held := m.free.Load(); held != nil {
		close(*held)
		return
	}
	open := make(chan struct{})
	close(open)
	m.free.Store(&open)
}

// Model changes lose no frame of a video in mode Every: the old or the new model answers each frame.
func TestEveryFrameWhileModelsChange(t *testing.T) {
	r := start(t, streams.Options{})
	others(r, "a")
	r.streams.Add(t, streams.Config{Name: "clip", Source: clip(t, 20), Model: "eyes",
		Policy: stream.Policy{Mode: stream.Every, Window: 4}})
	for _, model := range []string{"a", "eyes", "a"} {
		if code, text := r.call("PATCH", "/v2/streams/clip", `{"model":"`+model+`"}`); code != 200 {
			t.Fatalf("%d %s", code, text)
		}
	}
	s := r.over("clip", "ended")
	if s.Frames != 200 || s.Results != 200 {
		t.Errorf("%+v", s)
	}
	// A stream whose video has ended restarts with another source.
	r.streams.Change(t, streams.Config{Name: "clip", Source: clip(t, 1), Model: "eyes",
		Policy: stream.Policy{Mode: stream.Every}})
	r.until("clip", "the other clip has ended", func(s shown) bool {
		return s.State == "ended" && s.Frames == 10 && s.Results == 10
	})
}

// A change to an unloaded model or to a forbidden source changes nothing.
func TestRefusedChanges(t *testing.T) {
	r := start(t, streams.Options{})
	r.streams.Add(t, streams.Config{Name: "door", Source: camera("64x48"), Model: "eyes"})
	for body, want := range map[string]string{
		`{"model":"nothing"}`:                            "nothing",
		`{"models":[{"model":"nothing"}]}`:               "the stream keeps eyes",
		`{"source":"exec:cat"}`:                          "source: exec: ",
		`{"source":"rtsp://192.168.1.7/live"}`:           "source: ",
		`{"source":"rtsp://localhost/live"}`:             "sources.allow_private",
		`{"source":"rtsp://***@192.0.2.7/live"}`:         "source: has *** in the place of ",
		`{"source":"https://192.0.2.7/?token=***"}`:      "source: has *** in the place of ",
		`{"sinks":{"webhook":"http://127.0.0.1:9/x"}}`:   "sinks.webhook: ",
		`{"sinks":{"webhook":"http://[::1]:9/x"}}`:       "sources.allow_private",
		`{"sinks":{"socket":"/tmp/x"}}`:                  "sinks.socket: ",
		`{"model":"eyes","source":"nothing://example/"}`: "source: ",
	} {
		if code, text := r.call("PATCH", "/v2/streams/door", body); code/100 != 4 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s, want %q", body, code, text, want)
		}
	}
	for _, source := range []string{"rtsp://192.168.1.7/live", "http://localhost:9/", "rtsp://[fe80::1]/",
		"http://169.254.169.254/latest", "https://10.0.0.1/x"} {
		if code, text := r.call("POST", "/v2/streams", `{"name":"x","model":"eyes","source":"`+source+
			`"}`); code != 403 || !strings.Contains(text, "sources.allow_private") {
			t.Errorf("%s: %d %s", source, code, text)
		}
	}
	if s := r.show("door"); s.Models[0].Model != "eyes" || !strings.HasPrefix(s.Source, "exec:ffmpeg") {
		t.Errorf("%+v", s)
	}
	// The configuration may name a private address; a request may keep the address but name no other private address.
	r.streams.Add(t, streams.Config{Name: "yard", Source: camera("64x48"), Model: "eyes",
		Sinks: []sinks.Settings{&sinks.Webhook{URL: "http://127.0.0.1:9/own"}}})
	for address, want := range map[string]int{"http://127.0.0.1:9/own": 200, "http://127.0.0.1:9/other": 403} {
		if code, text := r.call("PATCH", "/v2/streams/yard", `{"sinks":{"webhook":"`+address+`"}}`); code != want {
			t.Errorf("%s: %d %s, want %d", address, code, text, want)
		}
	}
}

// After a reload, removed streams end, new streams start, changed streams change in place, and unchanged streams and
// streams of requests go on. A configured stream removed by a request comes back, and reset undoes changes of
// requests.
func TestReload(t *testing.T) {
	r := start(t, streams.Options{AllowPrivate: true})
	others(r, "a")
	door := streams.Config{Name: "door", Source: camera("64x48"), Model: "eyes"}
	yard, gate := door, door
	yard.Name, gate.Name = "yard", "gate"
	reload := func(want ingest.Changes, list ...streams.Config) {
		t.Helper()
		if did, err := r.streams.Reload(list); err != nil || !reflect.DeepEqual(did, want) {
			t.Fatalf("%v: %+v, want %+v", err, did, want)
		}
	}
	reload(ingest.Changes{Added: []string{"door", "yard"}}, door, yard)
	reload(ingest.Changes{}, door, yard)
	r.want(201, "POST", "/v2/streams", `{"name":"own","source":"`+served(t, clip(t, 1))+`","loop":true,"model":"eyes"}`)
	next := r.following("door")
	next()
	r.want(200, "PATCH", "/v2/streams/door", `{"max_fps":7}`)
	r.want(204, "DELETE", "/v2/streams/yard", "")
	changed := yard
	changed.Model = "a"
	reload(ingest.Changes{Added: []string{"yard", "gate"}}, door, changed, gate)
	next()
	r.until("yard", "it is back", func(s shown) bool { return s.Models[0].Model == "a" && s.Results > 0 })
	if s := r.show("door"); s.Restarts != 0 || s.Policy.MaxFPS != 7 {
		t.Errorf("a stream whose settings are the same: %+v", s)
	}
	r.want(200, "POST", "/v2/streams/door/reset", "")
	if s := r.show("door"); s.Policy.MaxFPS != 0 {
		t.Errorf("after its reset: %+v", s)
	}
	watcher := r.following("yard")
	watcher()
	reload(ingest.Changes{Changed: []string{"yard"}, Removed: []string{"gate"}}, door, yard)
	for l := watcher(); l.Model != "eyes"; {
		l = watcher()
	}
	r.want(404, "GET", "/v2/streams/gate", "")
	r.want(204, "DELETE", "/v2/streams/yard", "")
	r.want(200, "POST", "/v2/streams/yard/reset", "")
	r.until("yard", "it is back", func(s shown) bool { return s.Results > 0 })
	r.want(200, "GET", "/v2/streams/own", "")
	r.want(409, "POST", "/v2/streams/own/reset", "")
	r.want(404, "POST", "/v2/streams/nothing/reset", "")
	own := door
	own.Name = "own"
	did, err := r.streams.Reload([]streams.Config{door, own})
	if err == nil || !strings.Contains(err.Error(), "streams[1].name: ") ||
		!reflect.DeepEqual(did, ingest.Changes{Removed: []string{"yard"}}) {
		t.Errorf("a name of a stream that a request has added: %v, %+v", err, did)
	}
	if text := r.want(200, "GET", "/v2/streams/door", ""); !strings.Contains(text, `"measured_fps":`) {
		t.Errorf("%s", text)
	}
}
