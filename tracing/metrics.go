package tracing

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"millrace/ingest"
	"millrace/ingest/streams"
	"millrace/internal/accept"
	"millrace/internal/buf"
	"millrace/stream"
	"millrace/workers"
)

// Buckets of the histograms.
var (
	// stageBuckets, in seconds, fit a stage of 0.1 ms and one of 10 s.
	stageBuckets = []float64{
		0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10,
	}
	// sizeBuckets are the rows of a batch.
	sizeBuckets = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}
	// DefaultRequestBuckets, in seconds, are those of the API's requests.
	DefaultRequestBuckets = []float64{
		0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60,
	}
	// byteBuckets are the bytes of requests and responses.
	byteBuckets = prometheus.ExponentialBuckets(256, 4, 10) // to 64 MiB
)

// Options are what Metrics is made of. Nil functions leave their metrics out.
type Options struct {
	Version string // of the program
	// The functions are called at each scrape. They must be quick and safe for
	// concurrent use.
	Groups   func() []workers.GroupStats
	Memory   func() buf.Stats
	Adapters func() ingest.Metrics          // of all adapters together
	Streams  func() streams.Stats           // of the server's own
	Accepted func() map[string]accept.Stats // connections, by listener
	// RequestBuckets, in seconds, rising (Requests panics otherwise); nil = DefaultRequestBuckets.
	RequestBuckets []float64
}

// Metrics counts and measures. It has a registry of its own, so that several
// servers fit into one process. Its methods are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	frames  *prometheus.CounterVec
	dropped *prometheus.CounterVec
	skipped *prometheus.CounterVec
	stages  *prometheus.HistogramVec
	age     *prometheus.HistogramVec
	rows    *prometheus.HistogramVec
	took    *prometheus.HistogramVec
	buckets []float64 // of requests

	mu     sync.Mutex
	models map[*stream.Model]*series
	inUse  map[endpoint]int // models that share the series of an endpoint
}

// endpoint is what the series of a model are known by.
type endpoint struct{ model, version string }

// New returns Metrics.
func New(o Options) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		models:   make(map[*stream.Model]*series), inUse: make(map[endpoint]int),
	}
	perModel := []string{"model", "version"}
	m.frames = counters("millrace_frames_total", "Frames and one-shot requests that have ended.", "model", "version", "outcome")
	m.dropped = counters("millrace_dropped_frames_total", "Frames dropped by policy.", "model", "reason")
	m.skipped = counters("millrace_skipped_frames_total", "Answered frames that the gate did not run: they got the result of one that looked the same.", perModel...)
	m.stages = histograms("millrace_stage_duration_seconds", "Time of an answered frame in a stage: queue until it is bound to a batch, prepare until its batch runs, run until its result, total.", stageBuckets, "model", "version", "stage")
	m.age = histograms("millrace_answered_age_seconds", "Age of answered frames, from their receipt to their result.", stageBuckets, perModel...)
	m.rows = histograms("millrace_batch_rows", "Rows of the batches that ran.", sizeBuckets, perModel...)
	m.took = histograms("millrace_batch_duration_seconds", "Time of a batch in a stage.", stageBuckets, "model", "version", "stage")
	m.registry.MustRegister(m.frames, m.dropped, m.skipped, m.stages, m.age, m.rows, m.took,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), snapshots{o, m.sweep})
	if o.Streams != nil {
		m.registry.MustRegister(cameras{o.Streams, sinkSeries()})
	}
	if o.Accepted != nil {
		m.registry.MustRegister(connections{o.Accepted})
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

// series are the counters of one model, resolved once: finding them by their
// labels for each frame would cost three times as much.
type series struct {
	outcome [4]prometheus.Counter // by stream.Outcome
	reason  map[stream.Reason]prometheus.Counter
	skipped prometheus.Counter
	queue   prometheus.Observer
	prepare prometheus.Observer
	run     prometheus.Observer
	total   prometheus.Observer
	age     prometheus.Observer

	rows, batchPrepare, batchRun prometheus.Observer

	listed bool // Options.Groups has named the model
}

// Model returns the hooks of a group of workers that serves model. The hooks
// allocate nothing and may be called from any goroutine. The model's series go
// with Unload, or with the first scrape at which Options.Groups, having named the
// model before, does not name it any more.
//
// Ended is also where spans belong: the request holds all that they are built
// of, and may be read during the call only.
func (m *Metrics) Model(model *stream.Model) workers.Hooks {
	s := m.resolve(model)
	return workers.Hooks{Ended: s.ended, Skipped: s.skip, Batch: s.batch}
}

func (m *Metrics) resolve(model *stream.Model) *series {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.models[model]; s != nil {
		return s
	}
	name, version := model.Name, model.Version
	stage := func(v *prometheus.HistogramVec, stage string) prometheus.Observer {
		return v.WithLabelValues(name, version, stage)
	}
	s := &series{
		reason: make(map[stream.Reason]prometheus.Counter, len(stream.Reasons)),
		queue:  stage(m.stages, "queue"), prepare: stage(m.stages, "prepare"),
		run: stage(m.stages, "run"), total: stage(m.stages, "total"),
		age: m.age.WithLabelValues(name, version), skipped: m.skipped.WithLabelValues(name, version),
		rows: m.rows.WithLabelValues(name, version), batchPrepare: stage(m.took, "prepare"), batchRun: stage(m.took, "run"),
	}
	for _, o := range []stream.Outcome{stream.Answered, stream.Dropped, stream.Failed} {
		s.outcome[o] = m.frames.WithLabelValues(name, version, o.String())
	}
	for _, r := range stream.Reasons {
		s.reason[r] = m.dropped.WithLabelValues(name, string(r))
	}
	m.models[model] = s
	m.inUse[endpoint{name, version}]++
	return s
}

// sweep unloads the models that are not listed any more.
func (m *Metrics) sweep(list []workers.GroupStats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := make(map[*stream.Model]bool, len(list))
	for _, g := range list {
		now[g.Model] = true
		if s := m.models[g.Model]; s != nil {
			s.listed = true
		}
	}
	for model, s := range m.models {
		if s.listed && !now[model] {
			m.unload(model)
		}
	}
}

// unload deletes the series of a model, when no other model with its name and
// version is left: a swap keeps them. What its hooks count from then on is lost.
func (m *Metrics) unload(model *stream.Model) {
	if m.models[model] == nil {
		return
	}
	delete(m.models, model)
	e := endpoint{model.Name, model.Version}
	if m.inUse[e]--; m.inUse[e] > 0 {
		return
	}
	delete(m.inUse, e)
	gone := prometheus.Labels{"model": e.model, "version": e.version}
	m.frames.DeletePartialMatch(gone)
	m.skipped.DeletePartialMatch(gone)
	for _, v := range []*prometheus.HistogramVec{m.stages, m.age, m.rows, m.took} {
		v.DeletePartialMatch(gone)
	}
	for other := range m.inUse {
		if other.model == e.model {
			return // drops are counted for all versions together
		}
	}
	m.dropped.DeletePartialMatch(prometheus.Labels{"model": e.model})
}

// ended counts one ending. Stages are those of answered frames only: the time
// that a dropped frame waited says how long the policy lets it wait.
func (s *series) ended(r *stream.Request) {
	o := r.Outcome()
	if o == stream.Pending || int(o) >= len(s.outcome) {
		return
	}
	s.outcome[o].Inc()
	switch o {
	case stream.Dropped:
		if c := s.reason[r.Result().Reason]; c != nil {
			c.Inc()
		}
	case stream.Answered:
		t := &r.Timing
		observe(s.queue, t.Received, t.Dequeued)
		observe(s.prepare, t.Dequeued, t.Started)
		observe(s.run, t.Started, t.Done)
		observe(s.total, t.Received, t.Done)
		observe(s.age, t.Received, t.Done)
	}
}

func (s *series) skip(*stream.Request) { s.skipped.Inc() }

// observe leaves out stages of which a moment was not reached.
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
