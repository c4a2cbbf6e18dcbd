package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/client"
	"millrace/ingest/history"
	"millrace/internal/testneeds"
	"millrace/internal/video"
	"millrace/stream/rules"
)

// keep adds events of a camera to a data folder. The tracks are from first on.
func keep(t *testing.T, data, camera string, first, n int) {
	t.Helper()
	h := history.New(history.Options{Folder: filepath.Join(data, "events")})
	for i := first; i < first+n; i++ {
		v := rules.Event{ID: fmt.Sprintf("K-%d", i), Stream: camera, Type: rules.CrossEvent, Rule: "door",
			Direction: rules.In, Class: "person", Tracks: []int64{int64(i)}}
		text, err := json.Marshal(&v)
		if err != nil {
			t.Fatal(err)
		}
		h.Add("people", &v, text)
	}
	h.Close()
	h.Run()
}

// A tail prints the events after its start, also after a restart of the server.
func TestTailOfEvents(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	keep(t, data, "gate", 100, 2)
	keep(t, data, "back", 200, 1)
	server, addr := serve(t, "--data", data, "--model", "eyes=motion")
	tail := begin(t, command(t, "events", "tail", "--camera", "gate", "--addr", addr))
	tail.until("TIME") // the first page was read
	server.signal(syscall.SIGTERM)
	keep(t, data, "back", 300, 1)
	keep(t, data, "gate", 400, 1)
	for late := time.Now().Add(time.Minute); !strings.Contains(tail.stderr.String(), "events are late"); {
		if time.Sleep(10 * time.Millisecond); time.Now().After(late) {
			t.Fatalf("the tail does not notice the end of the server: %s", &tail.stderr)
		}
	}
	readyServer(t, command(t, "serve", "--http", addr, "--grpc", "off", "--data", data, "--model", "eyes=motion"))
	if line, err := tail.lines.ReadString('\n'); err != nil || !strings.HasSuffix(line, " 400\n") {
		t.Errorf("%q, %v\n%s", line, err, &tail.stderr)
	}
	if _, code := tail.signal(os.Interrupt); code != 0 {
		t.Errorf("exit status %d\n%s", code, &tail.stderr)
	}
}

// A server has the events of its data folder, and the program lists and exports the events.
func TestEvents(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	h := history.New(history.Options{Folder: filepath.Join(data, "events")})
	const all = 1203 // more than a page
	for i := range all {
		v := rules.Event{ID: fmt.Sprintf("K-%d", i), Stream: "gate", Type: rules.CrossEvent, Rule: "door",
			Direction: rules.In, Class: "person", Tracks: []int64{int64(i), 7}, Start: 5, End: 6}
		if i == 0 {
			v.Stream, v.Type, v.Direction = "back", rules.EnterEvent, ""
		}
		text, err := json.Marshal(&v)
		if err != nil {
			t.Fatal(err)
		}
		h.Add("people", &v, text)
	}
	h.Close()
	h.Run()
	_, addr := serve(t, "--data", data, "--model", "eyes=motion")
	want := func(code int, words string, args ...string) string {
		t.Helper()
		out, stderr, got := millrace(t, append(append([]string{"events"}, args...), "--addr", addr)...)
		if got != code || !strings.Contains(out+stderr, words) {
			t.Fatalf("%v: exit status %d, want %d and %q\n%s%s", args, got, code, words, out, stderr)
		}
		return out
	}
	if out := want(0, "1202 7", "--limit", "2"); strings.Count(out, "\n") != 3 || !strings.HasPrefix(out, "TIME") {
		t.Error(out)
	}
	lines := strings.Split(strings.TrimSpace(want(0, "", "list", "--json", "--limit", "5000", "--from", "1h")), "\n")
	var newest client.Event
	if err := json.Unmarshal([]byte(lines[0]), &newest); err != nil || len(lines) != all || newest.ID != "K-1202" ||
		newest.Direction != "in" || newest.Time.IsZero() {
		t.Errorf("%d lines, the first %s (%v)", len(lines), lines[0], err)
	}
	if out := want(0, "", "list", "--camera", "back", "--type", "enter", "--json"); strings.Count(out, "\n") != 1 {
		t.Error(out)
	}
	rows, err := csv.NewReader(strings.NewReader(want(0, "", "export"))).ReadAll()
	if err != nil || len(rows) != all+1 || rows[1][1] != "K-0" || rows[all][8] != "1202 7" || rows[0][8] != "tracks" {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	if out := want(0, "", "export", "--json", "--camera", "gate", "--to", "1h"); out != "" {
		t.Errorf("before an hour: %s", out)
	}
	want(2, "--from", "list", "--from", "yesterday")
	want(1, "type", "list", "--type", "bad")
	_, none := serve(t, "--model", "eyes=motion")
	if out, stderr, code := millrace(t, "events", "--addr", none); code != 1 || !strings.Contains(stderr, "--data") {
		t.Errorf("%d %s%s", code, out, stderr)
	}
}

// The clip of an event is downloaded whole, by the event's id and as the newest.
func TestClipOfEvent(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	folder := filepath.Join(data, "clips", "2026-12-01", "gate")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	const video = "the video"
	for name, text := range map[string]string{"101112-AAAA.mp4": video, "101112-AAAA.json": `{
		"id":"20261201-101112-AAAA","stream":"gate","models":["eyes"],"state":"ready","begin":"2026-12-01T10:11:12Z","seconds":2,"codec":"avc1",
		"events":[{"event":{"id":"K-7","stream":"gate","type":"cross","rule":"door"},"at_us":5,"picture":1}]}`} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, addr := serve(t, "--data", data, "--clips-max-age", "87840h", "--model", "eyes=motion")
	clip := func(args ...string) (out, stderr string, code int) {
		t.Helper()
		return millrace(t, append([]string{"events", "clip", "--addr", addr}, args...)...)
	}
	file := filepath.Join(t.TempDir(), "door.mp4")
	out, stderr, code := clip("K-7", "--out", file, "--json")
	var c struct {
		client.Clip
		File string
	}
	if err := json.Unmarshal([]byte(out), &c); err != nil || code != 0 || c.File != file ||
		c.Events[0].Event.ID != "K-7" {
		t.Errorf("%d %v %s%s", code, err, out, stderr)
	}
	if got, err := os.ReadFile(file); string(got) != video {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []struct {
		code  int
		words string
		args  []string
	}{
		{1, "exists", []string{"--latest", "--out", file}},
		{1, "no clip has the event", []string{"K-"}},
		{1, "there is no clip", []string{"--latest", "--camera", "back"}},
		{2, "--latest", nil},
		{2, "--camera", []string{"K-7", "--camera", "gate"}},
	} {
		if out, stderr, code := clip(bad.args...); code != bad.code || !strings.Contains(stderr, bad.words) {
			t.Errorf("%v: %d, want %d and %q: %s%s", bad.args, code, bad.code, bad.words, out, stderr)
		}
	}
	if out, stderr, code := clip("--latest", "--out", "-"); out != video || code != 0 {
		t.Errorf("%d %q %s", code, out, stderr)
	}
}

func TestRowsOfCounts(t *testing.T) {
	c := client.StreamCounts{Stream: "gate", Models: []client.ModelCounts{{Model: "people", Counts: rules.Counts{
		Lines: []rules.LineCounts{{Name: "door",
			Crossings: rules.Crossings{Directions: rules.Directions{In: 3, Out: 1}},
			Classes:   map[string]rules.Crossings{"car": {Minute: rules.Directions{In: 2}}}}},
		Zones: []rules.ZoneCounts{{Name: "yard", Stays: rules.Stays{Now: 4}}},
	}}}}
	var rows []string
	for _, row := range countRows(&c) {
		rows = append(rows, strings.Join(row, " "))
	}
	want := []string{"MODEL RULE CLASS COUNT TOTAL MINUTE HOUR DAY", "people door all in 3 0 0 0",
		"people door all out 1 0 0 0", "people door car in 0 2 0 0", "people door car out 0 0 0 0",
		"people yard all now 4   ", "people yard all enter 0 0 0 0", "people yard all leave 0 0 0 0"}
	if strings.Join(rows, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s", strings.Join(rows, "\n"))
	}
}

// A clip that grows is downloaded up to now, and with --wait when the clip has ended.
func TestGrowingClipOfEvent(t *testing.T) {
	t.Parallel()
	testneeds.Program(t, "ffmpeg")
	dir := t.TempDir()
	source, err := filepath.Abs("../../examples/spotter/clip.mp4")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "gate.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
data: %s
models: [{name: eyes, source: motion, output: {boxes: {threshold: 0.1}, track: true}}]
streams:
  - {name: gate, source: %q, loop: true, model: eyes, clips: {on: [always]},
     rules: {zones: [{name: all, polygon: [[0, 0], [1, 0], [1, 1], [0, 1]]}]}}
`, filepath.Join(dir, "data"), source), 0o600); err != nil {
		t.Fatal(err)
	}
	_, addr := serve(t, "--config", config)
	clip := func(args ...string) (out, stderr string, code int) {
		t.Helper()
		return millrace(t, append([]string{"events", "clip", "--addr", addr}, args...)...)
	}
	var e client.Event
	now, whole := filepath.Join(dir, "now.mp4"), filepath.Join(dir, "whole.mp4")
	out, stderr, code := "", "", 1
	for code != 0 { // no event yet, or its pictures come after the event
		list, errs, failed := millrace(t, "events", "list", "--addr", addr, "--json", "--limit", "1")
		if failed != 0 || list != "" && json.Unmarshal([]byte(list), &e) != nil {
			t.Fatalf("%d %s%s", failed, list, errs)
		}
		if e.ID == "" {
			continue
		}
		if out, stderr, code = clip(e.ID, "--out", now); code != 0 && !strings.Contains(stderr, "no clip has the event") {
			t.Fatal(stderr)
		}
	}
	if !strings.Contains(stderr, "still growing") || !strings.Contains(out, "still growing") {
		t.Errorf("%s%s", out, stderr)
	}
	if data, err := os.ReadFile(now); err != nil || !video.Fragmented(bytes.NewReader(data)) {
		t.Error("the video up to now: ", err)
	}
	if _, stderr, code := clip("--latest", "--out", "-"); code != 1 || !strings.Contains(stderr, "--wait") {
		t.Errorf("%d %s", code, stderr)
	}
	if _, stderr, code := clip(e.ID, "--wait", "1ms", "--out", "-"); code != 1 || !strings.Contains(stderr, "--wait 1ms") {
		t.Errorf("the clip ends later than --wait: %d, %s", code, stderr)
	}
	waits := begin(t, command(t, "events", "clip", "--addr", addr, e.ID, "--wait", "2m", "--out", whole))
	for !strings.Contains(waits.stderr.String(), "Waiting for the end of the clip") {
		<-time.After(10 * time.Millisecond)
	}
	if _, stderr, code := millrace(t, "streams", "remove", "gate", "--addr", addr); code != 0 {
		t.Fatal(stderr)
	}
	if line := waits.until(whole); strings.Contains(line, "growing") || status(t, waits.end()) != 0 {
		t.Error(line)
	}
	if data, err := os.ReadFile(whole); err != nil || len(data) < 1000 || video.Fragmented(bytes.NewReader(data)) {
		t.Errorf("the whole video: %d bytes, %v", len(data), err)
	}
}
