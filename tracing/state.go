package tracing

import (
	"github.com/prometheus/client_golang/prometheus"

	"millrace/stream"
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

	framesAccepted = desc("millrace_frames_accepted_total", "Frames and one-shot requests of clients that have or will have an ending: the sum of millrace_frames_total over all outcomes and of millrace_frames_in_flight.", "model", "version")
	framesInFlight = desc("millrace_frames_in_flight", "Accepted frames that have no ending yet.", "model", "version")
	framesEnded    = desc("millrace_frames_total", "Accepted frames that have ended, by what their clients were told: a result, a drop (see millrace_dropped_frames_total) or an error (see millrace_frame_errors_total).", "model", "version", "outcome")
	framesDropped  = desc("millrace_dropped_frames_total", "Accepted frames that were dropped, by reason; their sum is millrace_frames_total with the outcome drop. One-shot requests are told a drop as an error.", "model", "version", "reason")
	frameErrors    = desc("millrace_frame_errors_total", "Accepted frames that ended with an error, by code; their sum is millrace_frames_total with the outcome error.", "model", "version", "code")
	framesRefused  = desc("millrace_refused_frames_total", "Those of the dropped and failed frames that were refused before they reached a stream: malformed, above the window, for want of memory, after the end of the stream. reason is that of the drop or the code of the error. Frames for no loaded model or open stream have the model and version \"\".", "model", "version", "reason")
	unsendable     = desc("millrace_unsendable_results_total", "Those of the results that could not be sent in the form that the client asked for: the client was told an error with this code instead.", "model", "version", "code")
	batchesBy      = desc("millrace_batches_formed_total", "Batches that ran, by why they were formed when they were: full, idle_worker (a worker was idle), max_delay (the batcher's longest wait), deadline (of a frame), partial (what it waited for was needed or ended).", "model", "version", "cause")
	batchCapacity  = desc("millrace_batch_capacity_rows_total", "Rows that the batches which ran had room for: the sum of millrace_batch_rows divided by it is their occupancy.", "model", "version")
	queueAge       = desc("millrace_queue_oldest_age_seconds", "How long the oldest frame that waits for a batch has waited; 0 when none waits. Paused streams are left out.", "model", "version")

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
		framesAccepted, framesInFlight, framesEnded, framesDropped, frameErrors, framesRefused, unsendable, batchesBy, batchCapacity, queueAge,
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
		for _, g := range list {
			name, version := g.Model.Name, g.Model.Version
			s.frames(counter, gauge, &g.Frames, name, version)
			for cause, n := range g.BatchesBy {
				counter(batchesBy, float64(n), name, version, cause)
			}
			counter(batchCapacity, float64(g.Capacity), name, version)
			gauge(queueAge, g.Oldest.Seconds(), name, version)
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
	s.frames(counter, gauge, &a.NoModel, "", "")
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

// sender sends one metric.
type sender func(d *prometheus.Desc, v float64, labels ...string)

// frames sends the counts of the frames of a model and version.
func (stateCollector) frames(counter, gauge sender, t *stream.Totals, name, version string) {
	counter(framesAccepted, float64(t.Accepted), name, version)
	gauge(framesInFlight, float64(t.InFlight), name, version)
	var drops, errors uint64
	for why, n := range t.Drops {
		drops += n
		counter(framesDropped, float64(n), name, version, string(why))
	}
	for code, n := range t.Errors {
		errors += n
		counter(frameErrors, float64(n), name, version, string(code))
	}
	counter(framesEnded, float64(t.Results), name, version, stream.Answered.String())
	counter(framesEnded, float64(drops), name, version, stream.Dropped.String())
	counter(framesEnded, float64(errors), name, version, stream.Failed.String())
	for reason, n := range t.Refused {
		counter(framesRefused, float64(n), name, version, reason)
	}
	for code, n := range t.Unsendable {
		if n > 0 {
			counter(unsendable, float64(n), name, version, string(code))
		}
	}
}
