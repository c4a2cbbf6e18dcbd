package config_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"millrace/config"
	"millrace/workers"
)

// samples are values of which each setting takes at least one that is not its
// default.
var samples = []string{"true", "false", "17", "2", "0.25", "1.5", "40s", "3ms", "2MiB", "off", "127.0.0.1:9", "high", "a", "debug", "json", "every", "soft", "c", "GRAY", "NCHW",
	"letterbox", "sigmoid", "xywh", "normalised", "v8", "cuda", "basic", "udp", "http://127.0.0.1/hook", "/tmp/x"}

// nested writes a key and its value as YAML, in as many sections as it has dots.
func nested(path, value string) string {
	names := strings.Split(path, ".")
	return strings.Join(names, ": {") + ": " + value + strings.Repeat("}", len(names)-1)
}

// Each setting of the server that is described can be set by path (flags), in the file
// and by its variable, with the same effect.
func TestEveryServerSetting(t *testing.T) {
	unset := config.Config{}.WithDefaults()
	for _, s := range config.Settings() {
		found := false
		for _, value := range samples {
			want := unset
			if want.Set(s.Path, value) != nil || reflect.DeepEqual(want, unset) {
				continue
			}
			found = true
			text := value
			if s.List {
				text = "[" + value + "]"
			}
			file, err := config.Parse([]byte(nested(s.Path, text)), "f")
			if !reflect.DeepEqual(file, want) {
				t.Errorf("%s in the file: %+v, %v", s.Path, file, err)
			}
			variable := unset
			err = variable.Env(func(name string) (string, bool) { return value, name == s.Env })
			if err != nil || !reflect.DeepEqual(variable, want) {
				t.Errorf("%s: %+v, %v", s.Env, variable, err)
			}
			break
		}
		if !found {
			t.Errorf("%s: no sample is possible: add one", s.Path)
		}
		if s.Doc == "" || s.Flag == "" {
			t.Errorf("%s is not described: %+v", s.Path, s)
		}
	}
}

// Each setting of a model and of its kind can be set in the file and by --model, with
// the same effect.
func TestEveryModelSetting(t *testing.T) {
	try := func(source string, s config.Setting) {
		unset, err := config.ParseModel("a=" + source)
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range samples {
			want, err := config.ParseModel(fmt.Sprintf("a=%s,%s=%s", source, s.Path, value))
			if err != nil || reflect.DeepEqual(want, unset) {
				continue
			}
			c, err := config.Parse(fmt.Appendf(nil, "models: [{name: a, source: %s, %s}]", source, nested(s.Path, value)), "f")
			if len(c.Models) != 1 || !reflect.DeepEqual(c.Models[0], want) {
				t.Errorf("%s in the file: %+v, %v", s.Path, c.Models, err)
			}
			return
		}
		t.Errorf("%s of %s: no sample is possible: add one", s.Path, source)
	}
	for _, s := range config.ModelSettings() {
		if s.Path != "name" && s.Path != "source" {
			try("identity", s)
		}
	}
	for _, k := range workers.Kinds() {
		for _, s := range config.KindSettings(k) {
			try(k.Name, s)
		}
	}
}

// Each setting of a stream can be set in the file, for some source.
func TestEveryStreamSetting(t *testing.T) {
	entry := func(source, more string) (config.Config, error) {
		return config.Parse([]byte("streams: [{name: a, model: m, source: "+source+more+"}]"), "f")
	}
	for _, s := range config.StreamSettings() {
		if s.Path == "name" || s.Path == "model" || s.Path == "source" {
			continue
		}
		found := false
		for _, source := range []string{"rtsp://a/b", "folder:/tmp"} {
			unset, err := entry(source, "")
			if err != nil {
				t.Fatal(err)
			}
			for _, value := range samples {
				more := ", " + nested(s.Path, value)
				if s.Path == "sinks.max_size" {
					more = ", sinks: {file: /tmp/x, max_size: " + value + "}"
				} else if s.Path == "sinks.webhook_secret" {
					more = ", sinks: {webhook: \"http://127.0.0.1/hook\", webhook_secret: " + value + "}"
				}
				c, err := entry(source, more)
				if found = err == nil && !reflect.DeepEqual(c.Streams, unset.Streams); found {
					break
				}
			}
			if found {
				break
			}
		}
		if !found {
			t.Errorf("%s: no sample is possible: add one", s.Path)
		}
	}
}
