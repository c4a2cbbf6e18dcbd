package streams

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/internal/setting"
	"millrace/stream"
)

// Draft is a stream that is being described. It has the settings of all kinds of
// sources and sinks, until it is known which of them the stream has.
type Draft struct {
	config  Config
	sources []sources.Settings // of each kind
	sinks   []sinks.Settings   // of each kind
	table   *setting.Table
}

// NewDraft returns a stream without any setting.
func NewDraft() *Draft { return draftOf(Config{}) }

// draftOf returns a draft with copies of the settings of c.
func draftOf(c Config) *Draft {
	d := &Draft{config: c}
	d.table = setting.Of("", &d.config)
	for _, k := range sources.Kinds() {
		s := k.New()
		if sameType(s, c.Settings) {
			reflect.ValueOf(s).Elem().Set(reflect.ValueOf(c.Settings).Elem())
		}
		d.sources = append(d.sources, s)
		d.table.Add("", s)
	}
	for _, k := range sinks.Kinds() {
		s := k.New()
		for _, has := range c.Sinks {
			if sameType(s, has) {
				reflect.ValueOf(s).Elem().Set(reflect.ValueOf(has).Elem())
			}
		}
		d.sinks = append(d.sinks, s)
		d.table.Add("sinks", s)
	}
	return d
}

func sameType(a, b any) bool { return reflect.TypeOf(a) == reflect.TypeOf(b) }

// Table returns the settings, to be read and set. Those of sinks are below
// "sinks".
func (d *Draft) Table() *setting.Table { return d.table }

// Config returns the stream. It is an error if it has settings of a kind of
// source that its own is not, or a setting of a sink that it does not have; all
// else is for Config.Validate.
func (d *Draft) Config() (Config, error) {
	c := d.config
	c.Settings, c.Sinks = nil, nil
	scheme, kind, err := sources.Classify(c.Source)
	if err != nil {
		return c, nil // Validate says what is wrong with the source
	}
	for i, k := range sources.Kinds() {
		s := d.sources[i]
		if k.Name == kind.Name {
			if !reflect.ValueOf(s).Elem().IsZero() {
				c.Settings = s
			}
			continue
		}
		for _, f := range setting.Of("", s).Fields() {
			if f.String() != "" {
				return c, stream.Errorf(stream.InvalidArgument, f.Path, "is for %s sources, and this one is %s: leave it out", k.Name, scheme)
			}
		}
	}
	for _, s := range d.sinks {
		if s.Enabled() {
			c.Sinks = append(c.Sinks, s)
		} else if err := s.Validate(); err != nil {
			return c, err
		}
	}
	return c, nil
}

// Rebase has relative paths of the source and the sinks start from dir.
func (c *Config) Rebase(dir string) {
	if dir == "" {
		return
	}
	d := draftOf(*c)
	if _, k, err := sources.Classify(c.Source); err == nil && k.Relative != nil {
		d.config.Source = k.Relative(c.Source, dir)
	}
	for _, f := range d.table.Fields() {
		if path := f.String(); f.File && path != "" && !filepath.IsAbs(path) {
			_ = f.Set(filepath.Join(dir, path)) // a path has no bounds
		}
	}
	if next, err := d.Config(); err == nil {
		*c = next
	}
}

// Exclusive returns the values that no other stream may have, by the paths of
// their settings.
func (c Config) Exclusive() map[string]string {
	out := map[string]string{}
	table := draftOf(c).table
	for _, k := range sinks.Kinds() {
		path := "sinks." + k.Name
		if f, ok := table.Find(path); ok && k.Exclusive && f.String() != "" {
			out[path] = f.String()
		}
	}
	return out
}

// MarshalJSON writes the settings that are set, as requests have them.
func (c Config) MarshalJSON() ([]byte, error) { return json.Marshal(draftOf(c).table.Object()) }

// parse reads a stream that a request has asked for. Errors are *stream.Error
// about the field.
func parse(object map[string]any) (Config, error) {
	d := NewDraft()
	if err := first(d.table.SetObject(object, setByRequest)); err != nil {
		return d.config, err
	}
	c, err := d.Config()
	if err == nil {
		err = first(c.Validate())
	}
	if err == nil {
		err = sources.Check("source", c.Source)
	}
	return c, err
}

// setByRequest sets what a request may set, and refuses the rest by name.
func setByRequest(f setting.Field, v any) error {
	if f.Request == "" {
		return stream.Errorf(stream.PermissionDenied, f.Path, "comes from the server's configuration only: leave it out")
	}
	return f.SetRequest(v)
}

// first returns the first of joined errors.
func first(err error) error {
	for _, err := range setting.Split(err) {
		return err
	}
	return nil
}

// changeable are the settings that can change while a stream runs.
var changeable = []string{"paused", "max_age_ms", "deadline_ms", "max_fps", "window", "priority"}

// changed returns c with what a request wants changed: all of it, or an error.
func (c Config) changed(object map[string]any) (Config, error) {
	d := draftOf(c)
	err := first(d.table.SetObject(object, func(f setting.Field, v any) error {
		before := f.String()
		switch {
		case slices.Contains(changeable, f.Path):
			return setByRequest(f, v)
		case f.Path != "policy":
			last := len(changeable) - 1
			return stream.Errorf(stream.InvalidArgument, f.Path, "cannot change while the stream runs: %s and %s can. For others remove the stream and add it anew", strings.Join(changeable[:last], ", "), changeable[last])
		}
		if err := setByRequest(f, v); err != nil {
			return err
		}
		if now := cmp.Or(before, string(stream.Latest)); f.String() != now {
			return stream.Errorf(stream.Conflict, f.Path, "is %s and cannot change: make the stream anew", now)
		}
		return nil
	}))
	if err != nil {
		return c, err
	}
	return d.Config()
}
