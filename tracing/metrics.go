//go:build !nometrics

package tracing

import (
	"cmp"
	"encoding/hex"
	"maps"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"millrace/stream"
	"millrace/workers"
)

// WithMetrics reports whether metrics are part of this build: see the build tag
// nometrics.
const WithMetrics = true

// Metrics are the metrics of one server. Each Metrics has its own registry, so that one process can run several
// servers. The methods are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	buckets []float64 // of requests
	only    bool      // as plain text, other histograms have no buckets
	names   *RequestNames

	mu       sync.Mutex
	requests []*requestMetrics
	models   map[modelVersion]*series
	closed   []modelVersion // without a group, earliest ended first
}

// maxClosed is the number of models without a group whose series are kept until missing in Options.Groups.
const maxClosed = 32

// modelVersion is the name and version of a model, the labels of its series.
type modelVersion struct{ model, version string }

// New returns Metrics.
func New(o Options) *Metrics {
	if o.StreamSeries == nil {
		o.StreamSeries = new(int)
		*o.StreamSeries = DefaultStreamSeries
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(), buckets: o.RequestBuckets, names: o.Requests,
		models: make(map[modelVersion]*series),
	}
	m.only = m.buckets != nil && m.names != nil
	if m.buckets == nil {
		m.buckets = DefaultRequestBuckets
	}
	m.registry.MustRegister(newCollector(o, m),
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsGC,
			collectors.MetricsScheduler, processorTime)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// processorTime selects the processor time of Go, including the garbage collector.
var processorTime = collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/cpu/classes/(gc/total|total):`)}

// series has the counts of the hooks of one model and version.
type series struct {
	modelVersion
	goodput, skipped             atomic.Uint64
	queue, prepare, run, age     *distribution // nanoseconds
	rows, batchPrepare, batchRun *distribution

	stepsMu sync.Mutex
	steps   map[string]*stepSeries // of a graph, by name

	groups int // with hooks and not closed; under Metrics.mu
}

func newSeries(key modelVersion) *series {
	stage := func() *distribution { return newDistribution(stageBuckets, 1e-9) }
	return &series{
		modelVersion: key, queue: stage(), prepare: stage(), run: stage(), age: stage(),
		rows: newDistribution(rowBuckets, 1), batchPrepare: stage(), batchRun: stage(),
	}
}

// Model returns the hooks of a group that serves model. The hooks allocate nothing, except for frames with a trace,
// and are safe for concurrent use. The model's series are removed when its groups are closed and Options.Groups no
// longer lists the model.
func (m *Metrics) Model(model *stream.Model) workers.Hooks {
	key := modelVersion{model.Name, model.Version}
	s := m.resolve(key)
	return workers.Hooks{Ended: s.ended, Skipped: s.skip, Batch: s.batch, Step: s.step, Closed: func() {
		m.close(key, s)
	}}
}

func (m *Metrics) resolve(key modelVersion) *series {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.models[key]
	if s == nil {
		s = newSeries(key)
		m.models[key] = s
	}
	s.groups++
	m.closed = slices.DeleteFunc(m.closed, func(k modelVersion) bool { return k == key })
	return s
}

// close ends the use of the series by a group. close removes the oldest closed series, to bound their number even
// without scrapes.
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

// removeUnlisted removes the series of unlisted models with closed groups.
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

// remove deletes the series of a model and version. Later counts of the hooks are lost. mu is held.
func (m *Metrics) remove(key modelVersion) {
	delete(m.models, key)
	for other := range m.models {
		if other.version == key.version {
			return
		}
	}
	for _, rm := range m.requests {
		rm.removeVersion(key.version)
	}
}

// sortedSeries returns the series of all models, sorted.
func (m *Metrics) sortedSeries() []*series {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Values(m.models), func(a, b *series) int {
		return cmp.Or(cmp.Compare(a.model, b.model), cmp.Compare(a.version, b.version))
	})
}

// ended observes the stages of an answered frame only: how long a dropped frame waited
// shows the policy, not the load.
func (s *series) ended(r *stream.Request) {
	if r.Outcome() != stream.Answered {
		return
	}
	t := &r.Timing
	if r.Deadline == 0 || t.Done <= r.Deadline {
		s.goodput.Add(1)
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

func (s *series) skip(*stream.Request) { s.skipped.Add(1) }

// observe records a stage with both instants, with the frame's trace, if any.
func observe(d *distribution, from, to stream.Instant, trace string) {
	if from != 0 && to >= from {
		d.add(uint64(to-from), trace)
	}
}

func (s *series) batch(rows int, prepare, run time.Duration) {
	s.rows.add(uint64(rows), "")
	s.batchPrepare.add(uint64(max(prepare, 0)), "")
	s.batchRun.add(uint64(max(run, 0)), "")
}
