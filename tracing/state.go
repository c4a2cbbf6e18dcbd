package tracing

import (
	"github.com/prometheus/client_golang/prometheus"

	"millrace/workers"
)

// stateCollector reads the state of the server at each scrape: this adds no work per
// frame, and unloaded models have no series.
type stateCollector struct {
	o      Options
	listed func([]workers.GroupStats) // called with the groups at each scrape
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	buildInfo      = desc("millrace_build_info", "The program's version; always 1.", "version")
	queueDepth     = desc("millrace_queue_depth", "Frames that wait for a batch.", "model", "version")
	queuePlaces    = desc("millrace_queue_flows", "Places of the queue in use: one for each stream, and for each connection with one-shot requests.", "model", "version")
	openStreams    = desc("millrace_streams", "Open streams.", "model", "version")
	workerStates   = desc("millrace_workers", "Workers by state.", "model", "version", "state")
	workerRestarts = desc("millrace_worker_restarts_total", "Workers that were replaced.", "model", "version")
	batchesRun     = desc("millrace_batches_total", "Batches that ran.", "model", "version")
	batchBuffers   = desc("millrace_batch_buffers", "Batch buffers, by state.", "model", "version", "state")
	modelReady     = desc("millrace_model_ready", "1 when the model can serve.", "model", "version")

	memoryBudget   = desc("millrace_memory_budget_bytes", "Bytes that may be leased and reserved at once.")
	memoryLeased   = desc("millrace_memory_leased_bytes", "Bytes leased now.")
	memoryReserved = desc("millrace_memory_reserved_bytes", "Bytes reserved for the batches of loaded models: at most half of the budget.")
	memoryIdle     = desc("millrace_memory_idle_bytes", "Free bytes kept for reuse.")
	memoryLeases   = desc("millrace_memory_leases", "Buffers leased now.")
	memoryDenied   = desc("millrace_memory_denied_total", "Leases refused by the budget.")

	goroutines     = desc("millrace_goroutines", "Goroutines by the group that started them.", "group")
	outboxBytes    = desc("millrace_outbox_bytes", "Bytes of replies that wait for their clients.")
	keptBytes      = desc("millrace_kept_bytes", "Bytes of replies kept for sessions that may be resumed. They are not part of the memory budget, and limited to a sixteenth of it.")
	sessionsClosed = desc("millrace_sessions_closed_total", "Sessions that ended, by reason.", "reason")
	streamsClosed  = desc("millrace_streams_closed_total", "Streams of WebSocket sessions that ended, by reason.", "reason")
	videos         = desc("millrace_videos", "Videos being decoded for sessions: sent by clients in chunks, or pulled from an address.", "from")
	sessions       = desc("millrace_sessions", "Open sessions by adapter; ws_waiting counts those that lost their connection and may be resumed.", "adapter")
)

// Describe lists what Collect may send.
func (stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		buildInfo, queueDepth, queuePlaces, openStreams, workerStates, workerRestarts, batchesRun, batchBuffers, modelReady,
		memoryBudget, memoryLeased, memoryReserved, memoryIdle, memoryLeases, memoryDenied, goroutines, sessions, outboxBytes, keptBytes, sessionsClosed, streamsClosed, videos,
	} {
		ch <- d
	}
}

// Collect reads the state.
func (s stateCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge(buildInfo, 1, s.o.Version)
	if s.o.Groups != nil {
		list := s.o.Groups()
		s.listed(list)
		for _, g := range merge(list) {
			name, version := g.Model.Name, g.Model.Version
			gauge(queueDepth, float64(g.Waiting), name, version)
			gauge(queuePlaces, float64(g.PlacesUsed), name, version)
			gauge(openStreams, float64(g.Streams), name, version)
			gauge(workerStates, float64(g.Busy), name, version, "busy")
			gauge(workerStates, float64(max(g.Workers-g.Busy, 0)), name, version, "idle")
			gauge(workerStates, float64(g.Quarantined), name, version, "quarantined")
			counter(workerRestarts, float64(g.Restarts), name, version)
			counter(batchesRun, float64(g.Batches), name, version)
			gauge(batchBuffers, float64(max(g.Buffers-g.BuffersFree, 0)), name, version, "used")
			gauge(batchBuffers, float64(g.BuffersFree), name, version, "free")
			up := 0.0
			if g.State == workers.StateReady {
				up = 1
			}
			gauge(modelReady, up, name, version)
		}
	}
	if s.o.Memory != nil {
		m := s.o.Memory()
		gauge(memoryBudget, float64(m.Budget))
		gauge(memoryLeased, float64(m.Leased))
		gauge(memoryReserved, float64(m.Reserved))
		gauge(memoryIdle, float64(m.Idle))
		gauge(memoryLeases, float64(m.Leases))
		counter(memoryDenied, float64(m.Denied))
	}
	if s.o.Adapters == nil {
		return
	}
	a := s.o.Adapters()
	gauge(outboxBytes, float64(a.OutboxBytes))
	gauge(keptBytes, float64(a.KeptBytes))
	for d, values := range map[*prometheus.Desc]map[string]int{goroutines: a.Goroutines, sessions: a.Sessions, videos: a.Videos} {
		for label, n := range values {
			gauge(d, float64(n), label)
		}
	}
	for d, values := range map[*prometheus.Desc]map[string]uint64{sessionsClosed: a.Closed, streamsClosed: a.StreamEnds} {
		for label, n := range values {
			counter(d, float64(n), label)
		}
	}
}

// merge adds up groups of one name and version: during a swap there are two, and a
// scrape must not have two series with the same labels.
func merge(list []workers.GroupStats) []workers.GroupStats {
	index := make(map[modelVersion]int, len(list))
	out := make([]workers.GroupStats, 0, len(list))
	for _, g := range list {
		if g.Model == nil {
			continue
		}
		key := modelVersion{g.Model.Name, g.Model.Version}
		i, again := index[key]
		if !again {
			index[key] = len(out)
			out = append(out, g)
			continue
		}
		o := &out[i]
		o.Workers += g.Workers
		o.Busy += g.Busy
		o.Quarantined += g.Quarantined
		o.Streams += g.Streams
		o.PlacesUsed += g.PlacesUsed
		o.Waiting += g.Waiting
		o.Buffers += g.Buffers
		o.BuffersFree += g.BuffersFree
		o.Restarts += g.Restarts
		o.Batches += g.Batches
		if g.State == workers.StateReady {
			o.State = g.State
		}
	}
	return out
}
