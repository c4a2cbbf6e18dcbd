package streams

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/ingest"
	"millrace/ingest/clips"
	"millrace/ingest/history"
	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/internal/confine"
	"millrace/internal/httpd"
	"millrace/internal/routines"
	"millrace/internal/setting"
	"millrace/internal/video"
	"millrace/stream"
	"millrace/stream/buf"
)

// Options are the adapter's settings. Zero fields take their defaults.
type Options struct {
	ingest.Limits                  // of clients
	Streams       []Config         // streams of the configuration, already validated
	Store         *Store           // keeps the streams that requests add; nil = these streams end with the server
	History       *history.History // of events; nil = events and counts end with the server
	AllowPrivate  bool             // requests may name private addresses (sources.allow_private)
	Clips         *clips.Store     // keeps clips; nil = streams can have no clips
	Files         *sinks.Files     // the folder for files of requests (sinks.folder); nil = requests may name no file

	Hardware *video.Hardware   // hardware decoding (sources.hwaccel); nil = software
	Sandbox  bool              // confines ffmpeg (sandbox)
	Programs *confine.Programs // confines programs of exec sources (confine); nil = not

	Heartbeat time.Duration // time between two signs of life to a watcher; default 15s
	// the adapter disconnects a WebSocket client after Heartbeat + PongWait of silence; default 10s
	PongWait time.Duration

	Log *slog.Logger
}

// Adapter runs the server streams.
type Adapter struct {
	opts     Options
	http     *httpd.Server
	hub      *sources.Hub
	watchers atomic.Int64
	encoders atomic.Int64
	panics   atomic.Uint64
	started  atomic.Bool // every model of the configuration has been ready once
	serving  chan struct{}

	configuring sync.Mutex // held while the streams of the configuration change

	mu      sync.Mutex
	backend ingest.Backend  // the server's own backend; nil until Serve
	ctx     context.Context // of Serve
	closing bool
	runners map[string]*runner
	added   uint64 // streams so far
	tasks   *routines.Group
}

var (
	_ ingest.Interface = (*Adapter)(nil)
	_ ingest.Measured  = (*Adapter)(nil)
)

// New returns the adapter and registers its routes. Until Serve is called, the routes answer 503.
func New(h *httpd.Server, o Options) *Adapter {
	setting.Fill(&o.Limits)
	if o.Heartbeat <= 0 {
		o.Heartbeat = 15 * time.Second
	}
	if o.PongWait <= 0 {
		o.PongWait = 10 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	a := &Adapter{opts: o, http: h, runners: map[string]*runner{}, serving: make(chan struct{})}
	a.tasks = routines.New(a.panicked)
	a.hub = sources.NewHub(a.tasks, func() *buf.Pool { return a.backend.Memory() }, o.Hardware, o.Sandbox, o.Programs)
	a.routes(h.App)
	return a
}

// Name implements ingest.Interface.
func (a *Adapter) Name() string { return "streams" }

// Serving is closed once Serve has opened the routes.
func (a *Adapter) Serving() <-chan struct{} { return a.serving }

// Serve starts the streams of the configuration and the stored streams of requests. When ctx ends, Serve closes the
// sources, delivers results in flight to their sinks, and disconnects watchers.
func (a *Adapter) Serve(ctx context.Context, gate *ingest.Gate) error {
	a.mu.Lock()
	a.ctx, a.backend = ctx, gate.Owner()
	a.mu.Unlock()
	a.opts.History.Open() // before the streams, for their counts
	var keeping sync.WaitGroup
	keeping.Go(a.opts.History.Run)
	keeping.Go(func() { a.keepCounts(ctx) })
	for _, c := range a.configured() {
		if err := a.add(c, "config", nil); err != nil {
			a.opts.Log.Error("a stream of the configuration does not start", "stream", c.Name, "error", err)
		}
	}
	for _, c := range a.opts.Store.list() {
		if err := a.add(*c, "request", c); err != nil {
			a.opts.Log.Error("a stream of streams_file does not start", "stream", c.Name, "error", err)
		}
	}
	if a.opts.Clips != nil {
		a.run("clips", func() { a.tidyClips(ctx) })
	}
	close(a.serving)
	<-ctx.Done()
	a.mu.Lock()
	a.closing = true
	a.mu.Unlock()
	a.tasks.Stop()
	a.tasks.Wait()
	a.opts.History.Close()
	keeping.Wait()
	a.opts.Files.Close()
	a.opts.Clips.Close()
	return nil
}

// nameConflict returns the error for a second stream of a name.
func nameConflict(name string) error {
	return stream.Errorf(stream.Conflict, "name",
		"a stream has the name %q already: remove it first, or choose another name", name)
}

// add starts a stream. kept is the stream's entry in the store, or nil.
func (a *Adapter) add(c Config, origin string, kept *Config) error {
	own := a.sinkOrigin(origin == "request")
	return a.addBy(c, origin, kept, origins{own.public, func(sinks.Settings) sinkOrigin { return own }})
}

// addBy starts a stream whose parts have different origins.
func (a *Adapter) addBy(c Config, origin string, kept *Config, by origins) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch _, twice := a.runners[c.Name]; {
	case a.closing:
		return ingest.ErrDraining
	case a.backend == nil:
		return ingest.ErrStarting
	case twice:
		return nameConflict(c.Name)
	case len(a.runners) >= a.opts.MaxStreams:
		return stream.Errorf(stream.Overloaded, "limits.max_streams",
			"%d streams run already: delete one, or raise the setting", len(a.runners))
	}
	var refused error
	if origin == "request" {
		refused = a.mayWrite(c)
	}
	f := newRunner(a, c, origin, by, refused)
	a.added++
	f.stored, f.id = kept, a.added
	a.runners[c.Name] = f
	if refused != nil {
		a.opts.Log.Warn("a stream of streams_file is refused, and does not run", "stream", c.Name, "setting",
			"sinks.folder", "error", refused)
	}
	a.opts.Log.Info("a stream was added", "stream", c.Name, "source", video.Redact(c.Source), "model", c.modelNames(),
		"origin", origin)
	a.tasks.Go("stream", func() {
		defer a.removed(f)
		f.run()
	}, nil)
	return nil
}

// remove ends a stream and waits for its goroutines.
func (a *Adapter) remove(f *runner) {
	f.cancel()
	<-f.done
	a.opts.Log.Info("a stream was removed", "stream", f.name)
}

// removed removes a stream whose goroutines have ended.
func (a *Adapter) removed(f *runner) {
	f.results.close()
	f.closePreviews()
	f.keepCounts(true)
	a.mu.Lock()
	defer a.mu.Unlock()
	if f.forget.Load() {
		a.opts.History.Forget(f.name) // before a new stream of the name asks for counts
	}
	delete(a.runners, f.name)
	close(f.done)
}

// run starts a goroutine that Serve waits for, unless Serve has ended. A panic ends only this goroutine.
func (a *Adapter) run(name string, f func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closing || a.backend == nil {
		return false
	}
	return a.tasks.Go(name, f, nil)
}

// Metrics implements ingest.Measured.
func (a *Adapter) Metrics() ingest.Metrics {
	m := ingest.Metrics{Goroutines: map[string]int{}}
	for name, n := range a.tasks.Counts() {
		m.Goroutines["streams_"+name] = n
	}
	return m
}

// panicked reports a panic of a goroutine.
func (a *Adapter) panicked(name string, value any, stack []byte) {
	a.panics.Add(1)
	a.opts.Log.Error("a panic ended a goroutine of a stream", "goroutine", name, "panic", value, "stack", string(stack))
}

func (a *Adapter) find(name string) (*runner, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch f := a.runners[name]; {
	case a.backend == nil:
		return nil, ingest.ErrStarting
	case f == nil:
		return nil, stream.Errorf(stream.NotFound, "", "no stream has the name %.140q: GET /v2/streams lists them",
			name)
	default:
		return f, nil
	}
}

// ready reports whether Serve has begun.
func (a *Adapter) ready() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.backend != nil
}

func (a *Adapter) list() []*runner {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]*runner, 0, len(a.runners))
	for _, f := range a.runners {
		out = append(out, f)
	}
	slices.SortFunc(out, func(x, y *runner) int { return strings.Compare(x.name, y.name) })
	return out
}
