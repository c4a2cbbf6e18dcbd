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
	families [requestFigures]family
	descs    [requestFigures]*prometheus.Desc

	mu     sync.Mutex // of those who replace the map
	series atomic.Pointer[map[requestLabels]*requestSeries]
}

// What is measured of a request.
const (
	requestDuration = iota
	requestSize
	responseSize
	requestFigures
)

// requestLabels are the labels of a request, in the order of those of its families.
type requestLabels struct{ route, version, class string }

// requestSeries counts the requests with the same labels. A figure that was never counted
// has no series.
type requestSeries struct {
	labels [requestFigures][]*dto.LabelPair
	values [requestFigures]*distribution
}

func newRequestMetrics(protocol string, buckets []float64) *requestMetrics {
	rm := new(requestMetrics)
	rm.families[requestDuration], rm.families[requestSize], rm.families[responseSize] = requestFamilies(protocol, buckets)
	for i := range rm.families {
		f := &rm.families[i]
		rm.descs[i] = prometheus.NewDesc(f.name, f.text(), f.names(), nil)
	}
	rm.series.Store(&map[requestLabels]*requestSeries{})
	return rm
}

// Requests registers the metrics of a protocol's requests, whose names begin with
// the protocol's, and returns the hook that counts them. class gives the label of a
// status (HTTPClass, GRPCClass). The caller does not count the routes of
// health and metrics. Requests panics when the protocol is registered already.
func (m *Metrics) Requests(protocol string, class func(status int) string) RequestHook {
	rm := newRequestMetrics(protocol, m.buckets)
	m.registry.MustRegister(rm)
	m.mu.Lock()
	m.requests = append(m.requests, rm)
	m.mu.Unlock()
	return func(route, version string, status int, duration time.Duration, in, out int) {
		rm.count(requestLabels{route, version, class(status)}, duration, in, out)
	}
}

func (rm *requestMetrics) count(labels requestLabels, duration time.Duration, in, out int) {
	s := (*rm.series.Load())[labels]
	if s == nil {
		s = rm.add(labels)
	}
	s.values[requestDuration].add(uint64(max(duration, 0)), "")
	if in >= 0 {
		s.values[requestSize].add(uint64(in), "")
	}
	if out >= 0 {
		s.values[responseSize].add(uint64(out), "")
	}
}

// add returns the series with labels that are new.
func (rm *requestMetrics) add(labels requestLabels) *requestSeries {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	if s := (*rm.series.Load())[labels]; s != nil {
		return s
	}
	s := new(requestSeries)
	for i := range rm.families {
		unit := 1.0
		if i == requestDuration {
			unit = 1e-9
		}
		s.values[i] = newDistribution(rm.families[i].buckets, unit)
		s.labels[i] = prometheus.MakeLabelPairs(rm.descs[i], []string{labels.route, labels.version, labels.class})
	}
	all := maps.Clone(*rm.series.Load())
	all[labels] = s
	rm.series.Store(&all)
	return s
}

// removeVersion deletes the series of a version of which no model is left.
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
