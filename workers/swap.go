package workers

import (
	"maps"
	"slices"
	"strings"

	"millrace/internal/setting"
	"millrace/stream"
)

// swappedEndpoint returns the running endpoint whose settings a swap without a configuration keeps; nil = none.
func (m *Manager) swappedEndpoint(name string, how Load) *endpoint {
	e := (*m.endpoints.Load())[name]
	if e == nil || how.Config != nil || !isSwap(how.Params) || how.Files == nil && (!e.known || e.of != name) {
		return nil
	}
	return e
}

// withSettings returns sent, the definition of a swap's files, with the settings of e: each version gets all settings
// of the same version of e, or else of the version for requests without a version, except the choice of versions, which
// belongs to the files. e may be nil.
func (e *endpoint) withSettings(sent Definition) (*Definition, error) {
	if e == nil {
		return &sent, nil
	}
	sent.Versions = slices.Clone(sent.Versions)
	for i, file := range sent.Versions {
		g := e.version(file.Version)
		if g == nil {
			g = e.group("")
		}
		cfg := g.settings()
		if cfg.Kind != file.Kind {
			return &sent, stream.Errorf(stream.InvalidArgument, "file", "is of kind %s, and model %s is of kind %s, "+
				"whose settings a swap would keep: unload the model, and load the file under its name", file.Kind,
				e.name, cfg.Kind)
		}
		cfg.Name, cfg.Version, cfg.Source, cfg.Folder, cfg.Versions, cfg.Shadow = file.Name, file.Version, file.Source,
			file.Folder, file.Versions, file.Shadow
		sent.Versions[i] = cfg
	}
	return &sent, nil
}

// settings returns the configuration of a group, with the number of workers of the model instead of a request's
// number.
func (g *Group) settings() Config {
	cfg := g.cfg
	cfg.Instances = int(g.configuredWorkers.Load())
	return cfg
}

// sentFiles returns the definition and the files of an endpoint loaded from the files of a request; nil = no such
// files.
func (e *endpoint) sentFiles() (*Definition, *SentFiles) {
	if e == nil || len(e.groups) == 0 || e.groups[0].sent == nil {
		return nil, nil
	}
	var def Definition
	for _, g := range e.groups {
		def.Versions = append(def.Versions, g.settings())
	}
	return &def, e.groups[0].sent
}

// swapped returns the parameters of a swap, with the endpoint's parameters that the swap does not name. The number of
// workers is kept separately, because Scale may have changed the number. A swap with another configuration keeps no
// parameters.
func (e *endpoint) swapped(params stream.Params) stream.Params {
	t := new(Config).Table()
	full := func(name string) string {
		if f, ok := t.FindRequest(name); ok {
			return f.Path
		}
		return name
	}
	all := stream.Params{}
	for name, value := range e.params {
		if full(name) != "instances" {
			all[full(name)] = value
		}
	}
	for name := range params {
		if full(name) == "batching.kind" { // settings of another batcher do not stay
			common := setting.TableOf("batching", new(Batching))
			maps.DeleteFunc(all, func(name string, _ any) bool {
				_, stays := common.Find(name)
				return strings.HasPrefix(name, "batching.") && !stays
			})
		}
	}
	for name, value := range params {
		all[full(name)] = value
	}
	return all
}

// isSwap reports whether a load asks for a swap.
func isSwap(params stream.Params) bool {
	var opts loadOptions
	f, _ := setting.TableOf("", &opts).Find("swap")
	value, given := params["swap"]
	return given && f.SetRequest(value) == nil && opts.Swap
}
