//go:build !nometrics

package tracing

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// requestMetrics are the metrics of one protocol's requests.
type requestMetrics struct {
	duration, requestSize, responseSize *prometheus.HistogramVec
}

func newRequestMetrics(protocol string, buckets []float64) *requestMetrics {
	duration, in, out := requestFamilies(protocol, buckets)
	return &requestMetrics{duration.histogramVec(), in.histogramVec(), out.histogramVec()}
}

// Requests registers the metrics of a protocol's requests, whose names begin with
// the protocol's, and returns the hook that counts them. class gives the label of a
// status (HTTPClass, GRPCClass). The caller does not count the routes of
// health and metrics. Requests panics when the protocol is registered already.
func (m *Metrics) Requests(protocol string, class func(status int) string) RequestHook {
	rm := newRequestMetrics(protocol, m.buckets)
	m.registry.MustRegister(rm.duration, rm.requestSize, rm.responseSize)
	m.mu.Lock()
	m.requests = append(m.requests, rm)
	m.mu.Unlock()
	return func(route, version string, status int, duration time.Duration, in, out int) {
		rm.count(route, version, class(status), duration, in, out)
	}
}

func (rm *requestMetrics) count(route, version, class string, duration time.Duration, in, out int) {
	rm.duration.WithLabelValues(route, version, class).Observe(duration.Seconds())
	if in >= 0 {
		rm.requestSize.WithLabelValues(route, version, class).Observe(float64(in))
	}
	if out >= 0 {
		rm.responseSize.WithLabelValues(route, version, class).Observe(float64(out))
	}
}

// removeVersion deletes the series of a version of which no model is left.
func (rm *requestMetrics) removeVersion(version string) {
	for _, v := range []*prometheus.HistogramVec{rm.duration, rm.requestSize, rm.responseSize} {
		v.DeletePartialMatch(prometheus.Labels{"version": version})
	}
}
