//go:build !notracing

package spans

import (
	"context"
	"log/slog"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"millrace/internal/setting"
	"millrace/tracing/export"
)

func init() {
	setting.Register[Config](setting.Server, section)
	setting.Register[export.Config](setting.Server, section)
}

// Open makes the tracer of a server from its settings, with the configured exporter. Open returns nil, a valid
// receiver for every method, when nothing would be exported or shown. Errors name the setting.
func Open(parts []any, version string, log *slog.Logger) (*Tracer, error) {
	cfg, _ := setting.Part[Config](parts)
	ex, _ := setting.Part[export.Config](parts)
	if !ex.On() && *cfg.Shown == 0 {
		return nil, nil
	}
	o := Options{Config: cfg, Resource: ex.Resource(version)}
	e, err := export.New(ex, log)
	if err != nil {
		return nil, err
	}
	if e != nil {
		o.Exporter = e
	}
	var remote *export.RemoteSampler
	if cfg.Sampler == "jaeger-remote" {
		if remote, err = export.NewRemoteSampler(ex, sdktrace.TraceIDRatioBased(*cfg.Ratio), log); err != nil {
			_ = e.Close(context.Background()) // has taken no spans
			return nil, err
		}
		o.Remote = remote
	}
	t := New(o)
	t.exported = e
	t.end = func() {
		if remote != nil {
			remote.Close()
		}
		if e != nil {
			ctx, cancel := context.WithTimeout(context.Background(), exportAtEnd)
			defer cancel()
			if err := e.Close(ctx); err != nil {
				log.Warn("spans were not exported before the end", "error", err)
			}
		}
	}
	return t, nil
}

// exportAtEnd bounds the export of the last spans when a server ends.
const exportAtEnd = 2 * time.Second
