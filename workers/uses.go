package workers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"millrace/internal/setting"
	"millrace/stream"
	"millrace/stream/coded"
)

// Use is a model used by another model.
type Use struct {
	At      string // the setting with the model's name, such as steps.crop
	Model   string
	Version string // "" = any
}

// Models finds loaded models by name; a version of "" means any. A Manager implements it.
type Models interface {
	Names() []string
	Group(name, version string) (*Group, error)
	Choose(name string) (version string)
	Open(name, version string, opts stream.Options, sink stream.Sink) (*stream.Stream, error)
}

var _ Models = (*Manager)(nil)

// Uses returns the models used by a model with this configuration: the used models must be loaded first.
func (c Config) Uses() []Use {
	c = c.WithDefaults()
	kind, ok := Lookup(c.Kind)
	if !ok || kind.Uses == nil {
		return nil
	}
	settings, err := kind.Decode(c.Params)
	if err != nil {
		return nil // Validate reports the error
	}
	return kind.Uses(settings)
}

// Uses returns the models used by the group's model.
func (g *Group) Uses() []Use { return g.uses }

// chain is the key in a context of the names of the graphs whose loads wait for the current load.
type chain struct{}

// loadUsed loads the models used by a plan's models, if they can be found and are not loaded. The execution of the
// plan reports missing models and cycles.
func (m *Manager) loadUsed(ctx context.Context, p plan) error {
	waiting, _ := ctx.Value(chain{}).([]string)
	waiting = append(slices.Clone(waiting), p.of)
	ctx = context.WithValue(ctx, chain{}, waiting)
	for _, cfg := range p.Versions {
		for _, u := range cfg.Uses() {
			if _, err := m.Group(u.Model, ""); err == nil || slices.Contains(waiting, u.Model) {
				continue
			}
			if _, err := m.Load(ctx, u.Model, Load{}); err != nil && coded.CodeOf(err) != coded.NotFound {
				return fmt.Errorf("load %s, which is made of %s: %w", p.of, u.Model, err)
			}
		}
	}
	return nil
}

// setUnready implements Env.Unready.
func (c *common) setUnready(reason error) {
	if reason == nil {
		c.lacks.Store(nil)
	} else {
		c.lacks.Store(&reason)
	}
}

// outdated reports whether, according to a worker, the model has changed since the load: only another load helps.
func (c *common) outdated() bool {
	reason := c.lacks.Load()
	return reason != nil && stream.CodeOf(*reason) == stream.Conflict
}

// unready returns the reason of a model that cannot serve although its workers run: the reason of a worker, or an
// unready used model; nil = the model can serve.
func (c *common) unready() error {
	if reason := c.lacks.Load(); reason != nil {
		return *reason
	}
	for _, u := range c.uses {
		g, err := c.models.Group(u.Model, u.Version)
		if err != nil {
			return stream.Errorf(stream.Unavailable, u.At, "%w", err)
		}
		if !g.Ready() {
			return stream.Errorf(stream.Unavailable, u.At, "model %s is not ready", u.Model)
		}
	}
	return nil
}

// checkUses returns an error if a used model is not loaded, or itself uses this model.
func (c *common) checkUses() error {
	for _, u := range c.uses {
		g, err := c.models.Group(u.Model, u.Version)
		switch path := usePath(c.models, u, c.cfg.Name, nil); {
		case path != nil:
			return circle(u.At+".model", append([]string{c.cfg.Name}, path...))
		case err != nil:
			return stream.Errorf(stream.NotFound, u.At+".model", "model %s is made of it: %w%s", c.cfg.Name, err,
				c.suggest(u.Model))
		case !g.Ready():
			return stream.Errorf(stream.Unavailable, u.At+".model", "model %s is not ready", u.Model)
		}
	}
	return nil
}

// suggest returns " (did you mean x?)" with the loaded model whose name is most similar to the missing model name, or
// "".
func (c *common) suggest(name string) string {
	names := c.models.Names()
	if slices.Contains(names, name) { // the model lacks a version
		return ""
	}
	return setting.Suggest(name, slices.DeleteFunc(names, func(n string) bool { return n == c.cfg.Name }))
}

// usePath returns the names of the models from u to the one with the given name, or nil.
func usePath(models Models, u Use, name string, seen []string) []string {
	if u.Model == name {
		return []string{name}
	}
	g, err := models.Group(u.Model, u.Version)
	if err != nil || slices.Contains(seen, u.Model) {
		return nil
	}
	for _, next := range g.uses {
		if path := usePath(models, next, name, append(seen, u.Model)); path != nil {
			return append([]string{u.Model}, path...)
		}
	}
	return nil
}

func circle(field string, names []string) error {
	return stream.Errorf(stream.InvalidArgument, field, "makes a circle of models: %s", strings.Join(names, ", "))
}

// LoadOrder returns the indices of the configurations in an order that puts each model after its used models, and
// otherwise keeps the order of the list. An error names the setting within the list, as [2].steps.NAME.model.
func LoadOrder(configs []Config) ([]int, error) {
	byName := make(map[string]int, len(configs))
	for i, c := range configs {
		byName[c.Name] = i
	}
	order, state := make([]int, 0, len(configs)), make([]int, len(configs)) // 1: being visited, 2: in order
	var path []string
	var visit func(i int) error
	visit = func(i int) error {
		state[i] = 1
		path = append(path, configs[i].Name)
		for _, u := range configs[i].Uses() {
			k, ok := byName[u.Model]
			switch {
			case !ok || state[k] == 2:
			case state[k] == 1:
				from := slices.Index(path, u.Model)
				return coded.PrefixField(fmt.Sprintf("[%d]", i),
					circle(u.At+".model", append(slices.Clone(path[from:]), u.Model)))
			default:
				if err := visit(k); err != nil {
					return err
				}
			}
		}
		path = path[:len(path)-1]
		state[i] = 2
		order = append(order, i)
		return nil
	}
	for i := range configs {
		if state[i] == 0 {
			if err := visit(i); err != nil {
				return nil, err
			}
		}
	}
	return order, nil
}

// UnloadAll unloads a model like Unload does and, if the model is gone then, the models used by the model and by no
// other loaded model.
func (m *Manager) UnloadAll(ctx context.Context, name, version string) error {
	g, err := m.Group(name, version)
	if err != nil {
		return err
	}
	if err := m.Unload(ctx, name, version); err != nil {
		return err
	}
	if _, err := m.Group(name, ""); err == nil {
		return nil
	}
	for _, u := range g.uses {
		if _, err := m.Group(u.Model, ""); err != nil || m.isUsed(u.Model) {
			continue
		}
		if err := m.UnloadAll(ctx, u.Model, ""); err != nil {
			return err
		}
	}
	return nil
}

// isUsed reports whether a loaded model uses the model with this name.
func (m *Manager) isUsed(name string) bool {
	return slices.ContainsFunc(m.Groups(), func(g *Group) bool {
		return slices.ContainsFunc(g.uses, func(u Use) bool { return u.Model == name })
	})
}
