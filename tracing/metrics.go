//go:build !nometrics

package tracing

import (
	"encoding/hex"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"millrace/stream"
	"millrace/workers"
)

// WithMetrics reports whether metrics are part of this build: see the build tag
// nometrics.
const WithMetrics = true

// Metrics are the metrics of one server. They have a registry of their own, so that
// one process can run several servers. The methods are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	goodput *prometheus.CounterVec
	skipped *prometheus.CounterVec
	stages  *prometheus.HistogramVec
	age     *prometheus.HistogramVec
	rows    *prometheus.HistogramVec
	batches *prometheus.HistogramVec
	buckets []float64 // of requests

	mu       sync.Mutex
	requests []*requestMetrics
	models   map[modelVersion]*series
	closed   []modelVersion // those without a group, the one that ended first at the front
}

// maxClosed is the number of models without a group whose series are kept until
// Options.Groups no longer lists them.
const maxClosed = 32

// modelVersion is the name and version of a model, which label its series.
type modelVersion struct{ model, version string }

// New returns Metrics.
func New(o Options) *Metrics {
	if o.StreamSeries == nil {
		o.StreamSeries = new(int)
		*o.StreamSeries = DefaultStreamSeries
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(), buckets: o.RequestBuckets, models: make(map[modelVersion]*series),
		goodput: counterVec("millrace_goodput_frames_total"), skipped: counterVec("millrace_skipped_frames_total"),
		stages: find("millrace_stage_duration_seconds").histogramVec(), age: find("millrace_answered_age_seconds").histogramVec(),
		rows: find("millrace_batch_rows").histogramVec(), batches: find("millrace_batch_duration_seconds").histogramVec(),
	}
	if m.buckets == nil {
		m.buckets = DefaultRequestBuckets
	}
	m.registry.MustRegister(newCollector(o, m),
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsGC, collectors.MetricsScheduler, processorTime)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// processorTime selects the processor time of Go, and of the garbage collector in it.
var processorTime = collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/cpu/classes/(gc/total|total):`)}

// counted returns the metrics that hooks count.
func (m *Metrics) counted() []prometheus.Collector {
	return []prometheus.Collector{m.goodput, m.skipped, m.stages, m.age, m.rows, m.batches}
}

// series are the metrics of one model and version, looked up once: looking them up by
// their labels for each frame takes three times as long.
type series struct {
	goodput prometheus.Counter
	skipped prometheus.Counter
	queue   prometheus.Observer
	prepare prometheus.Observer
	run     prometheus.Observer
	age     prometheus.Observer

	rows, batchPrepare, batchRun prometheus.Observer

	groups int // that have hooks and are not closed; under Metrics.mu
}

// Model returns the hooks of a group that serves model. The hooks allocate nothing,
// except for frames that have a trace, and are safe for concurrent use. The model's
// series are removed when its groups are closed and Options.Groups no longer lists it.
func (m *Metrics) Model(model *stream.Model) workers.Hooks {
	key := modelVersion{model.Name, model.Version}
	s := m.resolve(key)
	return workers.Hooks{Ended: s.ended, Skipped: s.skip, Batch: s.batch, Closed: func() { m.close(key, s) }}
}

func (m *Metrics) resolve(key modelVersion) *series {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.models[key]
	if s == nil {
		stage := func(v *prometheus.HistogramVec, stage string) prometheus.Observer {
			return v.WithLabelValues(key.model, key.version, stage)
		}
		s = &series{
			queue: stage(m.stages, "queue"), prepare: stage(m.stages, "prepare"), run: stage(m.stages, "run"),
			age:     m.age.WithLabelValues(key.model, key.version),
			goodput: m.goodput.WithLabelValues(key.model, key.version), skipped: m.skipped.WithLabelValues(key.model, key.version),
			rows: m.rows.WithLabelValues(key.model, key.version), batchPrepare: stage(m.batches, "prepare"), batchRun: stage(m.batches, "run"),
		}
		m.models[key] = s
	}
	s.groups++
	m.closed = slices.DeleteFunc(m.closed, func(k modelVersion) bool { return k == key })
	return s
}

// close ends the use of the series by a group. So that they are bounded also when no
// scrape comes, the oldest are removed.
func (m *Metrics) close(key modelVersion, s *series) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.groups--; s.groups > 0 {
		return
	}
	m.closed = append(m.closed, key)
	if len(m.closed) > maxClosed {
		m.remove(m.closed[0])
		m.closed = m.closed[1:]
	}
}

// removeUnlisted removes the series of models whose groups are closed and that are not
// listed any more.
func (m *Metrics) removeUnlisted(list []workers.GroupStats) {
	now := make(map[modelVersion]bool, len(list))
	for _, g := range list {
		now[modelVersion{g.Model.Name, g.Model.Version}] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = slices.DeleteFunc(m.closed, func(key modelVersion) bool {
		if !now[key] {
			m.remove(key)
		}
		return !now[key]
	})
}

// remove deletes the series of a model and version. What its hooks count afterwards is
// lost. mu is held.
func (m *Metrics) remove(key modelVersion) {
	delete(m.models, key)
	labels := prometheus.Labels{"model": key.model, "version": key.version}
	m.goodput.DeletePartialMatch(labels)
	m.skipped.DeletePartialMatch(labels)
	for _, v := range []*prometheus.HistogramVec{m.stages, m.age, m.rows, m.batches} {
		v.DeletePartialMatch(labels)
	}
	for other := range m.models {
		if other.version == key.version {
			return
		}
	}
	for _, rm := range m.requests {
		rm.removeVersion(key.version)
	}
}

// ended observes the stages of an answered frame only: how long a dropped frame waited
// shows the policy, not the load.
func (s *series) ended(r *stream.Request) {
	if r.Outcome() != stream.Answered {
		return
	}
	t := &r.Timing
	if r.Deadline == 0 || t.Done <= r.Deadline {
		s.goodput.Inc()
	}
	trace := ""
	if res := r.Result(); res.Kept {
		trace = hex.EncodeToString(r.Trace[:])
	}
	observe(s.queue, t.Received, t.Dequeued, trace)
	observe(s.prepare, t.Dequeued, t.Started, trace)
	observe(s.run, t.Started, t.Done, trace)
	observe(s.age, t.Received, t.Done, trace)
}

func (s *series) skip(*stream.Request) { s.skipped.Inc() }

// observe records a stage that has both its times, with the frame's trace if it has one.
func observe(o prometheus.Observer, from, to stream.Instant, trace string) {
	if from == 0 || to < from {
		return
	}
	seconds := to.Sub(from).Seconds()
	if trace != "" {
		o.(prometheus.ExemplarObserver).ObserveWithExemplar(seconds, prometheus.Labels{"trace_id": trace})
		return
	}
	o.Observe(seconds)
}

func (s *series) batch(rows int, prepare, run time.Duration) {
	s.rows.Observe(float64(rows))
	s.batchPrepare.Observe(prepare.Seconds())
	s.batchRun.Observe(run.Seconds())
}
