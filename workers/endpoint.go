package workers

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"millrace/stream"
)

// endpoint is a served name, with a group for each version. An endpoint is immutable; a change of the versions
// publishes another endpoint.
type endpoint struct {
	name   string
	of     string        // the loaded model: the endpoint's name, perhaps without -0, -1 ...
	params stream.Params // parameters of the load request
	// known reports that params made the configuration, so that a request with the same params means this endpoint.
	// known is false for a configuration loaded by the program.
	known  bool
	groups []*Group // the highest version first
	split  *split   // of requests without a version; nil: the highest ready version
	shadow *shadow  // nil = none

	shadowing Shadow // the settings of the shadow
}

// group returns the group of a version, or nil. "" = the highest ready version, or else the highest; the shadow's
// version only if no other is left.
func (e *endpoint) group(version string) *Group {
	if version != "" {
		if i := slices.IndexFunc(e.groups, func(g *Group) bool { return g.cfg.Version == version }); i >= 0 {
			return e.groups[i]
		}
		return nil
	}
	if len(e.groups) == 1 {
		return e.groups[0]
	}
	var first *Group
	for _, g := range e.groups {
		switch {
		case e.shadowed(g):
		case g.Ready():
			return g
		case first == nil:
			first = g
		}
	}
	return first
}

// route sets how the requests that name no version are spread, by the settings of the
// highest version of the plan.
func (e *endpoint) route(old *endpoint, p plan) (err error) {
	top := slices.MaxFunc(p.Versions, func(a, b Config) int { return CompareVersions(a.Version, b.Version) })
	e.shadowing = top.Shadow
	if e.split, err = newSplit(top.Versions.Weights); err != nil {
		return err
	}
	all := map[string]bool{}
	for _, c := range p.Versions {
		all[c.Version] = true
	}
	for _, bad := range p.Unreadable {
		all[bad.Version] = true
	}
	if old != nil && p.only != "" {
		for _, v := range old.versions() {
			all[v] = true
		}
	}
	if e.split != nil {
		for i, v := range e.split.versions {
			if v == e.shadowing.Version && slices.Contains(e.split.turns, uint8(i)) {
				return stream.Errorf(stream.InvalidArgument, "versions.weights",
					"gives version %s a share of the requests, and it is the one of shadow.version, which answers "+
						"none: leave it out", v)
			}
			if !all[v] {
				return stream.Errorf(stream.InvalidArgument, "versions.weights",
					"names version %s, which model %s does not serve: see versions.latest", v, p.of)
			}
		}
		if old != nil && old.split != nil && slices.Equal(old.split.turns, e.split.turns) &&
			slices.Equal(old.split.versions, e.split.versions) {
			e.split = old.split // goes on counting
		}
	}
	if v := e.shadowing.Version; v != "" && (!all[v] || len(all) == 1) {
		return stream.Errorf(stream.InvalidArgument, "shadow.version",
			"is %s: want one of several versions that model %s serves", v, p.of)
	}
	return nil
}

// checkInputs reports an error when requests that name no version can reach versions
// with different inputs.
func (e *endpoint) checkInputs() error {
	if e.split == nil && e.shadowing.Version == "" {
		return nil
	}
	for _, g := range e.groups[1:] {
		if a, b := e.groups[0].model, g.model; !slices.EqualFunc(a.Inputs, b.Inputs, func(x, y stream.TensorSpec) bool {
			return x.Name == y.Name && x.Datatype == y.Datatype && slices.Equal(x.Shape, y.Shape)
		}) {
			return stream.Errorf(stream.InvalidArgument, "versions", "%s and %s of model %s have different inputs: "+
				"want the same ones, since versions.weights or shadow sends a request to either", a.Version, b.Version,
				e.name)
		}
	}
	if v := e.shadowing.Version; v != "" && slices.ContainsFunc(e.groups, func(g *Group) bool {
		return g.model.KeepsState()
	}) {
		return stream.Errorf(stream.InvalidArgument, "shadow.version",
			"is %s: a model that keeps state of a stream, or has windows, has no shadow", v)
	}
	return nil
}

// versions returns the versions, the highest first.
func (e *endpoint) versions() []string {
	out := make([]string, len(e.groups))
	for i, g := range e.groups {
		out[i] = g.cfg.Version
	}
	return out
}

// CompareVersions orders versions: by number where both are numbers, otherwise numbers
// before words, and words by their letters.
func CompareVersions(a, b string) int {
	x, errA := strconv.ParseUint(a, 10, 64)
	y, errB := strconv.ParseUint(b, 10, 64)
	switch {
	case errA == nil && errB == nil:
		return cmp.Or(cmp.Compare(x, y), strings.Compare(a, b))
	case errA == nil:
		return -1
	case errB == nil:
		return 1
	}
	return strings.Compare(a, b)
}

// Names returns the names of the loaded models, sorted.
func (m *Manager) Names() []string { return slices.Sorted(maps.Keys(*m.endpoints.Load())) }

// Group returns a loaded group. Version "" means the highest ready version.
func (m *Manager) Group(name, version string) (*Group, error) {
	e, ok := (*m.endpoints.Load())[name]
	if !ok {
		return nil, stream.Errorf(stream.NotFound, "model", "%q is not loaded: see the repository index", name)
	}
	if g := e.group(version); g != nil {
		return g, nil
	}
	if len(e.groups) == 1 {
		return nil, stream.Errorf(stream.NotFound, "version", "model %s has version %s, not %q", name,
			e.groups[0].cfg.Version, version)
	}
	return nil, stream.Errorf(stream.NotFound, "version", "model %s has the versions %s, not %q", name,
		strings.Join(e.versions(), ", "), version)
}

// Open opens a stream to a loaded model, like Group.Open. version is opts.Version, named by the client, or a version
// returned by Choose. While changes of the model replace the group or the chosen version, Open looks both up again.
func (m *Manager) Open(name, version string, opts stream.Options, sink stream.Sink) (*stream.Stream, error) {
	var before *Group
	for {
		g, err := m.Group(name, version)
		if err != nil && version != opts.Version { // the chosen version has gone
			version = m.Choose(name)
			continue
		}
		if err != nil {
			return nil, err
		}
		s, err := g.Open(opts, sink)
		if err == nil || g == before || stream.CodeOf(err) != stream.Unloaded {
			return s, err
		}
		before = g
	}
}

// Choose returns the version for the next request without a version, by the weights of the model's versions; "" for a
// model with one version or a model that is not loaded.
func (m *Manager) Choose(name string) string {
	e := (*m.endpoints.Load())[name]
	if e == nil || len(e.groups) == 1 {
		return ""
	}
	if e.split != nil {
		if g := e.group(e.split.next()); g != nil && g.Ready() {
			return g.cfg.Version
		}
	}
	return e.group("").cfg.Version
}

// Versions returns the loaded versions of an endpoint, the lowest first.
func (m *Manager) Versions(name string) []string {
	e := (*m.endpoints.Load())[name]
	if e == nil {
		return nil
	}
	out := e.versions()
	slices.Reverse(out)
	return out
}

// Groups returns every group, sorted by name and version.
func (m *Manager) Groups() []*Group {
	es := *m.endpoints.Load()
	out := make([]*Group, 0, len(es))
	for _, name := range slices.Sorted(maps.Keys(es)) {
		gs := es[name].groups
		for i := len(gs) - 1; i >= 0; i-- {
			out = append(out, gs[i])
		}
	}
	return out
}

// publish replaces the endpoints. edit is called under mu.
func (m *Manager) publish(edit func(map[string]*endpoint)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := maps.Clone(*m.endpoints.Load())
	edit(next)
	m.endpoints.Store(&next)
}
