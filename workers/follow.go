package workers

import (
	"context"
	"fmt"
	"slices"

	"millrace/stream"
)

// form returns the properties of m that the metadata and the plan of a graph with m depend on.
func form(m *stream.Model) string {
	var image stream.ImageSpec
	if m.Image != nil {
		image = *m.Image
	}
	style := ""
	if m.App != nil {
		style = m.App.Style
	}
	return fmt.Sprintf("%+v", []any{m.Inputs, m.Outputs, image, m.AcceptsAnyInput, m.Ragged, m.KeepsState(),
		m.NeedsFullSize, m.Axis,
		m.MaxBatch, m.Policy, m.Decoupled, m.TakesCalls(), style, m.Labels, m.PictureSteps})
}

// formsOf returns the forms of the models of a graph; "" for a model that is not loaded.
func (g *Group) formsOf() []string {
	forms := make([]string, len(g.uses))
	for i, u := range g.uses {
		if of, err := g.models.Group(u.Model, u.Version); err == nil {
			forms[i] = form(of.Model())
		}
	}
	return forms
}

// stale returns the first model of a graph whose form has changed since the graph was loaded; "" = none. A
// model that is not loaded has no form: the graph is loaded again when the model is.
func (g *Group) stale() string {
	for i, now := range g.formsOf() {
		if now != "" && now != g.forms[i] {
			return g.uses[i].Model
		}
	}
	return ""
}

// follow queues a load of each graph with the endpoint name, and of the graph name itself, if the form of a
// model of the graph has changed: the metadata of the graph change, too. follow is called while a change of
// an endpoint runs, and returns at once.
func (m *Manager) follow(name string) {
	for _, e := range *m.endpoints.Load() {
		uses := func(g *Group) bool {
			return len(g.uses) > 0 && (e.name == name || slices.ContainsFunc(g.uses, func(u Use) bool {
				return u.Model == name
			}))
		}
		fits := func(g *Group) bool { return g.lacks.Load() == nil && g.stale() == "" }
		if i := slices.IndexFunc(e.groups, uses); i < 0 || !slices.ContainsFunc(e.groups, func(g *Group) bool {
			return !fits(g)
		}) {
			continue
		}
		if _, err := m.enqueue(e.name, func() error {
			m.loadStale(e.name)
			return nil
		}); err != nil && stream.CodeOf(err) != stream.Draining {
			m.markIncompatible(e, err)
		}
	}
}

// loadStale loads a graph again, with the graph's settings, if the form of a model of the graph has changed.
// A graph that the model no longer fits is not ready, and gives the reason, until a model fits again.
func (m *Manager) loadStale(name string) {
	e := (*m.endpoints.Load())[name]
	if e == nil {
		return
	}
	p := plan{Definition: Definition{Files: e.groups[0].sent}, of: e.of, params: e.params, known: e.known}
	stale := false
	for _, g := range e.groups {
		p.Versions = append(p.Versions, g.cfg)
		stale = stale || g.stale() != ""
	}
	if stale {
		if err := m.apply(context.Background(), e, e.next(), p, true); err != nil {
			m.markIncompatible(e, err)
		}
		return
	}
	for _, g := range e.groups {
		if g.lacks.Load() != nil {
			g.setUnready(nil)
			m.succeed(modelVersion{name, g.cfg.Version})
		}
	}
}

// markIncompatible makes a graph unready because a model of the graph no longer fits.
func (m *Manager) markIncompatible(e *endpoint, why error) {
	for _, g := range e.groups {
		if of := g.stale(); of != "" {
			g.setUnready(stream.Errorf(stream.Conflict, "",
				"model %s was loaded with other inputs or outputs, and this model cannot be made of it: %w", of, why))
		}
	}
	m.opts.Log.Error("a model does not fit another one that it is made of", "model", e.name, "error", why)
}

// settleUsers waits until the graphs with an endpoint are loaded again, or ctx ends. The graphs are loaded
// again also after the end of ctx.
func (m *Manager) settleUsers(ctx context.Context, name string) {
	for _, g := range m.Groups() {
		if slices.ContainsFunc(g.uses, func(u Use) bool { return u.Model == name }) {
			_ = m.Settle(ctx, g.cfg.Name)
			m.settleUsers(ctx, g.cfg.Name)
		}
	}
}
