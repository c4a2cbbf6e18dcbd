package httpd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"millrace/internal/accept"
	"millrace/internal/processors"
	"millrace/stream/coded"
)

// Config configures a Server. A zero field has its default.
type Config struct {
	Addr    string   // for example 127.0.0.1:8000; port 0 = a free port
	Hosts   []string // further names allowed in the Host header; "*.x" allows all names ending in .x, "*" all names
	Origins []string // further web origins whose pages may use the server; "*" allows all
	MaxBody int      // bytes of a request's body; 0 = no bound

	// Management is a second address, possibly unix:PATH, the only address with the routes of Reserve; "" = none.
	Management string
	SocketMode fs.FileMode // of the file of the unix socket
	// ManagementLimit limits the connections to Management apart from the connections to Addr; nil = Limit.
	ManagementLimit *accept.Limit

	// Programs is another address, with only the routes of OnlyPrograms; "" = none.
	Programs string

	TLS   *tls.Config   // nil = not encrypted
	HSTS  time.Duration // with TLS: how long browsers use only https; 0 = no header
	Limit *accept.Limit // of open connections; nil = no bound
	// Credentials means that clients need credentials. A connection then counts as silent (package accept) until
	// Accepted is called.
	Credentials bool

	HeaderTimeout time.Duration // from the first byte of a request to the end of its header; 10s
	IdleTimeout   time.Duration // between requests; 2m
	WriteTimeout  time.Duration // of one reply; 1m
	DrainTimeout  time.Duration // for handlers still running at the shutdown; 30s

	// Turns are of long texts, also of those that adapters of the server write; nil = there are none.
	Turns *processors.Turns

	Log *slog.Logger // slog.Default()
	// Probe reports whether a path is a health route: the Host is not checked, and the answer is never delayed; nil =
	// no health routes.
	Probe func(path string) bool
	// Proxy reports whether a client is a proxy with a trusted X-Forwarded-Proto header; nil = no proxies.
	Proxy func(remote net.Addr) bool
	// Refused is called for a request refused before routing, by the rules on method, host, origin or size; may be
	// nil.
	Refused func(method, path string, status int)
}

// Fixed sizes and times.
const (
	// readBufferSize bounds the request line and header. Each open connection keeps a buffer of this size. With twice
	// the prefetch, bodies of tens of kilobytes need one read less.
	readBufferSize = 16 << 10
	// prefetch is the most bytes of a body read by fasthttp before calling the handler.
	prefetch = 8 << 10
	// idleGrace is how long a connection without a running handler may still send during
	// the shutdown.
	idleGrace = 250 * time.Millisecond
)

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	if c.MaxBody <= 0 {
		c.MaxBody = math.MaxInt
	}
	def(&c.HeaderTimeout, 10*time.Second)
	def(&c.IdleTimeout, 2*time.Minute)
	def(&c.WriteTimeout, time.Minute)
	def(&c.DrainTimeout, 30*time.Second)
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Limit == nil {
		c.Limit = &accept.Limit{Log: c.Log}
	}
	if c.ManagementLimit == nil {
		c.ManagementLimit = c.Limit
	}
	return c
}

// Server is an HTTP server. Register routes on App, then call Listen and Serve, each once.
type Server struct {
	App *fiber.App

	cfg                Config
	config             fiber.Config
	hsts               string // the header Strict-Transport-Security, "" = none
	rules              atomic.Pointer[rules]
	bound              string                  // the host of Config.Addr
	inner              fasthttp.RequestHandler // Fiber's handler
	open               fasthttp.RequestHandler // for connections not to Config.Management; nil = inner
	programs           fasthttp.RequestHandler // for connections to Config.Programs; nil = none
	ln                 net.Listener
	managementListener net.Listener // at Config.Management; nil = none
	programsListener   net.Listener // at Config.Programs; nil = none

	conns   sync.Map // of *conn: all open connections, for the shutdown
	watcher watcher

	draining atomic.Bool
	stopping chan struct{} // closed when the shutdown begins

	routed    sync.Once // the routes of App are final
	uploads   []string  // patterns of paths, see AllowUploads
	mu        sync.Mutex
	also      []net.Listener // of ListenAlso
	closing   bool           // the shutdown has begun
	ended     bool           // no more lingering closes are started
	lingering sync.WaitGroup // and of the goroutines of also
}

// New returns a server that does not listen yet. Errors name the setting.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	host, _, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		return nil, coded.Errorf(coded.InvalidArgument, "http",
			"%q is not an address: want host:port, such as 127.0.0.1:8000: %w", cfg.Addr, err)
	}
	s := &Server{cfg: cfg, bound: host, stopping: make(chan struct{})}
	rules, err := s.NewRules(cfg.Hosts, cfg.Origins)
	if err != nil {
		return nil, err
	}
	s.Use(rules)
	if cfg.TLS != nil && cfg.HSTS > 0 {
		s.hsts = fmt.Sprintf("max-age=%d", cfg.HSTS/time.Second)
	}
	s.config = fiber.Config{
		AppName:                      "millrace",
		DisableStartupMessage:        true,
		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true, // fasthttp would write parts to files without a bound
		CaseSensitive:                true,
		StrictRouting:                true, // proxies and their rules tell /metrics/ from /metrics
		BodyLimit:                    cfg.MaxBody,
		ReadBufferSize:               readBufferSize,
		WriteBufferSize:              replyBuffer,
		ReadTimeout:                  cfg.HeaderTimeout,
		IdleTimeout:                  cfg.IdleTimeout,
		WriteTimeout:                 cfg.WriteTimeout,
		ErrorHandler:                 s.answerError,
	}
	s.App = fiber.New(s.config)
	fast := s.App.Server()
	s.inner, fast.Handler = fast.Handler, s.handle
	fast.KeepHijackedConns = true // the owner of a hijacked connection closes it
	fast.CloseOnShutdown = true
	fast.ConnState = s.track
	return s, nil
}

// Listen listens at Config.Addr and returns the bound address. Connections wait until Serve.
func (s *Server) Listen() (net.Addr, error) {
	ln, err := s.cfg.Limit.Listen("http", s.cfg.Addr)
	if err != nil {
		return nil, err
	}
	s.ln = s.wrap(ln, public)
	return ln.Addr(), nil
}

// ListenManagement listens at Config.Management and returns the bound address. Connections wait until Serve. The
// connections use TLS like the others, except on a unix socket, where no other machine can read them.
func (s *Server) ListenManagement() (net.Addr, error) {
	ln, err := s.cfg.ManagementLimit.ListenAt("management", s.cfg.Management, s.cfg.SocketMode)
	if err != nil {
		return nil, err
	}
	s.managementListener = s.wrap(ln, management)
	return ln.Addr(), nil
}

// ListenPrograms listens at Config.Programs and returns the address. Connections wait until Serve.
func (s *Server) ListenPrograms() (net.Addr, error) {
	ln, err := s.cfg.Limit.Listen("programs", s.cfg.Programs)
	if err != nil {
		return nil, err
	}
	s.programsListener = s.wrap(ln, programs)
	return ln.Addr(), nil
}

// Turns returns the turns of long texts, Config.Turns.
func (s *Server) Turns() *processors.Turns { return s.cfg.Turns }

func (s *Server) wrap(ln net.Listener, at place) net.Listener {
	_, local := ln.Addr().(*net.UnixAddr)
	accepted := newListener(ln, s.cfg.HeaderTimeout)
	accepted.at, accepted.encrypted = at, s.cfg.TLS != nil && !local
	ln = accepted
	if s.cfg.TLS != nil && !local {
		t := s.cfg.TLS.Clone()
		t.NextProtos = append([]string{"http/1.1"}, t.NextProtos...)
		ln = tls.NewListener(ln, t)
	}
	return ln
}

// ListenAlso serves the routes at another address, until the shutdown of Serve. All routes must be registered.
func (s *Server) ListenAlso(addr string) (net.Addr, error) {
	ln, err := s.cfg.Limit.Listen("http", addr)
	if err != nil {
		return nil, err
	}
	if !s.serveAlso(s.wrap(ln, public)) {
		_ = ln.Close()
		return nil, coded.Errorf(coded.Draining, "", "the server is shutting down")
	}
	return ln.Addr(), nil
}

// serveAlso serves the routes at another listener until the shutdown. The result is false once the shutdown has
// begun.
func (s *Server) serveAlso(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.App.Handler() // builds the tree of the routes if Serve has not
	s.also = append(s.also, ln)
	s.lingering.Add(1)
	go func() { // ends with the listener, closed by the shutdown
		defer s.lingering.Done()
		if err := s.App.Server().Serve(ln); err != nil {
			s.cfg.Log.Error("a listener has failed", "address", ln.Addr().String(), "error", err)
		}
	}()
	return true
}

// Close stops listening, if Serve will not be called. After Serve, Close does nothing.
func (s *Server) Close() error {
	var errs []error
	for _, ln := range []net.Listener{s.ln, s.managementListener, s.programsListener} {
		if ln != nil {
			errs = append(errs, ln.Close())
		}
	}
	return errors.Join(errs...)
}

// Drain makes the server close each connection after its next reply. Requests are still answered.
func (s *Server) Drain() { s.draining.Store(true) }

// Serve answers requests until ctx ends. Then Serve stops accepting, waits at most DrainTimeout for running handlers,
// and closes the remaining connections. Handlers still running are an error. Hijacked connections belong to their
// owners. Serve calls Listen if the caller has not.
func (s *Server) Serve(ctx context.Context) error {
	if s.ln == nil {
		if _, err := s.Listen(); err != nil {
			return err
		}
	}
	defer s.watcher.close()
	s.finishRoutes()
	for _, ln := range []net.Listener{s.managementListener, s.programsListener} {
		if ln != nil {
			s.serveAlso(ln)
		}
	}
	served := make(chan error, 1)
	go func() { served <- s.App.Listener(s.ln) }()
	select {
	case err := <-served:
		s.closeAlso()
		return errors.Join(err, s.ln.Close())
	case <-ctx.Done():
	}
	err := s.shutdown(served)
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.lingering.Wait()
	return err
}

// finishRoutes builds Fiber's tree of routes, once. Without a built tree, Fiber would build the tree when Serve begins,
// while a request by Handle may read the tree.
func (s *Server) finishRoutes() { s.routed.Do(func() { _ = s.App.Handler() }) }

func (s *Server) shutdown(served <-chan error) error {
	close(s.stopping)
	s.closeAlso()
	_ = s.ln.Close()
	<-served
	grace := time.Now().Add(idleGrace)
	limit, cancel := context.WithTimeout(context.Background(), s.cfg.DrainTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.App.ShutdownWithContext(limit) }()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		s.limitIdleReads(grace)
		select {
		case err := <-done:
			if err == nil {
				return nil
			}
			left := 0
			s.conns.Range(func(c, _ any) bool {
				left++
				shutdownConn(c.(*conn))
				return true
			})
			return fmt.Errorf("%d connections were still busy %v after the shutdown began, and were closed: %w", left,
				s.cfg.DrainTimeout, err)
		case <-tick.C:
		}
	}
}

// closeAlso closes the listeners of serveAlso for the shutdown, and prevents new ones.
func (s *Server) closeAlso() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	for _, ln := range s.also {
		_ = ln.Close()
	}
}

// shutdownConn shuts down both directions of a connection with a running handler. The connection is not closed, since
// fasthttp panics, and so ends the process, on failing to set a deadline after the handler.
func shutdownConn(c *conn) {
	_ = c.CloseRead()
	_ = c.CloseWrite()
}

// limitIdleReads sets the read deadline t on connections without a running handler, since otherwise an incomplete
// request would delay the shutdown until its time-out.
func (s *Server) limitIdleReads(t time.Time) {
	s.conns.Range(func(key, _ any) bool {
		c := key.(*conn)
		c.mu.Lock()
		if !c.busy {
			_ = c.SetReadDeadline(t)
		}
		c.mu.Unlock()
		return true
	})
}

// track is called by fasthttp with the states of connections.
func (s *Server) track(c net.Conn, state fasthttp.ConnState) {
	open := connOf(c)
	if open == nil {
		return // not accepted by Serve
	}
	switch state {
	case fasthttp.StateNew:
		s.conns.Store(open, nil)
	case fasthttp.StateIdle: // the reply was written
		if s.cfg.Credentials {
			accept.MarkActive(open.Conn)
		}
	case fasthttp.StateClosed, fasthttp.StateHijacked:
		s.conns.Delete(open)
		s.forget(open)
		if lost := open.lost; lost != nil {
			open.lost = nil
			if state == fasthttp.StateClosed {
				lost()
			}
		}
	}
}
