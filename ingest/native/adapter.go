// Package native is the Go API for a program that embeds the server: the same
// operations as over a protocol, for the program itself or for its users. It is the
// fastest adapter, and copies nothing that the caller promises not to change. It must not
// know workers, queues or batches.
//
// Client.Infer sends one request. Client.Stream opens a stream of frames: after the last frame,
// Stream.Finish waits for all results and closes it, whereas Close drops the frames that wait.
package native

import (
	"context"
	"log/slog"
	"sync/atomic"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/internal/routines"
	"millrace/stream"
)

// Options are the adapter's settings.
type Options struct {
	Log *slog.Logger // for panics of its goroutines
	// TraceContext returns the trace context that the context of a call carries, in the form of a telemetry library; nil = none does.
	TraceContext func(context.Context) stream.TraceContext
}

// Adapter is the native adapter: it serves the calls of its Client.
type Adapter struct {
	own     Client // of the program
	serving chan struct{}
}

var (
	_ ingest.Interface = (*Adapter)(nil)
	_ ingest.Measured  = (*Adapter)(nil)
	_ ingest.Starter   = (*Adapter)(nil)
)

// service is what calls need of a running server, or err.
type service struct {
	gate    *ingest.Gate
	oneShot *ingest.OneShot
	err     error
}

// New returns an adapter whose Client answers with Unavailable until Serve is called.
func New(opts Options) *Adapter {
	a := &Adapter{own: Client{shared: &shared{opts: opts}}, serving: make(chan struct{})}
	a.own.calls = routines.New(func(name string, value any, stack []byte) {
		opts.Log.Error("a panic ended a native call", "goroutine", name, "panic", value, "stack", string(stack))
	})
	a.own.service.Store(&service{err: ingest.ErrStarting})
	return a
}

// protocol names the adapter in traces and metrics.
const protocol = "native"

// Name implements ingest.Interface.
func (a *Adapter) Name() string { return protocol }

// Client returns the Go API, as the program's own.
func (a *Adapter) Client() *Client { return &a.own }

// Serving is closed once Serve has begun.
func (a *Adapter) Serving() <-chan struct{} { return a.serving }

// Serve answers the client's calls until ctx ends. Then it refuses new ones with
// Draining, and returns when the calls of Client.Go have their results: the backend
// ends every frame.
func (a *Adapter) Serve(ctx context.Context, gate *ingest.Gate) error {
	s := &service{gate: gate, oneShot: ingest.NewOneShot(gate, a.Name(), &a.own.noModel)}
	a.own.service.Store(s)
	close(a.serving)
	<-ctx.Done()
	a.own.service.Store(&service{gate: gate, err: ingest.ErrDraining})
	s.oneShot.Close()
	a.own.calls.Stop()
	a.own.calls.Wait()
	return nil
}

// Metrics implements ingest.Measured.
func (a *Adapter) Metrics() ingest.Metrics {
	m := ingest.Metrics{Goroutines: map[string]int{}, NoModel: a.own.noModel.Totals()}
	for name, n := range a.own.calls.Counts() {
		m.Goroutines["native_"+name] = n
	}
	return m
}

// shared is what all clients of an adapter have.
type shared struct {
	opts    Options
	service atomic.Pointer[service]
	calls   *routines.Group // goroutines of Client.Go
	noModel stream.FrameCounts
}

// Client calls the models of a server in this process. It is safe for concurrent use.
//
// That of the server is the program's own: it may do everything, and has no quotas. As and
// Authenticate return one that acts for somebody, with the same methods.
type Client struct {
	*shared
	of    *access.Principal // for whom the program vouches; nil = nobody
	known *ingest.Client    // whose credentials the server has checked; nil = nobody's. With neither, the client is the program's own.
}

// use returns the service, or the error of a server that does not run.
func (c *Client) use() (*service, error) {
	s := c.service.Load()
	return s, s.err
}
