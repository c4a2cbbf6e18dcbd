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

// ManagerOptions are the arguments of NewManager.
type ManagerOptions struct {
	Memory *buf.Pool
	Pixels codec.Limits      // of pictures; decoding takes memory from Memory
	Turns  *processors.Turns // give way to the decoding of large pictures; nil = there are none
	Log    *slog.Logger
	Hooks  func(m *stream.Model) Hooks // called once for each group
	// Programs confines workers that are child processes; nil = the workers have all rights of this process.
	Programs *confine.Programs
	// Containers is for the kind container: a *container.Engine, which this package does not import.
	Containers any
	// Public returns an error for an address of another server that a load request must not name; nil = every address
	// is allowed.
	Public func(netip.Addr) error
	// Repository has the models that can be loaded by name without being defined; nil =
	// none.
	Repository Repository
}

// Repository finds models outside of the configuration, safe for concurrent use.
type Repository interface {
	// Find returns the versions of a model to serve, nil for an unknown model, or an error when no version can be
	// read (with a definition if the versions are known). known is the model's definition in the configuration, or
	// nil. Config or Files in how replace the stored configuration or files.
	Find(name string, known *Definition, how Load) (*Definition, error)
	// List returns the names and versions of the available models.
	List() []Listed
}

// Listed is a model that can be loaded.
type Listed struct {
	Name, Version string
	Err           error // why the model cannot be loaded as stored, or nil
}

// SentFiles are the files sent by a load request. The manager removes the files when no version loaded from them is
// served any more.
type SentFiles struct {
	Folder string // of the model
	Remove func() // may be called more than once
}

// Named returns err with the request's names of the files, such as 1/model.onnx, instead of the paths on the server.
// s may be nil.
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
	text := strings.ReplaceAll(strings.ReplaceAll(err.Error(), s.Folder+string(filepath.Separator), ""), s.Folder,
		"the folder of the model")
	var e *coded.Error
	if !errors.As(err, &e) {
		return errors.New(text)
	}
	field := e.Field
	msg, ok := strings.CutPrefix(text, field+": ")
	if !ok { // other characters surround the path
		field, msg = "", text
	}
	return &coded.Error{Code: e.Code, Field: field, Msg: msg, Err: err, After: e.After}
}

// Definition is the meaning of a model's name for a load: a configuration for each version.
type Definition struct {
	Versions   []Config // at least one, all with the model's name
	Unreadable []Listed // further versions to serve, unreadable, with Err
	Notes      []string // unused parts of the model's configuration, for the log
	// Files are the files sent by a load request; nil = none.
	Files *SentFiles
}

// Manager has the groups. A family is a model with the endpoints made of the model. The changes of a family go
// through one queue, in sequence, so that repeated or contradicting requests are never carried out at the same time.
// Changes of other families do not wait, and reads never wait. Its methods are safe for concurrent use.
type Manager struct {
	opts      ManagerOptions
	endpoints atomic.Pointer[map[string]*endpoint] // by name; replaced under mu
	ledger    ledger
	done      chan struct{}
	decoders  chan struct{} // common.decoders
	stopBy    atomic.Int64  // Instant until which Close waits; 0 = no limit

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

// family returns the name without the suffix -0, -1 ... of an endpoint. A change of a model can affect only the
// model's family.
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

// maxUpdates is the largest number of waiting changes.
const maxUpdates = 256

// NewManager returns a manager without groups.
func NewManager(opts ManagerOptions) *Manager {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	m := &Manager{opts: opts, done: make(chan struct{}), decoders: make(chan struct{}, max(1, opts.Turns.Count()/2)),
		known: make(map[string]Definition), loading: make(map[modelVersion]int), queues: make(map[string][]update)}
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

// change queues a change of an endpoint or model and waits for the end of the change. If the caller gives up before
// the change's turn, the change is not made.
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

// Settle waits for all earlier changes of the model, also for changes whose callers have given up.
func (m *Manager) Settle(ctx context.Context, name string) error {
	return m.change(ctx, name, func() error { return nil })
}

// Define makes a model known by its name without loading the model. Several configurations are versions of the model.
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

// Forget undoes Define. Loaded endpoints stay.
func (m *Manager) Forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, name)
}

// Snapshot returns the statistics of every loaded group, sorted by name and version.
func (m *Manager) Snapshot() []GroupStats {
	gs := m.Groups()
	out := make([]GroupStats, 0, len(gs))
	for _, g := range gs {
		out = append(out, g.Stats())
	}
	return out
}

// Stats returns the statistics, sorted by model and version, of every model and version that is loaded, loading or
// unloading, or was unloaded within the last five minutes (at most the last 32), so that the last counts are seen.
func (m *Manager) Stats() []GroupStats { return m.ledger.stats(stream.Now()) }

// Live returns when a model accepted a frame above priority low at last; 0 = never.
func (m *Manager) Live() stream.Instant { return m.ledger.live() }

// Close drains: streams are closed, waiting frames end as draining, frames in flight complete, and a graph's frames
// complete before the graph's models end. Later changes are refused. Close returns when every worker has stopped,
// except hung workers, or with ctx's error; workers know ctx's deadline by Env.StopBy.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	if !m.closed {
		m.closed = true
		go func() { // no new queue is made from here on; the present queues may take long
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
	// A graph's frames in flight need the models of the graph, so the models end after the graph.
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
		if len(left) == n { // a cycle, which two loads at the same time can make
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
