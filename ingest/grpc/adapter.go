package grpc

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"millrace/ingest"
	"millrace/internal/accept"
	"millrace/internal/setting"
)

// Options are the adapter's settings. A zero field takes its default.
type Options struct {
	ingest.Limits               // of clients
	Addr          string        // host:port; port 0 means a free one
	DrainTimeout  time.Duration // for the calls in flight at the end; default 20s
	TLS           *tls.Config   // nil = not encrypted
	Limit         *accept.Limit // of open connections; nil = no bound
	// Called is called after each call of a known method, with the method's full name and
	// the gRPC code of its end; nil = it is not called.
	Called func(method string, code int, took time.Duration)
}

// Adapter is the gRPC adapter.
type Adapter struct {
	opts Options
	ln   net.Listener
}

var _ ingest.Interface = (*Adapter)(nil)

// New returns an adapter that does not listen yet.
func New(opts Options) *Adapter {
	if opts.DrainTimeout <= 0 {
		opts.DrainTimeout = 20 * time.Second
	}
	setting.Fill(&opts.Limits)
	if opts.Limit == nil {
		opts.Limit = &accept.Limit{}
	}
	return &Adapter{opts: opts}
}

// Listen binds the address and returns it. Connections wait until Serve.
func (a *Adapter) Listen() (net.Addr, error) {
	ln, err := a.opts.Limit.Listen("grpc", a.opts.Addr)
	if err != nil {
		return nil, err
	}
	a.ln = ln
	return ln.Addr(), nil
}

// Close closes the listener when Serve will not be called.
func (a *Adapter) Close() error {
	if a.ln == nil {
		return nil
	}
	if err := a.ln.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Name implements ingest.Interface.
func (a *Adapter) Name() string { return "grpc" }

// Serve answers calls until ctx ends, then lets those in flight finish within
// DrainTimeout. It listens first if Listen was not called.
func (a *Adapter) Serve(ctx context.Context, backend ingest.Backend) error {
	if a.ln == nil {
		if _, err := a.Listen(); err != nil {
			return err
		}
	}
	secure := insecure.NewCredentials()
	if a.opts.TLS != nil {
		secure = credentials.NewTLS(a.opts.TLS)
	}
	s := grpc.NewServer(
		grpc.Creds(secure),
		grpc.ChainUnaryInterceptor(a.unary),
		grpc.ChainStreamInterceptor(a.stream),
		grpc.MaxRecvMsgSize(a.opts.MaxMessage),
		grpc.ConnectionTimeout(10*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	)
	h := newHealth(backend, a.opts.MaxWatchers)
	grpc_health_v1.RegisterHealthServer(s, h)
	served := make(chan error, 1)
	go func() { served <- s.Serve(a.ln) }()
	select {
	case err := <-served:
		s.Stop()
		return err
	case <-ctx.Done():
	}
	h.end()
	limit := time.AfterFunc(a.opts.DrainTimeout, s.Stop)
	defer limit.Stop()
	s.GracefulStop()
	return <-served
}

// unary calls Options.Called for calls with one reply.
func (a *Adapter) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	begun := time.Now()
	reply, err := next(ctx, req)
	a.called(info.FullMethod, err, begun)
	return reply, err
}

// stream calls Options.Called for calls with streams.
func (a *Adapter) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	begun := time.Now()
	err := next(srv, ss)
	a.called(info.FullMethod, err, begun)
	return err
}

func (a *Adapter) called(method string, err error, begun time.Time) {
	if a.opts.Called != nil {
		a.opts.Called(method, int(status.Code(err)), time.Since(begun))
	}
}
