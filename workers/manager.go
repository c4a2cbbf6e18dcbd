package workers

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"millrace/internal/codec"
	"millrace/stream"
	"millrace/stream/buf"
)

// ManagerOptions are what a Manager is made with.
type ManagerOptions struct {
	Memory *buf.Pool
	Pixels codec.Limits // of pictures, whose decoding takes memory from Memory
	Log    *slog.Logger
	Hooks  func(m *stream.Model) Hooks // called once for each group
}

// Manager has the groups. Changes of one model and of the endpoints made of it, its
// family, go through one queue and are made one after the other, so that repeated or
// contradicting requests are never carried out at the same time. Changes of other
// families do not wait for them, and reading does not wait for any. Its methods are
// safe for concurrent use.
type Manager struct {
	opts   ManagerOptions
	groups atomic.Pointer[map[string]*Group] // replaced under mu
	ledger ledger
	done   chan struct{}

	mu       sync.Mutex
	known    map[string]Config
	queues   map[string][]update // by family; an entry exists while its goroutine runs
	waiting  int                 // changes in all queues
	starting int                 // endpoints being started
	closed   bool
	wg       sync.WaitGroup // of the families' goroutines
}

type update struct {
	do    func() error
	reply chan error
}

// family returns the name without the -0, -1 ... that endpoints get. A change of a
// model can affect its family only.
func family(name string) string {
	for {
		stem := strings.TrimRight(name, "0123456789")
		if len(stem) == len(name) || !strings.HasSuffix(stem, "-") {
			return name
		}
		name = strings.TrimSuffix(stem, "-")
	}
}

// maxEndpoints is the largest number of endpoints, since clients can ask for new ones.
const maxEndpoints = 1024

// maxUpdates is the largest number of changes that wait for their turn.
const maxUpdates = 256

// NewManager returns a manager without groups.
func NewManager(opts ManagerOptions) *Manager {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	m := &Manager{opts: opts, done: make(chan struct{}), known: make(map[string]Config), queues: make(map[string][]update)}
	m.groups.Store(&map[string]*Group{})
	return m
}

// run makes the changes of a family until no change waits.
func (m *Manager) run(family string) {
	for {
		m.mu.Lock()
		q := m.queues[family]
		if len(q) == 0 {
			delete(m.queues, family)
			m.mu.Unlock()
			return
		}
		m.queues[family] = q[1:]
		m.waiting--
		m.mu.Unlock()
		q[0].reply <- q[0].do()
	}
}

// change queues a change of an endpoint or model and waits for its end. A change whose
// caller has given up before its turn is not made.
func (m *Manager) change(ctx context.Context, name string, do func() error) error {
	u := update{reply: make(chan error, 1), do: func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return do()
	}}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return stream.Errorf(stream.Draining, "", "the server is shutting down")
	}
	if m.waiting >= maxUpdates {
		m.mu.Unlock()
		return stream.Errorf(stream.Overloaded, "", "%d changes of models wait already: try later", maxUpdates)
	}
	of := family(name)
	q, runs := m.queues[of]
	m.queues[of] = append(q, u)
	m.waiting++
	if !runs {
		m.wg.Go(func() { m.run(of) })
	}
	m.mu.Unlock()
	select {
	case err := <-u.reply:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Define makes a model known by its name without loading it.
func (m *Manager) Define(cfg Config) error {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[cfg.Name] = cfg
	return nil
}

// Known returns the configurations of the models that Load can load by name.
func (m *Manager) Known() []Config {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := slices.Collect(maps.Values(m.known))
	slices.SortFunc(out, func(a, b Config) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Load loads a model by its name: one that was defined, or a registered kind. params
// override its configuration (see Overlay); "share": false adds a worker to the group
// that has the same parameters, "swap": true replaces the endpoint of that name. It
// returns the endpoint's name.
func (m *Manager) Load(ctx context.Context, name string, params stream.Params) (string, error) {
	m.mu.Lock()
	cfg, ok := m.known[name]
	m.mu.Unlock()
	if !ok {
		if _, isKind := Lookup(name); !isKind {
			return "", stream.Errorf(stream.NotFound, "model", "%q is neither a model of the configuration nor a kind of worker: see /v2/repository/index", name)
		}
		cfg = Config{Name: name, Kind: name}
	}
	cfg, share, swap, err := Overlay(cfg, params)
	if err != nil {
		return "", err
	}
	if swap {
		return name, m.Swap(ctx, name, cfg)
	}
	return m.LoadConfig(ctx, cfg, share)
}

// LoadConfig loads a model. When a group has the same configuration, it is shared, or
// gets one more worker if share is false. Otherwise a new endpoint is made; it has the
// model's name, or name-0, name-1 ... when that is taken.
func (m *Manager) LoadConfig(ctx context.Context, cfg Config, share bool) (endpoint string, err error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return "", err
	}
	var name string // read only after the change
	err = m.change(ctx, cfg.Name, func() error {
		var same *Group
		name, same = m.findEndpoint(cfg)
		if same != nil && share {
			return nil
		}
		if same != nil {
			if n := same.Workers(); !mayRequestWorkers(same.cfg, n+1) {
				return stream.Errorf(stream.Overloaded, "instances", "model %s has %d workers already: only its configuration can set more", name, n)
			}
			return m.scale(ctx, same, same.Workers()+1)
		}
		c := cfg
		c.Name = name
		return m.addEndpoint(ctx, c)
	})
	if err != nil {
		return "", fmt.Errorf("load %s: %w", cfg.Name, err)
	}
	return name, nil
}

// addEndpoint makes an endpoint unless there are too many.
func (m *Manager) addEndpoint(ctx context.Context, cfg Config) error {
	m.mu.Lock()
	if n := len(*m.groups.Load()) + m.starting; n >= maxEndpoints {
		m.mu.Unlock()
		return stream.Errorf(stream.Overloaded, "", "%d endpoints are loaded already: unload one first", n)
	}
	m.starting++
	m.mu.Unlock()
	begun := stream.Now()
	g, err := m.start(ctx, cfg)
	m.publish(func(gs map[string]*Group) {
		m.starting--
		if err == nil {
			gs[cfg.Name] = g
		}
	})
	if err == nil {
		m.logGroup("a model was loaded", g, "workers", g.Workers(), "took", stream.Now().Sub(begun))
	}
	return err
}

// logGroup logs a change of a group, at info.
func (m *Manager) logGroup(msg string, g *Group, args ...any) {
	m.opts.Log.Info(msg, append([]any{"model", g.cfg.Name, "version", g.cfg.Version, "kind", g.cfg.Kind}, args...)...)
}

// findEndpoint returns the endpoint for cfg, and the group that already serves it or
// nil. A group that failed is not shared: loading again replaces it.
func (m *Manager) findEndpoint(cfg Config) (string, *Group) {
	gs := *m.groups.Load()
	for i := -1; ; i++ {
		name := cfg.Name
		if i >= 0 {
			name = fmt.Sprintf("%s-%d", cfg.Name, i)
		}
		g, taken := gs[name]
		if !taken {
			return name, nil
		}
		if g.cfg.Same(cfg) {
			if g.Ready() {
				return name, g
			}
			m.publish(func(gs map[string]*Group) { delete(gs, name) })
			g.unload(stream.ByUnload, stream.Errorf(stream.Unloaded, "", "model %s was loaded again", name))
			m.logGroup("a model was unloaded", g, "reason", "it had failed, and is loaded again")
			return name, nil
		}
	}
}

// start makes a group with all its instances. When one of them fails, it makes none.
func (m *Manager) start(ctx context.Context, cfg Config) (*Group, error) {
	g, err := newGroup(ctx, cfg, m.opts.Memory, m.opts.Pixels, m.opts.Log, &m.ledger, m.opts.Hooks)
	if err != nil {
		return nil, err
	}
	for range cfg.Instances - 1 {
		if err := g.startWorker(ctx, nil); err != nil {
			g.stop()
			return nil, err
		}
	}
	return g, nil
}

// publish replaces the groups. edit is called under mu.
func (m *Manager) publish(edit func(map[string]*Group)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := maps.Clone(*m.groups.Load())
	edit(next)
	m.groups.Store(&next)
}

// Unload removes one worker of an endpoint. With the last one the endpoint ends: frames
// in flight complete, waiting ones end as unloaded.
func (m *Manager) Unload(ctx context.Context, endpoint string) error {
	return m.change(ctx, endpoint, func() error {
		g, err := m.Group(endpoint, "")
		if err != nil {
			return err
		}
		if n := g.Workers(); n > 1 {
			return m.scale(ctx, g, n-1)
		}
		m.removeGroup(g, stream.ByUnload, stream.Errorf(stream.Unloaded, "", "model %s was unloaded", endpoint))
		return nil
	})
}

func (m *Manager) removeGroup(g *Group, why stream.CloseReason, err error) {
	m.publish(func(gs map[string]*Group) { delete(gs, g.cfg.Name) })
	g.unload(why, err)
	m.logGroup("a model was unloaded", g, "reason", string(why))
}

// Scale sets the number of workers of an endpoint, at least one.
func (m *Manager) Scale(ctx context.Context, endpoint string, n int) error {
	if n < 1 || n > 1024 {
		return stream.Errorf(stream.InvalidArgument, "instances", "%d is not between 1 and 1024", n)
	}
	return m.change(ctx, endpoint, func() error {
		g, err := m.Group(endpoint, "")
		if err != nil {
			return err
		}
		return m.scale(ctx, g, n)
	})
}

// scale sets the number of workers of a group. After an error, those that were added
// before stay.
func (m *Manager) scale(ctx context.Context, g *Group, n int) (err error) {
	before := g.Workers()
	for g.Workers() > n {
		g.removeWorker()
	}
	for err == nil && g.Workers() < n {
		err = g.addWorker(ctx)
	}
	if after := g.Workers(); after != before {
		m.logGroup("the workers of a model were changed", g, "from", before, "to", after)
	}
	return err
}

// Swap replaces an endpoint's group by one of another configuration: its streams stay
// open, waiting frames move to the new group and frames in flight complete.
func (m *Manager) Swap(ctx context.Context, endpoint string, cfg Config) error {
	cfg.Name = endpoint
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return err
	}
	return m.change(ctx, endpoint, func() error {
		old, err := m.Group(endpoint, "")
		if err != nil {
			return err
		}
		next, err := m.start(ctx, cfg)
		if err != nil {
			return err
		}
		m.publish(func(gs map[string]*Group) { gs[endpoint] = next })
		old.moveTo(next)
		m.logGroup("a model was swapped", next, "workers", next.Workers(), "from", old.cfg.Version)
		return nil
	})
}

// Group returns a loaded group. A version of "" means any.
func (m *Manager) Group(name, version string) (*Group, error) {
	g, ok := (*m.groups.Load())[name]
	if !ok {
		return nil, stream.Errorf(stream.NotFound, "model", "%q is not loaded: see /v2/repository/index", name)
	}
	if version != "" && version != g.cfg.Version {
		return nil, stream.Errorf(stream.NotFound, "version", "model %s has version %s, not %q", name, g.cfg.Version, version)
	}
	return g, nil
}

// Groups returns every group, sorted by name.
func (m *Manager) Groups() []*Group {
	gs := *m.groups.Load()
	out := make([]*Group, 0, len(gs))
	for _, name := range slices.Sorted(maps.Keys(gs)) {
		out = append(out, gs[name])
	}
	return out
}

// Snapshot returns the statistics of every group that is loaded, sorted by name.
func (m *Manager) Snapshot() []GroupStats {
	gs := m.Groups()
	out := make([]GroupStats, 0, len(gs))
	for _, g := range gs {
		out = append(out, g.Stats())
	}
	return out
}

// Stats returns the statistics of every model and version that is loaded, that is being
// loaded or unloaded, or that was unloaded within the last five minutes (the last 32 of
// these): sorted by both, so that nothing that was counted is missed.
func (m *Manager) Stats() []GroupStats { return m.ledger.stats(stream.Now()) }

// Close drains: streams are closed, waiting frames end as draining, frames in flight
// complete. Later changes are refused. It returns when every worker that does not hang
// has stopped, or with ctx's error.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	if !m.closed {
		m.closed = true
		go func() { // no new queue is made from here on; the present ones may take long
			m.wg.Wait()
			m.closeAll()
			close(m.done)
		}()
	}
	m.mu.Unlock()
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close models: %w", context.Cause(ctx))
	}
}

func (m *Manager) closeAll() {
	var wg sync.WaitGroup
	for _, g := range *m.groups.Load() {
		wg.Go(func() { m.endGroup(g) })
	}
	wg.Wait()
	m.groups.Store(&map[string]*Group{})
}

func (m *Manager) endGroup(g *Group) {
	g.unload(stream.ByDrain, stream.Errorf(stream.Draining, "", "the server is shutting down"))
	m.logGroup("a model was unloaded", g, "reason", string(stream.ByDrain))
}
