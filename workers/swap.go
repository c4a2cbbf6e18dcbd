package workers

import (
	"maps"
	"strings"

	"millrace/internal/setting"
	"millrace/stream"
)

// kept returns the running endpoint whose settings a load keeps: a swap without a file and a configuration of its own; nil = none.
func (m *Manager) kept(name string, how Load) *endpoint {
	e := (*m.endpoints.Load())[name]
	if e == nil || !e.known || e.of != name || how.Config != nil || how.Files != nil || !asksSwap(how.Params) {
		return nil
	}
	return e
}

// sentFiles returns the definition and the files of an endpoint whose files a request has sent; nil = none has.
func (e *endpoint) sentFiles() (*Definition, *SentFiles) {
	if e == nil || len(e.groups) == 0 || e.groups[0].sent == nil {
		return nil, nil
	}
	var def Definition
	for _, g := range e.groups {
		def.Versions = append(def.Versions, g.cfg)
	}
	return &def, e.groups[0].sent
}

// swapped returns the parameters of a swap, with the parameters of the endpoint that the swap does not name. The number of workers stays by
// itself, as Scale may have changed it. A swap with another file or configuration keeps no parameters.
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
			common := setting.Of("batching", new(Batching))
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

// asksSwap reports whether a load asks for a swap.
func asksSwap(params stream.Params) bool {
	var opts loadOptions
	f, _ := setting.Of("", &opts).Find("swap")
	value, given := params["swap"]
	return given && f.SetRequest(value) == nil && opts.Swap
}
