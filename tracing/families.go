//go:build !nometrics

package tracing

import (
	"strings"
	"time"

	"millrace/ingest"
	"millrace/ingest/sources"
	"millrace/ingest/streams"
	"millrace/stream"
	"millrace/stream/coded"
	"millrace/tasks"
	"millrace/workers"
)

// families lists every metric family of Millrace, by section: registration, the scrape and docs/metrics.md follow
// from the list. The metrics of the Go runtime and of the process have standard names and are registered by their
// collectors.
var families = []section{
	{"Program", []family{
		{gauge, "millrace_build_info", "", "The program's version; always 1.",
			labels{{"version", "that `millrace version` prints"}},
			func(r *reading, put put) { put(1, r.version) }, nil},
		{gauge, "millrace_goroutines", "", "Goroutines by the group that started them.",
			labels{{"group", "the name of the group"}},
			func(r *reading, put put) { each(r.adapters.Goroutines, put) }, nil},
		{gauge, "millrace_child_processes", "", "Child processes, such as ffmpeg, that have not been reaped.", nil,
			func(r *reading, put put) { put(float64(r.children)) }, nil},
	}},
	{"Frames, by model", []family{
		{counter, "millrace_frames_accepted_total", "", "Frames and one-shot requests whose clients are told an " +
			"ending: the sum of `millrace_frames_total` over all outcomes and of `millrace_frames_in_flight`.", model,
			ofFrames(func(t *stream.Totals, put func(float64, ...string)) { put(float64(t.Accepted)) }), nil},
		{counter, "millrace_frames_total", "", "Accepted frames that have ended, by what their clients were told: a " +
			"result, a drop (see `millrace_dropped_frames_total`) or an error (see `millrace_frame_errors_total`).",
			model.and("outcome", "result, drop, error"), ofFrames(func(t *stream.Totals, put func(float64, ...string)) {
				put(float64(t.Results), stream.Answered.String())
				put(float64(total(t.Drops)), stream.Dropped.String())
				put(float64(total(t.Errors)), stream.Failed.String())
			}), nil},
		{gauge, "millrace_frames_in_flight", "", "Accepted frames that have no ending yet.", model,
			ofFrames(func(t *stream.Totals, put func(float64, ...string)) { put(float64(t.InFlight)) }), nil},
		{counter, "millrace_dropped_frames_total", "", "Accepted frames that were dropped; their sum is " +
			"`millrace_frames_total` with the outcome drop. One-shot requests are told a drop as an error.",
			model.and("reason", words(stream.Reasons)), ofFrames(func(t *stream.Totals, put func(float64, ...string)) {
				eachOf(t.Drops, put)
			}), nil},
		{counter, "millrace_frame_errors_total", "",
			"Accepted frames that ended with an error; their sum is `millrace_frames_total` with the outcome error.",
			model.and("code", words(coded.Codes)), ofFrames(func(t *stream.Totals, put func(float64, ...string)) {
				eachOf(t.Errors, put)
			}), nil},
		{counter, "millrace_refused_frames_total", "", "Those of the dropped and failed frames that were refused " +
			"before they reached a stream: malformed, above the window, for want of memory, after the end of the " +
			"stream. Frames for no loaded model or open stream have the model and version \"\".",
			model.and("reason", "that of the drop or the code of the error"),
			ofFrames(func(t *stream.Totals, put func(float64, ...string)) {
				eachOf(t.Refused, put)
			}), nil},
		{counter, "millrace_unsendable_results_total", "", "Those of the results that could not be sent in the form " +
			"that the client asked for: the client was told an error with this code instead.",
			model.and("code", "the code of the error"), ofFrames(func(t *stream.Totals, put func(float64, ...string)) {
				for code, n := range t.Unsendable {
					if n > 0 {
						put(float64(n), string(code))
					}
				}
			}), nil},
		{counter, "millrace_cache_lookups_total", "", "One-shot requests that were looked up in the model's cache " +
			"(`cache.size`), by whether it had their result.",
			model.and("result", "hit, miss"), ofFrames(func(t *stream.Totals, put func(float64, ...string)) {
				put(float64(t.CacheHits), "hit")
				put(float64(t.CacheMisses), "miss")
			}), nil},
		{gauge, "millrace_cache_results", "", "Results in the model's cache.", model,
			ofLoaded(func(g *workers.GroupStats) float64 {
				return float64(g.CacheResults)
			}), nil},
		{gauge, "millrace_cache_bytes", "bytes", "Bytes of the results in the model's cache, at most `cache.size`.",
			model, ofLoaded(func(g *workers.GroupStats) float64 {
				return float64(g.CacheBytes)
			}), nil},
		{counter, "millrace_goodput_frames_total", "",
			"Results that were in time: ready before the deadline or the largest age of their frame, or without one.",
			model,
			ofSeries(func(s *series) float64 { return float64(s.goodput.Load()) }), nil},
		{counter, "millrace_skipped_frames_total", "",
			"Frames that the gate answered without a run, with the result of an earlier frame that looked the same.",
			model,
			ofSeries(func(s *series) float64 { return float64(s.skipped.Load()) }), nil},
		{histogram, "millrace_answered_age_seconds", "seconds",
			"Time from the receipt of an answered frame to its result.", model,
			nil, &observed{stageBuckets, func(s *series, put putValues) { put(s.age) }}},
		{histogram, "millrace_stage_duration_seconds", "seconds", "Time of an answered frame in a stage: queue " +
			"(until it is bound to a batch), prepare (until the batch runs), run (until its result).",
			model.and("stage", "queue, prepare, run"), nil, &observed{stageBuckets, func(s *series, put putValues) {
				put(s.queue, "queue")
				put(s.prepare, "prepare")
				put(s.run, "run")
			}}},
	}},
	{"Steps of graphs, by graph", []family{
		{counter, "millrace_steps_total", "", "Steps of frames that have ended, by how: a result, a drop, an error, " +
			"or skipped, because the step's condition did not hold or its inputs were absent. The frames of the " +
			"steps' models are counted for these as well.",
			model.and("step", "the step's name").and("outcome", "result, drop, error, skipped"),
			func(r *reading, put put) {
				for _, s := range r.series {
					s.eachStep(func(name string, st *stepSeries) {
						for i, outcome := range stepOutcomes {
							put(float64(st.outcomes[i].Load()), s.model, s.version, name, outcome)
						}
					})
				}
			}, nil},
		{histogram, "millrace_step_duration_seconds", "seconds",
			"Time of an answered step, with its time in the queue of its model.", model.and("step", "the step's name"),
			nil, &observed{stageBuckets, func(s *series, put putValues) {
				s.eachStep(func(name string, st *stepSeries) { put(st.took, name) })
			}}},
	}},
	{"Queue, batches and workers, by model", []family{
		{gauge, "millrace_model_ready", "", "1 when the model can serve.", model,
			ofLoaded(func(g *workers.GroupStats) float64 {
				return is(g.State == workers.StateReady)
			}), nil},
		{gauge, "millrace_streams", "", "Open streams.", model, ofLoaded(func(g *workers.GroupStats) float64 {
			return float64(g.Streams)
		}), nil},
		{gauge, "millrace_queue_depth", "", "Frames that wait for a batch.", model,
			ofLoaded(func(g *workers.GroupStats) float64 {
				return float64(g.Waiting)
			}), nil},
		{gauge, "millrace_queue_oldest_age_seconds", "seconds", "How long the oldest frame that waits for a batch " +
			"has waited; 0 when none waits. Paused streams are left out.", model,
			ofLoaded(func(g *workers.GroupStats) float64 { return g.Oldest.Seconds() }), nil},
		{gauge, "millrace_queue_flows", "", "Places of the queue in use: one for each stream, and for each " +
			"connection with one-shot requests.", model,
			ofLoaded(func(g *workers.GroupStats) float64 { return float64(g.PlacesUsed) }), nil},
		{histogram, "millrace_batch_rows", "", "Rows of the batches that ran.", model, nil,
			&observed{rowBuckets, func(s *series, put putValues) {
				put(s.rows)
			}}},
		{histogram, "millrace_batch_duration_seconds", "seconds", "Time of a batch in a stage.",
			model.and("stage", "prepare, run"), nil, &observed{stageBuckets, func(s *series, put putValues) {
				put(s.batchPrepare, "prepare")
				put(s.batchRun, "run")
			}}},
		{counter, "millrace_batches_total", "", "Batches that ran.", model,
			ofGroup(func(g *workers.GroupStats) float64 {
				return float64(g.Batches)
			}), nil},
		{counter, "millrace_batches_formed_total", "", "Batches that ran, by why they were formed when they were: " +
			"full, idle_worker (a worker was idle), max_delay (the batcher's longest wait), deadline (of a frame), " +
			"partial (what it waited for was needed or ended).",
			model.and("cause", "full, idle_worker, max_delay, deadline, partial"), func(r *reading, put put) {
				for i := range r.groups {
					for cause, n := range r.groups[i].BatchesBy {
						put(float64(n), r.groups[i].Model.Name, r.groups[i].Model.Version, cause)
					}
				}
			}, nil},
		{counter, "millrace_batch_capacity_rows_total", "", "Rows that the batches which ran had room for: the sum " +
			"of `millrace_batch_rows` divided by it is their occupancy.", model,
			ofGroup(func(g *workers.GroupStats) float64 { return float64(g.Capacity) }), nil},
		{gauge, "millrace_batch_buffers", "", "Batch buffers of the group's pool.", model.and("state", "used, free"),
			func(r *reading, put put) {
				for _, g := range r.loaded() {
					put(float64(max(g.Buffers-g.BuffersFree, 0)), g.Model.Name, g.Model.Version, "used")
					put(float64(g.BuffersFree), g.Model.Name, g.Model.Version, "free")
				}
			}, nil},
		{gauge, "millrace_workers", "", "Workers by state; the run of a quarantined worker is past the time " +
			"limit and has not returned.", model.and("state", "busy, idle, quarantined"), func(r *reading, put put) {
			for _, g := range r.loaded() {
				put(float64(g.Busy), g.Model.Name, g.Model.Version, "busy")
				put(float64(max(g.Workers-g.Busy, 0)), g.Model.Name, g.Model.Version, "idle")
				put(float64(g.Quarantined), g.Model.Name, g.Model.Version, "quarantined")
			}
		}, nil},
		{counter, "millrace_shadow_requests_total", "", "Copies of requests that the version got as a shadow, by " +
			"how its results compare with those that clients got: skipped ones were not compared, since too many " +
			"waited.", model.and("outcome", "equal, different, failed, skipped"),
			func(r *reading, put put) {
				for i := range r.groups {
					g := &r.groups[i]
					for outcome, n := range map[string]uint64{"equal": g.Shadow.Equal, "different": g.Shadow.Different,
						"failed": g.Shadow.Failed, "skipped": g.Shadow.Skipped} {
						if n > 0 {
							put(float64(n), g.Model.Name, g.Model.Version, outcome)
						}
					}
				}
			}, nil},
		{counter, "millrace_shadow_difference_total", "", "Sum, over the compared results of a shadow, of the mean " +
			"absolute difference of their numbers: divided by the number of equal and different ones it is the mean " +
			"difference.", model,
			ofGroup(func(g *workers.GroupStats) float64 { return g.Shadow.Difference }), nil},
		{counter, "millrace_worker_restarts_total", "", "Workers that were replaced.", model,
			ofGroup(func(g *workers.GroupStats) float64 {
				return float64(g.Restarts)
			}), nil},
	}},
	{"Child processes of models, by model", []family{
		{gauge, "millrace_model_processes", "",
			"Child processes that run a model, of kinds such as process and python.", model,
			ofProcesses(func(p *workers.ProcessStats, put func(float64, ...string)) {
				put(float64(p.Running))
			}), nil},
		{gauge, "millrace_model_process_memory_bytes", "bytes", "Resident memory of these processes and of those " +
			"that they have started, as of the last look; see `memory_limit`.", model,
			ofProcesses(func(p *workers.ProcessStats, put func(float64, ...string)) {
				put(float64(p.Memory))
			}), nil},
		{counter, "millrace_model_process_starts_total", "", "Child processes that were started for a model.", model,
			ofProcesses(func(p *workers.ProcessStats, put func(float64, ...string)) {
				put(float64(p.Started))
			}), nil},
		{counter, "millrace_model_process_ends_total", "", "Child processes of a model that have ended, by cause: " +
			"stopped (by the server), exit, signal, killed (a signal of somebody else), oom (SIGKILL by the kernel, " +
			"for want of memory), timeout (`limits.run`), protocol (it broke it), memory (`memory_limit`), slow " +
			"(`watchdog.request_threshold`), watchdog (its own), recycled, start (`limits.start`, or it refused).",
			model.and("cause", "stopped, exit, signal, killed, oom, timeout, protocol, memory, slow, watchdog, "+
				"recycled, start"), ofProcesses(func(p *workers.ProcessStats, put func(float64, ...string)) {
				for cause, n := range p.Ended {
					put(float64(n), cause)
				}
			}), nil},
	}},
	{"Memory", []family{
		{gauge, "millrace_memory_budget_bytes", "bytes",
			"Bytes that may be leased and reserved at once: `memory.budget`.", nil, ofMemory(func(r *reading) float64 {
				return float64(r.memory.Budget)
			}), nil},
		{gauge, "millrace_memory_leased_bytes", "bytes", "Bytes leased now.", nil, ofMemory(func(r *reading) float64 {
			return float64(r.memory.Leased)
		}), nil},
		{gauge, "millrace_memory_reserved_bytes", "bytes",
			"Bytes reserved for the batches and caches of loaded models: at most half of the budget.", nil,
			ofMemory(func(r *reading) float64 {
				return float64(r.memory.Reserved)
			}), nil},
		{gauge, "millrace_memory_idle_bytes", "bytes", "Free bytes kept for reuse.", nil,
			ofMemory(func(r *reading) float64 {
				return float64(r.memory.Idle)
			}), nil},
		{gauge, "millrace_memory_leases", "", "Buffers leased now.", nil, ofMemory(func(r *reading) float64 {
			return float64(r.memory.Leases)
		}), nil},
		{counter, "millrace_memory_denied_total", "", "Leases refused by the budget.", nil,
			ofMemory(func(r *reading) float64 {
				return float64(r.memory.Denied)
			}), nil},
	}},
	{"Tasks", []family{
		{gauge, "millrace_tasks", "", "Stored tasks by state, where the server has a data folder.",
			labels{{"state", words(tasks.States)}}, func(r *reading, put put) { each(r.adapters.Tasks, put) }, nil},
		{gauge, "millrace_task_bytes", "bytes", "Bytes of the inputs and results of all tasks, of which " +
			"`tasks.max_bytes` are allowed.", nil, ofTasks(func(m *ingest.Metrics) float64 {
			return float64(m.TaskBytes)
		}), nil},
		{counter, "millrace_tasks_queued_total", "", "Tasks that were queued. The sum over all origins equals the " +
			"sum of `millrace_tasks_ended_total` over all states and of `millrace_tasks` for queued and running.",
			labels{{"origin", "submitted: a new task; found: had not ended when the server started; retried: queued " +
				"again by a client after the end"}},
			func(r *reading, put put) { each(r.adapters.TasksQueued, put) }, nil},
		{counter, "millrace_tasks_ended_total", "", "Tasks that ended, by the state that clients see.",
			labels{{"state", "finished, failed, cancelled, expired; deleted: the client deleted a queued task"}},
			func(r *reading, put put) { each(r.adapters.TasksEnded, put) }, nil},
		{counter, "millrace_task_attempts_total", "", "Attempts to run a task, by all consumers.", nil,
			ofTasks(func(m *ingest.Metrics) float64 { return float64(m.TaskAttempts) }), nil},
	}},
	{"Connections and sessions", []family{
		{gauge, "millrace_connections", "", "Open TCP connections.", byListener, func(r *reading, put put) {
			for name, st := range r.accepted {
				put(float64(st.Open), name)
			}
		}, nil},
		{counter, "millrace_connections_refused_total", "", "Connections closed at once.",
			byListener.and("reason", "total: `limits.max_connections` were open; address: "+
				"`limits.max_connections_per_address` of its address; descriptors: the process had no free one"),
			func(r *reading, put put) {
				for name, st := range r.accepted {
					put(float64(st.Refused), name, "total")
					put(float64(st.RefusedAddress), name, "address")
					put(float64(st.RefusedNoFile), name, "descriptors")
				}
			}, nil},
		{counter, "millrace_connections_shed_total", "", "Connections without a complete request, or, where clients " +
			"need credentials, without one whose were accepted, that were closed for another one, at a bound or for " +
			"want of a file descriptor.", byListener, func(r *reading, put put) {
			for name, st := range r.accepted {
				put(float64(st.Shed), name)
			}
		}, nil},
		{counter, "millrace_accept_failures_total", "",
			"Failed attempts to accept a connection, for example because the process had no file descriptor left.",
			byListener, func(r *reading, put put) {
				for name, st := range r.accepted {
					put(float64(st.Failed), name)
				}
			}, nil},
		{counter, "millrace_auth_total", "", "Requests, calls and logins by what became of their credentials, where " +
			"clients need some. What is open to all is not counted. A ticket counts when it is used, and each " +
			"message of ModelStreamInfer of a client that is limited to some models. A call of a Go program counts " +
			"for whom it was authenticated.",
			labels{{"outcome", "allowed; missing, wrong, expired: refused as unauthenticated; denied: without the " +
				"role, or for a model that is not the client's; limited: too many logins, from an address or at once"}},
			func(r *reading, put put) { each(r.auth, put) }, nil},
		{counter, "millrace_audit_lost_total", "",
			"Administrative acts whose line could not be written to the audit log, where there is one.", nil,
			func(r *reading, put put) {
				if r.audit.on {
					put(float64(r.audit.lost))
				}
			}, nil},
		{counter, "millrace_quota_refused_total", "", "Requests, calls, streams, sessions, videos and loads that " +
			"were refused, and frames that were dropped or refused, because of a quota of their client (`quotas`).",
			labels{{"quota", strings.Join(stream.QuotaNames[:], ", ")}, byPrincipal}, func(r *reading, put put) {
				for i := range r.uses {
					for q, n := range r.uses[i].Denied {
						put(float64(n), stream.Quota(q).String(), r.uses[i].Name)
					}
				}
			}, nil},
		{counter, "millrace_client_requests_total", "",
			"Requests and calls of clients, but for those that are open to all.", labels{byPrincipal},
			ofUses(stream.QuotaRequests, 1), nil},
		{counter, "millrace_client_frames_total", "",
			"Frames and one-shot requests of clients that their quotas allowed.", labels{byPrincipal},
			ofUses(stream.QuotaFrames, 1), nil},
		{counter, "millrace_client_bytes_total", "bytes", "Bytes of those frames; of videos, of the decoded pictures.",
			labels{byPrincipal}, ofUses(stream.QuotaBytes, 1), nil},
		{counter, "millrace_client_decode_seconds_total", "seconds", "Time in which the pictures of clients were " +
			"decoded, and processor time of the ffmpegs of their videos, sent and pulled.", labels{byPrincipal},
			ofUses(stream.QuotaDecode, 1e-9), nil},
		{counter, "millrace_client_loads_total", "", "Loads of models that clients asked for.", labels{byPrincipal},
			ofUses(stream.QuotaLoads, 1), nil},
		{gauge, "millrace_client_held", "", "What clients have open.",
			labels{{"quota", "streams, sequences, sessions, decoders, endpoints, regions"}, byPrincipal},
			func(r *reading, put put) {
				for i := range r.uses {
					for q := stream.QuotaStreams; q < stream.QuotaTasks; q++ {
						put(float64(r.uses[i].Used[q]), q.String(), r.uses[i].Name)
					}
				}
			}, nil},
		{gauge, "millrace_sessions", "", "Open sessions; ws_waiting counts those that lost their connection and may " +
			"be resumed.", labels{{"adapter", "ws, ws_waiting"}},
			func(r *reading, put put) { each(r.adapters.Sessions, put) }, nil},
		{counter, "millrace_sessions_closed_total", "",
			"Sessions that ended, and WebSockets that were refused a place (refused).",
			labels{{"reason", "why it ended, as its client was told"}},
			func(r *reading, put put) { each(r.adapters.Closed, put) }, nil},
		{counter, "millrace_streams_closed_total", "", "Streams of WebSocket sessions that ended.",
			labels{{"reason", "why it ended, as its client was told"}},
			func(r *reading, put put) { each(r.adapters.StreamEnds, put) }, nil},
		{gauge, "millrace_credits", "", "Frames that clients of millrace.v1 may send before they have to wait, over " +
			"all their streams.", nil,
			ofAdapters(func(r *reading) float64 { return float64(r.adapters.Credits) }), nil},
		{gauge, "millrace_streams_without_credit", "", "Streams of millrace.v1 whose clients have to wait.", nil,
			ofAdapters(func(r *reading) float64 { return float64(r.adapters.WithoutCredit) }), nil},
		{gauge, "millrace_videos", "", "Videos being decoded for sessions.",
			labels{{"from", "sent: by clients in chunks; pulled: from an address"}},
			func(r *reading, put put) { each(r.adapters.Videos, put) }, nil},
		{counter, "millrace_videos_too_slow_total", "", "Videos for sessions whose ffmpeg was ended, since it used " +
			"`limits.max_decode_time` of processor time without a picture.", labels{{"from", "sent, pulled"}},
			func(r *reading, put put) { each(r.adapters.TooSlow, put) }, nil},
		{gauge, "millrace_outbox_bytes", "bytes", "Bytes of replies that wait for their clients.", nil,
			ofAdapters(func(r *reading) float64 { return float64(r.adapters.OutboxBytes) }), nil},
		{gauge, "millrace_kept_bytes", "bytes", "Bytes of replies kept for sessions that may be resumed. They are " +
			"not part of the memory budget, and limited to a sixteenth of it.", nil,
			ofAdapters(func(r *reading) float64 { return float64(r.adapters.KeptBytes) }), nil},
	}},
	{"Traces", []family{
		{counter, "millrace_traces_kept_total", "",
			"Frames whose traces were kept; one that several rules keep counts for each.",
			labels{{"rule", "sampled, slow, dropped, failed, gated"}},
			ofTraces(func(t *TraceStats, put put) { each(t.Kept, put) }), nil},
		{counter, "millrace_traces_over_limit_total", "",
			"Frames whose traces a rule would have kept, beyond its limit a second.",
			labels{{"rule", "sampled, slow, dropped, failed, gated"}},
			ofTraces(func(t *TraceStats, put put) { each(t.OverLimit, put) }), nil},
		{counter, "millrace_traces_unbuilt_total", "",
			"Kept frames whose spans were not built, because too many ended at once.", nil,
			ofTraces(func(t *TraceStats, put put) { put(float64(t.Unbuilt)) }), nil},
		{counter, "millrace_spans_exported_total", "", "Spans that the collector has accepted.", nil,
			ofTraces(func(t *TraceStats, put put) {
				put(float64(t.Exported))
			}), nil},
		{counter, "millrace_spans_lost_total", "", "Spans that were not exported.",
			labels{{"reason", "queue_full, refused, failed, too_large, closed"}},
			ofTraces(func(t *TraceStats, put put) { each(t.Lost, put) }), nil},
		{counter, "millrace_malformed_trace_contexts_total", "",
			"Trace contexts of requests, connections and frames that could not be read and were ignored.", nil,
			ofAdapters(func(r *reading) float64 { return float64(r.adapters.Contexts) }), nil},
		{gauge, "millrace_spans_waiting", "", "Spans that wait for the collector.", nil,
			ofTraces(func(t *TraceStats, put put) {
				put(float64(t.Waiting))
			}), nil},
	}},
	{"Server streams", []family{
		{gauge, "millrace_server_streams", "", "Server streams.", labels{{"state", words(sources.States)}},
			func(r *reading, put put) {
				if r.streams.on {
					for _, state := range sources.States {
						put(float64(r.streams.states[state]), string(state))
					}
				}
			}, nil},
		{gauge, "millrace_stream_state", "", "1 for the current state of the stream, 0 for its other states.",
			ofStream.and("state", words(sources.States)), func(r *reading, put put) {
				for i := range r.streams.listed {
					for _, state := range sources.States {
						if s := &r.streams.listed[i]; s.Name != "" {
							put(is(s.State == state), s.Name, string(state))
						}
					}
				}
			}, nil},
		{gauge, "millrace_stream_paused", "", "1 while the stream is paused.", ofStream, func(r *reading, put put) {
			for i := range r.streams.listed {
				if s := &r.streams.listed[i]; s.Name != "" {
					put(is(s.Paused), s.Name)
				}
			}
		}, nil},
		{gauge, "millrace_stream_watchers", "", "Clients that receive the stream's results or pictures.", ofStream,
			perStream(func(s *streams.StreamStats) float64 {
				return float64(s.Watchers)
			}), nil},
		{counter, "millrace_stream_read_frames_total", "", "Frames read from the stream's source.", ofStream,
			perStream(func(s *streams.StreamStats) float64 {
				return float64(s.Frames)
			}), nil},
		{counter, "millrace_stream_frames_total", "",
			"Frames of the stream that have ended, once for each of its models.",
			ofStreamModel.and("outcome", "result, drop, error"),
			perStreamModel(func(m *streams.ModelStats, put put) {
				put(float64(m.Answered), stream.Answered.String())
				put(float64(total(m.Drops)), stream.Dropped.String())
				put(float64(m.Failed), stream.Failed.String())
			}), nil},
		{counter, "millrace_stream_dropped_frames_total", "", "Frames of the stream dropped by policy.",
			ofStreamModel.and("reason", words(stream.Reasons)),
			perStreamModel(func(m *streams.ModelStats, put put) {
				for _, why := range stream.Reasons {
					put(float64(m.Drops[why]), string(why))
				}
			}), nil},
		{counter, "millrace_stream_restarts_total", "", "Times that the stream's source was reopened.", ofStream,
			perStream(func(s *streams.StreamStats) float64 {
				return float64(s.Restarts)
			}), nil},
		{counter, "millrace_stream_lost_total", "", "Frames lost because memory was exhausted (at=memory), and " +
			"results not delivered to any sink (sinks), to watchers, or to a kind of sink.",
			ofStream.and("at", "memory, sinks, watchers, and the kinds of sinks"), func(r *reading, put put) {
				for i := range r.streams.listed {
					s := &r.streams.listed[i]
					put(float64(s.Lost), s.Name, "memory")
					put(float64(s.ResultsLost), s.Name, "sinks")
					put(float64(s.WatchersLost), s.Name, "watchers")
					for kind, st := range s.Sinks {
						put(float64(st.Lost), s.Name, kind)
					}
				}
			}, nil},
		{counter, "millrace_stream_sink_results_total", "", "Results that a sink of the stream has accepted.",
			ofStream.and("sink", "the kinds of sinks"), func(r *reading, put put) {
				for i := range r.streams.listed {
					for kind, st := range r.streams.listed[i].Sinks {
						put(float64(st.Sent), r.streams.listed[i].Name, kind)
					}
				}
			}, nil},
		{counter, "millrace_stream_sink_retries_total", "", "Deliveries to a sink of the stream that were retried.",
			ofStream.and("sink", "the kinds of sinks"), func(r *reading, put put) {
				for i := range r.streams.listed {
					for kind, st := range r.streams.listed[i].Sinks {
						put(float64(st.Retries), r.streams.listed[i].Name, kind)
					}
				}
			}, nil},
		{counter, "millrace_stream_delivered_results_total", "", "Results that were passed to the stream's sinks.",
			ofStreamModel,
			perStreamModel(func(m *streams.ModelStats, put put) { put(float64(m.Aged)) }), nil},
		{counter, "millrace_stream_delivered_age_seconds_total", "seconds",
			"Sum of the ages of those results: from the receipt of the frame to the sinks.", ofStreamModel,
			perStreamModel(func(m *streams.ModelStats, put put) { put(m.Age.Seconds()) }), nil},
		{gauge, "millrace_stream_last_result_timestamp_seconds", "seconds",
			"Time at which the newest result was passed to the stream's sinks; absent before the first.", ofStreamModel,
			perStreamModel(func(m *streams.ModelStats, put put) {
				if !m.Last.IsZero() {
					put(float64(m.Last.UnixMilli()) / float64(time.Second/time.Millisecond))
				}
			}), nil},
		{counter, "millrace_stream_panics_total", "",
			"Goroutines of server streams that panicked, of all streams together.", nil, func(r *reading, put put) {
				if r.streams.on {
					put(float64(r.streams.panics))
				}
			}, nil},
	}},
}

// requestFamilies are the families of one protocol's requests; names nil = the server's own.
func requestFamilies(protocol string, buckets []float64, names *RequestNames) (duration, in, out family) {
	route := labels{{"endpoint", "the pattern of the route, never the path"},
		{"version", "of the model, if the route names one"}, {"status", "1xx, 2xx, 3xx, 4xx, 5xx"}}
	if names != nil {
		route = names.labels()
	}
	return family{histogram, protocol + "_request_duration_seconds", "seconds",
			"Time from a request's headers to the end of its response.", route, nil, &observed{buckets: buckets}},
		family{histogram, protocol + "_request_size_bytes", "bytes", "Size of request bodies.", route, nil,
			&observed{buckets: byteBuckets}},
		family{histogram, protocol + "_response_size_bytes", "bytes", "Size of response bodies.", route, nil,
			&observed{buckets: byteBuckets}}
}

func (n *RequestNames) labels() labels { return labels{n.Route, n.Status} }

// inProgramFamily is the family of the time in the program.
func (n *RequestNames) inProgramFamily(buckets []float64) family {
	return family{histogram, n.InProgram, "seconds", "Time of answered requests in the application.", n.labels(), nil,
		&observed{buckets: buckets}}
}

// Labels shared by several families.
var (
	model      = labels{{"model", "the name under which it is loaded"}, {"version", "of the model"}}
	byListener = labels{{"listener", "http, grpc, metrics, management, management_grpc"}}
	ofStream   = labels{{"stream", "the name of the server stream; without the label: those beyond " +
		"`metrics.streams`, added up"}}
	// ofStreamModel are the labels of counts for each model of a stream.
	ofStreamModel = ofStream.and("model", "the name of one of its models; without the label: those of the streams "+
		"beyond `metrics.streams`")
)

// Classic buckets. Every histogram is also a native histogram, which needs no choice of buckets.
var (
	// stageBuckets, in seconds, cover stages from 0.1 ms to 10 s.
	stageBuckets = []float64{
		0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5,
		10,
	}
	rowBuckets = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}
	// DefaultRequestBuckets, in seconds, are the buckets of request durations.
	DefaultRequestBuckets = []float64{
		0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60,
	}
	// byteBuckets are sizes of requests and responses, from 256 B to 64 MiB.
	byteBuckets = []float64{1 << 8, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26}
)
