package tracing

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// api are the metrics of one protocol's requests.
type api struct {
	took, in, out *prometheus.HistogramVec
}

func newAPI(protocol string, buckets []float64) *api {
	labels := []string{"endpoint", "version", "status"}
	return &api{
		took: histograms(protocol+"_request_duration_seconds", "Time from a request's headers to the end of its response.", buckets, labels...),
		in:   histograms(protocol+"_request_size_bytes", "Size of request bodies.", byteBuckets, labels...),
		out:  histograms(protocol+"_response_size_bytes", "Size of response bodies.", byteBuckets, labels...),
	}
}

// RequestHook is told of each request: the route's pattern (never the raw path),
// the model's version or "", the status, how long it took, and the bytes of the
// request's and the response's body (negative: unknown).
type RequestHook func(endpoint, version string, status int, took time.Duration, in, out int)

// Requests returns the hook of a protocol's requests, whose metrics begin with its
// name. class sorts its statuses into the few values of a label (HTTPClass,
// GRPCClass). The caller leaves the health and metrics endpoints out. It panics when
// the protocol has its metrics already.
func (m *Metrics) Requests(protocol string, class func(status int) string) RequestHook {
	a := newAPI(protocol, m.buckets)
	m.registry.MustRegister(a.took, a.in, a.out)
	return func(endpoint, version string, status int, took time.Duration, in, out int) {
		a.count(endpoint, version, class(status), took, in, out)
	}
}

func (a *api) count(endpoint, version, class string, took time.Duration, in, out int) {
	a.took.WithLabelValues(endpoint, version, class).Observe(took.Seconds())
	if in >= 0 {
		a.in.WithLabelValues(endpoint, version, class).Observe(float64(in))
	}
	if out >= 0 {
		a.out.WithLabelValues(endpoint, version, class).Observe(float64(out))
	}
}

// HTTPClass sorts statuses of HTTP into 1xx to 5xx.
func HTTPClass(status int) string {
	if k := status / 100; k >= 1 && k <= 5 {
		return [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}[k-1]
	}
	return "other"
}

// GRPCClass sorts the codes of gRPC by who can do something about them: ok,
// client_error and server_error.
func GRPCClass(code int) string {
	switch code {
	case 0:
		return "ok"
	case 1, 3, 5, 6, 7, 8, 9, 10, 11, 16:
		return "client_error"
	}
	return "server_error"
}
