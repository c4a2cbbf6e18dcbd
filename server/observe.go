package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/config"
	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/ingest/frames"
	"millrace/ingest/grpc"
	"millrace/ingest/streams"
	"millrace/internal/accept"
	"millrace/internal/httpd"
	"millrace/internal/role"
	"millrace/stream"
	"millrace/tracing"
	"millrace/tracing/spans"
	"millrace/workers"
)

// observer connects the hooks of the server's parts to metrics and logs.
type observer struct {
	metrics  *tracing.Metrics
	inApp    func(route, class string, took time.Duration) // of a request in its application; nil = it is not measured
	timeIn   func(*fiber.Ctx) (time.Duration, bool)        // returns that time
	settings config.Log
	log      *slog.Logger // failures of one kind are logged at most once a second
	limiter  *tracing.Limiter
	level    slog.LevelVar       // of log; it can change while the server runs
	switches tracing.LogSwitches // of log; they can change, too
	isoTimes atomic.Bool         // the log's times are called ISO8601
	debug    *tracing.DebugLog
	logFile  *tracing.LogFile // nil = none
	audit    *tracing.LogFile // nil = there is no audit log
	tracer   *spans.Tracer    // nil = none
}

func newObserver(s *Server) (*observer, error) {
	o := &observer{settings: s.cfg.Log}
	log, file, err := tracing.NewLog(tracing.LogOptions{Format: s.cfg.Log.Format, Level: s.cfg.Log.Level,
		Least: &o.level, Switches: &o.switches, File: s.cfg.Log.File, Records: s.cfg.Records})
	if err != nil {
		return nil, err
	}
	limiter := tracing.NewLimiter(log, time.Second)
	o.log, o.limiter, o.logFile = tracing.LimitedLogger(limiter), limiter, file
	if o.tracer, err = spans.Open(s.cfg.Parts, s.cfg.Version, o.log); err != nil {
		limiter.Close()
		return nil, errors.Join(err, file.Close())
	}
	o.debug = tracing.NewDebugLog(tracing.DebugOptions{Log: log, Level: &o.level, Rate: s.cfg.Log.DebugRate,
		Link: o.tracer.Link})
	of := metricsStyle(&s.cfg)
	var names *tracing.RequestNames
	if of != nil {
		names = &of.Metrics.Names
	}
	o.metrics = tracing.New(tracing.Options{
		Version:  s.cfg.Version,
		Groups:   func() []workers.GroupStats { return s.models.Stats() },
		Memory:   s.memory.Stats,
		Adapters: s.measure,
		Streams:  s.serverStreams,
		Accepted: func() map[string]accept.Stats { return s.connections.stats() },
		Audit:    func() (uint64, bool) { return s.access.AuditLost() },
		Auth:     func() map[string]uint64 { return s.access.Outcomes() },

		ModelSources: func() map[string]uint64 { return s.loader.lookups() },

		Uses:   func() []access.Use { return s.access.Uses() },
		Traces: o.traces,

		RequestBuckets: s.cfg.Metrics.Buckets, StreamSeries: s.cfg.Metrics.Streams, Triton: s.cfg.Metrics.Triton,
		Requests: names,
	})
	if names != nil {
		o.inApp, o.timeIn = o.metrics.InProgram(), of.HTTP.InProgram
	}
	return o, nil
}

// model returns the hooks of a group. The hooks of the tracer come first, because the tracer decides about keeping
// traces.
func (o *observer) model(m *stream.Model) workers.Hooks {
	return o.tracer.Model(m).Then(o.metrics.Model(m)).Then(workers.Hooks{Ended: o.debug.Frames(m)})
}

// requests returns the function that counts the requests of a listener, with the class of each status.
func (o *observer) requests(listener string, class func(int) string) tracing.RequestHook {
	return o.metrics.Requests(listener, class)
}

// tasks returns what keeps traces of tasks; nil = nothing.
func (o *observer) tasks() stream.TaskTracer {
	if o.tracer == nil {
		return nil
	}
	return o.tracer
}

func (o *observer) close() {
	o.tracer.Close()
	o.debug.Close()
	o.limiter.Close()
	if err := errors.Join(o.logFile.Close(), o.audit.Close()); err != nil {
		o.log.Warn("the log file did not close", "error", err)
	}
}

// openAudit opens the file of the audit log.
func (o *observer) openAudit(path string) (lines *slog.Logger, err error) {
	lines, o.audit, err = tracing.NewAuditLog(path)
	return lines, err
}

// reopen opens the files of the log and of the audit log again.
func (o *observer) reopen() error { return errors.Join(o.logFile.Reopen(), o.audit.Reopen()) }

// traces returns the totals of the tracer and its exporter.
func (o *observer) traces() tracing.TraceStats {
	st := o.tracer.Stats()
	return tracing.TraceStats{Kept: st.Kept, OverLimit: st.Over, Unbuilt: st.Lost, Exported: st.Exported,
		Lost: st.LostSpans, Waiting: st.Waiting}
}

// measure adds up what the adapters and workers have for the metrics.
func (s *Server) measure() ingest.Metrics {
	m := ingest.Metrics{Goroutines: map[string]int{}}
	s.listening.measure(&m)
	for _, g := range s.models.Snapshot() {
		m.Goroutines["workers"] += g.Workers + g.Quarantined
	}
	return m
}

// serverStreams returns the statistics of the server streams.
func (s *Server) serverStreams() streams.Stats {
	a := adapterOf[*streams.Adapter](s.listening)
	if a == nil {
		return streams.Stats{}
	}
	return a.Stats()
}

// unobserved reports whether requests of a route are left out of the metrics, because
// they do not use a model.
func unobserved(route, metrics string) bool {
	return route == metrics || route == statusRoute || strings.HasPrefix(route, tracesRoute) ||
		strings.Contains(route, "health")
}

// metricsRoute registers the metrics.
func (o *observer) metricsRoute(app *fiber.App, route string) {
	app.Get(route, func(c *fiber.Ctx) error {
		text, contentType, err := o.metrics.Gather(c.Get(fiber.HeaderAccept))
		if err != nil {
			return err
		}
		c.Set(fiber.HeaderContentType, contentType)
		return c.Send(text)
	})
}

// measureRequests measures each request for ended, nil = none, and for the log. metrics is the route of the metrics, ""
// = another address has the metrics. It must come before all routes.
func (o *observer) measureRequests(app *fiber.App, ended tracing.RequestHook, metrics string) {
	app.Use(func(c *fiber.Ctx) error {
		if ended == nil && !o.debug.On() {
			return c.Next()
		}
		begun := time.Now()
		if err := c.Next(); err != nil {
			if err := c.App().ErrorHandler(c, err); err != nil {
				return err
			}
		}
		route := httpd.Route(c)
		if o.debug.On() {
			o.debug.Request(httpRequest(c, time.Since(begun)))
		}
		if ended == nil || unobserved(c.Route().Path, metrics) {
			return nil
		}
		status, version := c.Response().StatusCode(), ""
		if status < http.StatusBadRequest {
			// only a version that exists, so that clients cannot make labels
			version = strings.Clone(c.Params("version"))
		}
		ended(route, version, status, time.Since(begun), c.Request().Header.ContentLength(), replySize(c))
		if o.inApp != nil {
			if took, ok := o.timeIn(c); ok {
				o.inApp(route, tracing.HTTPClass(status), took)
			}
		}
		return nil
	})
}

// httpRequest describes a request that was answered.
func httpRequest(c *fiber.Ctx, took time.Duration) tracing.Request {
	r := tracing.Request{
		Protocol: "http", Method: strings.Clone(c.Method()), Route: httpd.Route(c), Path: strings.Clone(c.Path()),
		Status: c.Response().StatusCode(), Duration: took,
		In: c.Request().Header.ContentLength(), Out: replySize(c),
	}
	var t stream.TraceContext
	if !frames.Traceparent(&t, c.Response().Header.Peek("traceresponse")) {
		var h frames.TraceHeaders
		c.Request().Header.VisitAll(h.Add)
		t, _ = h.Context()
	}
	r.Trace = t.Trace
	return r
}

// replySize returns the bytes of a reply's body, negative when they are not known. The
// header has the length of a body that is a stream only.
func replySize(c *fiber.Ctx) int {
	if r := c.Response(); !r.IsBodyStream() {
		return len(r.Body())
	}
	return c.Response().Header.ContentLength()
}

// refused logs a request that was refused before it had a route.
func (o *observer) refused(method, path string, status int) {
	if o.debug.On() {
		o.debug.Request(tracing.Request{Protocol: "http", Method: method, Route: "refused", Path: path, Status: status,
			In: -1, Out: -1})
	}
}

// called returns what measures each call over gRPC for ended, nil = none, and for the log.
func (o *observer) called(ended tracing.RequestHook) func(grpc.CallSummary) {
	return func(c grpc.CallSummary) {
		if o.debug.On() {
			o.debug.Request(tracing.Request{Protocol: "grpc", Route: c.Method, Status: c.Code, Duration: c.Took,
				In: c.In, Out: c.Out})
		}
		if ended != nil && !strings.HasPrefix(c.Method, "/grpc.") { // health and reflection use no model
			route := c.Method
			if c.Route != "" {
				route = c.Route
			}
			ended(route, c.Version, c.Code, c.Took, c.In, c.Out)
			if c.InApp > 0 && o.inApp != nil {
				o.inApp(route, tracing.GRPCName(c.Code), c.InApp)
			}
		}
	}
}

// connKey is the key of a request's connection.
type connKey struct{}

// metricsServer serves the metrics at their own address.
type metricsServer struct {
	addr  string
	tls   *tls.Config // nil = not encrypted
	limit *accept.Limit
	ln    net.Listener
	srv   http.Server
}

var (
	_ ingest.Interface = (*metricsServer)(nil)
	_ listens          = (*metricsServer)(nil)
	_ ingest.Leaver    = (*metricsServer)(nil)
)

// server returns the server of the metrics. idle is the longest time between requests of a connection; allowed
// returns why a request with a Host is not answered at an address; guard returns a handler that lets in who has a
// role.
func (o *observer) server(c config.Metrics, encrypt *tls.Config, limit *accept.Limit, idle time.Duration,
	allowed func(host string, at net.Addr) error, guard func(role.Role, http.Handler) http.Handler,
	metrics role.Role) *metricsServer {
	mux := http.NewServeMux()
	mux.Handle(c.Path, guard(metrics, o.metrics.Handler()))
	if c.Pprof {
		at := http.NewServeMux()
		profiles(at)
		mux.Handle(config.ProfilesRoute+"/", guard(role.Manage, at))
	}
	if encrypt != nil {
		encrypt = encrypt.Clone()
		encrypt.NextProtos = []string{"http/1.1"}
	}
	if !c.TLS {
		encrypt = nil
	}
	return &metricsServer{addr: c.Address, tls: encrypt, limit: limit, srv: http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       20 * time.Second,
		WriteTimeout:      maxProfile*time.Second + time.Minute,
		IdleTimeout:       idle,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(o.log.Handler(), slog.LevelDebug), // such as handshakes that failed
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
			if err := allowed(r.Host, at); err != nil {
				http.Error(w, err.Error(), http.StatusForbidden)
				return
			}
			mux.ServeHTTP(w, r)
		}),
	}}
}

// Listen implements listens.
func (m *metricsServer) Listen() (net.Addr, error) {
	ln, err := m.limit.Listen("metrics", m.addr)
	if err != nil {
		return nil, err
	}
	if m.tls != nil {
		ln = tls.NewListener(ln, m.tls)
	}
	m.ln = ln
	return ln.Addr(), nil
}

// Leave implements ingest.Leaver.
func (m *metricsServer) Leave() { m.srv.SetKeepAlivesEnabled(false) }

// Close implements listens.
func (m *metricsServer) Close() error {
	if m.ln == nil {
		return nil
	}
	return m.ln.Close()
}

// Name implements ingest.Interface.
func (*metricsServer) Name() string { return "metrics" }

// Serve implements ingest.Interface.
func (m *metricsServer) Serve(ctx context.Context, _ *ingest.Gate) error {
	failed := make(chan error, 1)
	go func() { failed <- m.srv.Serve(m.ln) }() // ends with Shutdown
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	err := m.srv.Shutdown(ending)
	if err != nil {
		err = m.srv.Close()
	}
	if e := <-failed; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}
