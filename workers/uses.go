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

// Use is a model that another model is made of.
type Use struct {
	At      string // the setting that names it, such as steps.crop
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

// Uses returns the models that one with this configuration is made of: they must be
// loaded before it.
func (c Config) Uses() []Use {
	c = c.WithDefaults()
	kind, ok := Lookup(c.Kind)
	if !ok || kind.Uses == nil {
		return nil
	}
	settings, err := kind.Decode(c.Params)
	if err != nil {
		return nil // which Validate says
	}
	return kind.Uses(settings)
}

// Uses returns the models that the group's model is made of.
func (g *Group) Uses() []Use { return g.uses }

// chain is the key in a context of the names of the graphs whose loads wait for this one.
type chain struct{}

// loadUsed loads the models that those of a plan are made of and that can be found but are
// not loaded. Those that cannot be found are told when the plan is carried out, as circles
// are.
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

// outdated reports whether a worker has said that the model is another one than when it was loaded: only a load helps.
func (c *common) outdated() bool {
	reason := c.lacks.Load()
	return reason != nil && stream.CodeOf(*reason) == stream.Conflict
}

// unready returns why the model cannot serve although its workers run, by a worker or since a model that this one is
// made of cannot, or nil.
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

// checkUses returns an error if a model that this one is made of is not loaded, or is made
// of this one.
func (c *common) checkUses() error {
	for _, u := range c.uses {
		g, err := c.models.Group(u.Model, u.Version)
		switch path := usePath(c.models, u, c.cfg.Name, nil); {
		case path != nil:
			return circle(u.At+".model", append([]string{c.cfg.Name}, path...))
		case err != nil:
			return stream.Errorf(stream.NotFound, u.At+".model", "model %s is made of it: %w%s", c.cfg.Name, err, c.suggest(u.Model))
		case !g.Ready():
			return stream.Errorf(stream.Unavailable, u.At+".model", "model %s is not ready", u.Model)
		}
	}
	return nil
}

// suggest returns " (did you mean x?)" with the loaded model whose name is most similar to that of one that is not loaded, or "".
func (c *common) suggest(name string) string {
	names := c.models.Names()
	if slices.Contains(names, name) { // it lacks a version
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

// LoadOrder returns the indices of the configurations in an order in which each comes
// after those of the models that it is made of. The order is otherwise that of the list.
// An error names the setting within the list, as [2].steps.NAME.model.
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
				return coded.Within(fmt.Sprintf("[%d]", i), circle(u.At+".model", append(slices.Clone(path[from:]), u.Model)))
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

// UnloadAll unloads a model as Unload does and, if it is gone then, the models that it was
// made of and that no other loaded model is made of.
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

// isUsed reports whether a loaded model is made of the one with this name.
func (m *Manager) isUsed(name string) bool {
	return slices.ContainsFunc(m.Groups(), func(g *Group) bool {
		return slices.ContainsFunc(g.uses, func(u Use) bool { return u.Model == name })
	})
}
