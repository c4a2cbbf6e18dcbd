package server

import (
	"context"
	"slices"
	"strings"

	"millrace/config"
	"millrace/ingest"
	"millrace/internal/modelurl"
	"millrace/stream"
	"millrace/workers"
)

// definer implements ingest.Definer.
type definer struct{ s *Server }

var _ ingest.Definer = definer{}

// Define implements ingest.Definer.
func (d definer) Define(name, source, settings string) error {
	if modelurl.Is(source) {
		return stream.Errorf(stream.PermissionDenied, "source", "is an address: only the configuration names addresses")
	}
	kind, _, err := workers.KindOf(source)
	if err != nil {
		return err
	}
	spec := "m=" + kind // name and source may be a client's, and are no part of the text
	if settings != "" {
		spec += "," + settings
	}
	m, err := config.ParseModel(spec)
	if err != nil {
		return err
	}
	m.Name, m.Source = name, source
	if image, is := strings.CutPrefix(source, "container://"); is {
		if err := d.s.children.checkImage(image); err != nil {
			return err
		}
	}
	defer d.s.configured.lockNames()()
	_, isKind := workers.Lookup(name)
	if isKind || d.s.configured.has(name) || slices.ContainsFunc(d.s.models.Index(), func(r workers.Row) bool {
		return r.Name == name
	}) {
		return stream.Errorf(stream.Conflict, "name", "there is a model %.128q: choose another name", name)
	}
	return d.s.models.Define(m)
}

// Forget implements ingest.Definer.
func (d definer) Forget(ctx context.Context, name string) error {
	d.s.models.Forget(name)
	err := d.s.models.Remove(ctx, name)
	if stream.CodeOf(err) == stream.NotFound {
		return nil
	}
	return err
}
