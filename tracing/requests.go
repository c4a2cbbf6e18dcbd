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
	labels := []string{"endpoint", "version", "status"}
	return &requestMetrics{
		duration:     histograms(protocol+"_request_duration_seconds", "Time from a request's headers to the end of its response.", buckets, labels...),
		requestSize:  histograms(protocol+"_request_size_bytes", "Size of request bodies.", byteBuckets, labels...),
		responseSize: histograms(protocol+"_response_size_bytes", "Size of response bodies.", byteBuckets, labels...),
	}
}

// RequestHook counts one request: the route's pattern (never the raw path), the
// model's version or "", the status, the duration, and the bytes of the request's
// and the response's body (negative: unknown). The label of the route is endpoint.
type RequestHook func(route, version string, status int, duration time.Duration, in, out int)

// Requests registers the metrics of a protocol's requests, whose names begin with
// the protocol's, and returns the hook that counts them. class gives the label of a
// status (HTTPClass, GRPCClass). The caller does not count the routes of
// health and metrics. Requests panics when the protocol is registered already.
func (m *Metrics) Requests(protocol string, class func(status int) string) RequestHook {
	rm := newRequestMetrics(protocol, m.buckets)
	m.registry.MustRegister(rm.duration, rm.requestSize, rm.responseSize)
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

// HTTPClass returns the class of an HTTP status, "1xx" to "5xx", or "other".
func HTTPClass(status int) string {
	if k := status / 100; k >= 1 && k <= 5 {
		return [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}[k-1]
	}
	return "other"
}

// GRPCClass returns the class of a gRPC code: "ok", "client_error" or "server_error".
func GRPCClass(code int) string {
	switch code {
	case 0:
		return "ok"
	case 1, 3, 5, 6, 7, 8, 9, 10, 11, 16:
		return "client_error"
	}
	return "server_error"
}
