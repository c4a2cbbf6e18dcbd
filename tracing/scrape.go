//go:build !nometrics

package tracing

import (
	"bytes"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
)

// Handler serves the metrics over net/http, in the format requested by the scraper.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError,
		EnableOpenMetrics: true, Registry: m.registry})
}

// Gather returns the metrics as text with the content type, for servers without net/http. accept is the scraper's
// Accept header, or "".
func (m *Metrics) Gather(accept string) (text []byte, contentType string, err error) {
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	if accept != "" {
		format = expfmt.NegotiateAccept(http.Header{"Accept": {accept}}, expfmt.DefaultOpenMetricsAcceptedFormats()...)
	}
	families, err := m.registry.Gather()
	if err != nil && len(families) == 0 {
		return nil, "", fmt.Errorf("gather metrics: %w", err)
	}
	var out bytes.Buffer
	enc := expfmt.NewEncoder(&out, format)
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			return nil, "", fmt.Errorf("write metric %s: %w", f.GetName(), err)
		}
	}
	if c, ok := enc.(expfmt.Closer); ok {
		if err := c.Close(); err != nil {
			return nil, "", fmt.Errorf("write metrics: %w", err)
		}
	}
	return out.Bytes(), string(format), nil
}
