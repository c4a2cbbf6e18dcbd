package apps

import (
	"encoding/json"
	"slices"
	"strings"

	"millrace/ingest"
	"millrace/stream"
)

// Program is a loaded model with routes of its own.
type Program struct {
	Name  string // of the model, by which the program is served
	App   *stream.App
	Model *stream.Model
	Ready bool // the model, and those that run the requests of its routes, have workers
}

// maxListed is the most names or routes that an error lists.
const maxListed = 32

// find returns the program of a name. Errors: NotFound, Unavailable (it is being loaded).
func find(models ingest.Repository, name string) (*Program, error) {
	m, ready, err := models.Model(name, "")
	if err != nil {
		if stream.CodeOf(err) != stream.NotFound {
			return nil, err
		}
		return nil, unknown(models, name)
	}
	if m.App == nil {
		return nil, stream.Errorf(stream.NotFound, "",
			"model %s has no routes of its own: call it at /v2/models/%s/infer", name, name)
	}
	return program(models, name, m, ready), nil
}

func program(models ingest.Repository, name string, m *stream.Model, ready bool) *Program {
	p := &Program{Name: name, App: m.App, Model: m, Ready: ready}
	for i := range m.App.Routes {
		if of := p.modelOf(&m.App.Routes[i]); p.Ready && of != name {
			_, ok, err := models.Model(of, "")
			p.Ready = ok && err == nil
		}
	}
	return p
}

// all returns the programs, by name. The index also has models that are not loaded.
func all(models ingest.Repository) (out []*Program) {
	var last string
	for _, e := range models.Index() {
		if e.Name == last {
			continue
		}
		last = e.Name
		if m, ready, err := models.Model(e.Name, ""); err == nil && m.App != nil {
			out = append(out, program(models, e.Name, m, ready))
		}
	}
	slices.SortFunc(out, func(a, b *Program) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(out, func(a, b *Program) bool { return a.Name == b.Name })
}

func unknown(models ingest.Repository, name string) error {
	var names []string
	for _, p := range all(models) {
		names = append(names, p.Name)
	}
	if len(names) == 0 {
		return stream.Errorf(stream.NotFound, "",
			"there is no program %.64q: no model with routes of its own is loaded", name)
	}
	return stream.Errorf(stream.NotFound, "", "there is no program %.64q: there are %s", name, listed(names))
}

func listed(names []string) string {
	if n := len(names) - maxListed; n > 0 {
		names = append(slices.Clone(names[:maxListed]), "and others")
	}
	return strings.Join(names, ", ")
}

// modelOf returns the name of the model that runs the requests of a route: of a program of
// several models, one named NAME.MODEL.
func (p *Program) modelOf(r *stream.Route) string {
	if r.Model == "" {
		return p.Name
	}
	return p.Name + "." + r.Model
}

// failedPart returns a stage or graph of the program that could not be loaded, and why: the one
// of that name if it is among them, since a graph is not tried without its stages.
func (p *Program) failedPart(models ingest.Repository, of string) (name, reason string) {
	var parts struct {
		Stages, Graphs []struct{ Name string }
	}
	if json.Unmarshal(p.App.Parts, &parts) != nil {
		return "", ""
	}
	names := map[string]string{} // of parts, by those of their models
	for _, part := range append(parts.Stages, parts.Graphs...) {
		names[p.Name+"."+part.Name] = part.Name
	}
	for _, e := range models.Index() {
		part, is := names[e.Name]
		if is && e.Reason != "" && e.Reason != notLoaded && (name == "" || part == of) {
			name, reason = part, e.Reason
		}
	}
	return name, reason
}

// notLoaded is the reason in the index of a model that nobody has tried to load.
const notLoaded = "not loaded"

// route returns the route at a path, or why there is none: nil and nil when nothing is
// declared at the path.
func (p *Program) route(method, path string) (*stream.Route, error) {
	if method == "HEAD" {
		method = "GET"
	}
	var others []string
	for i := range p.App.Routes {
		r := &p.App.Routes[i]
		switch {
		case r.Path != path:
		case r.Method == method:
			return r, nil
		case !slices.Contains(others, r.Method):
			others = append(others, r.Method)
		}
	}
	if others == nil {
		return nil, nil
	}
	return nil, &methodError{allowed: others}
}

// methodError says that a path has routes of other methods only.
type methodError struct{ allowed []string }

func (e *methodError) Error() string { return "use " + strings.Join(e.allowed, " or ") }

// noRoute is the error of a path at which the program has nothing.
func (p *Program) noRoute(path string) error {
	var routes []string
	for i := range p.App.Routes {
		routes = append(routes, p.App.Routes[i].Method+" "+p.App.Routes[i].Path)
	}
	if len(routes) == 0 {
		return stream.Errorf(stream.NotFound, "", "program %s has nothing at %.256q, and no routes", p.Name, path)
	}
	return stream.Errorf(stream.NotFound, "", "program %s has nothing at %.256q: its routes are %s", p.Name, path,
		listed(routes))
}
