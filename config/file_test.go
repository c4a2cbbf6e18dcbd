package config_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"millrace/config"
	"millrace/workers"
)

// Valid files similar to the cases of TestParseRefuses.
func TestParseAccepts(t *testing.T) {
	defaults := config.Config{}.WithDefaults
	for _, c := range []struct {
		name, text string
		want       func(c *config.Config)
	}{
		{"http is off", "http: off", func(c *config.Config) { c.HTTP = "off" }},
		{"certificate of its own", "tls: {self_signed: true}", func(c *config.Config) { c.TLS.SelfSigned = true }},
		{"certificate and key", "tls: {cert: c.pem, key: k.pem}", func(c *config.Config) {
			c.TLS.Cert, c.TLS.Key = "c.pem", "k.pem"
		}},
		{"block of text", "http: |-\n  127.0.0.1:9", func(c *config.Config) { c.HTTP = "127.0.0.1:9" }},
		{"words for what is left out", "models: [{name: a, source: delay, input: tensors, output: none}]",
			func(c *config.Config) {
				c.Models = []workers.Config{{Name: "a", Source: "delay"}}
			}},
		{"document that ends", "http: 127.0.0.1:9\n---\n", func(c *config.Config) { c.HTTP = "127.0.0.1:9" }},
		{"document after a comment", "# only this\n---\nhttp: 127.0.0.1:9", func(c *config.Config) {
			c.HTTP = "127.0.0.1:9"
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := config.Parse([]byte(c.text), "f")
			want := defaults()
			c.want(&want)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, want)
			}
		})
	}
	// As many streams as are allowed.
	c, err := config.Parse([]byte("limits: {max_streams: 1}\nstreams: [{name: a, model: m, source: \"folder:/x\"}]"),
		"f")
	if err != nil || len(c.Streams) != 1 {
		t.Errorf("got %+v, %v", c.Streams, err)
	}
}

// A file may be as large as the bound, and no larger.
func TestLoadBoundsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large.yaml")
	for size, refused := range map[int]bool{1 << 20: false, 1<<20 + 1: true} {
		text := "http: 127.0.0.1:9\n#"
		if err := os.WriteFile(path, []byte(text+strings.Repeat("x", size-len(text))), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(path)
		if refused != (err != nil && strings.Contains(err.Error(), "is larger than 1MiB")) ||
			!refused && c.HTTP != "127.0.0.1:9" {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// Relative paths in a file start from the file's folder; other values stay.
func TestLoadRebasesPaths(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.yaml")
	for text, want := range map[string]func(c config.Config) (got, want string){
		"streams_file: sub/kept.json": func(c config.Config) (string, string) {
			return c.StreamsFile, filepath.Join(dir, "sub/kept.json")
		},
		"streams_file: /abs/kept.json": func(c config.Config) (string, string) {
			return c.StreamsFile, "/abs/kept.json"
		},
		`streams_file: ""`:   func(c config.Config) (string, string) { return c.StreamsFile, "" },
		"log: {level: warn}": func(c config.Config) (string, string) { return c.Log.Level, "warn" },
		"hosts: [a]": func(c config.Config) (string, string) {
			return strings.Join(c.Hosts, " "), "a"
		},
		"models: [{name: a, source: delay}]": func(c config.Config) (string, string) {
			return c.Models[0].Source, "delay"
		},
		"models: [{name: a, source: x.onnx}]": func(c config.Config) (string, string) {
			return c.Models[0].Source, filepath.Join(dir, "x.onnx")
		},
		"models: [{name: a, source: sub/x}]": func(c config.Config) (string, string) {
			return c.Models[0].Source, filepath.Join(dir, "sub/x")
		},
		"models: [{name: a, source: word}]": func(c config.Config) (string, string) {
			return c.Models[0].Source, "word"
		},
		`models: [{name: a, source: "http://other:8000/x.y"}]`: func(c config.Config) (string, string) {
			return c.Models[0].Source, "http://other:8000/x.y"
		},
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, _ := config.Load(path) // most of the sources cannot be loaded
		if got, want := want(c); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	if err := os.WriteFile(path, []byte("streams_file: [a, b]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(path); err == nil || !strings.Contains(err.Error(), "streams_file: is a list") {
		t.Errorf("two paths: %v", err)
	}
}

// Paths in a list are relative to the file, and the configuration knows its file.
func TestListsOfPaths(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "millrace.yaml")
	if err := os.WriteFile(file, []byte("confine: {read: [weights, /srv/weights], write: results}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file)
	if want := []string{filepath.Join(dir, "weights"), "/srv/weights"}; err != nil ||
		!slices.Equal(c.Confine.Read, want) || c.File != file {
		t.Errorf("%q, %q, %v", c.Confine.Read, c.File, err)
	}
	if want := []string{filepath.Join(dir, "results")}; !slices.Equal(c.Confine.Write, want) {
		t.Errorf("%q", c.Confine.Write)
	}
}
