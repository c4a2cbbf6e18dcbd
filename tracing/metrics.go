package tracing

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"millrace/ingest"
	"millrace/ingest/streams"
	"millrace/internal/accept"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

// Buckets of the histograms.
var (
	// stageBuckets, in seconds, cover stages from 0.1 ms to 10 s.
	stageBuckets = []float64{
		0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10,
	}
	// sizeBuckets are the rows of a batch.
	sizeBuckets = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}
	// DefaultRequestBuckets, in seconds, are the buckets of request durations.
	DefaultRequestBuckets = []float64{
		0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60,
	}
	// byteBuckets are sizes of requests and responses.
	byteBuckets = prometheus.ExponentialBuckets(256, 4, 10) // to 64 MiB
)

// Options configure Metrics. Metrics whose function is nil are left out.
type Options struct {
	Version string // of the program
	// The functions are called at each scrape. They must be quick and safe for
	// concurrent use.
	Groups   func() []workers.GroupStats
	Memory   func() buf.Stats
	Adapters func() ingest.Metrics          // the sums of all adapters
	Streams  func() streams.Stats           // of server streams
	Accepted func() map[string]accept.Stats // connections, by listener
	// RequestBuckets, in seconds, in rising order (else Requests panics); nil = DefaultRequestBuckets.
	RequestBuckets []float64
}

// Metrics are the metrics of one server. They have a registry of their own, so that
// one process can run several servers. The methods are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	skipped *prometheus.CounterVec
	stages  *prometheus.HistogramVec
	age     *prometheus.HistogramVec
	rows    *prometheus.HistogramVec
	batches *prometheus.HistogramVec
	buckets []float64 // of requests

	mu     sync.Mutex
	models map[modelVersion]*series
}

// modelVersion is the name and version of a model, which label its series.
type modelVersion struct{ model, version string }

// New returns Metrics.
func New(o Options) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		models:   make(map[modelVersion]*series),
	}
	perModel := []string{"model", "version"}
	m.skipped = counters("millrace_skipped_frames_total", "Frames that the gate answered without a run, with the result of an earlier frame that looked the same.", perModel...)
	m.stages = histograms("millrace_stage_duration_seconds", "Time of an answered frame in a stage: queue (until it is bound to a batch), prepare (until the batch runs), run (until its result), and total.", stageBuckets, "model", "version", "stage")
	m.age = histograms("millrace_answered_age_seconds", "Time from the receipt of an answered frame to its result.", stageBuckets, perModel...)
	m.rows = histograms("millrace_batch_rows", "Rows of the batches that ran.", sizeBuckets, perModel...)
	m.batches = histograms("millrace_batch_duration_seconds", "Time of a batch in a stage.", stageBuckets, "model", "version", "stage")
	m.registry.MustRegister(m.skipped, m.stages, m.age, m.rows, m.batches,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), stateCollector{o, m.removeUnlisted})
	if o.Streams != nil {
		m.registry.MustRegister(streamCollector{o.Streams, describeSinks()})
	}
	if o.Accepted != nil {
		m.registry.MustRegister(connectionCollector{o.Accepted})
	}
	m.buckets = o.RequestBuckets
	if m.buckets == nil {
		m.buckets = DefaultRequestBuckets
	}
	return m
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// series are the metrics of one model, looked up once: looking them up by their
// labels for each frame takes three times as long.
type series struct {
	skipped prometheus.Counter
	queue   prometheus.Observer
	prepare prometheus.Observer
	run     prometheus.Observer
	total   prometheus.Observer
	age     prometheus.Observer

	rows, batchPrepare, batchRun prometheus.Observer

	listed bool // Options.Groups has named the model since the newest of its groups was started
}

// Model returns the hooks of a group that serves model. The hooks allocate nothing
// and are safe for concurrent use. The model's series are removed by the first scrape
// at which Options.Groups no longer lists the model.
func (m *Metrics) Model(model *stream.Model) workers.Hooks {
	s := m.resolve(model)
	return workers.Hooks{Ended: s.ended, Skipped: s.skip, Batch: s.batch}
}

func (m *Metrics) resolve(model *stream.Model) *series {
	m.mu.Lock()
	defer m.mu.Unlock()
	name, version := model.Name, model.Version
	key := modelVersion{name, version}
	if s := m.models[key]; s != nil {
		s.listed = false // a scrape that began earlier may not list the new group
		return s
	}
	stage := func(v *prometheus.HistogramVec, stage string) prometheus.Observer {
		return v.WithLabelValues(name, version, stage)
	}
	s := &series{
		queue: stage(m.stages, "queue"), prepare: stage(m.stages, "prepare"),
		run: stage(m.stages, "run"), total: stage(m.stages, "total"),
		age: m.age.WithLabelValues(name, version), skipped: m.skipped.WithLabelValues(name, version),
		rows: m.rows.WithLabelValues(name, version), batchPrepare: stage(m.batches, "prepare"), batchRun: stage(m.batches, "run"),
	}
	m.models[key] = s
	return s
}

// removeUnlisted removes the series of models that were listed and are not any more.
func (m *Metrics) removeUnlisted(list []workers.GroupStats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := make(map[modelVersion]bool, len(list))
	for _, g := range list {
		key := modelVersion{g.Model.Name, g.Model.Version}
		now[key] = true
		if s := m.models[key]; s != nil {
			s.listed = true
		}
	}
	for key, s := range m.models {
		if s.listed && !now[key] {
			m.remove(key)
		}
	}
}

// remove deletes the series of a model and version. What its hooks count afterwards is
// lost.
func (m *Metrics) remove(key modelVersion) {
	delete(m.models, key)
	labels := prometheus.Labels{"model": key.model, "version": key.version}
	m.skipped.DeletePartialMatch(labels)
	for _, v := range []*prometheus.HistogramVec{m.stages, m.age, m.rows, m.batches} {
		v.DeletePartialMatch(labels)
	}
}

// ended observes the stages of an answered frame only: how long a dropped frame waited
// shows the policy, not the load.
func (s *series) ended(r *stream.Request) {
	if r.Outcome() != stream.Answered {
		return
	}
	t := &r.Timing
	observe(s.queue, t.Received, t.Dequeued)
	observe(s.prepare, t.Dequeued, t.Started)
	observe(s.run, t.Started, t.Done)
	observe(s.total, t.Received, t.Done)
	observe(s.age, t.Received, t.Done)
}

func (s *series) skip(*stream.Request) { s.skipped.Inc() }

// observe records a stage that has both its times.
func observe(o prometheus.Observer, from, to stream.Instant) {
	if from != 0 && to >= from {
		o.Observe(to.Sub(from).Seconds())
	}
}

func (s *series) batch(rows int, prepare, run time.Duration) {
	s.rows.Observe(float64(rows))
	s.batchPrepare.Observe(prepare.Seconds())
	s.batchRun.Observe(run.Seconds())
}
