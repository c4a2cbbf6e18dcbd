//go:build !notracing

package export

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/contrib/samplers/jaegerremote"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"millrace/internal/setting"
)

// RemoteSampler samples by the strategy of a Jaeger server, asked from time to time. Before the first answer, another
// sampler decides; while the server does not answer, the last strategy stays. RemoteSampler is safe for concurrent
// use.
type RemoteSampler struct {
	*jaegerremote.Sampler
	cancel context.CancelFunc
}

// maxOperations bounds the names of root spans with a ratio of their own.
const maxOperations = 256

// NewRemoteSampler returns a sampler that asks cfg.SamplerEndpoint for the strategy of cfg.ServiceName, in the
// background until Close.
func NewRemoteSampler(cfg Config, first sdktrace.Sampler, log *slog.Logger) (*RemoteSampler, error) {
	setting.Fill(&cfg)
	u, err := httpURL("sampler_endpoint", cfg.SamplerEndpoint)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	fetch := &strategies{ctx: ctx, url: *u, timeout: cfg.Timeout, client: newHTTPClient(nil)}
	return &RemoteSampler{Sampler: jaegerremote.New(cfg.ServiceName,
		jaegerremote.WithSamplingServerURL(u.String()),
		jaegerremote.WithSamplingStrategyFetcher(fetch),
		jaegerremote.WithSamplingRefreshInterval(cfg.SamplerRefresh),
		jaegerremote.WithInitialSampler(first),
		jaegerremote.WithMaxOperations(maxOperations),
		jaegerremote.WithLogger(logr.FromSlogHandler(log.Handler())),
	), cancel: cancel}, nil
}

// Close ends the requests.
func (s *RemoteSampler) Close() {
	s.cancel()
	s.Sampler.Close()
}

// strategies asks a server for the sampling strategy. Unlike the fetcher of jaegerremote, strategies bounds the
// answer and ends with the sampler.
type strategies struct {
	ctx     context.Context
	url     url.URL
	timeout time.Duration
	client  *http.Client
}

// Fetch implements jaegerremote.SamplingStrategyFetcher.
func (s *strategies) Fetch(service string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
	defer cancel()
	u := s.url
	query := u.Query()
	query.Set("service", service)
	u.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := s.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("tracing.sampler_endpoint: %s: %w", withoutQuery(&s.url), withoutURL(err))
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("tracing.sampler_endpoint: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("tracing.sampler_endpoint: %s answered %s: %.300q", withoutQuery(&s.url), answer.Status,
			body)
	}
	return body, nil
}
