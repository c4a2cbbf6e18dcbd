package streams

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"millrace/internal/setting"
	"millrace/stream"
	"millrace/stream/coded"
)

// maxModels is the maximum number of models of one stream.
const maxModels = 16

// maxLeaving is the maximum number of removed models that may wait for their last results when a request changes the
// models again.
const maxLeaving = 2 * maxModels

// ModelConfig is one of several models of a stream.
type ModelConfig struct {
	Model   string        `json:"model" help:"the model"`
	Version string        `json:"version" unset:"any" advanced:"yes" help:"version of the model"`
	Policy  stream.Policy `json:",inline" unset_all:"that of the stream"`
}

// models returns the models of the stream, each with a complete policy. The default mode is Latest, since the frames
// of a camera do not wait.
func (c Config) models() []ModelConfig {
	list := []ModelConfig{{c.Model, c.Version, c.Policy}}
	if len(c.Models) > 0 {
		list = slices.Clone(c.Models)
	}
	for i := range list {
		p, d := &list[i].Policy, c.Policy
		p.MaxAge, p.Deadline, p.MaxFPS = cmp.Or(p.MaxAge, d.MaxAge), cmp.Or(p.Deadline, d.Deadline),
			cmp.Or(p.MaxFPS, d.MaxFPS)
		p.Window, p.Priority = cmp.Or(p.Window, d.Window), cmp.Or(p.Priority, d.Priority)
		p.Mode = cmp.Or(p.Mode, d.Mode, stream.Latest)
	}
	return list
}

// modelNames returns the names of the models, separated by commas.
func (c Config) modelNames() string {
	var names []string
	for _, m := range c.models() {
		names = append(names, m.Model)
	}
	return strings.Join(names, ", ")
}

// validateModels returns errors about model, version and models.
func (c Config) validateModels() (errs []error) {
	bad := func(field, format string, args ...any) {
		errs = append(errs, stream.Errorf(stream.InvalidArgument, field, format, args...))
	}
	if len(c.Models) == 0 {
		if c.Model == "" {
			bad("model", "is missing: want the name of a model, or several under models")
		}
		return errs
	}
	if c.Model != "" {
		bad("model", "is given, and models too: name every model under models")
	}
	if c.Version != "" {
		bad("version", "is given beside models: set it in the entries of models")
	}
	if len(c.Models) > maxModels {
		bad("models", "has %d entries: want at most %d", len(c.Models), maxModels)
	}
	for i, m := range c.Models {
		at := fmt.Sprintf("models[%d]", i)
		if m.Model == "" {
			bad(at+".model", "is missing: want the name of a model")
		} else if c.index(m.Model) != i {
			bad(at+".model", "%q is given twice", m.Model)
		}
	}
	return errs
}

// index returns the index of the first entry of models with a name, or -1.
func (c Config) index(model string) int {
	return slices.IndexFunc(c.Models, func(m ModelConfig) bool { return m.Model == model })
}

// changeModels applies the field models of a change request. An entry names a model and changes parts of the model's
// policy. An entry for a new model adds the model; "remove": true removes the model.
func (d *Draft) changeModels(v any) error {
	list := modelsList(d)
	entries, ok := v.([]any)
	if !ok {
		return stream.Errorf(stream.InvalidArgument, list.Path, "is not a list of objects")
	}
	for i, v := range entries {
		if err := d.changeModel(v); err != nil {
			return coded.PrefixField(list.EntryPath(i), err)
		}
	}
	if c := &d.config; len(c.Models) == 0 && c.Model == "" {
		return stream.Errorf(stream.InvalidArgument, list.Path,
			"leaves no model: a stream needs one. Remove the stream instead")
	}
	return nil
}

func (d *Draft) changeModel(v any) error {
	object, _ := v.(map[string]any)
	name, ok := object["model"].(string)
	if !ok {
		return stream.Errorf(stream.InvalidArgument, "model",
			"is missing: want an object with the name of a model and what to change, such as max_fps")
	}
	change := maps.Clone(object)
	delete(change, "model")
	remove, asked := change["remove"]
	delete(change, "remove")
	if yes, isBool := remove.(bool); asked && !isBool {
		return stream.Errorf(stream.InvalidArgument, "remove", "is not true or false")
	} else if yes {
		return d.removeModel(name, change)
	}
	c := &d.config
	table := d.table
	switch j := c.index(name); {
	case j >= 0:
		table = modelsList(d).Entry(j)
	case len(c.Models) > 0 || name != c.Model:
		d.listModels()
		table = modelsList(d).Add()
		if err := table.Set("model", name); err != nil {
			return err
		}
	}
	return first(table.SetObject(change, func(f setting.Field, v any) error {
		if f.Path != "version" && !slices.Contains(ModelSettings, f.Path) {
			return stream.Errorf(stream.InvalidArgument, f.Path,
				"is a setting of the whole stream: give it beside models")
		}
		f.Request = "any" // as the policy of the stream
		return setChange(f, v)
	}))
}

// listModels writes the only model as an entry of models.
func (d *Draft) listModels() {
	c := &d.config
	if c.Model != "" {
		c.Models = []ModelConfig{{Model: c.Model, Version: c.Version}}
		c.Model, c.Version = "", ""
	}
}

func (d *Draft) removeModel(name string, others map[string]any) error {
	for key := range others {
		return stream.Errorf(stream.InvalidArgument, key, "is given for a model that is removed: leave it out")
	}
	names := d.config.modelNames()
	d.listModels()
	j := d.config.index(name)
	if j < 0 {
		return stream.Errorf(stream.NotFound, "model", "the stream has no model %.140q: it has %s", name, names)
	}
	d.config.Models = slices.Delete(d.config.Models, j, j+1)
	return nil
}
