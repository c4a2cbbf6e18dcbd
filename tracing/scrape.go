//go:build !nometrics

package tracing

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// Handler serves the metrics over net/http, in the format requested by the scraper.
func (m *Metrics) Handler() http.Handler {
	if m.names != nil {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, contentType, err := m.Gather(r.Header.Get("Accept"))
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", contentType)
			_, _ = w.Write(text)
		})
	}
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
		if m.only && format.FormatType() == expfmt.TypeTextPlain && !m.names.hasDurations(f) {
			removeBuckets(f)
		}
		if m.names.has(f) && format.FormatType() == expfmt.TypeTextPlain {
			appendPython(&out, f)
			continue
		}
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

// hasDurations reports whether a family is a histogram of durations with the labels of n.
func (n *RequestNames) hasDurations(f *dto.MetricFamily) bool {
	return n.has(f) && !strings.HasSuffix(f.GetName(), "_bytes")
}

// removeBuckets leaves the count and the sum of histograms and summaries.
func removeBuckets(f *dto.MetricFamily) {
	for _, m := range f.Metric {
		if m.Histogram != nil {
			m.Histogram.Bucket = nil
		}
		if m.Summary != nil { // prometheus_client has no quantiles
			m.Summary.Quantile = nil
		}
	}
}

// has reports whether a family is a histogram with the labels of n.
func (n *RequestNames) has(f *dto.MetricFamily) bool {
	return n != nil && f.GetType() == dto.MetricType_HISTOGRAM && len(f.Metric) > 0 &&
		slices.ContainsFunc(f.Metric[0].Label, func(l *dto.LabelPair) bool { return l.GetName() == n.Route[0] })
}
