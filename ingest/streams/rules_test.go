package streams_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/ingest/history"
	"millrace/ingest/sinks"
	"millrace/ingest/streams"
	"millrace/internal/codec"
	"millrace/internal/setting"
	"millrace/internal/walkertest"
	"millrace/stream/rules"
	"millrace/workers"
	"millrace/workers/results/postprocess"
)

var people = walkertest.Register()

// toAndFro makes a folder with pictures that walker sees as a walk to the left and back.
func toAndFro(t *testing.T) string {
	dir := t.TempDir()
	for i := range 24 {
		shade := 20 + 20*max(11-i, i-12)
		picture, err := codec.EncodeJPEG(nil, bytes.Repeat([]byte{byte(shade)}, 3*64*48), 64, 48, 90)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.jpg", i)), picture, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The rules of a server stream come from the configuration and change by requests.
func TestRules(t *testing.T) {
	r := start(t, streams.Options{AllowPrivate: true})
	r.load(people)
	r.load(workers.Config{Name: "dark", Kind: "motion"})
	d := streams.NewDraft()
	if err := d.Table().SetJSON([]byte(`{"name":"gate","model":"people","fps":100,"loop":true,"policy":"every",
		"rules":{"lines":[{"name":"door","from":[0.5,0],"to":[0.5,1]}]}}`), setting.Field.SetAny); err != nil {
		t.Fatal(err)
	}
	if err := d.Table().Set("source", "folder:"+toAndFro(t)); err != nil {
		t.Fatal(err)
	}
	c, err := d.Config()
	if err != nil {
		t.Fatal(err)
	}
	r.streams.Add(t, c)
	next := r.following("gate")
	// event returns the next event of a type.
	event := func(kind rules.EventType) (v rules.Event) {
		t.Helper()
		for {
			for _, o := range next().Outputs {
				if o.Name != rules.Output {
					continue
				}
				for _, text := range o.Data {
					if err := json.Unmarshal([]byte(text.(string)), &v); err != nil {
						t.Fatal(err)
					}
					if v.Type == kind {
						return v
					}
				}
			}
		}
	}
	first, second := event(rules.CrossEvent), event(rules.CrossEvent)
	if first.Direction != "in" || first.Stream != "gate" || first.Rule != "door" || first.ID == second.ID ||
		second.Direction != "out" {
		t.Errorf("%+v, then %+v", first, second)
	}
	counts := func(method, path string) (c struct {
		Stream string
		Models []struct {
			Model string
			rules.Counts
		}
	}) {
		t.Helper()
		if err := json.Unmarshal([]byte(r.want(200, method, path, "")), &c); err != nil || len(c.Models) != 1 {
			t.Fatalf("%+v, %v", c, err)
		}
		return c
	}
	if c := counts("GET", "/v2/streams/gate/counts"); c.Stream != "gate" || c.Models[0].Model != "people" ||
		c.Models[0].Lines[0].Classes["0"].In == 0 || c.Models[0].Lines[0].Out == 0 {
		t.Errorf("%+v", c)
	}
	if c := counts("POST", "/v2/streams/gate/counts/reset"); c.Models[0].Lines[0].In != 0 {
		t.Errorf("after a reset: %+v", c)
	}
	r.want(404, "GET", "/v2/streams/none/counts", "")
	for body, want := range map[string]string{
		`{"rules":{"lines":[{"name":"door","from":[0,0]}]}}`:                     "rules.lines[0].to",
		`{"rules":{"zones":[{"name":"a","polygon":[[0,0],[1,1],[1,0],[0,1]]}]}}`: "rules.zones[0].polygon",
		`{"model":"eyes"}`: "rules: need objects with ids, and eyes has none",
	} {
		if code, text := r.call("PATCH", "/v2/streams/gate", body); code != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", body, code, text)
		}
	}
	// A class that the model does not have is refused, also when the model is loaded after the stream was made.
	labels := filepath.Join(t.TempDir(), "labels.txt")
	if err := os.WriteFile(labels, []byte("person\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	named := people
	named.Name = "named"
	named.Parts = []any{&postprocess.Config{Boxes: &postprocess.Boxes{Boxes: "b", Scores: "s"}, Labels: labels},
		people.Parts[1]}
	const typo = `"rules":{"lines":[{"name":"door","from":[0.5,0],"to":[0.5,1],"classes":["persn"]}]}`
	const wrong = `rules.lines[0].classes: \"persn\" is no class of the model (did you mean person?)`
	late := `{"name":"late","source":"http://127.0.0.1:9/a.mp4","model":"named",` + typo + `}`
	r.want(201, "POST", "/v2/streams", late)
	r.load(named)
	for limit := time.Now().Add(patience); ; {
		if state := r.want(200, "GET", "/v2/streams/late", ""); strings.Contains(state, wrong) {
			break
		} else if time.Now().After(limit) {
			t.Fatal(state)
		}
		<-time.After(5 * time.Millisecond)
	}
	if code, text := r.call("POST", "/v2/streams", strings.Replace(late, "late", "early", 1)); code != 400 ||
		!strings.Contains(text, wrong) {
		t.Errorf("%d %s", code, text)
	}
	r.want(204, "DELETE", "/v2/streams/late", "")
	const left = `"rules":{"zones":[{"name":"left","polygon":[[0,0],[0.5,0],[0.5,1],[0,1]]}]}`
	if state := r.want(200, "PATCH", "/v2/streams/gate", "{"+left+"}"); !strings.Contains(state, left) {
		t.Errorf("the state has not the rules: %s", state)
	}
	if v := event(rules.EnterEvent); v.Rule != "left" {
		t.Errorf("%+v", v)
	}
	if state := r.want(200, "PATCH", "/v2/streams/gate", `{"rules":{}}`); strings.Contains(state, `"rules"`) {
		t.Errorf("the state has rules: %s", state)
	}
	for without := false; !without; {
		without = true
		for _, o := range next().Outputs {
			without = without && o.Name != rules.Output
		}
	}
	const door = `"rules":{"lines":[{"name":"door","from":[0,0],"to":[1,1]}]}`
	if code, text := r.call("POST", "/v2/streams", `{"name":"b","source":"http://127.0.0.1:9/a.mp4","model":"eyes",`+
		door+`}`); code != 400 || !strings.Contains(text, "rules: need objects with ids") {
		t.Errorf("%d %s", code, text)
	}
	// With several models, the rules are for the models with tracks.
	r.want(200, "PATCH", "/v2/streams/gate", `{"models":[{"model":"eyes"}],`+door+`}`)
	if v := event(rules.CrossEvent); v.Rule != "door" {
		t.Errorf("%+v", v)
	}
	// The heat map has the time of the walks.
	var heat struct {
		Models []struct {
			Model string
			rules.HeatMap
		}
	}
	if err := json.Unmarshal([]byte(r.want(200, "GET", "/v2/streams/gate/heat?minutes=2", "")), &heat); err != nil {
		t.Fatal(err)
	}
	total := 0.0
	for _, v := range heat.Models[0].Seconds {
		total += v
	}
	if m := heat.Models[0]; m.Model != "people" || len(m.Seconds) != m.Columns*m.Rows || total == 0 {
		t.Errorf("%s: %v s in %d cells", m.Model, total, len(m.Seconds))
	}
	for path, want := range map[string]string{"gate/heat?minutes=61": "minutes", "gate/heat?minutes=x": "minutes",
		"gate/heat?model=people": "not an option of heat"} {
		if text := r.want(400, "GET", "/v2/streams/"+path, ""); !strings.Contains(text, want) {
			t.Error(text)
		}
	}
	r.want(404, "GET", "/v2/streams/none/heat", "")
	// A model that begins again keeps the counts.
	before := counts("GET", "/v2/streams/gate/counts").Models[0]
	r.want(200, "PATCH", "/v2/streams/gate", `{"models":[{"model":"people","version":"1"}]}`)
	event(rules.CrossEvent)
	if now := counts("GET", "/v2/streams/gate/counts").Models[0]; !now.Since.Equal(before.Since) ||
		now.Lines[0].In+now.Lines[0].Out <= before.Lines[0].In+before.Lines[0].Out {
		t.Errorf("%+v, before the change %+v", now, before)
	}
	// The configuration gives rules to a stream whose model has no tracks.
	dark := streams.Config{Name: "dark", Model: "dark", Source: c.Source, FPS: 100, Loop: true}
	r.streams.Add(t, dark)
	r.until("dark", "it runs without rules", func(s shown) bool { return s.Results > 0 && s.Error == nil })
	dark.Rules = c.Rules
	r.streams.Change(t, dark)
	r.until("dark", "the error names the rules", func(s shown) bool {
		return s.Error != nil && strings.Contains(s.Error.Message, "rules: need objects")
	})
}

// An object that is a little beyond a line at the end of a video has crossed the line. The event is in the history, and
// a line of its own for the sinks.
func TestCountsAtEndOfVideo(t *testing.T) {
	dir := toAndFro(t)
	for i := 7; i < 24; i++ { // the walk ends behind the middle, on the left
		if err := os.Remove(filepath.Join(dir, fmt.Sprintf("%d.jpg", i))); err != nil {
			t.Fatal(err)
		}
	}
	r := start(t, streams.Options{AllowPrivate: true, History: history.New(history.Options{Folder: t.TempDir()})})
	r.load(people)
	c := gate(t, "folder:"+dir, `"fps":100`)
	certain := 1.0 // share of the box
	c.Rules.Margin = &certain
	lines := filepath.Join(t.TempDir(), "lines")
	c.Sinks = []sinks.Settings{&sinks.File{Path: lines}}
	r.streams.Add(t, c)
	r.until("gate", "the video has ended", func(s shown) bool { return s.State == "ended" })
	var n struct{ Models []rules.Counts }
	if err := json.Unmarshal([]byte(r.want(200, "GET", "/v2/streams/gate/counts", "")), &n); err != nil {
		t.Fatal(err)
	}
	if len(n.Models) != 1 || n.Models[0].Lines[0].In != 1 || n.Models[0].Lines[0].Out != 0 {
		t.Errorf("%+v", n)
	}
	var page struct{ Events []streams.Event }
	for limit := time.Now().Add(patience); len(page.Events) == 0 && time.Now().Before(limit); {
		if err := json.Unmarshal([]byte(r.want(200, "GET", "/v2/events?camera=gate", "")), &page); err != nil {
			t.Fatal(err)
		}
	}
	if len(page.Events) != 1 || page.Events[0].Type != rules.CrossEvent || page.Events[0].Model != "people" {
		t.Fatalf("%+v", page.Events)
	}
	r.until("gate", "the sink has all lines", func(s shown) bool { return s.Sinks["file"].Sent == 8 })
	text, err := os.ReadFile(lines)
	if err != nil || strings.Count(string(text), page.Events[0].ID) != 1 ||
		!strings.Contains(string(text), `,"stream":"gate","type":"cross",`) {
		t.Errorf("%v, the file has %s", err, text)
	}
}

// The events of streams are in the history, and the counts go on after a restart, until the stream is removed.
func TestEventsAndCountsSurviveARestart(t *testing.T) {
	folder, pictures := t.TempDir(), toAndFro(t)
	d := streams.NewDraft()
	if err := d.Table().SetJSON([]byte(`{"name":"gate","model":"people","fps":100,"loop":true,"policy":"every",
		"rules":{"lines":[{"name":"door","from":[0.5,0],"to":[0.5,1]}]}}`), setting.Field.SetAny); err != nil {
		t.Fatal(err)
	}
	if err := d.Table().Set("source", "folder:"+pictures); err != nil {
		t.Fatal(err)
	}
	c, err := d.Config()
	if err != nil {
		t.Fatal(err)
	}
	var r *rig
	var kept *history.History
	list := func(query string) (page struct{ Events []streams.Event }) {
		t.Helper()
		if err := json.Unmarshal([]byte(r.want(200, "GET", "/v2/events?"+query, "")), &page); err != nil {
			t.Fatal(err)
		}
		return page
	}
	counts := func() (now rules.Counts) {
		t.Helper()
		var c struct{ Models []rules.Counts }
		if err := json.Unmarshal([]byte(r.want(200, "GET", "/v2/streams/gate/counts", "")), &c); err != nil ||
			len(c.Models) != 1 {
			t.Fatalf("%+v, %v", c, err)
		}
		return c.Models[0]
	}
	begin := func() {
		kept = history.New(history.Options{Folder: folder})
		r = start(t, streams.Options{AllowPrivate: true, History: kept})
		r.load(people)
		r.streams.Add(t, c)
	}
	begin()
	next := r.following("gate")
	crossed := map[string]bool{} // delivered to a watcher, by id
	for len(crossed) < 5 {
		for _, o := range next().Outputs {
			for _, text := range o.Data {
				var v rules.Event
				if o.Name == rules.Output && json.Unmarshal([]byte(text.(string)), &v) == nil {
					crossed[v.ID] = true
				}
			}
		}
	}
	before := counts()
	r.stop()
	other := history.New(history.Options{Folder: folder})
	other.Open()
	begin() // while another process uses the folder
	if early := counts(); early.Since.Equal(before.Since) {
		t.Errorf("%+v", early)
	}
	other.Close()
	other.Run()
	kept.Open()
	r.stop()
	begin()
	after := counts()
	if !after.Since.Equal(before.Since) ||
		after.Lines[0].In+after.Lines[0].Out < before.Lines[0].In+before.Lines[0].Out {
		t.Errorf("%+v, before the restart %+v", after, before)
	}
	for _, e := range list("camera=gate&rule=door&type=cross&class=0&from=1h&to=0s&order=oldest&limit=1000").Events {
		delete(crossed, e.ID)
		if e.Stream != "gate" || e.Model != "people" || e.Time.IsZero() || len(e.Tracks) != 1 {
			t.Errorf("%+v", e)
		}
	}
	if len(crossed) > 0 {
		t.Errorf("missing in the history: %v", crossed)
	}
	if n := len(list("camera=other").Events); n != 0 {
		t.Errorf("%d events of another stream", n)
	}
	for query, want := range map[string]string{"type=bad": "type", "from=yesterday": "from", "to=-1h": "to",
		"limit=0": "limit", "order=up": "order", "after=x": "after", "kamera=gate": "kamera",
		"camera=gate&stream=back": "camera"} {
		if code, text := r.call("GET", "/v2/events?"+query, ""); code != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", query, code, text)
		}
	}
	r.want(204, "DELETE", "/v2/streams/gate", "")
	r.streams.Add(t, c)
	if again := counts(); again.Since.Equal(before.Since) {
		t.Errorf("a removed stream has kept its counts: %+v", again)
	}
	r.stop()

	r = start(t, streams.Options{})
	if code, text := r.call("GET", "/v2/events", ""); code != 400 || !strings.Contains(text, "--data") {
		t.Errorf("without a history: %d %s", code, text)
	}
}
