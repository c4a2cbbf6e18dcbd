// Package native is the Go API for a program that embeds the server: the same
// operations as over a protocol. It is the fastest adapter, and copies nothing that the
// caller promises not to change. It must not know workers, queues or batches.
package native

import (
	"context"
	"log/slog"
	"sync/atomic"

	"millrace/ingest"
	"millrace/internal/routines"
	"millrace/stream"
)

// Adapter is the native adapter: it serves the calls of its Client.
type Adapter struct {
	client  Client
	calls   *routines.Group // goroutines of Client.Go
	serving chan struct{}
}

var (
	_ ingest.Interface = (*Adapter)(nil)
	_ ingest.Measured  = (*Adapter)(nil)
	_ ingest.Starter   = (*Adapter)(nil)
)

// service is what calls need of a running server, or err.
type service struct {
	backend ingest.Backend
	oneShot *ingest.OneShot
	err     error
}

// New returns an adapter whose Client answers with Unavailable until Serve is called.
// Panics of its goroutines are logged to log. traceContext returns the trace context that
// the context of a call carries, in the form of a telemetry library; nil = none does.
func New(log *slog.Logger, traceContext func(context.Context) stream.TraceContext) *Adapter {
	a := &Adapter{serving: make(chan struct{})}
	a.calls = routines.New(func(name string, value any, stack []byte) {
		log.Error("a panic ended a native call", "goroutine", name, "panic", value, "stack", string(stack))
	})
	a.client.calls, a.client.traceContext = a.calls, traceContext
	a.client.service.Store(&service{err: ingest.ErrStarting})
	return a
}

// Name implements ingest.Interface.
func (a *Adapter) Name() string { return "native" }

// Client returns the Go API.
func (a *Adapter) Client() *Client { return &a.client }

// Serving is closed once Serve has begun.
func (a *Adapter) Serving() <-chan struct{} { return a.serving }

// Serve answers the client's calls until ctx ends. Then it refuses new ones with
// Draining, and returns when the calls of Client.Go have their results: the backend
// ends every frame.
func (a *Adapter) Serve(ctx context.Context, backend ingest.Backend) error {
	s := &service{backend: backend, oneShot: ingest.NewOneShot(backend, a.Name(), &a.client.noModel)}
	a.client.service.Store(s)
	close(a.serving)
	<-ctx.Done()
	a.client.service.Store(&service{err: ingest.ErrDraining})
	s.oneShot.Close()
	a.calls.Stop()
	a.calls.Wait()
	return nil
}

// Metrics implements ingest.Measured.
func (a *Adapter) Metrics() ingest.Metrics {
	m := ingest.Metrics{Goroutines: map[string]int{}, NoModel: a.client.noModel.Totals()}
	for name, n := range a.calls.Counts() {
		m.Goroutines["native_"+name] = n
	}
	return m
}

// Client calls the models of a server in this process. It is safe for concurrent
// use.
type Client struct {
	service atomic.Pointer[service]
	calls   *routines.Group
	// traceContext returns the trace context that a call's context carries; or nil.
	traceContext func(context.Context) stream.TraceContext
	noModel      stream.FrameCounts
}

// use returns the service, or the error of a server that does not run.
func (c *Client) use() (*service, error) {
	s := c.service.Load()
	return s, s.err
}
