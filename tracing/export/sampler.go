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

// RemoteSampler samples as a Jaeger server says, which it asks from time to time. Before the
// first answer it samples as another sampler does, and while the server does not answer, as
// it said last. It is safe for concurrent use.
type RemoteSampler struct {
	*jaegerremote.Sampler
	cancel context.CancelFunc
}

// maxOperations bounds the names of root spans that have a ratio of their own.
const maxOperations = 256

// NewRemoteSampler returns a sampler that asks cfg.SamplerEndpoint for the strategy of
// cfg.ServiceName. It asks in the background until Close.
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

// strategies asks a server what is sampled. Other than the fetcher of jaegerremote, it bounds
// the answer and ends with the sampler.
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
		return nil, fmt.Errorf("tracing.sampler_endpoint: %s answered %s: %.300q", withoutQuery(&s.url), answer.Status, body)
	}
	return body, nil
}
