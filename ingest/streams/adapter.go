package streams

import (
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"millrace/ingest"
	"millrace/ingest/sources"
	"millrace/internal/httpd"
	"millrace/stream"
)

// Options are the adapter's settings. A zero field takes its default.
type Options struct {
	Streams      []Config // those of the configuration; they were validated
	MaxStreams   int      // at once; 64 (limits.max_streams)
	MaxWatchers  int      // of results and video, over all streams; 256 (limits.max_watchers)
	AllowPrivate bool     // requests may name private addresses (sources.allow_private)
	Log          *slog.Logger
}

// Adapter runs the streams.
type Adapter struct {
	opts     Options
	http     *httpd.Server
	watchers atomic.Int64
	panics   atomic.Uint64
	ended    totals // of streams that are gone
	serving  chan struct{}

	mu      sync.Mutex
	door    ingest.Door     // nil until Serve
	ctx     context.Context // of Serve
	closing bool
	flows   map[string]*flow
	tasks   sync.WaitGroup
}

var _ ingest.Interface = (*Adapter)(nil)

// New makes the adapter and registers its routes, which answer 503 until Serve
// is called.
func New(h *httpd.Server, o Options) *Adapter {
	if o.MaxStreams <= 0 {
		o.MaxStreams = 64
	}
	if o.MaxWatchers <= 0 {
		o.MaxWatchers = 256
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	a := &Adapter{opts: o, http: h, flows: map[string]*flow{}, serving: make(chan struct{})}
	a.routes(h.App)
	return a
}

// Name implements ingest.Interface.
func (a *Adapter) Name() string { return "streams" }

// Serving is closed once Serve has opened the routes.
func (a *Adapter) Serving() <-chan struct{} { return a.serving }

// Serve starts the streams of the configuration, and those that requests add.
// When ctx ends, sources are closed, results in flight reach their sinks, and
// watchers are let go.
func (a *Adapter) Serve(ctx context.Context, door ingest.Door) error {
	a.mu.Lock()
	a.ctx, a.door = ctx, door
	a.mu.Unlock()
	for _, c := range a.opts.Streams {
		if err := a.add(c, "config"); err != nil {
			a.opts.Log.Error("a stream of the configuration does not start", "stream", c.Name, "error", err)
		}
	}
	close(a.serving)
	<-ctx.Done()
	a.mu.Lock()
	a.closing = true
	a.mu.Unlock()
	a.tasks.Wait()
	return nil
}

// add starts a stream.
func (a *Adapter) add(c Config, origin string) error {
	policy, err := c.policy()
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch _, twice := a.flows[c.Name]; {
	case a.closing:
		return stream.Errorf(stream.Draining, "", "the server is shutting down")
	case a.door == nil:
		return stream.Errorf(stream.Unavailable, "", "the server is starting")
	case twice:
		return stream.Errorf(stream.Conflict, "name", "%q is the name of a stream already: DELETE it first, or choose another", c.Name)
	case len(a.flows) >= a.opts.MaxStreams:
		return stream.Errorf(stream.Overloaded, "limits.max_streams", "%d streams run already: delete one, or raise the setting", len(a.flows))
	}
	f := newFlow(a, c, policy, origin)
	a.flows[c.Name] = f
	a.goLocked("stream", func() {
		defer a.remove(f)
		f.run()
	})
	return nil
}

// remove forgets a stream of which nothing runs any more.
func (a *Adapter) remove(f *flow) {
	f.hub.close()
	f.film.close()
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.flows, f.config.Name)
	a.ended.add(f.totals())
	close(f.gone)
}

// run starts a goroutine that Serve waits for, unless it is over. A panic ends
// the goroutine only.
func (a *Adapter) run(name string, f func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closing || a.door == nil {
		return false
	}
	a.goLocked(name, f)
	return true
}

func (a *Adapter) goLocked(name string, f func()) {
	a.tasks.Go(func() { a.safely(name, f) })
}

// safely calls f and reports its panic.
func (a *Adapter) safely(name string, f func()) {
	defer func() {
		if v := recover(); v != nil {
			a.panics.Add(1)
			a.opts.Log.Error("a panic ended a part of a stream", "goroutine", name, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	f()
}

func (a *Adapter) find(name string) (*flow, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch f := a.flows[name]; {
	case a.door == nil:
		return nil, stream.Errorf(stream.Unavailable, "", "the server is starting")
	case f == nil:
		return nil, stream.Errorf(stream.NotFound, "", "no stream is called %.140q: GET /v2/streams lists them", name)
	default:
		return f, nil
	}
}

func (a *Adapter) list() []*flow {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]*flow, 0, len(a.flows))
	for _, f := range a.flows {
		out = append(out, f)
	}
	slices.SortFunc(out, func(x, y *flow) int { return strings.Compare(x.config.Name, y.config.Name) })
	return out
}

// Stats is a moment's reading.
type Stats struct {
	States   map[sources.State]int // streams, by what they do
	Watchers int                   // of results and video
	Panics   uint64
	Totals   // since the start, streams that are gone included
}

// Totals only rise.
type Totals struct {
	Frames         uint64 // read from sources
	Lost           uint64 // of them, for want of memory
	Restarts       uint64 // of sources
	Results        uint64 // handed to the sinks
	ResultsLost    uint64 // that no sink was given, because writing took too long
	WatchersLost   uint64 // lines that watchers were too slow for
	FileErrors     uint64 // lines that could not be written
	WebhookSent    uint64 // results delivered
	WebhookRetries uint64 // deliveries tried again
	WebhookLost    uint64 // results given up
}

type totals struct{ Totals }

func (t *totals) add(o Totals) {
	t.Frames += o.Frames
	t.Lost += o.Lost
	t.Restarts += o.Restarts
	t.Results += o.Results
	t.ResultsLost += o.ResultsLost
	t.WatchersLost += o.WatchersLost
	t.FileErrors += o.FileErrors
	t.WebhookSent += o.WebhookSent
	t.WebhookRetries += o.WebhookRetries
	t.WebhookLost += o.WebhookLost
}

// Stats reads the counters. It is safe for concurrent use.
func (a *Adapter) Stats() Stats {
	st := Stats{States: map[sources.State]int{}, Watchers: int(a.watchers.Load()), Panics: a.panics.Load()}
	flows := a.list()
	a.mu.Lock()
	sum := a.ended
	a.mu.Unlock()
	for _, f := range flows {
		state, _ := f.state()
		st.States[state.State]++
		sum.add(f.totals())
	}
	st.Totals = sum.Totals
	return st
}
