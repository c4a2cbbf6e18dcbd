package server

import (
	"cmp"
	"context"
	"slices"

	"millrace/ingest"
	"millrace/ingest/inference"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
	"millrace/workers/repository"
)

// backend implements ingest.Backend on the server's parts.
type backend struct{ s *Server }

var (
	_ ingest.FileBackend = backend{}
	_ ingest.Repository  = repositoryOf{}
)

// Open implements ingest.Backend.
func (d backend) Open(model, version string, opts stream.Options, sink stream.Sink) (*stream.Stream, error) {
	if d.s.life.isDraining() {
		return nil, ingest.ErrDraining
	}
	if !opts.OneShot { // ingest has already chosen the version of one-shot requests
		if opts.Version = version; version == "" {
			version = d.s.models.Choose(model)
		}
	}
	s, err := d.s.models.Open(model, version, opts, sink)
	return s, d.s.known(model, err)
}

// RunFile implements ingest.FileBackend.
func (d backend) RunFile(ctx context.Context, model, version string, f *stream.FileRun) error {
	if d.s.life.isDraining() {
		return ingest.ErrDraining
	}
	if version == "" {
		version = d.s.models.Choose(model)
	}
	g, err := d.s.group(model, version)
	if err != nil {
		return err
	}
	return g.RunFile(ctx, f)
}

// Models implements ingest.Backend.
func (d backend) Models() ingest.Repository { return repositoryOf(d) }

// Memory implements ingest.Backend.
func (d backend) Memory() *buf.Pool { return d.s.memory }

// Sequences implements ingest.Backend.
func (d backend) Sequences() *ingest.Sequences { return d.s.sequences }

// State implements ingest.Backend.
func (d backend) State() ingest.State {
	st := ingest.State{
		Started: d.s.life.isLoaded(), Draining: d.s.life.isDraining(), Version: d.s.cfg.Version, Name: d.s.cfg.Name,
		Hosts: d.s.cfg.Hosts, Origins: d.s.cfg.Origins, Live: d.s.models.Live(),
	}
	st.Ready = st.Started
	for _, g := range d.s.models.Snapshot() {
		st.Ready = st.Ready && g.State == workers.StateReady
		st.Failed = st.Failed || g.Exhausted
	}
	if st.Started && d.s.programs.rootMissing() {
		st.Ready, st.Failed = false, true
	}
	return st
}

// group returns a loaded model's group.
func (s *Server) group(model, version string) (*workers.Group, error) {
	g, err := s.models.Group(model, version)
	return g, s.known(model, err)
}

// known returns err, or replaces NotFound by the reason why a model is not available: while the server starts, a
// model of the configuration that is not loaded yet is unavailable; while the server drains, no model is unknown.
func (s *Server) known(model string, err error) error {
	switch {
	case err == nil || stream.CodeOf(err) != stream.NotFound:
		return err
	case s.life.isDraining():
		return ingest.ErrDraining
	case s.life.isLoaded():
		return err
	}
	for _, m := range s.configured.list() {
		if m.Name == model {
			return stream.Errorf(stream.Unavailable, "", "model %s is being loaded: try again in a moment", model)
		}
	}
	return err
}

type repositoryOf struct{ s *Server }

// Model implements ingest.Repository.
func (r repositoryOf) Model(name, version string) (*stream.Model, bool, error) {
	g, err := r.s.group(name, version)
	if err != nil {
		return nil, false, err
	}
	return g.Model(), g.Ready(), nil
}

// Choose implements ingest.Repository.
func (r repositoryOf) Choose(name string) string { return r.s.models.Choose(name) }

// Versions implements ingest.Repository.
func (r repositoryOf) Versions(name string) []string { return r.s.models.Versions(name) }

// Index implements ingest.Repository. While the server starts, the models of the configuration without a load are
// listed as loading.
func (r repositoryOf) Index() []ingest.Entry {
	starting := map[string]bool{}
	if !r.s.life.isLoaded() { // before the models are read
		for _, c := range r.s.configured.list() {
			starting[c.Name] = true
		}
	}
	var out []ingest.Entry
	for _, e := range r.s.models.Index() {
		if e.Reason == workers.NotLoaded && starting[e.Name] {
			e.State, e.Reason = workers.StateLoading, ""
		}
		out = append(out, ingest.Entry(e))
	}
	return out
}

// Config implements ingest.Repository.
func (r repositoryOf) Config(name, version string) ([]byte, error) {
	g, err := r.s.group(name, version)
	if err != nil {
		return nil, err
	}
	return inference.AppendMessage(nil, repository.Config(g, r.s.models.Versions(name)).ProtoReflect()), nil
}

// Load implements ingest.Repository.
func (r repositoryOf) Load(ctx context.Context, name string, how ingest.Load) (ingest.Loaded, error) {
	loaded, err := r.s.models.Load(ctx, name, workers.Load(how))
	return ingest.Loaded(loaded), r.s.programs.follow(ctx, cmp.Or(loaded.Endpoint, name), err)
}

// Scale implements ingest.Repository.
func (r repositoryOf) Scale(ctx context.Context, endpoint string, instances int) error {
	g, err := r.s.group(endpoint, "")
	if err != nil {
		return err
	}
	if err := workers.CheckRequested(g.Config(), instances); err != nil {
		return err
	}
	return r.s.programs.scale(ctx, endpoint, instances)
}

// Unload implements ingest.Repository.
func (r repositoryOf) Unload(ctx context.Context, endpoint string, how ingest.Unload) (err error) {
	if how.Dependents {
		err = r.s.models.UnloadAll(ctx, endpoint, how.Version)
	} else {
		err = r.s.models.Unload(ctx, endpoint, how.Version)
	}
	err = r.s.programs.follow(ctx, endpoint, err)
	known := func(row workers.Row) bool { return row.Name == endpoint }
	if stream.CodeOf(err) == stream.NotFound && how.Version == "" && slices.ContainsFunc(r.s.models.Index(), known) {
		return nil // unloading is idempotent: scripts unload models without knowing whether the models are loaded
	}
	return err
}
