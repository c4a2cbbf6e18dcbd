package streams_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/ingest/sinks"
	"millrace/ingest/streams"
	"millrace/stream"
)

// A request changes a configured stream whose video has ended, and the stream restarts. The file named by the request
// is in the folder sinks.folder, not in the working directory.
func TestFilesOfRequestsAfterTheEnd(t *testing.T) {
	folder, work := t.TempDir(), t.TempDir()
	source := clip(t, 1)
	t.Chdir(work)
	files, err := sinks.OpenFiles(folder, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, streams.Options{Files: files})
	r.streams.Add(t, streams.Config{Name: "clip", Source: source, Model: "eyes",
		Policy: stream.Policy{Mode: stream.Every}})
	r.over("clip", "ended")
	if code, text := r.call("PATCH", "/v2/streams/clip",
		`{"sinks":{"file":"results.jsonl","max_size":65536}}`); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	r.until("clip", "it has ended again", func(s shown) bool { return s.State == "ended" && s.Results == 10 })
	if text, err := os.ReadFile(filepath.Join(folder, "results.jsonl")); err != nil ||
		strings.Count(string(text), "\n") != 10 {
		t.Errorf("%v: %q", err, text)
	}
	if _, err := os.Stat("results.jsonl"); err == nil {
		t.Error("the working directory has the file")
	}
}

// A request that changes settings of a configured source but keeps the address leaves the source with the rights of
// the configuration, which include private addresses. The same holds for a configured webhook when an ended stream
// restarts.
func TestPartsOfTheConfigurationStay(t *testing.T) {
	posted := make(chan struct{}, 1000)
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { posted <- struct{}{} }))
	defer hook.Close()
	camera := newMotionJPEG(t, 64, 48)
	own := []sinks.Settings{&sinks.Webhook{URL: hook.URL}}
	source := clip(t, 1)
	r := start(t, streams.Options{})
	r.streams.Add(t, streams.Config{Name: "door", Source: camera.URL, Model: "eyes"})
	next := r.following("door")
	next()
	r.want(200, "PATCH", "/v2/streams/door", `{"width":32}`)
	for l := next(); l.Width != 32; l = next() {
	}

	r.streams.Add(t, streams.Config{Name: "clip", Source: source, Model: "eyes",
		Policy: stream.Policy{Mode: stream.Every}, Sinks: own})
	r.over("clip", "ended")
	for len(posted) > 0 {
		<-posted
	}
	r.want(200, "PATCH", "/v2/streams/clip", `{"loop":true}`)
	<-posted
}
