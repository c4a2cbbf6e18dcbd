package config_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"millrace/config"
	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/internal/setting"
	"millrace/workers"
)

// candidates returns values, at least one of which is valid and differs from the default: the example, the words and
// limits of the setting, and some values of each type.
func candidates(s config.Setting) []string {
	out := []string{"true", "false", "17", "2", "0.25", "1.5", "40s", "3ms", "2MiB", "off", "127.0.0.1:9", "a",
		"/tmp/x"}
	if s.Example != "" {
		out = append([]string{s.Example}, out...)
	}
	return append(out, strings.FieldsFunc(s.Range, func(r rune) bool { return r == ' ' || r == ',' })...)
}

// nested writes a key and its value as YAML, with one section for each dot.
func nested(path, value string) string {
	names := strings.Split(path, ".")
	return strings.Join(names, ": {") + ": " + value + strings.Repeat("}", len(names)-1)
}

// Each described server setting can be set by path (flags), in the file and by its variable, with the same effect.
func TestEveryServerSetting(t *testing.T) {
	unset := config.Config{}.WithDefaults()
	for _, s := range config.Settings() {
		found := false
		for _, value := range candidates(s) {
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

// Each setting of a model and of its kind can be set in the file and by --model, with the same effect.
func TestEveryModelSetting(t *testing.T) {
	try := func(source string, s config.Setting) {
		unset, err := config.ParseModel("a=" + source)
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range candidates(s) {
			want, err := config.ParseModel(fmt.Sprintf("a=%s,%s=%s", source, s.Path, value))
			if err != nil || reflect.DeepEqual(want, unset) {
				continue
			}
			c, err := config.Parse(fmt.Appendf(nil, "models: [{name: a, source: %s, %s}]", source,
				nested(s.Path, value)), "f")
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

// Each setting of a stream can be set in the file, for some source. Settings of a sink are set beside the key that
// enables the sink.
func TestEveryStreamSetting(t *testing.T) {
	entry := func(source string, keys ...string) (config.Config, error) {
		head := "model: m, "
		if strings.HasPrefix(keys[0], "models: ") {
			head = ""
		}
		return config.Parse(fmt.Appendf(nil, "clips: {folder: c}\nstreams: [{name: a, source: %q, %s%s}]", source, head,
			strings.Join(keys, ", ")), "f")
	}
	// possible says whether a value of a setting is possible, and makes a difference.
	possible := func(s config.Setting, with func(value string) string, without string) bool {
		for _, k := range sources.Kinds() {
			for _, source := range k.Examples {
				unset, err := entry(source, without)
				if err != nil {
					continue
				}
				for _, value := range candidates(s) {
					if c, err := entry(source, with(value)); err == nil &&
						!reflect.DeepEqual(c.Streams, unset.Streams) {
						return true
					}
				}
			}
		}
		return false
	}
	for _, s := range config.StreamSettings() {
		if s.Path == "name" || s.Path == "model" || s.Path == "source" {
			continue
		}
		set, unset := func(value string) string { return nested(s.Path, value) }, ""
		if key, of := strings.CutPrefix(s.Path, "models[]"); of {
			if key == "" || key == ".model" {
				continue
			}
			unset = "models: [{model: m}]"
			set = func(value string) string { return "models: [{model: m, " + key[1:] + ": " + value + "}]" }
		}
		if key, of := strings.CutPrefix(s.Path, "rules."); of {
			if set, unset = rule(key); set == nil {
				continue
			}
		}
		if key, of := strings.CutPrefix(s.Path, "clips."); of {
			set, unset = clip(key)
		}
		ok := possible(s, set, unset)
		for _, key := range sinkKeys(s.Path) { // the setting may need its sink
			ok = ok || possible(s, func(value string) string {
				return "sinks: {" + key + ", " + strings.TrimPrefix(s.Path, "sinks.") + ": " + value + "}"
			}, "sinks: {"+key+"}")
		}
		if !ok {
			t.Errorf("%s: no value is possible: give it the tag example, or its kind of source one more of Examples",
				s.Path)
		}
	}
}

// clip returns clips with a value of a setting of the clips, and without the setting.
func clip(key string) (set func(value string) string, unset string) {
	const rules = "rules: {lines: [{name: l, from: [0, 0], to: [1, 1]}]}"
	if key == "on" {
		return func(v string) string { return rules + ", clips: {on: [" + v + "]}" }, rules
	}
	return func(v string) string { return "clips: {on: [always], " + key + ": " + v + "}" }, "clips: {on: [always]}"
}

// rule returns rules with a value of a setting of the rules, and the rules without the setting; nil for a setting that
// all rules have.
func rule(key string) (set func(value string) string, unset string) {
	const line, zone = "name: l, from: [0, 0], to: [1, 1]", "name: z, polygon: [[0, 0], [1, 0], [1, 1]]"
	with := func(own, line, zone string) string {
		return "rules: {" + own + "lines: [{" + line + "}], zones: [{" + zone + "}]}"
	}
	of, name, entry := strings.Cut(key, "[].")
	switch {
	case strings.HasSuffix(key, "[]"), strings.Contains(" name from to polygon ", " "+name+" "):
		return nil, ""
	case key == "width" || key == "height":
		set = func(v string) string { return with("width: "+v+", height: "+v+", ", line, zone) }
	case strings.HasPrefix(key, "ground."), strings.HasPrefix(name, "speed."):
		return ground(key, name, line, zone)
	case of == "when":
		unset = "rules: {lines: [{name: door, from: [0, 0], to: [1, 1]}], zones: [{name: yard, " +
			"polygon: [[0, 0], [1, 0], [1, 1]]}], when: [{name: w, if: in(door) > 2, within: 2s, for: 2s}]}"
		old := map[string]string{"if": "if: in(door) > 2", "within": "within: 2s", "for": "for: 2s"}[name]
		return func(v string) string { return strings.Replace(unset, old, name+": "+v, 1) }, unset
	case !entry:
		set = func(v string) string { return with(key+": "+v+", ", line, zone) }
	case name == "count.for":
		set = func(v string) string { return with("", line, zone+", count: {over: 3, for: "+v+"}") }
	case of == "lines":
		set = func(v string) string { return with("", line+", "+name+": "+v, zone) }
	default:
		set = func(v string) string { return with("", line, zone+", "+nested(name, v)) }
	}
	return set, with("", line, zone)
}

// ground returns rules with a speed, with a value of a setting of the speed or the ground, and with another value.
func ground(key, name, line, zone string) (set func(value string) string, unset string) {
	with := func(own, value string) string {
		values := map[string]string{"ground.points": "[[0, 0], [1, 0], [1, 1], [0, 1]]",
			"ground.metres": "[[0, 0], [9, 0], [9, 9], [0, 9]]", "speed.over": "99", "speed.for": "9s"}
		values[own] = value
		return "rules: {ground: {points: " + values["ground.points"] + ", metres: " + values["ground.metres"] +
			"}, lines: [{" + line + "}], zones: [{" + zone + ", speed: {over: " + values["speed.over"] + ", for: " +
			values["speed.for"] + "}}]}"
	}
	if name != "" {
		key = name
	}
	return func(v string) string { return with(key, v) }, with("", "")
}

// sinkKeys returns keys with values, at least one of which enables the sink of the setting at path.
func sinkKeys(path string) (keys []string) {
	for _, k := range sinks.Kinds() {
		table := setting.TableOf("sinks", k.New())
		own, _ := table.Find("sinks." + k.Name)
		if _, of := table.Find(path); of && path != own.Path {
			for _, value := range candidates(config.Setting{Example: own.Example, Range: own.Range()}) {
				keys = append(keys, k.Name+": "+value)
			}
		}
	}
	return keys
}
