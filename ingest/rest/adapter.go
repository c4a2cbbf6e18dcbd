package rest

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/frames"
	"millrace/ingest/shm"
	"millrace/internal/httpd"
	"millrace/internal/oip"
	"millrace/internal/routines"
	"millrace/stream"
)

// Options are the adapter's settings. Zero fields take their defaults.
type Options struct {
	DrainTimeout time.Duration // for the requests in flight at the end; default 20s
	Limits       oip.Limits    // of a message
	SharedMemory *shm.Registry // nil: shared memory is turned off
	Log          *slog.Logger  // default slog.Default()
}

// Adapter is the REST adapter.
type Adapter struct {
	http     *httpd.Server
	opts     Options
	contexts frames.Contexts
	requests ingest.Requests[service]
	started  atomic.Bool // the server has been ready once

	tasks   *routines.Group // of live replies
	noModel stream.FrameCounts
	serving chan struct{}
}

var (
	_ ingest.Interface = (*Adapter)(nil)
	_ ingest.Measured  = (*Adapter)(nil)
)

// service is the part of a running server that requests use.
type service struct {
	gate    *ingest.Gate
	oneShot *ingest.OneShot
	// ctx ends when requests in flight must end. A request's own context also ends when its client leaves: see
	// httpd.Server.Context.
	ctx context.Context
}

// New registers the routes on h. Until Serve is called, the routes answer 503.
func New(h *httpd.Server, opts Options) *Adapter {
	if opts.DrainTimeout <= 0 {
		opts.DrainTimeout = 20 * time.Second
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	opts.Limits.SharedMemory = true
	a := &Adapter{http: h, opts: opts, contexts: frames.Contexts{Log: opts.Log}, serving: make(chan struct{})}
	a.tasks = routines.New(func(name string, value any, stack []byte) {
		opts.Log.Error("a panic ended a reply", "goroutine", name, "panic", value, "stack", string(stack))
	})
	a.routes(h.App)
	return a
}

// Metrics implements ingest.Measured.
func (a *Adapter) Metrics() ingest.Metrics {
	m := ingest.Metrics{Goroutines: map[string]int{}, NoModel: a.noModel.Totals(), Contexts: a.contexts.Broken()}
	for name, n := range a.tasks.Counts() {
		m.Goroutines["rest_"+name] = n
	}
	return m
}

func (a *Adapter) routes(app fiber.Router) {
	app.Get("/v2", a.serverMetadata)
	app.Get("/v2/health/live", a.live)
	app.Get("/v2/health/ready", a.ready)
	app.Get("/health/startup", a.startup)
	app.Get("/health/live", a.live)
	app.Get("/health/ready", a.ready)

	app.Get("/v2/models", a.models)
	app.Get("/v2/models/stats", a.statistics)
	for _, m := range []string{"/v2/models/:model", "/v2/models/:model/versions/:version"} {
		app.Get(m, a.modelMetadata)
		app.Get(m+"/ready", a.modelReady)
		app.Get(m+"/config", a.modelConfig)
		app.Get(m+"/stats", a.statistics)
		app.Post(m+"/infer", a.infer)
		app.Post(m+"/infer_stream", a.inferStream)
		app.Post(m+"/generate", a.generate)
		app.Post(m+"/generate_stream", a.generateStream)
	}
	a.sharedMemoryRoutes(app)
	app.Get("/v2/repository/index", a.index)
	app.Post("/v2/repository/index", a.index)
	const other = "/v2/repository/:repository"
	for _, at := range []string{"/index", "/models/:model/load", "/models/:model/unload"} {
		app.Post(other+at, otherRepository)
	}
	for _, m := range []string{"/v2/repository/models/:model", "/v2/repository/models/:model/versions/:version"} {
		app.Post(m+"/load", a.load)
		app.Post(m+"/unload", a.unload)
	}
	a.workerRoutes(app)
}

// Name implements ingest.Interface.
func (a *Adapter) Name() string { return "rest" }

// Serving is closed once Serve has opened the routes.
func (a *Adapter) Serving() <-chan struct{} { return a.serving }

// Serve opens the routes. When ctx ends, new requests are refused with draining, and requests in flight may finish
// within DrainTimeout; then Serve ends them.
func (a *Adapter) Serve(ctx context.Context, gate *ingest.Gate) error {
	base, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	s := &service{gate: gate, oneShot: ingest.NewOneShot(gate, a.Name(), &a.noModel), ctx: base}
	a.requests.Open(s)
	close(a.serving)
	<-ctx.Done()
	a.requests.Drain(a.opts.DrainTimeout, func() { cancel(ingest.ErrDraining) })
	s.oneShot.Close()
	a.tasks.Stop()
	a.tasks.Wait()
	return nil
}
