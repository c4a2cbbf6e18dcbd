package streams

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/internal/setting"
	"millrace/stream"
)

// A reply names all mistakes of a stream at once, each with its setting.
func TestWrongStreams(t *testing.T) {
	long := "http://127.0.0.1/"
	long += strings.Repeat("x", 4096-len(long))
	for name, c := range map[string]struct {
		config Config
		want   string // the settings
	}{
		"nothing":           {Config{}, "name model source"},
		"all":               {Config{Name: "a", Model: "m", Source: "http://127.0.0.1/x"}, ""},
		"as long as may be": {Config{Name: "a", Model: "m", Source: long}, ""},
		"too long":          {Config{Name: "a", Model: "m", Source: long + "x"}, "source"},
		"of another source": {Config{Name: "a", Model: "m", Source: "http://127.0.0.1/x",
			Settings: &sources.Video{Transport: "udp"}}, "rtsp_transport"},
		"two sinks of a kind": {Config{Name: "a", Model: "m", Source: "http://127.0.0.1/x",
			Sinks: []sinks.Settings{&sinks.File{Path: "x"}, &sinks.File{Path: "y"}}}, "sinks.file"},
		"sinks of two kinds": {Config{Name: "a", Model: "m", Source: "http://127.0.0.1/x",
			Sinks: []sinks.Settings{&sinks.File{Path: "x"}, &sinks.Socket{Path: "y"}}}, ""},
		"a sink that is wrong": {Config{Name: "a", Model: "m", Source: "http://127.0.0.1/x",
			Sinks: []sinks.Settings{&sinks.Webhook{URL: "x"}}}, "sinks.webhook"},
	} {
		var fields []string
		for _, err := range setting.Split(c.config.Validate()) {
			field, _, _ := strings.Cut(err.Error(), ":")
			fields = append(fields, field)
		}
		if got := strings.Join(fields, " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Settings of another kind of source are refused in any order, and so are settings of a sink that the stream lacks.
func TestSettingsOfOtherKinds(t *testing.T) {
	for path, ok := range map[string]struct{ source, set, to string }{
		"rtsp_transport": {"folder:/x", "rtsp_transport", "udp"},
		"width":          {"folder:/x", "width", "320"},
		"sinks.max_size": {"http://127.0.0.1/x", "sinks.max_size", "2048"},
		"":               {"http://127.0.0.1/x", "width", "320"},
	} {
		d := NewDraft()
		d.config.Source = ok.source
		f, found := d.table.Find(ok.set)
		if !found {
			t.Fatalf("no setting %s", ok.set)
		}
		if err := f.Set(ok.to); err != nil {
			t.Fatal(err)
		}
		c, err := d.Config()
		if path == "" {
			if err != nil || c.Settings.(*sources.Video).Width != 320 {
				t.Errorf("%+v, %v", c, err)
			}
		} else if stream.CodeOf(err) != stream.InvalidArgument || !strings.HasPrefix(err.Error(), path+": ") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Relative paths start from the folder of the configuration; other paths stay.
func TestRebase(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ source, file, dir, wantSource, wantFile string }{
		{"folder:pictures", "results.jsonl", dir, "folder:" + filepath.Join(dir, "pictures"),
			filepath.Join(dir, "results.jsonl")},
		{"folder:/pictures", "/results.jsonl", dir, "folder:/pictures", "/results.jsonl"},
		{"folder:pictures", "results.jsonl", "", "folder:pictures", "results.jsonl"},
		{"http://127.0.0.1/x", "results.jsonl", dir, "http://127.0.0.1/x", filepath.Join(dir, "results.jsonl")},
		{"folder:pictures", "", dir, "folder:" + filepath.Join(dir, "pictures"), ""},
		{"", "results.jsonl", dir, "", "results.jsonl"},
	} {
		config := Config{Name: "a", Model: "m", Source: c.source}
		if c.file != "" {
			config.Sinks = []sinks.Settings{&sinks.File{Path: c.file}}
		}
		config.Rebase(c.dir)
		file := ""
		for _, s := range config.Sinks {
			file = s.(*sinks.File).Path
		}
		if c.source != "" && (config.Source != c.wantSource || file != c.wantFile) {
			t.Errorf("%+v: %q, %q", c, config.Source, file)
		}
		var want []Claim
		if file != "" {
			want = []Claim{{"sinks.file", file, true}}
		}
		if got := config.Claims(); !slices.Equal(got, want) {
			t.Errorf("%+v: no other stream may have %v", c, got)
		}
	}
}

// A request can change everything of a stream but its name. 0 and "" restore defaults.
func TestChangesOfAStream(t *testing.T) {
	c := Config{Name: "a", Model: "m", Source: "http://127.0.0.1/x", FPS: 5,
		Policy: stream.Policy{Window: 3, MaxFPS: 2}, Sinks: []sinks.Settings{&sinks.Webhook{URL: "http://a/"}}}
	both := Config{Name: "a", Source: c.Source,
		Models: []ModelConfig{{Model: "m"}, {Model: "n", Policy: stream.Policy{Mode: stream.Every}}}}
	secret := c
	secret.Sinks = []sinks.Settings{&sinks.Webhook{URL: "http://a/", Headers: []string{"Authorization: x"}}}
	entry := func(pairs ...any) any {
		object := map[string]any{}
		for i := 0; i < len(pairs); i += 2 {
			object[pairs[i].(string)] = pairs[i+1]
		}
		return []any{object}
	}
	for _, x := range []struct {
		c    Config
		key  string
		to   any
		want string // of the configuration, or the beginning of the error
	}{
		{c, "paused", true, `"paused":true`}, {c, "window", 0.0, ""}, {c, "window", -3.0, "window: "},
		{c, "max_fps", json.Number("0"), ""}, {c, "fps", 0.0, ""},
		{c, "model", "n", `"model":"n"`}, {both, "model", "n", `"model":"n"`},
		{both, "model", "n", `"policy":"every"`}, {c, "model", "", "model: is missing"},
		{c, "name", "b", "name: cannot change"},
		{c, "policy", "every", `"policy":"every"`}, {c, "policy", "sometimes", "policy: "},
		{c, "policy", 7.0, "policy: "},
		{c, "source", "http://b/", `"source":"http://b/"`}, {c, "source", "", "source: is missing"},
		{c, "loop", true, `"loop":true`},
		{c, "sinks", map[string]any{"webhook": ""}, ""}, {c, "sinks", map[string]any{"webhook": "ftp://x"},
			"sinks.webhook: "},
		{secret, "sinks", map[string]any{"webhook": "http://b/"}, "sinks.webhook: sinks.webhook_headers comes from"},
		{secret, "sinks", map[string]any{"webhook": ""}, ""},
		{secret, "sinks", map[string]any{"webhook_send": "events"}, `"webhook_headers"`},
		{secret, "sinks", map[string]any{"webhook_body": "x"}, "sinks.webhook_body: comes from the server's configuration"},
		{c, "models", entry("model", "n", "max_fps", 4.0), `"models":[{"model":"m"},{"max_fps":4,"model":"n"}]`},
		{both, "models", entry("model", "m", "policy", "every"),
			`[{"model":"m","policy":"every"},{"model":"n","policy":"every"}]`},
		{both, "models", entry("model", "m", "remove", true), `"models":[{"model":"n","policy":"every"}]`},
		{both, "models", entry("model", "x", "remove", true), "models[0].model: the stream has no model"},
		{c, "models", entry("model", "m", "remove", true), "models: leaves no model"},
		{both, "models", entry("model", "m", "remove", "yes"), "models[0].remove: "},
		{both, "models", entry("model", "m", "fps", 3.0), "models[0].fps: "},
	} {
		next, err := x.c.changed(map[string]any{x.key: x.to})
		text, _ := next.MarshalJSON()
		got := string(text)
		if err != nil {
			got = err.Error()
		}
		if x.want == "" { // the setting has no value any more
			if err != nil || strings.Contains(got, `"`+x.key+`"`) {
				t.Errorf("%s to %v: %s", x.key, x.to, got)
			}
		} else if !strings.Contains(got, x.want) {
			t.Errorf("%s to %v: %s, want %s", x.key, x.to, got, x.want)
		}
		if before, _ := c.MarshalJSON(); !strings.Contains(string(before), `"window":3`) {
			t.Fatalf("a change of %s has changed the stream before: %s", x.key, before)
		}
	}
}
