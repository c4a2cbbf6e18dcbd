package grpc

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // of messages in both directions
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/ingest/frames"
	"millrace/ingest/shm"
	"millrace/internal/accept"
	"millrace/internal/inferencepb"
	"millrace/internal/oip"
	"millrace/internal/routines"
	"millrace/internal/setting"
	"millrace/stream"
	"millrace/stream/buf"
)

// Options are the adapter's settings. Zero fields take their defaults.
type Options struct {
	ingest.Limits        // of clients
	Addr          string // host:port; port 0 means any free port
	// a second address, which may be unix:PATH, at which calls that need role.Manage are answered; "" = there is none
	Management     string
	SocketMode     fs.FileMode   // mode of the unix socket's file
	ManagementOnly bool          // only Management answers calls of management
	DrainTimeout   time.Duration // for the calls in flight at the end; default 20s
	TLS            *tls.Config   // nil = not encrypted
	Limit          *accept.Limit // of open connections; nil = no bound
	Managing       *accept.Limit // limit of connections at Management; nil = Limit
	SharedMemory   *shm.Registry // nil: shared memory is turned off
	Root           string        // the program that is served alone; "" = none
	Styles         []*Style      // that Root may have
	AnswersLive    bool          // as in the style that the configuration gives to Root
	Log            *slog.Logger  // default slog.Default()
	// OpenHealth opens to everybody whether a model is ready.
	OpenHealth bool
	// CallSummary is called after each call of a known method; nil = not called.
	OnCall func(CallSummary)
}

// CallSummary describes an ended call.
type CallSummary struct {
	Method  string // full name
	Route   string // of a program's routes, which it names; "" = none
	Version string // of the model, if the client named a version and the call succeeded
	Code    int    // the gRPC code
	Took    time.Duration
	InApp   time.Duration // part of the time spent in the application; 0 = unknown
	In, Out int           // bytes of the requests and of the replies, before compression; negative = unknown
}

// Adapter is the gRPC adapter.
type Adapter struct {
	opts               Options
	ln                 net.Listener
	managementListener net.Listener // at Options.Management; nil = no such listener
	contexts           frames.Contexts
	noModel            stream.FrameCounts
	routines           *routines.Group
	serving            chan struct{}
	left               <-chan struct{} // closed by leave
	leave              func()

	handshakeTime, grace time.Duration
}

var (
	_ ingest.Interface = (*Adapter)(nil)
	_ ingest.Measured  = (*Adapter)(nil)
	_ ingest.Starter   = (*Adapter)(nil)
	_ ingest.Leaver    = (*Adapter)(nil)
)

// New returns an adapter. Call Listen or Serve to listen.
func New(opts Options) *Adapter {
	if opts.DrainTimeout <= 0 {
		opts.DrainTimeout = 20 * time.Second
	}
	setting.Fill(&opts.Limits)
	if opts.Limit == nil {
		opts.Limit = &accept.Limit{}
	}
	if opts.Managing == nil {
		opts.Managing = opts.Limit
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	a := &Adapter{opts: opts, contexts: frames.Contexts{Log: opts.Log}, serving: make(chan struct{}),
		handshakeTime: connectionTimeout}
	left := make(chan struct{})
	a.left, a.leave = left, sync.OnceFunc(func() { close(left) })
	a.routines = routines.New(func(name string, v any, stack []byte) {
		opts.Log.Error("a panic ended a gRPC call", "goroutine", name, "panic", v, "stack", string(stack))
	})
	return a
}

// Listen binds and returns the address. Connections wait until Serve.
func (a *Adapter) Listen() (net.Addr, error) {
	ln, err := a.opts.Limit.Listen("grpc", a.opts.Addr)
	if err != nil {
		return nil, err
	}
	a.ln = ln
	return ln.Addr(), nil
}

// ListenManagement binds and returns Options.Management. Connections wait until Serve.
func (a *Adapter) ListenManagement() (net.Addr, error) {
	ln, err := a.opts.Managing.ListenAt("management_grpc", a.opts.Management, a.opts.SocketMode)
	if err != nil {
		return nil, err
	}
	a.managementListener = ln
	return ln.Addr(), nil
}

// Close closes the listeners when Serve will not be called.
func (a *Adapter) Close() error {
	var errs []error
	for _, ln := range []net.Listener{a.ln, a.managementListener} {
		if ln == nil {
			continue
		}
		if err := ln.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Name implements ingest.Interface.
func (a *Adapter) Name() string { return "grpc" }

// Leave implements ingest.Leaver: clients move to another connection for their next call.
func (a *Adapter) Leave() { a.leave() }

// Serving is closed once Serve answers calls.
func (a *Adapter) Serving() <-chan struct{} { return a.serving }

// Metrics implements ingest.Measured.
func (a *Adapter) Metrics() ingest.Metrics {
	m := ingest.Metrics{NoModel: a.noModel.Totals(), Contexts: a.contexts.Broken(), Goroutines: map[string]int{}}
	for name, n := range a.routines.Counts() {
		m.Goroutines["grpc_"+name] = n
	}
	return m
}

// Bounds of a connection.
const (
	// streamWorkers is the number of goroutines kept for calls. A new goroutine copies its stack when the stack
	// grows, at a cost of a twentieth of a small call's time.
	streamWorkers = 64
	// maxMetadata is the most bytes of a call's metadata.
	maxMetadata = 64 << 10
	// connectionTimeout is how long a client may take for the handshake.
	connectionTimeout = 10 * time.Second
)

// Serve answers calls until ctx ends, then lets calls in flight finish within DrainTimeout. Serve calls Listen if
// needed.
func (a *Adapter) Serve(ctx context.Context, gate *ingest.Gate) error {
	if a.ln == nil {
		if _, err := a.Listen(); err != nil {
			return err
		}
	}
	secure := insecure.NewCredentials()
	if a.opts.TLS != nil {
		secure = encrypted{credentials.NewTLS(a.opts.TLS)}
	}
	svc := &service{
		Options: &a.opts, gate: gate, oneShot: ingest.NewOneShot(gate, a.Name(), &a.noModel),
		limits:   oip.Limits{SharedMemory: true},
		contexts: &a.contexts, grace: a.grace, routines: a.routines, ended: make(chan struct{}),
	}
	svc.exported.Store(exportedOnly.Load())
	s := grpc.NewServer(
		grpc.Creds(secure),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.InTapHandle(func(ctx context.Context, info *tap.Info) (context.Context, error) {
			ctx, err := svc.enter(svc.endable(ctx), info.FullMethodName, info.Header)
			if err != nil {
				return nil, err
			}
			return svc.withTrace(ctx, info.Header), nil
		}),
		grpc.ChainUnaryInterceptor(svc.unary),
		grpc.ChainStreamInterceptor(svc.stream),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.MaxRecvMsgSize(a.opts.MaxMessage), // for readExported
		grpc.MaxHeaderListSize(maxMetadata),
		grpc.MaxConcurrentStreams(uint32(a.opts.MaxCalls)),
		grpc.ConnectionTimeout(a.handshakeTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: a.opts.KeepAlive, Time: time.Minute,
			Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second,
			PermitWithoutStream: true}),
	)
	h := newHealth(gate, a.opts.MaxWatchers, svc.mayAskHealth)
	services := registrar{s, svc}
	grpc_health_v1.RegisterHealthServer(services, h)
	services.RegisterService(&serviceDesc, svc)
	reflection.Register(services)
	if err := checkRoles(s); err != nil {
		return err
	}
	listeners := []*listener{newListener(a.ln, false)}
	if a.managementListener != nil {
		listeners = append(listeners, newListener(a.managementListener, true))
	}
	served := make(chan error, len(listeners))
	for _, ln := range listeners {
		go func() { served <- s.Serve(ln) }() // ends with GracefulStop
	}
	close(a.serving)
	var errs []error
	left := a.left
	var graceful sync.WaitGroup
	for running := true; running; {
		select {
		case err := <-served:
			if errs = append(errs, err); left == nil && err == nil {
				continue // of GracefulStop below
			}
			running = false
		case <-left:
			left = nil
			graceful.Go(s.GracefulStop) // GOAWAY on each connection
		case <-ctx.Done():
			running = false
		}
	}
	h.end()
	svc.closing.Store(true)
	close(svc.ended)
	for _, ln := range listeners {
		ln.endHandshakes() // GracefulStop and Stop wait for handshakes
	}
	limit := time.AfterFunc(a.opts.DrainTimeout, s.Stop)
	defer limit.Stop()
	s.GracefulStop()
	graceful.Wait()
	a.routines.Stop()
	a.routines.Wait()
	svc.oneShot.Close()
	for len(errs) < len(listeners) {
		err := <-served
		if errors.Is(err, grpc.ErrServerStopped) { // ctx ended before Serve began
			err = nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// encrypted are the credentials of a server with TLS. Unix sockets stay unencrypted, since no other machine can read
// them.
type encrypted struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (e encrypted) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if c, ok := c.(*conn); ok && c.remote.Network() == "unix" {
		return insecure.NewCredentials().ServerHandshake(c)
	}
	return e.TransportCredentials.ServerHandshake(c)
}

// Clone implements credentials.TransportCredentials.
func (e encrypted) Clone() credentials.TransportCredentials {
	return encrypted{e.TransportCredentials.Clone()}
}

// listener adds each connection to the addresses seen by calls.
type listener struct {
	net.Listener
	management bool // listens at Options.Management

	mu         sync.Mutex
	handshakes map[*conn]struct{} // connections with an unfinished handshake; nil = no new handshakes
}

func newListener(ln net.Listener, management bool) *listener {
	return &listener{Listener: ln, management: management, handshakes: map[*conn]struct{}{}}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		accepted := &conn{Conn: c, remote: clientAddr{c.RemoteAddr(), c, l.management}, listener: l}
		l.mu.Lock()
		ended := l.handshakes == nil
		if !ended {
			l.handshakes[accepted] = struct{}{}
		}
		l.mu.Unlock()
		if !ended {
			return accepted, nil
		}
		_ = c.Close()
	}
}

// endHandshakes closes connections with an unfinished handshake, and all connections accepted later.
func (l *listener) endHandshakes() {
	l.mu.Lock()
	all := l.handshakes
	l.handshakes = nil
	l.mu.Unlock()
	for c := range all {
		_ = c.Close()
	}
}

// handshakeDone marks the handshake of a connection as finished.
func (l *listener) handshakeDone(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.handshakes, c)
}

// conn is a connection whose remote address refers to the connection, since gRPC shows calls only the address.
type conn struct {
	net.Conn
	remote   clientAddr
	listener *listener
}

// SetDeadline implements net.Conn. Package grpc removes the deadline when the handshake has ended.
func (c *conn) SetDeadline(t time.Time) error {
	if t.IsZero() {
		c.listener.handshakeDone(c)
	}
	return c.Conn.SetDeadline(t)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.listener.handshakeDone(c)
	return c.Conn.Close()
}

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return &c.remote }

// clientAddr is the address of a client, with its connection.
type clientAddr struct {
	net.Addr
	of         net.Conn
	management bool // the connection came to Options.Management
}

// markRequestSent records that the connection of a call has sent a request. Refused calls do not count, so clients
// without credentials cannot use refused calls to keep connections from other clients.
func markRequestSent(ctx context.Context) { accept.MarkRequestSent(connOf(ctx)) }

// connOf returns the connection of a call, or nil.
func connOf(ctx context.Context) net.Conn {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(*clientAddr); ok {
			return a.of
		}
	}
	return nil
}

// memoryOf returns the share of the budget that pays for the memory of a call's messages.
func memoryOf(ctx context.Context) *buf.ClientShare {
	return accept.MemoryOf(connOf(ctx))
}

// unary calls Options.OnCall for calls with one reply except ModelInfer, and turns a panic into an error.
func (s *service) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	next grpc.UnaryHandler) (reply any, err error) {
	begun := time.Now()
	defer func() {
		if v := recover(); v != nil {
			reply, err = nil, s.panicked(info.FullMethod, v)
		}
		s.called(info.FullMethod, "", err, begun, sizeOf(req), sizeOf(reply))
		if manages(info.FullMethod, req) {
			s.audit(ctx, info.FullMethod, targetOf(req), err)
		}
	}()
	if err := mayUse(ctx, info.FullMethod, req); err != nil {
		return nil, s.statusError(err)
	}
	return next(ctx, req)
}

// sizeOf returns the size of a message; 0 without a message.
func sizeOf(m any) int {
	if m, ok := m.(proto.Message); ok {
		return proto.Size(m)
	}
	return 0
}

// stream does for calls with streams the work of unary. ModelStreamInfer calls Options.OnCall itself.
func (s *service) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo,
	next grpc.StreamHandler) (err error) {
	b, err := s.begin(ss.Context(), info.FullMethod, info.IsClientStream)
	defer b.end()
	begun := time.Now()
	if err != nil {
		err = statusError(err)
		s.called(info.FullMethod, "", err, begun, -1, -1)
		return err
	}
	if info.FullMethod == inferencepb.GRPCInferenceService_ModelStreamInfer_FullMethodName {
		return next(srv, ss)
	}
	defer func() {
		if v := recover(); v != nil {
			err = s.panicked(info.FullMethod, v)
		}
		s.called(info.FullMethod, "", err, begun, -1, -1)
	}()
	if of := client(ss.Context()); of.Principal().Limited() { // the call itself is about no model
		_ = of.Authorize(access.Need{Role: Roles[info.FullMethod], Scope: access.ClientScope})
	}
	revoked := make(chan error, 1)
	defer s.endsWithCredentials(ss.Context(), revoked)()
	defer func() {
		select {
		case why := <-revoked:
			err = statusError(why)
		default:
		}
	}()
	return next(srv, receiving{ss, &b, !info.IsClientStream})
}
