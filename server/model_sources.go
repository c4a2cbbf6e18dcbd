package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"millrace/apps/modelsource"
	"millrace/apps/source"
	"millrace/config"
	"millrace/internal/modelurl"
	"millrace/internal/secret"
	"millrace/stream"
	"millrace/workers"
)

// fetchesAtOnce is how many sources are fetched at once.
const fetchesAtOnce = 4

// ModelSources has the files of the models and the repository that a configuration names by addresses. The methods
// Local, Drop and Close are safe for concurrent use.
type ModelSources struct {
	log        *slog.Logger
	cache      *modelsource.Cache
	repository *modelsource.Repository // nil = the repository has no address
	state      *modelsource.Source     // of the repository; nil = not fetched

	mu     sync.Mutex
	placed map[string]placed // by the names of the models
}

// placed is the files of a model.
type placed struct {
	address string
	path    string
	source  *modelsource.Source
	remove  func()
}

func (p *placed) drop() {
	p.remove()
	p.source.Release()
}

// OpenModelSources opens the cache of a configuration, and checks the addresses without a connection. Without addresses
// the result is nil. progress may be nil.
func OpenModelSources(cfg *Config, log *slog.Logger, progress func(modelsource.Progress)) (*ModelSources, error) {
	if len(cfg.Addresses()) == 0 {
		return nil, nil
	}
	c := cfg.ModelSources
	o := modelsource.Options{Dir: c.Cache, Size: c.Size, MaxSize: c.MaxSize, Timeout: c.Timeout, Offline: c.Offline,
		Private: c.AllowPrivate, CA: c.CA, SSHKey: c.SSHKey, Agent: os.Getenv("SSH_AUTH_SOCK"),
		Log: log, Progress: progress}
	if o.GitToken = os.Getenv(source.EnvToken); o.GitToken != "" {
		var err error
		if o.GitHost, err = gitHost(cfg); err != nil {
			return nil, err
		}
	}
	for _, t := range c.TokenList() {
		value := os.Getenv(t.Variable)
		if value == "" {
			return nil, stream.Errorf(stream.InvalidArgument, "model_sources.tokens",
				"names the variable %s for %s, which is empty or not set", t.Variable, t.Host)
		}
		o.Tokens = append(o.Tokens, modelsource.Token{User: t.User, Host: t.Host, Secret: value})
	}
	key, err := secret.Read(cfg.Tasks.S3.SecretKey)
	if err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "tasks.s3.secret_key", "%w", err)
	}
	s3 := cfg.Tasks.S3
	o.S3 = modelsource.S3{Endpoint: s3.Endpoint, Region: s3.Region, AccessKey: s3.AccessKey, SecretKey: key, CA: s3.CA}
	cache, err := modelsource.Open(o)
	if err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "model_sources.cache", "%w", err)
	}
	m := &ModelSources{log: log, cache: cache, placed: map[string]placed{}}
	if modelurl.Is(cfg.Repository.Dir) {
		u, err := cache.Parse(cfg.Repository.Dir)
		if err == nil {
			m.repository, err = cache.Repository(u)
		}
		if err != nil {
			return nil, errors.Join(stream.Errorf(stream.InvalidArgument, "model_repository", "%s: %w",
				modelurl.Mask(cfg.Repository.Dir), err), m.Close())
		}
	}
	for i := range cfg.Models {
		if err := m.check(&cfg.Models[i]); err != nil {
			return nil, errors.Join(within(fmt.Sprintf("models[%d]", i), err), m.Close())
		}
	}
	return m, nil
}

// gitHost returns the host that gets the token of source.EnvToken, as HOST:PORT: the only Git host of the addresses.
// "" = no host. Among several hosts an entry of model_sources.tokens names the host.
func gitHost(cfg *Config) (string, error) {
	entries := cfg.ModelSources.TokenList()
	if slices.ContainsFunc(entries, func(t config.ModelToken) bool { return t.Variable == source.EnvToken }) {
		return "", nil
	}
	var hosts []string
	lacks := false
	for _, address := range cfg.Addresses() {
		u, err := modelurl.Parse(address)
		if err != nil || u.Scheme != modelurl.Git {
			continue // refused later, or without this token
		}
		s, err := source.Parse(u.Base)
		if err != nil {
			continue
		}
		hostPort, host := s.Host()
		if at := strings.ToLower(hostPort); host != "" && !slices.Contains(hosts, at) {
			hosts = append(hosts, at)
			lacks = lacks || !slices.ContainsFunc(entries, func(t config.ModelToken) bool {
				return t.Host == hostPort || t.Host == host
			})
		}
	}
	if len(hosts) > 1 && lacks {
		return "", stream.Errorf(stream.InvalidArgument, "model_sources.tokens", "%s is set, and addresses name the "+
			"Git hosts %s: add the host of the token, such as %s=%s", source.EnvToken, strings.Join(hosts, " and "),
			hosts[0], source.EnvToken)
	}
	return strings.Join(hosts, ""), nil
}

// SourceVariables returns the variables that have credentials for the addresses of a configuration. Child processes
// must not get these variables.
func SourceVariables(cfg *Config) (names []string) {
	if len(cfg.Addresses()) == 0 {
		return nil
	}
	for _, t := range cfg.ModelSources.TokenList() {
		names = append(names, t.Variable)
	}
	return append(names, source.EnvToken, "SSH_AUTH_SOCK")
}

// check checks the address of a model.
func (m *ModelSources) check(of *workers.Config) error {
	if !modelurl.Is(of.Source) {
		return nil
	}
	if _, err := m.cache.Parse(of.Source); err != nil {
		return stream.Errorf(stream.InvalidArgument, "source", "%s: %w", modelurl.Mask(of.Source), err)
	}
	return nil
}

// Close removes the folders with the files. The files stay in the cache.
func (m *ModelSources) Close() error {
	if m == nil {
		return nil
	}
	return m.cache.Close()
}

// FolderOf returns the folder of the repository of a configuration. The folder of an address is empty until
// UpdateRepository.
func (m *ModelSources) FolderOf(cfg *Config) string {
	if m == nil || m.repository == nil {
		return cfg.Repository.Dir
	}
	return m.repository.Dir
}

// UpdateRepository fetches the repository of an address. changed = the folder differs from the folder of the last call.
// Only one call at a time is allowed.
func (m *ModelSources) UpdateRepository(ctx context.Context) (now *modelsource.Source, changed bool, err error) {
	if m == nil || m.repository == nil {
		return nil, false, nil
	}
	now, err = m.repository.Update(ctx)
	if err != nil {
		return nil, false, stream.Errorf(stream.Unavailable, "model_repository", "%w", err)
	}
	changed = m.state == nil || m.state.Digest != now.Digest
	m.state = now
	return now, changed, nil
}

// Fetch fetches the sources of models into the cache, several at once, so that Local finds the models there. Local has
// the errors.
func (m *ModelSources) Fetch(ctx context.Context, models []workers.Config) {
	var all sync.WaitGroup
	turns := make(chan struct{}, fetchesAtOnce)
	seen := map[string]bool{}
	for _, of := range models {
		if !modelurl.Is(of.Source) || m == nil {
			continue
		}
		u, err := m.cache.Parse(of.Source)
		if err != nil || seen[u.Source()] {
			continue
		}
		seen[u.Source()] = true
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			if s, err := m.cache.Get(ctx, u); err == nil {
				s.Release()
			}
		})
	}
	all.Wait()
}

// Local returns the configuration of a model with the local file in place of the address, and the state of the source;
// without an address, the configuration as it is, and nil. The caller calls used when the load of the model has ended:
// used removes the files of before, or after a failed load the new files.
func (m *ModelSources) Local(ctx context.Context, of workers.Config) (local workers.Config, state *modelsource.Source,
	used func(loaded bool), err error) {
	if !modelurl.Is(of.Source) {
		return of, nil, func(loaded bool) {
			if loaded {
				m.Drop(of.Name)
			}
		}, nil
	}
	if state, err = m.get(ctx, &of); err == nil {
		local, used, err = m.place(of, state)
	}
	return local, state, used, err
}

// get fetches the source of a model.
func (m *ModelSources) get(ctx context.Context, of *workers.Config) (*modelsource.Source, error) {
	if m == nil {
		return nil, stream.Errorf(stream.Unavailable, "source", "is an address, and the server was started without "+
			"addresses: start the server again")
	}
	if err := m.check(of); err != nil {
		return nil, err
	}
	u, err := m.cache.Parse(of.Source)
	if err != nil {
		return nil, err
	}
	s, err := m.cache.Get(ctx, u)
	if err != nil {
		return nil, stream.Errorf(stream.Unavailable, "source", "%w", err)
	}
	return s, nil
}

// place makes the files of a source a folder of the model. used is that of Local.
func (m *ModelSources) place(of workers.Config, s *modelsource.Source) (local workers.Config, used func(loaded bool),
	err error) {
	path, remove, err := s.Place(of.Name)
	if err != nil {
		s.Release()
		return of, nil, stream.Errorf(stream.InvalidArgument, "source", "%w", err)
	}
	local = of.WithDefaults() // with the kind of the address
	local.Source, local.Poll = path, 0
	next := placed{of.Source, path, s, remove}
	return local, func(loaded bool) {
		if !loaded {
			next.drop()
			return
		}
		m.mu.Lock()
		before, had := m.placed[of.Name]
		m.placed[of.Name] = next
		m.mu.Unlock()
		if had {
			before.drop()
		}
	}, nil
}

// Drop removes the files of a model, whose source is no address any more, or that was unloaded.
func (m *ModelSources) Drop(name string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	p, had := m.placed[name]
	delete(m.placed, name)
	m.mu.Unlock()
	if had {
		p.drop()
	}
}

// now returns the files of a model.
func (m *ModelSources) now(name string) (placed, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.placed[name]
	return p, ok
}

// LogState logs that the files of a source may not be the present ones.
func (m *ModelSources) LogState(what, name string, s *modelsource.Source) {
	if s != nil && s.Stale != nil {
		m.log.Warn("a model source cannot be reached: the state of the cache is served", what, name, "source",
			s.URL.String(), "revision", s.Revision, "error", s.Stale)
	}
}

// polls are the looks for new states of models.
type polls struct {
	due     map[string]time.Time // by the names of the models
	failing map[string]string    // the last error, by the names of the models
	refused map[string]refusal   // states that could not be loaded, by the names of the models
	changed chan struct{}        // the configuration has changed
}

// refusal is a state of a source that could not be loaded.
type refusal struct {
	digest string
	again  time.Time // of the next attempt
}

// noPoll is the time until the next look when no model has one.
const noPoll = time.Hour

// pollModels loads models again whose sources have changed, until ctx ends.
func (l *loader) pollModels(ctx context.Context) {
	if l.sources == nil {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.polls.changed:
		case <-timer.C:
		}
		now := time.Now()
		next, due := now.Add(noPoll), map[string]time.Time{}
		for _, m := range l.configured.list() {
			if m.Poll <= 0 {
				continue
			}
			at, known := l.polls.due[m.Name]
			if !known {
				at = now.Add(m.Poll)
			}
			if !now.Before(at) {
				l.pollModel(ctx, m)
				at = time.Now().Add(m.Poll)
			}
			due[m.Name] = at
			if at.Before(next) {
				next = at
			}
		}
		l.polls.due = due
		timer.Reset(time.Until(next))
	}
}

// pollModel loads a model again if its source has changed.
func (l *loader) pollModel(ctx context.Context, m workers.Config) {
	if _, err := l.models.Group(m.Name, ""); err != nil {
		return // unloaded by a request
	}
	before, had := l.sources.now(m.Name)
	fail := func(err error) {
		if ctx.Err() == nil && !l.life.isDraining() && l.polls.failing[m.Name] != err.Error() {
			l.polls.failing[m.Name] = err.Error()
			l.models.Note(m.Name, err)
			l.log.Error("the new state of a model source cannot be loaded: the previous state stays in service",
				"model", m.Name, "error", err)
		}
	}
	state, err := l.sources.get(ctx, &m)
	switch {
	case err != nil:
		fail(err)
		return
	case state.Stale != nil:
		state.Release()
		fail(state.Stale)
		return
	case had && before.address == m.Source && before.source.Digest == state.Digest:
		state.Release()
		if l.polls.failing[m.Name] != "" {
			delete(l.polls.failing, m.Name)
			l.models.Note(m.Name, nil)
		}
		return
	}
	if r := l.polls.refused[m.Name]; r.digest == state.Digest && time.Now().Before(r.again) {
		state.Release()
		return
	}
	local, used, err := l.sources.place(m, state)
	if err != nil {
		fail(err)
		return
	}
	defer l.configured.lockReload()()
	if !slices.ContainsFunc(l.configured.list(), func(c workers.Config) bool {
		return c.Name == m.Name && c.Source == m.Source
	}) {
		used(false) // changed by a reload
		return
	}
	began := time.Now()
	err = l.models.Define(local)
	if err == nil {
		if _, err = l.models.Load(ctx, m.Name, workers.Load{}); err == nil {
			err = l.programs.sync(ctx, m.Name)
		}
	}
	if err != nil {
		if had { // requests load the state before
			local.Source = before.path
			err = errors.Join(err, l.models.Define(local))
		}
		used(false)
		l.polls.refused[m.Name] = refusal{state.Digest, time.Now().Add(maxRetry)}
		fail(err)
		return
	}
	used(true)
	delete(l.polls.failing, m.Name)
	delete(l.polls.refused, m.Name)
	l.log.Info("a model was loaded again, because its source has changed", "model", m.Name, "source",
		state.URL.String(), "revision", state.Revision, "took", time.Since(began))
}

// updateRepository fetches the repository of an address. changed = its folder differs.
func (l *loader) updateRepository(ctx context.Context) (changed bool, err error) {
	now, changed, err := l.sources.UpdateRepository(ctx)
	if err != nil || now == nil {
		return false, err
	}
	if now.Stale != nil && !changed {
		return false, now.Stale
	}
	l.sources.LogState("setting", "model_repository", now)
	if changed {
		l.log.Info("the model repository has a new state", "source", now.URL.String(), "revision", now.Revision)
	}
	return changed, nil
}

// lookups returns the looks for states of sources, by outcome.
func (m *ModelSources) lookups() map[string]uint64 {
	if m == nil {
		return nil
	}
	c := m.cache.Counts()
	return map[string]uint64{"fetched": c.Fetched, "current": c.Current, "failed": c.Failed}
}
