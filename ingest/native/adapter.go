// Package native is the Go API for a program that embeds the server. The API offers the same operations as the
// protocols, for the program itself or for the program's users. native is the fastest adapter, and does not copy data
// that the caller promises not to change. The package must not know workers, queues or batches.
//
// Client.Infer sends one request. Client.Stream opens a stream of frames: after the last frame, Stream.Finish waits
// for all results and closes the stream, whereas Stream.Close drops waiting frames.
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
	Log *slog.Logger // for panics of the adapter's goroutines
	// TraceContext returns the trace context in the context of a call, in the form of a telemetry library; nil =
	// calls have no trace context.
	TraceContext func(context.Context) stream.TraceContext
}

// Adapter is the native adapter. An Adapter serves the calls of its Client.
type Adapter struct {
	own     Client // of the program
	serving chan struct{}
}

var (
	_ ingest.Interface = (*Adapter)(nil)
	_ ingest.Measured  = (*Adapter)(nil)
	_ ingest.Starter   = (*Adapter)(nil)
)

// service is a running server for calls, or err.
type service struct {
	gate    *ingest.Gate
	oneShot *ingest.OneShot
	err     error
}

// New returns an adapter. The adapter's Client answers with Unavailable until Serve is called.
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

// Serve answers the client's calls until ctx ends. Then Serve refuses new calls with Draining, and returns when the
// calls of Client.Go have their results: the backend ends every frame.
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

// shared is the state shared by all clients of an adapter.
type shared struct {
	opts    Options
	service atomic.Pointer[service]
	calls   *routines.Group // goroutines of Client.Go
	noModel stream.FrameCounts
}

// Client calls the models of a server in this process. Client is safe for concurrent use.
//
// The server's Client acts for the program itself, with all rights and without quotas. As and Authenticate return a
// Client with the same methods that acts for a user.
type Client struct {
	*shared
	of *access.Principal // the user the program vouches for; nil = none
	// the client whose credentials the server has checked; nil = none. With of and known nil, the client is the
	// program's own.
	known *ingest.Client
}

// use returns the service, or the error of a server that is not running.
func (c *Client) use() (*service, error) {
	s := c.service.Load()
	return s, s.err
}
