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
	"millrace/ingest/streams"
	"millrace/internal/accept"
	"millrace/stream"
	"millrace/tracing"
	"millrace/workers"
)

// observer connects the hooks of the server's parts to metrics and logs.
type observer struct {
	metrics *tracing.Metrics
	log     *slog.Logger // failures of one kind are logged at most once a second
	limiter *tracing.Limiter
	logFile *tracing.LogFile // nil = none
}

func newObserver(s *Server) (*observer, error) {
	log, file, err := tracing.NewLog(tracing.LogOptions{Format: s.cfg.Log.Format, Level: s.cfg.Log.Level, File: s.cfg.Log.File})
	if err != nil {
		return nil, err
	}
	limiter := tracing.NewLimiter(log, time.Second)
	o := &observer{log: tracing.LimitedLogger(limiter), limiter: limiter, logFile: file}
	o.metrics = tracing.New(tracing.Options{
		Version:  s.version,
		Groups:   func() []workers.GroupStats { return s.models.Stats() },
		Memory:   s.memory.Stats,
		Adapters: s.measure,
		Streams:  s.serverStreams,
		Accepted: s.limit.Stats,

		RequestBuckets: s.cfg.Metrics.Buckets, StreamSeries: *s.cfg.Metrics.Streams,
	})
	return o, nil
}

func (o *observer) model(m *stream.Model) workers.Hooks { return o.metrics.Model(m) }

func (o *observer) close() {
	o.limiter.Close()
	if err := o.logFile.Close(); err != nil {
		o.log.Warn("the log file did not close", "error", err)
	}
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
	return route == metrics || route == statusRoute || strings.Contains(route, "health")
}

// routes registers what must come before the adapters' routes: the measurement of each
// request by ended, nil = none, and the metrics when they have no address of their own.
func (o *observer) routes(app *fiber.App, ended tracing.RequestHook, metrics string, here bool) {
	if ended != nil {
		o.measureRequests(app, ended, metrics)
	}
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

func (o *observer) measureRequests(app *fiber.App, ended tracing.RequestHook, metrics string) {
	app.Use(func(c *fiber.Ctx) error {
		begun := time.Now()
		if err := c.Next(); err != nil {
			if err := c.App().ErrorHandler(c, err); err != nil {
				return err
			}
		}
		route := c.Route().Path
		if unobserved(route, metrics) {
			return nil
		}
		status, version := c.Response().StatusCode(), ""
		if status < http.StatusBadRequest {
			version = strings.Clone(c.Params("version")) // only a version that exists, so that clients cannot make labels
		}
		ended(route, version, status, time.Since(begun), c.Request().Header.ContentLength(), c.Response().Header.ContentLength())
		return nil
	})
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
