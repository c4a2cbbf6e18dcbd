package tracing

import (
	"github.com/prometheus/client_golang/prometheus"

	"millrace/workers"
)

// snapshots reads the state of the server at each scrape: nothing is counted on
// the way of a frame, and what is unloaded has no series left.
type snapshots struct {
	o      Options
	listed func([]workers.GroupStats) // told of the groups at each scrape
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	build      = desc("millrace_build_info", "The program's version; always 1.", "version")
	queueDepth = desc("millrace_queue_depth", "Frames that wait to be bound to a batch.", "model", "version")
	queueFlows = desc("millrace_queue_flows", "Streams and one-shot callers that have a place in the queue.", "model", "version")
	open       = desc("millrace_streams", "Open streams.", "model", "version")
	workersNow = desc("millrace_workers", "Workers by state.", "model", "version", "state")
	restarts   = desc("millrace_worker_restarts_total", "Workers that were replaced.", "model", "version")
	batches    = desc("millrace_batches_total", "Batches that ran.", "model", "version")
	buffers    = desc("millrace_batch_buffers", "Batches with their memory, by state.", "model", "version", "state")
	ready      = desc("millrace_model_ready", "1 when the model can serve.", "model", "version")

	memoryBudget = desc("millrace_memory_budget_bytes", "Bytes that may be leased and reserved at once.")
	memoryLeased = desc("millrace_memory_leased_bytes", "Bytes leased now.")
	memoryStays  = desc("millrace_memory_reserved_bytes", "Bytes reserved for the batches of loaded models, half of the budget at most.")
	memoryIdle   = desc("millrace_memory_idle_bytes", "Free bytes kept for reuse.")
	memoryLeases = desc("millrace_memory_leases", "Buffers leased now.")
	memoryDenied = desc("millrace_memory_denied_total", "Leases refused by the budget.")

	goroutines = desc("millrace_goroutines", "Goroutines by the group that started them.", "group")
	outbox     = desc("millrace_outbox_bytes", "Bytes of replies that wait for their clients.")
	kept       = desc("millrace_kept_bytes", "Bytes of replies kept for sessions that may be resumed, beside the memory budget: a sixteenth of it at most.")
	closed     = desc("millrace_sessions_closed_total", "Sessions that ended, by why.", "reason")
	streamEnds = desc("millrace_streams_closed_total", "Streams of WebSocket sessions that ended, by why.", "reason")
	videos     = desc("millrace_videos", "Videos decoded for sessions: sent by clients chunk by chunk, or pulled from an address.", "from")
	sessions   = desc("millrace_sessions", "Open sessions by adapter; ws_waiting are those that lost their connection and may be resumed.", "adapter")
)

// Describe lists what Collect may send.
func (snapshots) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		build, queueDepth, queueFlows, open, workersNow, restarts, batches, buffers, ready,
		memoryBudget, memoryLeased, memoryStays, memoryIdle, memoryLeases, memoryDenied, goroutines, sessions, outbox, kept, closed, streamEnds, videos,
	} {
		ch <- d
	}
}

// Collect reads the snapshots.
func (s snapshots) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge(build, 1, s.o.Version)
	if s.o.Groups != nil {
		list := s.o.Groups()
		s.listed(list)
		for _, g := range merge(list) {
			name, version := g.Model.Name, g.Model.Version
			gauge(queueDepth, float64(g.Waiting), name, version)
			gauge(queueFlows, float64(g.Flows), name, version)
			gauge(open, float64(g.Streams), name, version)
			gauge(workersNow, float64(g.Busy), name, version, "busy")
			gauge(workersNow, float64(max(g.Workers-g.Busy, 0)), name, version, "idle")
			gauge(workersNow, float64(g.Quarantined), name, version, "quarantined")
			counter(restarts, float64(g.Restarts), name, version)
			counter(batches, float64(g.Batches), name, version)
			gauge(buffers, float64(max(g.Buffers-g.BuffersFree, 0)), name, version, "used")
			gauge(buffers, float64(g.BuffersFree), name, version, "free")
			up := 0.0
			if g.State == workers.StateReady {
				up = 1
			}
			gauge(ready, up, name, version)
		}
	}
	if s.o.Memory != nil {
		m := s.o.Memory()
		gauge(memoryBudget, float64(m.Budget))
		gauge(memoryLeased, float64(m.Leased))
		gauge(memoryStays, float64(m.Reserved))
		gauge(memoryIdle, float64(m.Idle))
		gauge(memoryLeases, float64(m.Leases))
		counter(memoryDenied, float64(m.Denied))
	}
	if s.o.Adapters == nil {
		return
	}
	a := s.o.Adapters()
	gauge(outbox, float64(a.OutboxBytes))
	gauge(kept, float64(a.KeptBytes))
	for d, values := range map[*prometheus.Desc]map[string]int{goroutines: a.Goroutines, sessions: a.Sessions, videos: a.Videos} {
		for label, n := range values {
			gauge(d, float64(n), label)
		}
	}
	for d, values := range map[*prometheus.Desc]map[string]uint64{closed: a.Closed, streamEnds: a.StreamEnds} {
		for label, n := range values {
			counter(d, float64(n), label)
		}
	}
}

// merge adds up groups of one name and version, which meet during a swap: a
// series may be sent once only.
func merge(list []workers.GroupStats) []workers.GroupStats {
	at := make(map[endpoint]int, len(list))
	out := make([]workers.GroupStats, 0, len(list))
	for _, g := range list {
		if g.Model == nil {
			continue
		}
		e := endpoint{g.Model.Name, g.Model.Version}
		i, again := at[e]
		if !again {
			at[e] = len(out)
			out = append(out, g)
			continue
		}
		o := &out[i]
		o.Workers += g.Workers
		o.Busy += g.Busy
		o.Quarantined += g.Quarantined
		o.Streams += g.Streams
		o.Flows += g.Flows
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
