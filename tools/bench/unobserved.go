package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/ingest/ws"
	"millrace/internal/httpd"
	"millrace/internal/role"
	"millrace/server"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/tracing/export"
	"millrace/workers"
)

// unobserved is a server without the hooks of metrics, and the backend of its adapters.
type unobserved struct {
	addr   string
	memory *buf.Pool
	models *workers.Manager
	end    func() error
}

var _ ingest.Backend = (*unobserved)(nil)

// Open implements ingest.Backend.
func (p *unobserved) Open(model, version string, o stream.Options, sink stream.Sink) (*stream.Stream, error) {
	return p.models.Open(model, version, o, sink)
}

// Models implements ingest.Backend.
func (p *unobserved) Models() ingest.Repository { return readOnlyRepository{p} }

// Memory implements ingest.Backend.
func (p *unobserved) Memory() *buf.Pool { return p.memory }

// State implements ingest.Backend.
func (*unobserved) Sequences() *ingest.Sequences { return nil }
func (*unobserved) State() ingest.State          { return ingest.State{Ready: true} }

// readOnlyRepository is the part of a repository used by a stream.
type readOnlyRepository struct{ *unobserved }

func (r readOnlyRepository) Model(name, version string) (*stream.Model, bool, error) {
	g, err := r.models.Group(name, version)
	if err != nil {
		return nil, false, err
	}
	return g.Model(), g.Ready(), nil
}
func (readOnlyRepository) Choose(string) string { return "" }
func (readOnlyRepository) Config(string, string) ([]byte, error) {
	return nil, stream.Errorf(stream.Unsupported, "", "no configuration is here")
}
func (readOnlyRepository) Statistics(string, string) ([]ingest.Statistics, error) {
	return nil, stream.Errorf(stream.Unsupported, "", "no statistics are here")
}
func (r readOnlyRepository) Versions(name string) []string { return r.models.Versions(name) }
func (readOnlyRepository) Index() []ingest.Entry           { return nil }
func (readOnlyRepository) Load(context.Context, string, ingest.Load) (ingest.Loaded, error) {
	return ingest.Loaded{}, stream.Errorf(stream.Unsupported, "", "nothing is loaded here")
}
func (readOnlyRepository) Unload(context.Context, string, ingest.Unload) error {
	return stream.Errorf(stream.Unsupported, "", "nothing is unloaded here")
}
func (readOnlyRepository) Scale(context.Context, string, int) error {
	return stream.Errorf(stream.Unsupported, "", "nothing is scaled here")
}

func startUnobserved() (*unobserved, error) {
	noLog := slog.New(slog.DiscardHandler)
	mem := buf.NewPool(1 << 30)
	p := &unobserved{memory: mem, models: workers.NewManager(workers.ManagerOptions{Memory: mem, Log: noLog})}
	cfg := workers.Config{Name: "identity", Kind: "identity", Instances: 2}
	if _, err := p.models.LoadConfig(context.Background(), cfg.WithDefaults(), false); err != nil {
		return nil, err
	}
	h, err := httpd.New(httpd.Config{Addr: "127.0.0.1:0", Log: noLog})
	if err != nil {
		return nil, err
	}
	gate := ingest.NewGate(p, access.AllowEverybody(access.Quotas{}))
	h.App.Use(func(c *fiber.Ctx) error {
		client, err := gate.Enter(c.UserContext(), access.Credentials{Conn: c.Context().Conn()},
			access.Need{Role: role.Infer})
		if err != nil {
			return err
		}
		httpd.SetClient(c, client)
		return c.Next()
	})
	a := ws.New(h, ws.Options{Log: noLog})
	addr, err := h.Listen()
	if err != nil {
		return nil, err
	}
	p.addr = addr.String()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var faults [2]error
	wg.Go(func() { faults[0] = h.Serve(ctx) })
	wg.Go(func() { faults[1] = a.Serve(ctx, gate) })
	p.end = func() error {
		cancel()
		wg.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		for _, err := range append(faults[:], p.models.Close(ctx)) {
			if err != nil {
				return fmt.Errorf("the server without hooks: %w", err)
			}
		}
		return nil
	}
	return p, nil
}

// metricsOn compares a server with metrics, 1 % of traces, tail rules and an exporter with a server without the hooks
// of all four.
func metricsOn(b *bench) error {
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer collector.Close()
	full, err := serve(func(c *server.Config) {
		c.Parts = append(c.Parts, &export.Config{Exporter: export.OTLPHTTP, Endpoint: collector.URL})
	}, workers.Config{Name: "identity", Source: "identity", Instances: 2})
	if err != nil {
		return err
	}
	defer full.end()
	p, err := startUnobserved()
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name  string
		size  int
		limit float64
	}{{"1 KB", 1 << 10, 0}, {"30 KB", 30 << 10, 0.98}} {
		row, err := b.compareEcho("metrics and traces on against off, WebSocket "+c.name, c.size,
			"ws://"+p.addr+"/v2/models/identity/stream"+wsQuery, full.stream("identity", wsQuery))
		if err != nil {
			return err
		}
		b.add(row.atLeast(c.limit))
	}
	return p.end()
}
