package server

import (
	"context"

	"millrace/ingest"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

// backend implements ingest.Backend on the server's parts.
type backend struct{ s *Server }

var (
	_ ingest.Backend    = backend{}
	_ ingest.Repository = repository{}
)

// Open implements ingest.Backend.
func (d backend) Open(model, version string, opts stream.Options, sink stream.Sink) (*stream.Stream, error) {
	if d.s.draining.Load() {
		return nil, ingest.ErrDraining
	}
	g, err := d.s.group(model, version)
	if err != nil {
		return nil, err
	}
	return g.Open(opts, sink)
}

// Models implements ingest.Backend.
func (d backend) Models() ingest.Repository { return repository(d) }

// Memory implements ingest.Backend.
func (d backend) Memory() *buf.Pool { return d.s.memory }

// State implements ingest.Backend.
func (d backend) State() ingest.State {
	st := ingest.State{
		Ready: d.s.loaded.Load(), Draining: d.s.draining.Load(), Version: d.s.version,
		Hosts: d.s.cfg.Hosts, Origins: d.s.cfg.Origins,
	}
	for _, g := range d.s.models.Snapshot() {
		st.Ready = st.Ready && g.State == workers.StateReady
	}
	return st
}

// group returns a loaded model's group. While the server starts, a model of the
// configuration that is not loaded yet is unavailable, not unknown; while the server
// drains and ends all models, none is unknown.
func (s *Server) group(model, version string) (*workers.Group, error) {
	g, err := s.models.Group(model, version)
	switch {
	case err != nil && s.draining.Load():
		return nil, ingest.ErrDraining
	case err == nil || s.loaded.Load():
		return g, err
	}
	for _, m := range s.cfg.Models {
		if m.Name == model {
			return nil, stream.Errorf(stream.Unavailable, "", "model %s is being loaded: try again in a moment", model)
		}
	}
	return nil, err
}

type repository struct{ s *Server }

// Model implements ingest.Repository.
func (r repository) Model(name, version string) (*stream.Model, bool, error) {
	g, err := r.s.group(name, version)
	if err != nil {
		return nil, false, err
	}
	return g.Model(), g.Ready(), nil
}

// Index implements ingest.Repository. While the server starts, the models of the
// configuration that are not loaded yet are being loaded.
func (r repository) Index() []ingest.Entry {
	var out []ingest.Entry
	starting := !r.s.loaded.Load() // before the models are read
	loaded := map[string]bool{}
	for _, g := range r.s.models.Snapshot() {
		loaded[g.Model.Name] = true
		out = append(out, ingest.Entry{
			Name: g.Model.Name, Version: g.Model.Version, State: g.State, Reason: g.Reason,
			Workers: g.Workers, Waiting: g.Waiting, Streams: g.Streams,
		})
	}
	if starting {
		for _, c := range r.s.cfg.Models {
			if !loaded[c.Name] {
				loaded[c.Name] = true
				out = append(out, ingest.Entry{Name: c.Name, Version: c.WithDefaults().Version, State: workers.StateLoading})
			}
		}
	}
	for _, c := range r.s.models.Known() {
		if !loaded[c.Name] {
			out = append(out, ingest.Entry{Name: c.Name, Version: c.Version, State: workers.StateUnavailable, Reason: "not loaded"})
		}
	}
	return out
}

// Load implements ingest.Repository.
func (r repository) Load(ctx context.Context, name string, how ingest.Load) (string, error) {
	switch {
	case how.Config != nil:
		return "", stream.Errorf(stream.Unsupported, "config", "cannot be set by a load request")
	case how.Files != nil:
		return "", stream.Errorf(stream.Unsupported, "file", "contents cannot be set by a load request")
	}
	return r.s.models.Load(ctx, name, how.Params)
}

// Unload implements ingest.Repository.
func (r repository) Unload(ctx context.Context, endpoint string, how ingest.Unload) error {
	if how.Dependents {
		return stream.Errorf(stream.Unsupported, "unload_dependents", "no model is made of others")
	}
	return r.s.models.Unload(ctx, endpoint)
}
