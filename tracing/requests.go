//go:build !nometrics

package tracing

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// requestMetrics are the metrics of one protocol's requests.
type requestMetrics struct {
	families []metricFamily
	descs    []*prometheus.Desc
	values   func(requestLabels) []string // of the labels of the families

	mu     sync.Mutex // held for replacing the map
	series atomic.Pointer[map[requestLabels]*requestSeries]
}

// requestLabels are the labels of a request, in the order of the families' labels.
type requestLabels struct{ route, version, class string }

// requestSeries counts the requests with the same labels. A figure without counts has no series.
type requestSeries struct {
	labels [][]*dto.LabelPair
	values []*distribution
}

func newRequestMetrics(versions bool, families ...metricFamily) *requestMetrics {
	rm := &requestMetrics{families: families, values: func(l requestLabels) []string {
		return []string{l.route, l.version, l.class}
	}}
	if !versions {
		rm.values = func(l requestLabels) []string { return []string{l.route, l.class} }
	}
	for i := range families {
		f := &families[i]
		rm.descs = append(rm.descs, prometheus.NewDesc(f.name, f.text(), f.names(), nil))
	}
	rm.series.Store(&map[requestLabels]*requestSeries{})
	return rm
}

// Requests registers the metrics of a protocol's requests, with names beginning with the protocol's name, and returns
// the counting hook. class returns the label of a status (HTTPClass, GRPCClass). The caller does not count the routes
// of health and metrics. Requests panics when the protocol is already registered.
func (m *Metrics) Requests(protocol string, class func(status int) string) RequestHook {
	duration, in, out := requestFamilies(protocol, m.buckets, m.names)
	rm := newRequestMetrics(m.names == nil, duration, in, out)
	m.register(rm)
	return func(route, version string, status int, duration time.Duration, in, out int) {
		if m.names != nil {
			version = ""
		}
		rm.count(requestLabels{route, version, class(status)}, int(max(duration, 0)), in, out)
	}
}

// InProgram registers the metric of the time in programs, under the name in Options.Requests, and returns the
// counting hook. The hook takes the route, the class of the status, and the time.
func (m *Metrics) InProgram() func(route, class string, took time.Duration) {
	rm := newRequestMetrics(false, m.names.inProgramFamily(m.buckets))
	m.register(rm)
	return func(route, class string, took time.Duration) {
		rm.count(requestLabels{route, "", class}, int(max(took, 0)))
	}
}

func (m *Metrics) register(rm *requestMetrics) {
	m.registry.MustRegister(rm)
	m.mu.Lock()
	m.requests = append(m.requests, rm)
	m.mu.Unlock()
}

// count adds the values of a request, in the order of the families; a negative value is unknown.
func (rm *requestMetrics) count(labels requestLabels, values ...int) {
	s := (*rm.series.Load())[labels]
	if s == nil {
		s = rm.add(labels)
	}
	for i, v := range values {
		if v >= 0 {
			s.values[i].add(uint64(v), "")
		}
	}
}

// add returns a new series with the given labels.
func (rm *requestMetrics) add(labels requestLabels) *requestSeries {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	if s := (*rm.series.Load())[labels]; s != nil {
		return s
	}
	s := new(requestSeries)
	for i := range rm.families {
		unit := 1.0
		if rm.families[i].nanoseconds {
			unit = 1e-9
		}
		s.values = append(s.values, newDistribution(rm.families[i].buckets, unit))
		s.labels = append(s.labels, prometheus.MakeLabelPairs(rm.descs[i], rm.values(labels)))
	}
	all := maps.Clone(*rm.series.Load())
	all[labels] = s
	rm.series.Store(&all)
	return s
}

// removeVersion deletes the series of a version without a remaining model.
func (rm *requestMetrics) removeVersion(version string) {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	all := maps.Clone(*rm.series.Load())
	maps.DeleteFunc(all, func(labels requestLabels, _ *requestSeries) bool { return labels.version == version })
	rm.series.Store(&all)
}

// Describe implements prometheus.Collector.
func (rm *requestMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range rm.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (rm *requestMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, s := range *rm.series.Load() {
		for i, values := range s.values {
			if !values.empty() {
				ch <- sample{rm.descs[i], s.labels[i], values}
			}
		}
	}
}
