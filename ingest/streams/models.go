package streams

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"millrace/stream"
	"millrace/stream/coded"
)

// maxModels is the most models of one stream.
const maxModels = 16

// ModelConfig is one of several models of a stream.
type ModelConfig struct {
	Model   string        `json:"model" help:"the model"`
	Version string        `json:"version" unset:"any" help:"version of the model"`
	Policy  stream.Policy `json:",inline" unset_all:"that of the stream"`
}

// models returns the models of the stream, each with its whole policy. The default mode
// is Latest: a camera's frames do not wait.
func (c Config) models() []ModelConfig {
	list := []ModelConfig{{c.Model, c.Version, c.Policy}}
	if len(c.Models) > 0 {
		list = slices.Clone(c.Models)
	}
	for i := range list {
		p, d := &list[i].Policy, c.Policy
		p.MaxAge, p.Deadline, p.MaxFPS = cmp.Or(p.MaxAge, d.MaxAge), cmp.Or(p.Deadline, d.Deadline), cmp.Or(p.MaxFPS, d.MaxFPS)
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

// changeModels applies the entries of models of a request that changes a running stream:
// each names a model, and what to change of its policy.
func (d *Draft) changeModels(v any) error {
	list := modelsList(d)
	entries, ok := v.([]any)
	if !ok {
		return stream.Errorf(stream.InvalidArgument, list.Path, "is not a list of objects")
	}
	for i, v := range entries {
		if err := d.changeModel(v); err != nil {
			return coded.Within(list.EntryPath(i), err)
		}
	}
	return nil
}

func (d *Draft) changeModel(v any) error {
	object, _ := v.(map[string]any)
	name, ok := object["model"].(string)
	if !ok {
		return stream.Errorf(stream.InvalidArgument, "model", "is missing: want an object with the name of a model and what to change, such as max_fps")
	}
	table, mode := d.table, d.config.Policy.Mode
	switch j := d.config.index(name); {
	case j >= 0:
		table, mode = modelsList(d).Entry(j), d.config.models()[j].Policy.Mode
	case len(d.config.Models) > 0 || name != d.config.Model:
		return stream.Errorf(stream.NotFound, "model", "the stream has no model %.140q: it has %s", name, d.config.modelNames())
	}
	change := maps.Clone(object)
	delete(change, "model")
	return first(table.SetObject(change, d.setChange(Changeable[1:], mode)))
}
