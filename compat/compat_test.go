package compat_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/compat"
	"millrace/config"
	"millrace/stream"
	"millrace/workers"
)

// TestStyles: each style has a name of its own, which the setting style of a model takes.
func TestStyles(t *testing.T) {
	kind, ok := workers.Lookup("python")
	if !ok {
		t.Fatal("the kind python is not registered")
	}
	for _, s := range compat.Styles {
		if compat.Lookup(s.Name()) != s {
			t.Errorf("there are two styles %q", s.Name())
		}
		if _, err := kind.Decode(stream.Params{"style": s.Name()}); err != nil {
			t.Error(err)
		}
		if s.GRPC != nil && s.GRPC.Name != s.Name() || s.Python != nil && s.Python.Name != s.Name() {
			t.Errorf("the parts of style %s have several names", s.Name())
		}
	}
	if compat.Lookup("other") != nil || compat.Lookup("") != nil {
		t.Error("a style without a name was found")
	}
	const want = "millrace, octoai, mosec or ssf"
	if _, err := kind.Decode(stream.Params{"style": "other"}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestFolderNames: a model is named after the folder of the file that describes its program.
func TestFolderNames(t *testing.T) {
	for source, want := range map[string]string{"app/ssf_config.yaml": "app", "./app/../lib/ssf_config.yaml": "lib",
		"app/other.yaml": "other"} {
		if m := config.ModelFor(source); m.Name != want || m.Source != source {
			t.Errorf("the model of %s is %+v, want the name %s", source, m, want)
		}
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	if m := config.ModelFor("ssf_config.yaml"); m.Name != filepath.Base(here) {
		t.Errorf("the model is %s, want %s", m.Name, filepath.Base(here))
	}
}

// TestSettings: the settings of styles are settings of the server, and choose the names of metrics.
func TestSettings(t *testing.T) {
	on := func(c config.Config) []string {
		var names []string
		for _, s := range compat.Styles {
			if s.Metrics != nil && s.Metrics.On(c.Parts) {
				names = append(names, s.Name())
			}
		}
		return names
	}
	var c config.Config
	if got := on(c); got != nil {
		t.Errorf("by default, the metrics have the names of %q", got)
	}
	lookup := func(name string) (string, bool) { return "true", name == "MILLRACE_METRICS_SSF" }
	if err := c.Env(lookup); err != nil {
		t.Fatal(err)
	}
	if got := on(c); !slices.Equal(got, []string{"ssf"}) {
		t.Errorf("with metrics.ssf, the metrics have the names of %q", got)
	}
}
