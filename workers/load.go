package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"millrace/stream"
)

// Load describes how a model is loaded by name. The zero value loads the model as configured.
type Load struct {
	Params  stream.Params // override the configuration, see Overlay
	Version string        // only this version; "" = those that its configuration names
	// Config is a model configuration in JSON, as of the Open Inference Protocol's repository extension, which
	// replaces the model's own configuration; nil = the model's own.
	Config []byte
	// Files are the contents of the model's folder, by path such as 1/model.onnx, replacing the folder; nil = the
	// folder stays.
	Files map[string][]byte
	// Reserve is called when the name of the endpoint is known, before any change; there reports whether the endpoint
	// is loaded already. An error ends the load. Otherwise settle is called when the load has ended, also after a
	// failure and after the caller has given up, and told whether the endpoint exists now. nil = no call.
	Reserve func(endpoint string, there bool) (settle func(there bool), err error)
}

// Values of Loaded.Result.
const (
	ResultLoaded = "loaded" // the endpoint is new
	// the endpoint was replaced: a file or a setting has changed, a worker had failed, or a swap was requested
	ResultReloaded  = "reloaded"
	ResultScaled    = "scaled"    // only the number of workers has changed
	ResultUnchanged = "unchanged" // the endpoint has the same files, settings and workers as before
)

// Loaded is the endpoint of a load, and what the load has changed.
type Loaded struct {
	Endpoint string
	Result   string // ResultLoaded ...
}

// plan is the result of planning a load: the wanted state of an endpoint.
type plan struct {
	Definition
	of          string
	params      stream.Params
	known       bool // the configuration comes from params
	share, swap bool
	kept        *SentFiles // the files of the running endpoint, which a swap keeps; nil = none
	only        string     // load only this version, and keep the other versions unchanged
	reserve     func(endpoint string, there bool) (settle func(there bool), err error)
}

// Load loads a model by its name: a defined model, a model of the repository, or a registered kind. The parameters
// override the configuration (see Overlay): "share": false adds a worker to the endpoint with the same parameters,
// "swap": true replaces the endpoint of the same name, and parameters of earlier loads stay unless named again. An
// endpoint whose files or configuration have changed since the load is replaced. Before a graph, Load loads the
// graph's models that are not loaded. Load returns the endpoint's name and the change.
func (m *Manager) Load(ctx context.Context, name string, how Load) (Loaded, error) {
	sent, err := m.sent(name, how)
	if err != nil {
		return Loaded{}, err
	}
	p, err := m.plan(name, how, sent)
	if err == nil {
		err = m.loadUsed(ctx, p)
	}
	if err != nil {
		sent.remove()
		return Loaded{}, err
	}
	var taken atomic.Bool // p: by the change, or by a caller that has given up first
	var done Loaded       // read only after the change
	err = m.change(ctx, name, func() (err error) {
		if taken.Swap(true) {
			return context.Cause(ctx)
		}
		// the model may have changed while the load waited for its turn
		if p, err = m.plan(name, how, sent); err != nil {
			sent.remove()
			return err
		}
		if done, err = m.load(ctx, p); err != nil { // clients of other servers look for these words
			err = fmt.Errorf("load failed for model '%s': %w", name, err)
		}
		m.removeFiles(done.Endpoint, nil, p.Files)
		return err
	})
	if !taken.Swap(true) {
		sent.remove()
	}
	if err != nil {
		return Loaded{}, err
	}
	m.settleUsers(ctx, done.Endpoint)
	return done, nil
}

// loadsAtOnce is how many models LoadAll loads at once.
const loadsAtOnce = 8

// LoadAll loads models, and returns the errors of the failed loads. A graph may need other models of the list first:
// LoadAll retries failed models as long as other loads succeed. LoadAll loads several models at once, so that a hung
// load delays few models. Several goroutines at once call after when a model was loaded; the error of after becomes
// the model's error, without a retry. after may be nil.
func (m *Manager) LoadAll(ctx context.Context, names []string,
	after func(name string) error) (failed map[string]error) {
	wrong := map[string]error{} // errors of after
	for left, loaded := names, true; loaded && len(left) > 0 && ctx.Err() == nil; {
		failed = map[string]error{}
		var again []string
		errs := make([]error, len(left))
		var wg sync.WaitGroup
		var mu sync.Mutex
		turns := make(chan struct{}, loadsAtOnce)
		for i, name := range left {
			turns <- struct{}{}
			wg.Go(func() {
				defer func() { <-turns }()
				if _, errs[i] = m.Load(ctx, name, Load{}); errs[i] == nil && after != nil {
					if err := after(name); err != nil {
						mu.Lock()
						defer mu.Unlock()
						wrong[name] = err
					}
				}
			})
		}
		wg.Wait()
		for i, name := range left {
			if errs[i] != nil {
				failed[name] = errs[i]
				again = append(again, name)
			}
		}
		loaded, left = len(again) < len(left), again
	}
	if failed == nil {
		failed = map[string]error{}
	}
	maps.Copy(failed, wrong)
	return failed
}

// sent returns the definition made of the files of a load request alone; nil = the request has no files.
func (m *Manager) sent(name string, how Load) (*Definition, error) {
	if how.Files == nil {
		return nil, nil
	}
	def, err := m.find(name, how)
	return def, notFound(name, def, err)
}

// remove removes the files of a definition. d may be nil.
func (d *Definition) remove() {
	if d != nil && d.Files != nil {
		d.Files.Remove()
	}
}

// notFound returns the error of a definition in the words expected by clients of other servers.
func notFound(name string, def *Definition, err error) error {
	switch {
	case err == nil:
		return nil
	case def != nil:
		return fmt.Errorf("load failed for model '%s': %w", name, err)
	}
	return fmt.Errorf("failed to load '%s', failed to poll from model repository: %w", name, err)
}

// plan returns the plan of a load request, with the request's parameters in the configuration. sent has the request's
// files, or is nil.
func (m *Manager) plan(name string, how Load, sent *Definition) (plan, error) {
	e := m.swappedEndpoint(name, how)
	var def *Definition
	var kept *SentFiles
	var err error
	if sent != nil {
		def, err = e.withSettings(*sent)
	} else if def, kept = e.sentFiles(); def == nil {
		def, err = m.find(name, how)
	}
	if err != nil {
		return plan{}, notFound(name, def, err)
	}
	p := plan{Definition: *def, of: name, known: true, kept: kept, only: how.Version, reserve: how.Reserve}
	p.Versions = slices.Clone(p.Versions)
	if e != nil {
		how.Params = e.swapped(how.Params)
	}
	p.params = maps.Clone(how.Params)
	delete(p.params, "share")
	delete(p.params, "swap")
	if how.Version != "" {
		p.Versions = slices.DeleteFunc(p.Versions, func(c Config) bool { return c.Version != how.Version })
		if len(p.Versions) == 0 {
			err = stream.Errorf(stream.NotFound, "version", "model %s has no version %q: see the repository index",
				name, how.Version)
		}
	}
	for i := range p.Versions {
		own := max(p.Versions[i].Instances, 1)
		if err == nil {
			p.Versions[i], p.share, p.swap, err = Overlay(p.Versions[i], how.Params)
		}
		if err == nil {
			p.Versions[i].request, p.Versions[i].ownInstances = p.params, own
			err = p.Versions[i].Validate()
		}
	}
	return p, err
}

// find returns the definition of a model: from the configuration, from the repository or from the kind of worker with
// the name.
func (m *Manager) find(name string, how Load) (*Definition, error) {
	m.mu.Lock()
	known, ok := m.known[name]
	m.mu.Unlock()
	if ok && how.Config == nil && how.Files == nil {
		return &known, nil
	}
	if m.opts.Repository != nil {
		var of *Definition
		if ok {
			of = &known
		}
		if def, err := m.opts.Repository.Find(name, of, how); def != nil || err != nil {
			if err != nil {
				m.fail(modelVersion{name, ""}, err)
			}
			return def, err
		}
	}
	switch _, isKind := Lookup(name); {
	case how.Config != nil:
		return nil, stream.Errorf(stream.Unsupported, "config",
			"cannot be set by a load request: the server has no repository of models")
	case how.Files != nil:
		return nil, stream.Errorf(stream.Unsupported, "file",
			"contents cannot be sent in a load request: the server has no repository of models")
	case isKind:
		return &Definition{Versions: []Config{Config{Name: name, Kind: name}.WithDefaults()}}, nil
	}
	return nil, stream.Errorf(stream.NotFound, "model",
		"%q is neither a model of the configuration nor a kind of worker: see the repository index", name)
}

// LoadConfig loads a model. An endpoint with the same configuration is shared, or gets one more worker if share is
// false. Otherwise LoadConfig makes a new endpoint with the model's name, or name-0, name-1 ... when the name is
// taken.
func (m *Manager) LoadConfig(ctx context.Context, cfg Config, share bool) (endpoint string, err error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return "", err
	}
	var done Loaded // read only after the change
	err = m.change(ctx, cfg.Name, func() (err error) {
		done, err = m.load(ctx, plan{Definition: Definition{Versions: []Config{cfg}}, of: cfg.Name, share: share})
		return err
	})
	if err != nil {
		return "", fmt.Errorf("load %s: %w", cfg.Name, err)
	}
	m.settleUsers(ctx, done.Endpoint)
	return done.Endpoint, nil
}

// load carries out a plan, in the turn of its family.
func (m *Manager) load(ctx context.Context, p plan) (Loaded, error) {
	if p.kept != nil {
		p.Files = p.kept
	}
	if len(p.Notes) > 0 { // in one line, because equal messages are limited
		m.opts.Log.Warn("parts of a model's configuration are not used", "model", p.of, "what",
			strings.Join(p.Notes, "; "))
	}
	name, same := m.findEndpoint(p)
	if p.swap {
		name, same = p.of, (*m.endpoints.Load())[p.of]
		if same == nil {
			return Loaded{Endpoint: name}, stream.Errorf(stream.NotFound, "model",
				"%q is not loaded: see the repository index", name)
		}
	}
	if p.reserve != nil {
		settle, err := p.reserve(name, same != nil)
		if err != nil {
			return Loaded{Endpoint: name}, err
		}
		defer func() { settle((*m.endpoints.Load())[name] != nil) }()
	}
	before := same.size()
	var err error
	switch {
	case p.swap:
		err = m.apply(ctx, same, same.next(), p, true)
	case same == nil:
		err = m.apply(ctx, nil, &endpoint{name: name, of: p.of}, p, false)
	case !p.share && same.ready():
		err = m.addOne(ctx, same)
	default:
		err = m.apply(ctx, same, same.next(), p, false)
	}
	return Loaded{Endpoint: name, Result: (*m.endpoints.Load())[name].since(same, before)}, err
}

// since returns the Result of a load that turned old, with the given number of workers, into e. Either endpoint may
// be nil.
func (e *endpoint) since(old *endpoint, workers int) string {
	switch {
	case e == nil:
		return "" // the load has failed
	case old == nil:
		return ResultLoaded
	case !slices.Equal(e.groups, old.groups), e.split != old.split, e.shadowing != old.shadowing:
		return ResultReloaded
	case e.size() != workers:
		return ResultScaled
	}
	return ResultUnchanged
}

// size returns the number of workers of all versions. e may be nil.
func (e *endpoint) size() (n int) {
	if e != nil {
		for _, g := range e.groups {
			n += g.size()
		}
	}
	return n
}

// next returns the successor of endpoint e, without groups.
func (e *endpoint) next() *endpoint { return &endpoint{name: e.name, of: e.of} }

// ready reports whether one version can serve.
func (e *endpoint) ready() bool { return slices.ContainsFunc(e.groups, (*Group).Ready) }

// findEndpoint returns the name of the endpoint for a plan, and the existing endpoint, if any: loaded with the same
// parameters, or with the same configuration.
func (m *Manager) findEndpoint(p plan) (string, *endpoint) {
	es := *m.endpoints.Load()
	free, same := "", (*endpoint)(nil)
	for i := -1; free == ""; i++ {
		name := p.of
		if i >= 0 {
			name = fmt.Sprintf("%s-%d", p.of, i)
		}
		e := es[name]
		switch {
		case e == nil && (i < 0 || !m.isModel(name)):
			free = name
		case e == nil:
		case p.known && e.known && e.of == p.of && maps.Equal(e.params, p.params):
			return name, e
		case same == nil && e.serves(p.Versions):
			same = e
		}
	}
	// Endpoints before the free name may have been unloaded, so an endpoint behind the free name may have the same
	// parameters.
	for _, name := range slices.Sorted(maps.Keys(es)) {
		switch e := es[name]; {
		case e.of != p.of:
		case p.known && e.known && maps.Equal(e.params, p.params):
			return name, e
		case same == nil && e.serves(p.Versions):
			same = e
		}
	}
	if same != nil {
		return same.name, same
	}
	return free, nil
}

// isModel reports whether name is a model of the configuration or the repository.
func (m *Manager) isModel(name string) bool {
	m.mu.Lock()
	_, known := m.known[name]
	m.mu.Unlock()
	return known || m.opts.Repository != nil && slices.ContainsFunc(m.opts.Repository.List(), func(l Listed) bool {
		return l.Name == name
	})
}

// serves reports whether the endpoint has each of the configurations.
func (e *endpoint) serves(versions []Config) bool {
	for _, cfg := range versions {
		if g := e.group(cfg.Version); g == nil || !g.cfg.CanShareGroup(cfg) {
			return false
		}
	}
	return true
}

// addOne adds one worker to the version for requests without a version.
func (m *Manager) addOne(ctx context.Context, e *endpoint) error {
	g := e.group("")
	n := g.size()
	if !mayRequestWorkers(g.cfg, n+1) {
		return stream.Errorf(stream.Overloaded, "instances",
			"model %s has %d workers already: only its configuration can set more", e.name, n)
	}
	err := m.scale(ctx, g, n+1)
	if err == nil {
		g.added++
	}
	return err
}

// apply makes next, which has no groups yet, the successor of old, which may be nil; the plan's configurations become
// the versions of next. Versions of old that already match the plan stay unchanged, unless force is true. When a
// version cannot be loaded, every version of old without a replacement stays too, so that a failed load loses
// nothing.
func (m *Manager) apply(ctx context.Context, old, next *endpoint, p plan, force bool) (err error) {
	next.params, next.known = p.params, p.known
	defer func() { m.removeFiles(next.name, old, p.Files) }()
	if err := next.route(old, p); err != nil {
		m.fail(modelVersion{next.name, p.Versions[0].Version}, err)
		return err
	}
	last := old // including the failed groups, whose numbers of workers stay
	old = m.withoutFailed(old, p.Versions)
	scaled := false // a number of workers is a change, too
	if p.known && old != nil && old.known {
		_, asked := p.params["instances"]
		if scaled = asked || maps.Equal(old.params, p.params); !scaled && !force && old.serves(p.Versions) {
			next.params = old.params // the request shares an endpoint loaded by other requests with the same settings
		}
	}
	var errs []error
	for _, bad := range p.Unreadable {
		bad.Err = p.Files.Named(bad.Err)
		m.fail(modelVersion{next.name, bad.Version}, bad.Err)
		errs = append(errs, fmt.Errorf("version %s: %w", bad.Version, bad.Err))
	}
	for _, cfg := range p.Versions {
		cfg.Name = next.name
		g, err := m.version(ctx, old, last, cfg, p.Files, force, scaled)
		if err == nil {
			next.groups = append(next.groups, g)
		}
		errs = append(errs, err)
	}
	err = errors.Join(errs...)
	if len(next.groups) == 0 {
		return err
	}
	if old != nil && (p.only != "" || err != nil) {
		for _, g := range old.groups {
			if next.version(g.cfg.Version) == nil {
				next.groups = append(next.groups, g)
			}
		}
	}
	slices.SortFunc(next.groups, func(a, b *Group) int { return CompareVersions(b.cfg.Version, a.cfg.Version) })
	if unfit := next.checkInputs(); unfit != nil {
		m.fail(modelVersion{next.name, p.Versions[0].Version}, unfit)
		next.abandon(old)
		return errors.Join(err, unfit)
	}
	next.startShadow(m, old)
	m.publish(func(es map[string]*endpoint) { es[next.name] = next })
	m.replace(old, next)
	return err
}

// replace ends the groups of old that are not in next, and logs the change.
func (m *Manager) replace(old, next *endpoint) {
	had := map[*Group]bool{}
	var ends []*Group
	if old != nil {
		for _, g := range old.groups {
			if had[g] = true; !slices.Contains(next.groups, g) {
				ends = append(ends, g)
			}
		}
	}
	for _, g := range next.groups {
		swapped := slices.ContainsFunc(ends, func(o *Group) bool {
			return o.cfg.Version == g.cfg.Version || len(next.groups) == 1
		})
		if !had[g] && !swapped {
			m.logGroup("a model was loaded", g, "workers", g.Workers(), "took", g.loadTime)
		}
	}
	for _, g := range ends {
		to := next.version(g.cfg.Version)
		if to == nil {
			to = next.group("")
		}
		g.moveTo(to)
		if to.cfg.Version == g.cfg.Version || len(next.groups) == 1 {
			m.logGroup("a model was swapped", to, "workers", to.Workers(), "from", g.cfg.Version)
		} else {
			m.logGroup("a model was unloaded", g, "reason", "its version is not served any more")
		}
	}
	if old != nil {
		old.stopShadow(next)
	}
	m.follow(next.name)
}

// abandon stops the groups of e that are not in old.
func (e *endpoint) abandon(old *endpoint) {
	for _, g := range e.groups {
		if old == nil || !slices.Contains(old.groups, g) {
			g.unload(stream.ByUnload, stream.Errorf(stream.Unloaded, "", "model %s was not loaded", e.name))
		}
	}
}

// withoutFailed unloads the groups of e without workers that the new versions would replace, to free their memory,
// and returns the rest of e, or nil.
func (m *Manager) withoutFailed(e *endpoint, versions []Config) *endpoint {
	if e == nil {
		return nil
	}
	left := *e
	left.groups = slices.DeleteFunc(slices.Clone(e.groups), func(g *Group) bool {
		return g.failed() && slices.ContainsFunc(versions, func(c Config) bool { return c.Version == g.cfg.Version })
	})
	if len(left.groups) == len(e.groups) {
		return e
	}
	m.publish(func(es map[string]*endpoint) {
		if es[e.name] = &left; len(left.groups) == 0 {
			delete(es, e.name)
		}
	})
	for _, g := range e.groups {
		if !slices.Contains(left.groups, g) {
			m.removeGroup(g, stream.ByUnload, stream.Errorf(stream.Unloaded, "", "model %s was loaded again", e.name),
				"it had failed, and is loaded again")
		}
	}
	if len(left.groups) == 0 {
		e.stopShadow(nil)
		return nil
	}
	return &left
}

// version returns the group of a configuration for the successor of old: the group of old, if the configuration is
// the same, or a new group. The number of workers stays as changed at run time in last, which is old including the
// failed groups, unless the request or a new number in the configuration overrides the number.
func (m *Manager) version(ctx context.Context, old, last *endpoint, cfg Config, sent *SentFiles, force,
	scaled bool) (g *Group, err error) {
	of := modelVersion{cfg.Name, cfg.Version}
	defer func() {
		err = sent.Named(err)
		switch {
		case err == nil:
			m.succeed(of)
		case ctx.Err() == nil:
			m.fail(of, err)
		}
	}()
	var was *Group
	var before modelFiles
	if old != nil {
		if was = old.version(cfg.Version); was != nil {
			before = was.files
		}
	}
	files, err := readFiles(cfg, before)
	if err != nil {
		return nil, err
	}
	own, n, added := cmp.Or(cfg.ownInstances, cfg.Instances), cfg.Instances, 0
	if last != nil {
		if g := last.version(cfg.Version); g != nil {
			added = g.added
			if n += added; cfg.request["instances"] == nil && int(g.configuredWorkers.Load()) == own {
				n = int(g.targetWorkers.Load())
			}
		}
	}
	if was != nil && !force && !was.outdated() && was.cfg.CanShareGroup(cfg) && files.digest == before.digest {
		if err := was.checkUses(); err != nil {
			return nil, err
		}
		if (scaled || int(was.configuredWorkers.Load()) != own) && was.size() != n {
			if err := m.scale(ctx, was, n); err != nil {
				return nil, err
			}
		}
		was.files = files
		was.configuredWorkers.Store(int64(own))
		return was, nil
	}
	if g, err = m.startVersion(ctx, cfg, files, n); err != nil {
		return nil, err
	}
	g.sent, g.added = sent, added
	g.configuredWorkers.Store(int64(own))
	return g, nil
}

// removeFiles removes the files sent by requests for an endpoint and no longer used by any group of the endpoint.
func (m *Manager) removeFiles(name string, old *endpoint, sent *SentFiles) {
	all := map[*SentFiles]bool{sent: true}
	if old != nil {
		for _, g := range old.groups {
			all[g.sent] = true
		}
	}
	if e := (*m.endpoints.Load())[name]; e != nil {
		for _, g := range e.groups {
			delete(all, g.sent)
		}
	}
	delete(all, nil)
	for f := range all {
		f.Remove()
	}
}

// version returns the group of exactly that version, or nil.
func (e *endpoint) version(v string) *Group {
	i := slices.IndexFunc(e.groups, func(g *Group) bool { return g.cfg.Version == v })
	if i < 0 {
		return nil
	}
	return e.groups[i]
}

// fail remembers why a model could not be loaded, for the index.
func (m *Manager) fail(of modelVersion, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed.add(of, err.Error())
}

// Note gives the index a reason why a model may not be as configured now; nil ends the reasons of the model.
func (m *Manager) Note(model string, err error) {
	if err != nil {
		m.fail(modelVersion{model, ""}, err)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed.forget(model, "")
}

func (m *Manager) succeed(of modelVersion) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed.forget(of.model, of.version)
	if i := slices.IndexFunc(m.failed, func(f failure) bool { return f.model == of.model && f.version == "" }); i >= 0 {
		m.failed = slices.Delete(m.failed, i, i+1)
	}
}

// startVersion starts a group of n workers, unless there are too many groups.
func (m *Manager) startVersion(ctx context.Context, cfg Config, files modelFiles, n int) (*Group, error) {
	of := modelVersion{cfg.Name, cfg.Version}
	m.mu.Lock()
	groups := 0
	for _, e := range *m.endpoints.Load() {
		groups += len(e.groups)
	}
	for _, k := range m.loading {
		groups += k
	}
	if groups >= maxEndpoints {
		m.mu.Unlock()
		return nil, stream.Errorf(stream.Overloaded, "", "%d endpoints are loaded already: unload one first", groups)
	}
	m.loading[of]++
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.loading[of]--; m.loading[of] == 0 {
			delete(m.loading, of)
		}
	}()
	begun := stream.Now()
	g, err := m.newGroup(ctx, cfg, n, files)
	if err != nil {
		return nil, err
	}
	if g.staged() {
		n = 1
	}
	for i := 1; i < n && err == nil; i++ {
		if i < cfg.Instances {
			err = g.startWorker(ctx, nil) // memory is reserved already
		} else {
			err = g.addWorker(ctx)
		}
	}
	if err != nil {
		g.stop()
		return nil, err
	}
	g.loadTime = stream.Now().Sub(begun)
	return g, nil
}

// logGroup logs a change of a group, at info.
func (m *Manager) logGroup(msg string, g *Group, args ...any) {
	m.opts.Log.Info(msg, append([]any{"model", g.cfg.Name, "version", g.cfg.Version, "kind", g.cfg.Kind}, args...)...)
}

// Swap replaces the configuration of an endpoint: the endpoint's streams stay open, waiting frames move to the new
// group and frames in flight complete.
func (m *Manager) Swap(ctx context.Context, name string, cfg Config) error {
	cfg.Name = name
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return err
	}
	err := m.change(ctx, name, func() error {
		if _, err := m.Group(name, ""); err != nil {
			return err
		}
		e := (*m.endpoints.Load())[name]
		p := plan{Definition: Definition{Versions: []Config{cfg}}, of: e.of}
		return m.apply(ctx, e, e.next(), p, true)
	})
	if err == nil {
		m.settleUsers(ctx, name)
	}
	return err
}
