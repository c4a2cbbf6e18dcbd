package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/config"
	"millrace/ingest"
	"millrace/ingest/frames"
	"millrace/ingest/grpc"
	"millrace/ingest/streams"
	"millrace/internal/accept"
	"millrace/stream"
	"millrace/tracing"
	"millrace/tracing/spans"
	"millrace/workers"
)

// observer connects the hooks of the server's parts to metrics and logs.
type observer struct {
	metrics *tracing.Metrics
	log     *slog.Logger // failures of one kind are logged at most once a second
	limiter *tracing.Limiter
	level   slog.LevelVar // of log; it can change while the server runs
	debug   *tracing.DebugLog
	logFile *tracing.LogFile // nil = none
	tracer  *spans.Tracer    // nil = none
}

func newObserver(s *Server) (*observer, error) {
	o := &observer{}
	log, file, err := tracing.NewLog(tracing.LogOptions{Format: s.cfg.Log.Format, Level: s.cfg.Log.Level, Least: &o.level, File: s.cfg.Log.File})
	if err != nil {
		return nil, err
	}
	limiter := tracing.NewLimiter(log, time.Second)
	o.log, o.limiter, o.logFile = tracing.LimitedLogger(limiter), limiter, file
	if o.tracer, err = spans.Open(s.cfg.Parts, s.version, o.log); err != nil {
		limiter.Close()
		return nil, errors.Join(err, file.Close())
	}
	o.debug = tracing.NewDebugLog(tracing.DebugOptions{Log: log, Level: &o.level, Rate: s.cfg.Log.DebugRate, Link: o.tracer.Link})
	o.metrics = tracing.New(tracing.Options{
		Version:  s.version,
		Groups:   func() []workers.GroupStats { return s.models.Stats() },
		Memory:   s.memory.Stats,
		Adapters: s.measure,
		Streams:  s.serverStreams,
		Accepted: s.limit.Stats,
		Traces:   o.traces,

		RequestBuckets: s.cfg.Metrics.Buckets, StreamSeries: s.cfg.Metrics.Streams, Triton: s.cfg.Metrics.Triton,
	})
	return o, nil
}

// model returns the hooks of a group. Those of the tracer come first, because they say
// which traces are kept.
func (o *observer) model(m *stream.Model) workers.Hooks {
	return o.tracer.Model(m).Then(o.metrics.Model(m)).Then(workers.Hooks{Ended: o.debug.Frames(m)})
}

func (o *observer) close() {
	o.tracer.Close()
	o.debug.Close()
	o.limiter.Close()
	if err := o.logFile.Close(); err != nil {
		o.log.Warn("the log file did not close", "error", err)
	}
}

// traces returns the totals of the tracer and its exporter.
func (o *observer) traces() tracing.TraceStats {
	st := o.tracer.Stats()
	return tracing.TraceStats{Kept: st.Kept, OverLimit: st.Over, Unbuilt: st.Lost, Exported: st.Exported, Lost: st.LostSpans, Waiting: st.Waiting}
}

// measure adds up what the adapters and workers have for the metrics.
func (s *Server) measure() ingest.Metrics {
	m := ingest.Metrics{Goroutines: map[string]int{}}
	for _, a := range s.adapters {
		if a, ok := a.(ingest.Measured); ok {
			m.Add(a.Metrics())
		}
	}
	for _, g := range s.models.Snapshot() {
		m.Goroutines["workers"] += g.Workers + g.Quarantined
	}
	return m
}

// serverStreams returns the statistics of the server streams.
func (s *Server) serverStreams() streams.Stats {
	if s.streams == nil {
		return streams.Stats{}
	}
	return s.streams.Stats()
}

// unobserved reports whether requests of a route are left out of the metrics, because
// they do not use a model.
func unobserved(route, metrics string) bool {
	return route == metrics || route == statusRoute || strings.HasPrefix(route, tracesRoute) || strings.Contains(route, "health")
}

// routes registers what must come before the adapters' routes: the measurement of each
// request by ended, nil = none, and the metrics when they have no address of their own.
func (o *observer) routes(app *fiber.App, ended tracing.RequestHook, metrics string, here bool) {
	o.measureRequests(app, ended, metrics)
	if !here {
		return
	}
	app.Get(metrics, func(c *fiber.Ctx) error {
		text, contentType, err := o.metrics.Gather(c.Get(fiber.HeaderAccept))
		if err != nil {
			return err
		}
		c.Set(fiber.HeaderContentType, contentType)
		return c.Send(text)
	})
}

// measureRequests measures each request for ended, nil = none, and for the log.
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
		route := c.Route().Path
		if o.debug.On() {
			o.debug.Request(httpRequest(c, time.Since(begun)))
		}
		if ended == nil || unobserved(route, metrics) {
			return nil
		}
		status, version := c.Response().StatusCode(), ""
		if status < http.StatusBadRequest {
			version = strings.Clone(c.Params("version")) // only a version that exists, so that clients cannot make labels
		}
		ended(route, version, status, time.Since(begun), c.Request().Header.ContentLength(), replySize(c))
		return nil
	})
}

// httpRequest describes a request that was answered.
func httpRequest(c *fiber.Ctx, took time.Duration) tracing.Request {
	r := tracing.Request{
		Protocol: "http", Method: strings.Clone(c.Method()), Route: c.Route().Path, Path: strings.Clone(c.Path()), Status: c.Response().StatusCode(), Duration: took,
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
		o.debug.Request(tracing.Request{Protocol: "http", Method: method, Route: "refused", Path: path, Status: status, In: -1, Out: -1})
	}
}

// called returns what measures each call over gRPC for ended, nil = none, and for the log.
func (o *observer) called(ended tracing.RequestHook) func(grpc.Called) {
	return func(c grpc.Called) {
		if o.debug.On() {
			o.debug.Request(tracing.Request{Protocol: "grpc", Route: c.Method, Status: c.Code, Duration: c.Took, In: c.In, Out: c.Out})
		}
		if ended != nil && !strings.HasPrefix(c.Method, "/grpc.") { // health and reflection use no model
			ended(c.Method, c.Version, c.Code, c.Took, c.In, c.Out)
		}
	}
}

// metricsServer serves the metrics at their own address.
type metricsServer struct {
	addr  string
	limit *accept.Limit
	ln    net.Listener
	srv   http.Server
}

var (
	_ ingest.Interface = (*metricsServer)(nil)
	_ listens          = (*metricsServer)(nil)
)

func (o *observer) server(c config.Metrics, limit *accept.Limit) *metricsServer {
	mux := http.NewServeMux()
	mux.Handle(c.Path, o.metrics.Handler())
	if c.Pprof {
		profiles(mux)
	}
	return &metricsServer{addr: c.Address, limit: limit, srv: http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}}
}

// Listen implements listens.
func (m *metricsServer) Listen() (net.Addr, error) {
	ln, err := m.limit.Listen("metrics", m.addr)
	if err != nil {
		return nil, err
	}
	m.ln = ln
	return ln.Addr(), nil
}

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
func (m *metricsServer) Serve(ctx context.Context, _ ingest.Backend) error {
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
