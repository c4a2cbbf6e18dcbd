package workers

import (
	"cmp"
	"maps"
	"slices"
)

// Row is one model and version in the index.
type Row struct {
	Name, Version string
	State         string
	Reason        string // why the model is not ready, or why the last load failed
	Workers       int
	Waiting       int // frames
	Streams       int
}

// Index returns the loaded, loading, failed and loadable models, by name and version: a row for each version.
func (m *Manager) Index() []Row {
	rows := map[modelVersion]Row{}
	put := func(r Row) {
		key := modelVersion{r.Name, r.Version}
		if _, there := rows[key]; !there {
			rows[key] = r
		}
	}
	m.mu.Lock()
	loading, failed, known := slices.Collect(maps.Keys(m.loading)), slices.Clone(m.failed), maps.Clone(m.known)
	m.mu.Unlock()
	for _, st := range m.Snapshot() { // after reading loading, so that each loaded model is in at least one list
		put(Row{
			Name: st.Model.Name, Version: st.Model.Version, State: st.State,
			Reason:  cmp.Or(st.Reason, failed.reason(st.Model.Name, st.Model.Version)),
			Workers: st.Workers, Waiting: st.Waiting, Streams: st.Streams,
		})
	}
	for _, of := range loading {
		put(Row{Name: of.model, Version: of.version, State: StateLoading})
	}
	for _, f := range failed {
		if f.version != "" {
			put(Row{Name: f.model, Version: f.version, State: StateUnavailable, Reason: f.reason})
		}
	}
	for _, def := range known {
		for _, c := range def.Versions {
			put(Row{Name: c.Name, Version: c.Version, State: StateUnavailable, Reason: NotLoaded})
		}
	}
	if m.opts.Repository != nil {
		listed := map[string]bool{}
		for key := range rows {
			listed[key.model] = true
		}
		for _, l := range m.opts.Repository.List() {
			if l.Version == "" && listed[l.Name] { // the folder has no versions
				continue
			}
			r := Row{Name: l.Name, Version: l.Version, State: StateUnavailable, Reason: NotLoaded}
			if l.Err != nil {
				r.Reason = l.Err.Error()
			}
			put(r)
		}
	}
	for _, f := range failed { // of a whole model: the model has no version yet, or the versions have not been loaded
		if f.version != "" {
			continue
		}
		found := false
		for key, r := range rows {
			if key.model == f.model {
				if found = true; r.Reason == NotLoaded || r.Reason == "" {
					r.Reason = f.reason
					rows[key] = r
				}
			}
		}
		if !found {
			put(Row{Name: f.model, State: StateUnavailable, Reason: f.reason})
		}
	}
	return slices.SortedFunc(maps.Values(rows), func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), CompareVersions(a.Version, b.Version))
	})
}

// NotLoaded is the reason of a model without a load.
const NotLoaded = "not loaded"
