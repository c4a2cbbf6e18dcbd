package streams_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"millrace/batching"
	"millrace/ingest/sinks"
	"millrace/ingest/streams"
	"millrace/stream"
	"millrace/workers"
)

// others adds models besides eyes.
func others(r *rig, names ...string) {
	for _, name := range names {
		r.load(workers.Config{Name: name, Kind: "identity"})
	}
}

// Each of three models gets every frame of a file, and each line names its model.
func TestModelsOfAFile(t *testing.T) {
	lines := filepath.Join(t.TempDir(), "lines")
	r := start(t, streams.Options{})
	for _, name := range []string{"a", "b"} {
		r.load(workers.Config{Name: name, Kind: "motion"})
	}
	r.streams.Add(t, streams.Config{
		Name: "door", Source: clip(t, 2), Policy: stream.Policy{Mode: stream.Every},
		Sinks:  []sinks.Settings{&sinks.File{Path: lines}},
		Models: []streams.ModelConfig{{Model: "eyes"}, {Model: "a", Policy: stream.Policy{Window: 1}}, {Model: "b"}},
	})
	s := r.over("door", "ended")
	if s.Frames != 20 || s.Results != 60 || len(s.Models) != 3 {
		t.Fatalf("%+v", s)
	}
	for _, m := range s.Models {
		if m.Results != 20 || m.endings() != 20 || m.Policy.Policy != "every" || m.Error != nil {
			t.Errorf("%+v", m)
		}
	}
	text, err := os.ReadFile(lines)
	if err != nil {
		t.Fatal(err)
	}
	next := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		var l struct {
			Model string
			Seq   uint64
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Seq != next[l.Model] {
			t.Fatalf("%s, want seq %d: %v", line, next[l.Model], err)
		}
		next[l.Model]++
	}
	if next["eyes"] != 20 || next["a"] != 20 || next["b"] != 20 || len(next) != 3 {
		t.Errorf("%v", next)
	}
}

// Outputs that JSON cannot carry, such as the bytes of frames, end as errors with a message of package streams. These
// errors count as errors, not as results, and appear as the problem of the stream.
func TestOutputsWithoutJSON(t *testing.T) {
	lines := filepath.Join(t.TempDir(), "lines")
	r := start(t, streams.Options{})
	others(r, "echo")
	r.streams.Add(t, streams.Config{Name: "door", Source: clip(t, 1), Model: "echo",
		Policy: stream.Policy{Mode: stream.Every}, Sinks: []sinks.Settings{&sinks.File{Path: lines}}})
	s := r.over("door", "ended")
	if m := s.Models[0]; s.Results != 0 || s.Errors != 10 || m.Results != 0 || m.Errors != 10 ||
		m.endings() != s.Frames {
		t.Errorf("%+v", s)
	}
	const problem = "cannot be written as JSON, as results of server streams are"
	if e := s.Error; e == nil || e.Code != "unsupported" || !strings.Contains(e.Message, problem) {
		t.Errorf("the stream's error is %+v", e)
	}
	if e := s.Models[0].Error; e == nil || e.Code != "unsupported" || !strings.Contains(e.Message, problem) {
		t.Errorf("the model's error is %+v", e)
	}
	if m := r.streams.Stats().Streams[0].Models[0]; m.Answered != 0 || m.Failed != 10 || m.Aged != 0 {
		t.Errorf("the metrics have %+v", m)
	}
	text, err := os.ReadFile(lines)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var l struct {
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Error.Code != "unsupported" ||
			!strings.HasPrefix(l.Error.Message, "outputs[0].data[0]: output ") ||
			!strings.Contains(l.Error.Message, ", of type BYTES, "+problem) {
			t.Errorf("%v: %s", err, line)
		}
	}
	if n := strings.Count(string(text), "\n"); n != 10 {
		t.Errorf("%d lines of 10", n)
	}
}

// An unloaded model does not stop the other models: the stream reports the missing model, and the model joins again.
func TestModelComesAndGoes(t *testing.T) {
	r := start(t, streams.Options{})
	others(r, "a", "b")
	source := clip(t, 2)
	r.streams.Add(t, streams.Config{Name: "door", Source: source, Loop: true,
		Models: []streams.ModelConfig{{Model: "eyes"}, {Model: "a"}, {Model: "late"}}})
	r.streams.Add(t, streams.Config{Name: "one", Source: source, Loop: true, Model: "b"})
	s := r.until("door", "two models of three", func(s shown) bool {
		return s.Models[0].Results > 3 && s.Models[1].Results > 3
	})
	if m := s.Models[2]; s.State != "running" || m.State != "waiting" || m.Error == nil ||
		m.Error.Code != "not_found" || m.endings() != 0 {
		t.Errorf("%+v", s)
	}
	others(r, "late")
	s = r.until("door", "the third joins", func(s shown) bool {
		return s.Models[2].Results > 3 && s.Models[2].State == "running"
	})
	if err := s.Models[2].Error; err != nil {
		t.Errorf("the model runs, and has the error %+v", err)
	}
	if err := r.models.Unload(t.Context(), "a", ""); err != nil {
		t.Fatal(err)
	}
	s = r.until("door", "one waits", func(s shown) bool { return s.Models[1].State == "waiting" })
	if s.State != "running" || s.Models[1].Error == nil || s.Models[1].Error.Code != "unloaded" {
		t.Errorf("%+v", s)
	}
	five := func(what string) shown {
		before := r.show("door")
		return r.until("door", what, func(n shown) bool {
			return n.Models[0].Results > before.Models[0].Results+5 && n.Models[2].Results > before.Models[2].Results+5
		})
	}
	// a frame may still be dropped as closed after the state is waiting
	before := five("the others run on").Models[1].endings()
	next := five("the others run on without it")
	if next.Restarts != s.Restarts || next.Models[1].endings() != before {
		t.Errorf("%+v", next)
	}
	others(r, "a")
	r.until("door", "it joins again", func(s shown) bool {
		return s.Models[1].endings() > before+3 && s.Models[1].State == "running"
	})
	for _, name := range []string{"eyes", "a", "late"} {
		if err := r.models.Unload(t.Context(), name, ""); err != nil {
			t.Fatal(err)
		}
	}
	r.until("door", "all wait", func(s shown) bool {
		return s.State == "waiting" && s.Error != nil && s.Error.Code == "unloaded"
	})
	others(r, "late")
	s = r.until("door", "one is back", func(n shown) bool {
		return n.State == "running" && n.Models[2].Results > next.Models[2].Results
	})
	for _, m := range s.Models {
		if n := m.endings(); n > s.Frames {
			t.Errorf("%d endings of %d frames: %+v", n, s.Frames, m)
		}
	}
	if s := r.show("one"); s.State != "running" || s.Restarts != 0 {
		t.Errorf("%+v", s)
	}
}

// hanging is a worker whose run ends when the channel released is closed.
type hanging struct {
	workers.Base
	release chan struct{}
}

var released atomic.Pointer[chan struct{}]

func init() {
	workers.Register(workers.Kind{Name: "hangs", New: func() workers.Worker { return new(hanging) }})
}

func (w *hanging) Init(context.Context, *workers.Env) (*stream.Model, error) {
	w.release = *released.Load()
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 8}, nil
}

func (w *hanging) Run(ctx context.Context, _ *batching.Batch) error {
	select {
	case <-w.release:
	case <-ctx.Done():
	}
	return stream.Errorf(stream.Internal, "", "the run was ended")
}

// A hanging model delays neither the other models nor the end of the stream.
func TestModelHangs(t *testing.T) {
	r := start(t, streams.Options{})
	release := make(chan struct{})
	t.Cleanup(func() { close(release) }) // before start's cleanup, which waits for the model
	released.Store(&release)
	r.load(workers.Config{Name: "slow", Kind: "hangs"})
	r.streams.Add(t, streams.Config{Name: "door", Source: clip(t, 2), Loop: true,
		Models: []streams.ModelConfig{{Model: "slow"}, {Model: "eyes"}}})
	s := r.until("door", "the other runs", func(s shown) bool { return s.Models[1].Results > 30 })
	if m := s.Models[0]; m.State != "running" || m.Results != 0 || m.Drops["superseded"] == 0 {
		t.Errorf("%+v", m)
	}
	r.want(200, "PATCH", "/v2/streams/door", `{"models":[{"model":"eyes","max_fps":2,"priority":"low"}]}`)
}

// A change by a model's name changes only the policy of this model.
func TestPolicyOfAModel(t *testing.T) {
	path := t.TempDir() + "/streams.json"
	r := start(t, streams.Options{Store: open(t, path), AllowPrivate: true})
	others(r, "a")
	url := served(t, clip(t, 2))
	r.want(201, "POST", "/v2/streams", `{"name":"door","source":"`+url+
		`","loop":true,"max_fps":7,"models":[{"model":"eyes","max_fps":3},{"model":"a","priority":"low"}]}`)
	r.want(201, "POST", "/v2/streams", `{"name":"one","source":"`+url+`","loop":true,"model":"eyes"}`)
	s := r.until("door", "frames", func(s shown) bool { return s.Models[0].Results > 0 && s.Models[1].Results > 0 })
	if a, b := s.Models[0].Policy, s.Models[1].Policy; a.MaxFPS != 3 || b.MaxFPS != 7 || a.Priority != "normal" ||
		b.Priority != "low" {
		t.Errorf("%+v", s.Models)
	}
	r.want(200, "PATCH", "/v2/streams/door", `{"models":[{"model":"a","max_fps":2,"priority":"high"}]}`)
	r.want(200, "PATCH", "/v2/streams/one", `{"models":[{"model":"eyes","max_fps":2}]}`)
	check := func(when string) {
		s := r.show("door")
		if a, b := s.Models[0].Policy, s.Models[1].Policy; a.MaxFPS != 3 || b.MaxFPS != 2 || b.Priority != "high" {
			t.Errorf("%s: %+v", when, s.Models)
		}
		if s := r.show("one"); s.Models[0].Policy.MaxFPS != 2 || s.Policy.MaxFPS != 2 {
			t.Errorf("%s: %+v", when, s)
		}
	}
	check("changed")
	for _, c := range [][2]string{
		{`{"models":[{"model":"b","max_fps":2}]}`, `models[0].model: \"b\" is not loaded`},
		{`{"models":[{"model":"a","max_fps":3},{"model":"b"}]}`, `models[1].model: \"b\" is not loaded`},
		{`{"model":"b"}`, `"model: \"b\" is not loaded`},
		{`{"models":[{"max_fps":2}]}`, `models[0].model: is missing`},
		{`{"models":[{"model":"a","window":-1}]}`, `models[0].window: -1 is not between`},
		{`{"models":[{"model":"a","paused":true}]}`, `models[0].paused: is not a setting`},
		{`{"models":[{"model":"a","version":"2"}]}`, `models[0].model: model a has version 1`},
		{`{"models":{"model":"a"}}`, `models: is not a list`},
		{`{"max_fps":1,"models":[{"model":"a","policy":"most"}]}`, `models[0].policy: `},
	} {
		if code, text := r.call("PATCH", "/v2/streams/door", c[0]); code/100 != 4 || !strings.Contains(text, c[1]) {
			t.Errorf("%s: %d %s", c[0], code, text)
		}
	}
	check("refused")
	r.stop()
	r = start(t, streams.Options{Store: open(t, path), AllowPrivate: true})
	others(r, "a")
	check("started again")
}

func TestModelRefusals(t *testing.T) {
	r := start(t, streams.Options{})
	many := strings.TrimSuffix(strings.Repeat(`{"model":"m"},`, 17), ",")
	for _, c := range [][2]string{
		{`"models":[]`, `model: is missing`},
		{`"model":"eyes","models":[{"model":"a"}]`, `model: is given, and models too`},
		{`"version":"1","models":[{"model":"a"}]`, `version: is given beside models`},
		{`"models":[{"model":"a"},{"model":"a","version":"2"}]`, `models[1].model: \"a\" is given twice`},
		{`"models":[{"version":"1"}]`, `models[0].model: is missing`},
		{`"models":["eyes"]`, `models[0]: is not an object with deadline_ms, max_age_ms`},
		{`"models":[{"model":"a","fps":1}]`, `models[0].fps: is not a setting`},
		{`"models":[{"model":"a","policy":"some"}]`, `models[0].policy: \"some\" is unknown`},
		{`"models":"eyes"`, `models: is not a list of objects`},
		{`"models":[` + many + `]`, `models: has 17 entries: want at most 16`},
	} {
		code, text := r.call("POST", "/v2/streams", `{"name":"a","source":"http://example.com/",`+c[0]+`}`)
		if code != http.StatusBadRequest || !strings.Contains(text, c[1]) {
			t.Errorf("%s: %d %s", c[0], code, text)
		}
	}
}

// Watchers get the results of all models or of a single model.
func TestWatchAModel(t *testing.T) {
	r := start(t, streams.Options{})
	others(r, "a")
	r.streams.Add(t, streams.Config{Name: "door", Source: clip(t, 2), Loop: true,
		Models: []streams.ModelConfig{{Model: "eyes"}, {Model: "a"}}})
	r.until("door", "results", func(s shown) bool { return s.Models[0].Results > 0 && s.Models[1].Results > 0 })
	seen := func(query string) map[string]int {
		req, err := http.NewRequestWithContext(t.Context(), "GET", r.url+"/v2/streams/door/results"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "application/x-ndjson")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		got := map[string]int{}
		lines := bufio.NewScanner(resp.Body)
		for range 12 {
			if !lines.Scan() {
				t.Fatal(lines.Err())
			}
			var l struct{ Model string }
			if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
				t.Fatal(err)
			}
			got[l.Model]++
		}
		return got
	}
	if got := seen(""); got["eyes"] == 0 || got["a"] == 0 || len(got) != 2 {
		t.Errorf("%v", got)
	}
	if got := seen("?model=a"); got["a"] != 12 {
		t.Errorf("%v", got)
	}
	for _, path := range []string{"results", "video"} {
		if text := r.want(404, "GET", "/v2/streams/door/"+path+"?model=b", ""); !strings.Contains(text,
			`model: the stream has no model \"b\": it has eyes, a`) {
			t.Error(text)
		}
	}
}
