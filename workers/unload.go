package workers

import (
	"context"
	"slices"

	"millrace/stream"
)

// Unload undoes one load of an endpoint: an added worker goes alone, the last added first; then the whole endpoint
// goes. With a version, only the version goes. Frames in flight complete, waiting frames end as unloaded.
func (m *Manager) Unload(ctx context.Context, name, version string) error {
	return m.change(ctx, name, func() error {
		if version == "" { // the index no longer lists the failed load either
			m.mu.Lock()
			m.failed.forget(name, "")
			m.mu.Unlock()
		}
		g, err := m.Group(name, version)
		if err != nil {
			return err
		}
		e := (*m.endpoints.Load())[name]
		if n := g.size(); g.added > 0 && n > 1 {
			g.added--
			return m.scale(ctx, g, n-1)
		}
		next := *e
		next.groups = slices.DeleteFunc(slices.Clone(e.groups), func(x *Group) bool { return version == "" || x == g })
		m.publish(func(es map[string]*endpoint) {
			if es[name] = &next; len(next.groups) == 0 {
				delete(es, name)
			}
		})
		next.startShadow(m, e)
		e.stopShadow(&next)
		for _, g := range e.groups {
			if !slices.Contains(next.groups, g) {
				m.removeGroup(g, stream.ByUnload, stream.Errorf(stream.Unloaded, "", "model %s was unloaded", name),
					string(stream.ByUnload))
			}
		}
		m.removeFiles(name, e, nil)
		return nil
	})
}

// Remove unloads all endpoints loaded under a name, and forgets the failure of the last load.
func (m *Manager) Remove(ctx context.Context, name string) error {
	m.mu.Lock()
	m.failed.forget(name, "")
	m.mu.Unlock()
	for {
		if err := m.Unload(ctx, name, ""); err != nil {
			if stream.CodeOf(err) == stream.NotFound {
				return nil
			}
			return err
		}
	}
}

func (m *Manager) removeGroup(g *Group, why stream.CloseReason, err error, reason string) {
	g.unload(why, err)
	m.logGroup("a model was unloaded", g, "reason", reason)
}
