package workers

import (
	"context"

	"millrace/stream"
)

// Scale sets the number of workers of an endpoint, at least one.
func (m *Manager) Scale(ctx context.Context, name string, n int) error {
	if n < 1 || n > 1024 {
		return stream.Errorf(stream.InvalidArgument, "instances", "%d is not between 1 and 1024", n)
	}
	return m.change(ctx, name, func() error {
		g, err := m.Group(name, "")
		if err != nil {
			return err
		}
		g.added = 0
		return m.scale(ctx, g, n)
	})
}

// scale sets the number of workers of a group; for a program of several stages, the factor for the workers of the
// stages, whose change is up to the caller. After an error, the workers already added stay.
func (m *Manager) scale(ctx context.Context, g *Group, n int) (err error) {
	if g.staged() {
		g.targetWorkers.Store(int32(n))
		return nil
	}
	before := g.Workers()
	for g.Workers() > n {
		g.removeWorker()
	}
	for err == nil && g.Workers() < n {
		err = g.addWorker(ctx)
	}
	after := g.Workers()
	if g.targetWorkers.Store(int32(n)); err != nil {
		g.targetWorkers.Store(int32(after))
	}
	if after != before {
		m.logGroup("the workers of a model were changed", g, "from", before, "to", after)
	}
	return err
}
