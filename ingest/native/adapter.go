// Package native is the Go call: the same verbs as over a protocol, from within
// the program that embeds the server. It is the fastest way in, and copies
// nothing that the caller promises not to touch. It must not know workers, queues
// or batches.
package native

import (
	"context"
	"log/slog"
	"sync/atomic"

	"millrace/ingest"
	"millrace/internal/routines"
)

// Adapter is the native adapter: it serves the calls of its Client.
type Adapter struct {
	client  Client
	calls   *routines.Group // those of Client.Go
	serving chan struct{}
}

var _ ingest.Interface = (*Adapter)(nil)

// service is what calls need of a server that serves, or err instead.
type service struct {
	backend ingest.Backend
	oneShot *ingest.OneShot
	err     error
}

// New makes an adapter whose Client answers with Unavailable until Serve is called.
// Panics of its goroutines are logged to log.
func New(log *slog.Logger) *Adapter {
	a := &Adapter{serving: make(chan struct{})}
	a.calls = routines.New(func(name string, value any, stack []byte) {
		log.Error("a panic ended a native call", "goroutine", name, "panic", value, "stack", string(stack))
	})
	a.client.calls = a.calls
	a.client.service.Store(&service{err: ingest.ErrStarting})
	return a
}

// Name implements ingest.Interface.
func (a *Adapter) Name() string { return "native" }

// Client returns the Go API.
func (a *Adapter) Client() *Client { return &a.client }

// Serving is closed once Serve has begun.
func (a *Adapter) Serving() <-chan struct{} { return a.serving }

// Serve has the client's calls answered until ctx ends. Then it refuses new ones
// with Draining, and returns when those of Client.Go have their results: the
// backend ends every frame.
func (a *Adapter) Serve(ctx context.Context, backend ingest.Backend) error {
	s := &service{backend: backend, oneShot: ingest.NewOneShot(backend)}
	a.client.service.Store(s)
	close(a.serving)
	<-ctx.Done()
	a.client.service.Store(&service{err: ingest.ErrDraining})
	s.oneShot.Close()
	a.calls.Stop()
	a.calls.Wait()
	return nil
}

// Goroutines returns how many goroutines run, by name.
func (a *Adapter) Goroutines() map[string]int { return a.calls.Counts() }

// Client calls the models of a server in this process. It is safe for concurrent
// use.
type Client struct {
	service atomic.Pointer[service]
	calls   *routines.Group
}

// use returns what a call needs, or why there is none.
func (c *Client) use() (*service, error) {
	s := c.service.Load()
	return s, s.err
}
