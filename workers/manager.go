package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/codec"
	"millrace/internal/confine"
	"millrace/internal/processors"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/stream/coded"
)

// ManagerOptions are what a Manager is made with.
type ManagerOptions struct {
	Memory *buf.Pool
	Pixels codec.Limits // of pictures, whose decoding takes memory from Memory
	Log    *slog.Logger
	Hooks  func(m *stream.Model) Hooks // called once for each group
	// Programs confines workers that are child processes; nil = they may do what this process can.
	Programs *confine.Programs
	// Public returns an error for an address of another server that a load request must not name; nil = it may name
	// every address.
	Public func(netip.Addr) error
	// Repository has the models that can be loaded by name without being defined; nil =
	// none.
	Repository Repository
}

// Repository finds models that are in no configuration. Its methods are safe for
// concurrent use.
type Repository interface {
	// Find returns the versions of a model that are to be served, or nil when there is no
	// such model, or an error when none of them can be read; with a definition when they
	// are known. known is the model's definition in the configuration, or nil. With
	// Config or Files in how, these take the place of what is there.
	Find(name string, known *Definition, how Load) (*Definition, error)
	// List returns the names and versions that there are.
	List() []Listed
}

// Listed is a model that can be loaded.
type Listed struct {
	Name, Version string
	Err           error // why it cannot be loaded as it is, or nil
}

// SentFiles are files that a load request has sent. They are removed when no version
// that was loaded from them is served any more.
type SentFiles struct {
	Folder string // of the model
	Remove func() // may be called more than once
}

// Named returns err with the files under the names that the request gave them, such as 1/model.onnx, instead of where the
// server stores them. s may be nil.
func (s *SentFiles) Named(err error) error {
	if s == nil || err == nil || !strings.Contains(err.Error(), s.Folder) {
		return err
	}
	if all, before := coded.Joined(err); all != nil && !strings.Contains(before, s.Folder) {
		named := make([]error, len(all))
		for i, err := range all {
			named[i] = s.Named(err)
		}
		if err = errors.Join(named...); before != "" {
			err = fmt.Errorf("%s%w", before, err)
		}
		return err
	}
	text := strings.ReplaceAll(strings.ReplaceAll(err.Error(), s.Folder+string(filepath.Separator), ""), s.Folder, "the folder of the model")
	var e *coded.Error
	if !errors.As(err, &e) {
		return errors.New(text)
	}
	field := e.Field
	msg, ok := strings.CutPrefix(text, field+": ")
	if !ok { // others stand around it
		field, msg = "", text
	}
	return &coded.Error{Code: e.Code, Field: field, Msg: msg, Err: err, After: e.After}
}

// Definition is what is loaded under a model's name: a configuration for each version.
type Definition struct {
	Versions []Config // at least one, all with the model's name
	Bad      []Listed // further versions that should be served and cannot be read, with Err
	Notes    []string // what of the model's configuration is not used, for the log
	// Files are the files that a load request has sent; nil = none.
	Files *SentFiles
}

// Manager has the groups. Changes of one model and of the endpoints made of it, its
// family, go through one queue and are made one after the other, so that repeated or
// contradicting requests are never carried out at the same time. Changes of other
// families do not wait for them, and reading does not wait for any. Its methods are
// safe for concurrent use.
type Manager struct {
	opts      ManagerOptions
	endpoints atomic.Pointer[map[string]*endpoint] // by name; replaced under mu
	ledger    ledger
	done      chan struct{}
	decoders  chan struct{} // common.decoders
	stopBy    atomic.Int64  // Instant until which Close waits; 0 = for as long as it takes

	mu      sync.Mutex
	known   map[string]Definition
	failed  failures
	loading map[modelVersion]int // groups being started
	queues  map[string][]update  // by family; an entry exists while its goroutine runs
	waiting int                  // changes in all queues
	closed  bool
	wg      sync.WaitGroup // of the families' goroutines
	shadows sync.WaitGroup // of the shadows' goroutines
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
	m := &Manager{opts: opts, done: make(chan struct{}), decoders: make(chan struct{}, max(1, processors.Real()/2)), known: make(map[string]Definition), loading: make(map[modelVersion]int), queues: make(map[string][]update)}
	m.endpoints.Store(&map[string]*endpoint{})
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
	reply, err := m.enqueue(name, func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return do()
	})
	if err != nil {
		return err
	}
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// enqueue queues a change of an endpoint or model. The reply has room for its result.
func (m *Manager) enqueue(name string, do func() error) (reply <-chan error, err error) {
	u := update{reply: make(chan error, 1), do: do}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, stream.Errorf(stream.Draining, "", "the server is shutting down")
	}
	if m.waiting >= maxUpdates {
		return nil, stream.Errorf(stream.Overloaded, "", "%d changes of models wait already: try later", maxUpdates)
	}
	of := family(name)
	q, runs := m.queues[of]
	m.queues[of] = append(q, u)
	m.waiting++
	if !runs {
		m.wg.Go(func() { m.run(of) })
	}
	return u.reply, nil
}

// Settle waits for the changes of a model that were asked for before, also those that go on
// although their callers have given up.
func (m *Manager) Settle(ctx context.Context, name string) error {
	return m.change(ctx, name, func() error { return nil })
}

// Define makes a model known by its name without loading it. Several configurations are
// its versions.
func (m *Manager) Define(cfgs ...Config) error {
	def := Definition{}
	for _, cfg := range cfgs {
		cfg = cfg.WithDefaults()
		if err := cfg.Validate(); err != nil {
			return err
		}
		def.Versions = append(def.Versions, cfg)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[cfgs[0].Name] = def
	return nil
}

// Forget undoes Define. What is loaded stays.
func (m *Manager) Forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, name)
}

// Snapshot returns the statistics of every group that is loaded, sorted by name and
// version.
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
// complete, those of graphs before the models that these are made of end. Later changes are refused. It returns when every worker that does not hang
// has stopped, or with ctx's error; workers know ctx's deadline by Env.StopBy.
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
	if by, ok := ctx.Deadline(); ok {
		m.stopBy.Store(int64(stream.Now().Add(time.Until(by))))
	}
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		for _, g := range m.Groups() {
			g.giveUp()
		}
		return fmt.Errorf("close models: %w", context.Cause(ctx))
	}
}

func (m *Manager) closeAll() {
	old := *m.endpoints.Load()
	for _, e := range old {
		e.stopShadow(nil)
	}
	// The frames in flight of a graph need the models that it is made of: these end after it.
	for left := m.Groups(); len(left) > 0; {
		used := map[string]bool{}
		for _, g := range left {
			for _, u := range g.uses {
				used[u.Model] = true
			}
		}
		var wg sync.WaitGroup
		n := len(left)
		left = slices.DeleteFunc(left, func(g *Group) bool {
			if used[g.cfg.Name] {
				return false
			}
			wg.Go(func() { m.endGroup(g) })
			return true
		})
		if len(left) == n { // a circle, which two loads at the same time can make
			for _, g := range left {
				wg.Go(func() { m.endGroup(g) })
			}
			left = nil
		}
		wg.Wait()
	}
	m.shadows.Wait()
	m.endpoints.Store(&map[string]*endpoint{})
	for name, e := range old {
		m.removeFiles(name, e, nil)
	}
}

func (m *Manager) endGroup(g *Group) {
	g.unload(stream.ByDrain, stream.Errorf(stream.Draining, "", "the server is shutting down"))
	m.logGroup("a model was unloaded", g, "reason", string(stream.ByDrain))
}
