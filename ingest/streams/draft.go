package streams

import (
	"cmp"
	"encoding/json"
	"maps"
	"path/filepath"
	"reflect"
	"slices"

	"millrace/ingest/clips"
	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/internal/setting"
	"millrace/stream"
	"millrace/stream/rules"
)

// Draft is an unfinished description of a stream. A Draft has the settings of all kinds of sources and sinks until
// the kinds are known.
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
	d.config.Models = slices.Clone(c.Models)
	d.table = setting.TableOf("", &d.config)
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

// Table returns the settings for reading and setting. The settings of sinks are below "sinks".
func (d *Draft) Table() *setting.Table { return d.table }

// Config returns the stream. Settings of another kind of source, and settings of a sink that the stream lacks, are
// errors. Config.Validate checks everything else.
func (d *Draft) Config() (Config, error) {
	c := d.config
	c.Settings, c.Sinks = nil, nil
	scheme, kind, err := sources.Classify(c.Source)
	if err != nil {
		return c, nil // Validate returns the error about the source
	}
	for i, k := range sources.Kinds() {
		s := d.sources[i]
		if k.Name == kind.Name {
			if !reflect.ValueOf(s).Elem().IsZero() {
				c.Settings = s
			}
			continue
		}
		for _, f := range setting.TableOf("", s).Fields() {
			if f.String() != "" {
				return c, stream.Errorf(stream.InvalidArgument, f.Path,
					"is for %s sources, but this one is %s: leave it out", k.Name, scheme)
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

// Rebase resolves relative paths of the source and the sinks against dir.
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

// Claim is the value of a sink's setting when two sinks, in one stream or in two, must not both have this value.
type Claim struct {
	Path  string // of the setting
	Value string // cleaned, of a path
	// Exclusive means that no other claim may have the value. Without Exclusive, only an exclusive claim conflicts.
	Exclusive bool
}

// Claims returns the paths of the stream's sinks and the values of exclusive keys.
func (c Config) Claims() (claims []Claim) {
	table := draftOf(c).table
	for _, k := range sinks.Kinds() {
		for _, f := range setting.TableOf("sinks", k.New()).Fields() {
			own, _ := table.Find(f.Path)
			value, exclusive := own.String(), k.Exclusive && f.Path == "sinks."+k.Name
			switch {
			case value == "":
			case f.File:
				claims = append(claims, Claim{f.Path, filepath.Clean(value), exclusive})
			case exclusive:
				claims = append(claims, Claim{f.Path, value, exclusive})
			}
		}
	}
	return claims
}

// MarshalJSON writes all settings with a value, in the form of requests.
func (c Config) MarshalJSON() ([]byte, error) { return json.Marshal(draftOf(c).table.Object()) }

// parse reads a stream from a request. Errors are *stream.Error about the field.
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

// setByRequest sets a setting from a request. Settings that requests may not set are an error with the setting's
// name.
func setByRequest(f setting.Field, v any) error {
	if f.Request == "" {
		return stream.Errorf(stream.PermissionDenied, f.Path,
			"comes from the server's configuration only: leave it out")
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

// ModelSettings are the settings of a model's policy. A change may give these settings for one of several models.
var ModelSettings = []string{"policy", "max_age_ms", "deadline_ms", "max_fps", "window", "priority"}

// changed returns c with all changes of a request, or an error. The field model makes the named model the only model;
// the field models changes, adds and removes single models.
func (c Config) changed(object map[string]any) (Config, error) {
	d := draftOf(c)
	own := maps.Clone(object)
	models, given := own[modelsList(d).Path]
	delete(own, modelsList(d).Path)
	if name, ok := own["model"]; ok && name != nil {
		d.keepPolicy(name)
		d.config.Models = nil
		if own["version"] == nil {
			d.config.Version = ""
		}
	}
	d.clearSinks(own["sinks"])
	whole := map[string]any{} // rules change as a whole
	if v := own["rules"]; v != nil {
		d.config.Rules = rules.Rules{}
		whole["rules"] = v
	}
	delete(own, "rules")
	err := first(setting.Join(d.table.SetObject(own, setChange), d.table.SetObject(whole, setByRequest)))
	if err == nil && given && models != nil {
		err = d.changeModels(models)
	}
	if err != nil {
		return c, err
	}
	if own["clips"] != nil && !d.config.Clips.Enabled() { // the change turns clips off
		d.config.Clips = clips.Settings{}
	}
	next, err := d.Config()
	if err == nil {
		err = first(next.Validate())
	}
	if err == nil {
		err = keepSecrets(c.Sinks, next.Sinks)
	}
	return next, err
}

// keepSecrets returns an error if a request would send secrets of the configuration to another address.
func keepSecrets(before, next []sinks.Settings) error {
	for _, s := range next {
		own := sinks.KindOf(s).Name
		for _, f := range setting.TableOf("sinks", s).Fields() {
			if f.Secret && f.Request == "" && f.String() != "" && !slices.ContainsFunc(before,
				func(o sinks.Settings) bool { return sameType(o, s) && target(o) == target(s) }) {
				return stream.Errorf(stream.PermissionDenied, "sinks."+own, "%s comes from the server's "+
					"configuration, for the address there: remove the sink first, with an empty sinks.%s", f.Path, own)
			}
		}
	}
	return nil
}

// keepPolicy gives the stream the policy of the model that becomes the only model.
func (d *Draft) keepPolicy(model any) {
	name, _ := model.(string)
	i := d.config.index(name)
	if i < 0 {
		return
	}
	mode := cmp.Or(d.config.Models[i].Policy.Mode, d.config.Policy.Mode)
	d.config.Policy = d.config.models()[i].Policy
	d.config.Policy.Mode = mode
}

// clearSinks clears all settings of the sinks that a request turns off.
func (d *Draft) clearSinks(request any) {
	given, _ := request.(map[string]any)
	for i, k := range sinks.Kinds() {
		if v, ok := given[k.Name]; ok && v != nil && isNone(v) {
			reflect.ValueOf(d.sinks[i]).Elem().SetZero()
		}
	}
}

// modelsList is the list of models.
func modelsList(d *Draft) setting.List {
	list, _ := d.table.FindList("models")
	return list
}

// setChange sets a setting of an existing stream. 0 and "" restore the default.
func setChange(f setting.Field, v any) error {
	switch {
	case f.Path == "name":
		return stream.Errorf(stream.InvalidArgument, f.Path,
			"cannot change: remove the stream, and add it under the other name")
	case f.Request == "" || !isNone(v) || f.IsBool():
		return setByRequest(f.ForChange(), v)
	}
	f.Clear()
	return nil
}

// isNone reports whether a value of a request stands for the default: 0 or "".
func isNone(v any) bool {
	switch v := v.(type) {
	case string:
		return v == ""
	case float64:
		return v == 0
	case json.Number:
		n, err := v.Float64()
		return err == nil && n == 0
	}
	return false
}
