package streams

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/internal/setting"
	"millrace/stream"
)

// What is wrong with a stream is told all at once, each with its setting.
func TestWrongStreams(t *testing.T) {
	long := "http://127.0.0.1/"
	long += strings.Repeat("x", 4096-len(long))
	for name, c := range map[string]struct {
		config Config
		want   string // the settings
	}{
		"nothing":              {Config{}, "name model source"},
		"all":                  {Config{Name: "a", Model: "m", Source: "http://127.0.0.1/x"}, ""},
		"as long as may be":    {Config{Name: "a", Model: "m", Source: long}, ""},
		"too long":             {Config{Name: "a", Model: "m", Source: long + "x"}, "source"},
		"of another source":    {Config{Name: "a", Model: "m", Source: "http://127.0.0.1/x", Settings: &sources.Video{Transport: "udp"}}, "rtsp_transport"},
		"two sinks of a kind":  {Config{Name: "a", Model: "m", Source: "http://127.0.0.1/x", Sinks: []sinks.Settings{&sinks.File{Path: "x"}, &sinks.File{Path: "y"}}}, "sinks.file"},
		"sinks of two kinds":   {Config{Name: "a", Model: "m", Source: "http://127.0.0.1/x", Sinks: []sinks.Settings{&sinks.File{Path: "x"}, &sinks.Socket{Path: "y"}}}, ""},
		"a sink that is wrong": {Config{Name: "a", Model: "m", Source: "http://127.0.0.1/x", Sinks: []sinks.Settings{&sinks.Webhook{URL: "x"}}}, "sinks.webhook"},
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

// Settings of another kind of source are refused, whichever comes first, and so is a setting of a sink that the stream does
// not have.
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

// Relative paths start from the folder of the configuration; others stay.
func TestRebase(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ source, file, dir, wantSource, wantFile string }{
		{"folder:pictures", "results.jsonl", dir, "folder:" + filepath.Join(dir, "pictures"), filepath.Join(dir, "results.jsonl")},
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

// A running stream changes in what can change, and its policy can only be named.
func TestChangesOfAStream(t *testing.T) {
	c := Config{Name: "a", Model: "m", Source: "http://127.0.0.1/x"}
	every := c
	every.Policy.Mode = stream.Every
	both := Config{Name: "a", Source: c.Source, Policy: every.Policy, Models: []ModelConfig{{Model: "m"}, {Model: "n", Policy: stream.Policy{Mode: stream.Latest}}}}
	change := func(model, mode string) any {
		return []any{map[string]any{"model": model, "policy": mode, "max_fps": 2.0}}
	}
	for origin, advice := range map[string]string{"request": "remove the stream and add it again", "config": "change the configuration and restart the server"} {
		for _, object := range []map[string]any{{"fps": 5.0}, {"policy": "every"}, {"models": change("m", "every")}} {
			if _, err := c.changed(object, origin); err == nil || !strings.HasSuffix(err.Error(), advice) {
				t.Errorf("%v of a stream of a %s: %v", object, origin, err)
			}
		}
	}
	for key, want := range map[string]string{"window": "0 is not allowed: want 1 to 1024", "max_age_ms": "0 is not allowed: want more than 0, at most 3600000"} {
		if _, err := c.changed(map[string]any{key: 0.0}, "request"); err == nil || err.Error() != key+": "+want {
			t.Errorf("%s to 0: %v", key, err)
		}
	}
	for _, x := range []struct {
		c    Config
		key  string
		to   any
		code stream.Code
	}{
		{c, "paused", true, ""}, {c, "window", 3.0, ""}, {c, "window", -3.0, stream.InvalidArgument}, {c, "model", "n", stream.InvalidArgument},
		{c, "policy", "latest", ""}, {c, "policy", "every", stream.Conflict}, {c, "policy", "sometimes", stream.InvalidArgument}, {c, "policy", 7.0, stream.InvalidArgument},
		{every, "policy", "every", ""}, {every, "policy", "latest", stream.Conflict},
		{both, "models", change("m", "every"), ""}, {both, "models", change("m", "latest"), stream.Conflict},
		{both, "models", change("n", "latest"), ""}, {both, "models", change("n", "every"), stream.Conflict},
	} {
		if _, err := x.c.changed(map[string]any{x.key: x.to}, "request"); stream.CodeOf(err) != x.code {
			t.Errorf("%s to %v: %v, want %q", x.key, x.to, err, x.code)
		}
	}
}
