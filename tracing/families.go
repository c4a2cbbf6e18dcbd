//go:build !nometrics

package tracing

import (
	"strings"
	"time"

	"millrace/ingest"
	"millrace/ingest/clips"
	"millrace/ingest/sources"
	"millrace/ingest/streams"
	"millrace/stream"
	"millrace/stream/rules"
	"millrace/tasks"
	"millrace/workers"
)

// families lists every metric family of Millrace, by section: registration, the scrape and docs/metrics.md follow
// from the list. The metrics of the Go runtime and of the process have standard names and are registered by their
// collectors.
var families = []section{
	{"Program", []metricFamily{
		{gauge, "millrace_build_info", "The program's version; always 1.",
			labels{{"version", ""}},
			func(r *scrape, put put) { put(1, r.version) }, nil},
		{gauge, "millrace_goroutines", "Goroutines by the group that started them.",
			labels{{"group", ""}},
			func(r *scrape, put put) { each(r.adapters.Goroutines, put) }, nil},
		{gauge, "millrace_child_processes", "Child processes, such as ffmpeg, that have not been reaped.", nil,
			func(r *scrape, put put) { put(float64(r.children)) }, nil},
		{counter, "millrace_model_source_lookups_total", "Lookups of models and repositories with an address.",
			labels{{"outcome", "fetched; current: in the cache; failed"}},
			func(r *scrape, put put) { each(r.sources, put) }, nil},
	}},
	{"Frames, by model", []metricFamily{
		{counter, "millrace_frames_accepted_total", "Accepted frames and one-shot requests.", model,
			ofFrames(func(t *stream.Totals, put func(float64, ...string)) { put(float64(t.Accepted)) }), nil},
		{counter, "millrace_frames_total", "Ended frames.",
			model.and("outcome", "result, drop, error"), ofFrames(func(t *stream.Totals, put func(float64, ...string)) {
				put(float64(t.Results), stream.Answered.String())
				put(float64(total(t.Drops)), stream.Dropped.String())
				put(float64(total(t.Errors)), stream.Failed.String())
			}), nil},
		{gauge, "millrace_frames_in_flight", "Accepted frames without an ending.", model,
			ofFrames(func(t *stream.Totals, put func(float64, ...string)) { put(float64(t.InFlight)) }), nil},
		{counter, "millrace_dropped_frames_total", "Accepted frames that were dropped.",
			model.and("reason", "[drops](protocol.md#reasons-of-a-drop)"),
			ofFrames(func(t *stream.Totals, put func(float64, ...string)) {
				eachOf(t.Drops, put)
			}), nil},
		{counter, "millrace_frame_errors_total", "Accepted frames that ended with an error.",
			model.and("code", "[errors](protocol.md#codes)"),
			ofFrames(func(t *stream.Totals, put func(float64, ...string)) {
				eachOf(t.Errors, put)
			}), nil},
		{counter, "millrace_refused_frames_total", "Frames refused before a stream.",
			model.and("reason", "of the drop, or the error's code"),
			ofFrames(func(t *stream.Totals, put func(float64, ...string)) {
				eachOf(t.Refused, put)
			}), nil},
		{counter, "millrace_unsendable_results_total", "Results that could not be sent.",
			model.and("code", "[errors](protocol.md#codes)"),
			ofFrames(func(t *stream.Totals, put func(float64, ...string)) {
				for code, n := range t.Unsendable {
					if n > 0 {
						put(float64(n), string(code))
					}
				}
			}), nil},
		{counter, "millrace_cache_lookups_total", "Lookups of one-shot requests in the model's cache (`cache.size`).",
			model.and("result", "hit, miss"), ofFrames(func(t *stream.Totals, put func(float64, ...string)) {
				put(float64(t.CacheHits), "hit")
				put(float64(t.CacheMisses), "miss")
			}), nil},
		{gauge, "millrace_cache_results", "Results in the model's cache.", model,
			ofLoaded(func(g *workers.GroupStats) float64 {
				return float64(g.CacheResults)
			}), nil},
		{gauge, "millrace_cache_bytes", "Bytes of the results in the model's cache.",
			model, ofLoaded(func(g *workers.GroupStats) float64 {
				return float64(g.CacheBytes)
			}), nil},
		{counter, "millrace_goodput_frames_total",
			"Results before the frame's deadline and largest age.",
			model,
			ofSeries(func(s *series) float64 { return float64(s.goodput.Load()) }), nil},
		{counter, "millrace_skipped_frames_total",
			"Frames answered by the gate.",
			model,
			ofSeries(func(s *series) float64 { return float64(s.skipped.Load()) }), nil},
		{histogram, "millrace_answered_age_seconds", "Time from the receipt of an answered frame to its result.", model,
			nil, &observed{buckets: stageBuckets, values: func(s *series, put putValues) { put(s.age) }}},
		{histogram, "millrace_stage_duration_seconds", "Time of an answered frame in a stage.",
			model.and("stage", "queue: until a batch; prepare: until the run; run: until the result"), nil,
			&observed{buckets: stageBuckets, values: func(s *series, put putValues) {
				put(s.queue, "queue")
				put(s.prepare, "prepare")
				put(s.run, "run")
			}}},
	}},
	{"Steps of graphs, by graph", []metricFamily{
		{counter, "millrace_steps_total", "Ended steps; the steps' models count these frames, too.",
			model.and("step", "").and("outcome", "result, drop, error; skipped: no condition or inputs"),
			func(r *scrape, put put) {
				for _, s := range r.series {
					s.eachStep(func(name string, st *stepSeries) {
						for i, outcome := range stepOutcomes {
							put(float64(st.outcomes[i].Load()), s.model, s.version, name, outcome)
						}
					})
				}
			}, nil},
		{histogram, "millrace_step_duration_seconds",
			"Time of an answered step, with the queue.", model.and("step", ""),
			nil, &observed{buckets: stageBuckets, values: func(s *series, put putValues) {
				s.eachStep(func(name string, st *stepSeries) { put(st.took, name) })
			}}},
	}},
	{"Queue, batches and workers, by model", []metricFamily{
		{gauge, "millrace_model_ready", "1 when the model can serve.", model,
			ofLoaded(func(g *workers.GroupStats) float64 {
				return boolValue(g.State == workers.StateReady)
			}), nil},
		{gauge, "millrace_streams", "Open streams.", model, ofLoaded(func(g *workers.GroupStats) float64 {
			return float64(g.Streams)
		}), nil},
		{gauge, "millrace_queue_depth", "Frames that wait for a batch.", model,
			ofLoaded(func(g *workers.GroupStats) float64 {
				return float64(g.Waiting)
			}), nil},
		{gauge, "millrace_queue_oldest_age_seconds", "Wait of the oldest frame for a batch; 0 when none " +
			"waits. Paused streams are left out.", model,
			ofLoaded(func(g *workers.GroupStats) float64 { return g.Oldest.Seconds() }), nil},
		{gauge, "millrace_queue_flows",
			"Streams, and connections with one-shot requests, in the queue.", model,
			ofLoaded(func(g *workers.GroupStats) float64 { return float64(g.PlacesUsed) }), nil},
		{histogram, "millrace_batch_rows", "Rows of the batches that ran.", model, nil,
			&observed{buckets: rowBuckets, values: func(s *series, put putValues) {
				put(s.rows)
			}}},
		{histogram, "millrace_batch_duration_seconds", "Time of a batch in a stage.",
			model.and("stage", "prepare, run"), nil,
			&observed{buckets: stageBuckets, values: func(s *series, put putValues) {
				put(s.batchPrepare, "prepare")
				put(s.batchRun, "run")
			}}},
		{counter, "millrace_batches_total", "Batches that ran.", model,
			ofGroup(func(g *workers.GroupStats) float64 {
				return float64(g.Batches)
			}), nil},
		{counter, "millrace_batches_formed_total", "Batches that ran, by the cause that formed them.",
			model.and("cause", "full; idle_worker; max_delay: the batcher's longest wait; deadline: of a frame; "+
				"partial: another batch needed the memory or worker, or the worker stopped"), func(r *scrape, put put) {
				for i := range r.groups {
					for cause, n := range r.groups[i].BatchesBy {
						put(float64(n), r.groups[i].Model.Name, r.groups[i].Model.Version, cause)
					}
				}
			}, nil},
		{counter, "millrace_batch_capacity_rows_total",
			"Rows for which the batches had room.", model,
			ofGroup(func(g *workers.GroupStats) float64 { return float64(g.Capacity) }), nil},
		{gauge, "millrace_batch_buffers", "Batch buffers of the model.", model.and("state", "used, free"),
			func(r *scrape, put put) {
				for _, g := range r.loaded() {
					put(float64(max(g.Buffers-g.BuffersFree, 0)), g.Model.Name, g.Model.Version, "used")
					put(float64(g.BuffersFree), g.Model.Name, g.Model.Version, "free")
				}
			}, nil},
		{gauge, "millrace_workers", "Workers.",
			model.and("state", "busy; idle; quarantined: the run is past `limits.run`"), func(r *scrape, put put) {
				for _, g := range r.loaded() {
					put(float64(g.Busy), g.Model.Name, g.Model.Version, "busy")
					put(float64(max(g.Workers-g.Busy, 0)), g.Model.Name, g.Model.Version, "idle")
					put(float64(g.Quarantined), g.Model.Name, g.Model.Version, "quarantined")
				}
			}, nil},
		{counter, "millrace_shadow_requests_total", "Requests copied to the version as a shadow.",
			model.and("outcome", "equal, different, failed; skipped: too many waited"),
			func(r *scrape, put put) {
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
		{counter, "millrace_shadow_difference_total",
			"Sum of the mean absolute differences of a shadow's results.", model,
			ofGroup(func(g *workers.GroupStats) float64 { return g.Shadow.Difference }), nil},
		{counter, "millrace_worker_restarts_total", "Workers that were replaced.", model,
			ofGroup(func(g *workers.GroupStats) float64 {
				return float64(g.Restarts)
			}), nil},
	}},
	{"Child processes of models, by model", []metricFamily{
		{gauge, "millrace_model_processes", "Child processes of the model.", model,
			ofProcesses(func(p *workers.ProcessStats, put func(float64, ...string)) {
				put(float64(p.Running))
			}), nil},
		{gauge, "millrace_model_process_memory_bytes", "Resident memory of the child processes and " +
			"their descendants; see `memory_limit`.", model,
			ofProcesses(func(p *workers.ProcessStats, put func(float64, ...string)) {
				put(float64(p.Memory))
			}), nil},
		{counter, "millrace_model_process_starts_total", "Started child processes.", model,
			ofProcesses(func(p *workers.ProcessStats, put func(float64, ...string)) {
				put(float64(p.Started))
			}), nil},
		{counter, "millrace_model_process_ends_total", "Ended child processes.",
			model.and("cause", "stopped: by the server; exit; signal; killed: by another process's signal; oom: by "+
				"the kernel, for want of memory; timeout: `limits.run`; protocol: broken by the process; memory: "+
				"`memory_limit`; slow: `watchdog.request_threshold`; watchdog: the process's own; recycled; start: "+
				"`limits.start`, or refused by the process"),
			ofProcesses(func(p *workers.ProcessStats, put func(float64, ...string)) {
				for cause, n := range p.Ended {
					put(float64(n), cause)
				}
			}), nil},
	}},
	{"Containers of models, by model", []metricFamily{
		{gauge, "millrace_model_containers", "Running containers of the model: of its tasks, or of its instances.",
			model, ofContainers(func(p *workers.ProcessStats) float64 { return float64(p.Containers) }), nil},
		{counter, "millrace_model_container_starts_total", "Started containers.", model,
			ofContainers(func(p *workers.ProcessStats) float64 { return float64(p.ContainersStarted) }), nil},
	}},
	{"Memory", []metricFamily{
		{gauge, "millrace_memory_budget_bytes",
			"`memory.budget`: the most bytes leased and reserved at once.", nil,
			ofMemory(func(r *scrape) float64 {
				return float64(r.memory.Budget)
			}), nil},
		{gauge, "millrace_memory_leased_bytes", "Bytes leased now.", nil, ofMemory(func(r *scrape) float64 {
			return float64(r.memory.Leased)
		}), nil},
		{gauge, "millrace_memory_reserved_bytes",
			"Bytes reserved for batches and caches of loaded models; at most half of the budget.", nil,
			ofMemory(func(r *scrape) float64 {
				return float64(r.memory.Reserved)
			}), nil},
		{gauge, "millrace_memory_idle_bytes", "Free bytes kept for reuse.", nil,
			ofMemory(func(r *scrape) float64 {
				return float64(r.memory.Idle)
			}), nil},
		{gauge, "millrace_memory_leases", "Buffers leased now.", nil, ofMemory(func(r *scrape) float64 {
			return float64(r.memory.Leases)
		}), nil},
		{counter, "millrace_memory_denied_total", "Leases refused by the budget.", nil,
			ofMemory(func(r *scrape) float64 {
				return float64(r.memory.Denied)
			}), nil},
	}},
	{"Tasks", []metricFamily{
		{gauge, "millrace_tasks", "Stored tasks.",
			labels{{"state", words(tasks.States)}}, func(r *scrape, put put) { each(r.adapters.Tasks, put) }, nil},
		{gauge, "millrace_task_bytes", "Bytes of the inputs and results of all tasks; at most " +
			"`tasks.max_bytes`.", nil, ofTasks(func(m *ingest.Metrics) float64 {
			return float64(m.TaskBytes)
		}), nil},
		{counter, "millrace_tasks_queued_total", "Queued tasks.",
			labels{{"origin", "submitted; found: not ended at the server's start; retried: again by a client " +
				"after the end"}},
			func(r *scrape, put put) { each(r.adapters.TasksQueued, put) }, nil},
		{counter, "millrace_tasks_ended_total", "Ended tasks.",
			labels{{"state", "finished, failed, cancelled, expired; deleted: by the client while queued"}},
			func(r *scrape, put put) { each(r.adapters.TasksEnded, put) }, nil},
		{counter, "millrace_task_attempts_total", "Attempts to run a task.", nil,
			ofTasks(func(m *ingest.Metrics) float64 { return float64(m.TaskAttempts) }), nil},
		{counter, "millrace_task_claims_total", "Claims by consumers on other hosts.",
			labels{{"event", "claimed; finished, failed, released: by the consumer; refused: late requests, such as " +
				"a result"}},
			func(r *scrape, put put) { each(r.adapters.TaskClaims, put) }, nil},
	}},
	{"Connections and sessions", []metricFamily{
		{gauge, "millrace_connections", "Open TCP connections.", byListener, func(r *scrape, put put) {
			for name, st := range r.accepted {
				put(float64(st.Open), name)
			}
		}, nil},
		{counter, "millrace_connections_refused_total", "Connections refused on arrival.",
			byListener.and("reason", "total: `limits.max_connections`; address: `limits.max_connections_per_address`; "+
				"descriptors: no free file descriptor"),
			func(r *scrape, put put) {
				for name, st := range r.accepted {
					put(float64(st.Refused), name, "total")
					put(float64(st.RefusedAddress), name, "address")
					put(float64(st.RefusedNoFile), name, "descriptors")
				}
			}, nil},
		{counter, "millrace_connections_shed_total", "Silent connections closed for a newer connection.", byListener,
			func(r *scrape, put put) {
				for name, st := range r.accepted {
					put(float64(st.Shed), name)
				}
			}, nil},
		{counter, "millrace_accept_failures_total",
			"Failed attempts to accept a connection.",
			byListener, func(r *scrape, put put) {
				for name, st := range r.accepted {
					put(float64(st.Failed), name)
				}
			}, nil},
		{counter, "millrace_auth_total", "Requests, calls, logins and used tickets, where clients need credentials.",
			labels{{"outcome", "allowed; missing, wrong, expired: unauthenticated; denied: without the role or " +
				"model; limited: too many logins"}},
			func(r *scrape, put put) { each(r.auth, put) }, nil},
		{counter, "millrace_audit_lost_total", "Administrative acts that could not be written to the audit log.", nil,
			func(r *scrape, put put) {
				if r.audit.on {
					put(float64(r.audit.lost))
				}
			}, nil},
		{counter, "millrace_quota_refused_total", "Refusals, and dropped frames, because of a " +
			"client's quota.",
			labels{{"quota", strings.Join(stream.QuotaNames[:], ", ")}, byPrincipal}, func(r *scrape, put put) {
				for i := range r.uses {
					for q, n := range r.uses[i].Denied {
						put(float64(n), stream.Quota(q).String(), r.uses[i].Name)
					}
				}
			}, nil},
		{counter, "millrace_client_requests_total",
			"Requests and calls, without routes open to all.", labels{byPrincipal},
			ofUses(stream.QuotaRequests, 1), nil},
		{counter, "millrace_client_frames_total",
			"Frames and one-shot requests.", labels{byPrincipal},
			ofUses(stream.QuotaFrames, 1), nil},
		{counter, "millrace_client_bytes_total", "Bytes of these frames; for videos, of the decoded pictures.",
			labels{byPrincipal}, ofUses(stream.QuotaBytes, 1), nil},
		{counter, "millrace_client_decode_seconds_total", "Time of decoding pictures, and ffmpeg's for videos.",
			labels{byPrincipal},
			ofUses(stream.QuotaDecode, 1e-9), nil},
		{counter, "millrace_client_loads_total", "Loads of models by clients.", labels{byPrincipal},
			ofUses(stream.QuotaLoads, 1), nil},
		{gauge, "millrace_client_held", "Objects held by clients.",
			labels{{"quota", "streams, sequences, sessions, decoders, endpoints, regions"}, byPrincipal},
			func(r *scrape, put put) {
				for i := range r.uses {
					for q := stream.QuotaStreams; q < stream.QuotaTasks; q++ {
						put(float64(r.uses[i].Used[q]), q.String(), r.uses[i].Name)
					}
				}
			}, nil},
		{gauge, "millrace_sessions",
			"Open sessions; ws_waiting: without a connection, may be resumed.", labels{{"adapter", "ws, ws_waiting"}},
			func(r *scrape, put put) { each(r.adapters.Sessions, put) }, nil},
		{counter, "millrace_sessions_closed_total",
			"Ended sessions, and refused WebSockets (refused).",
			labels{{"reason", "[codes](protocol.md#codes)"}},
			func(r *scrape, put put) { each(r.adapters.Closed, put) }, nil},
		{counter, "millrace_streams_closed_total", "Ended streams of WebSocket sessions.",
			labels{{"reason", "[codes](protocol.md#codes)"}},
			func(r *scrape, put put) { each(r.adapters.StreamEnds, put) }, nil},
		{gauge, "millrace_credits", "Frames that clients of millrace.v1 may send now, over all streams.", nil,
			ofAdapters(func(r *scrape) float64 { return float64(r.adapters.Credits) }), nil},
		{gauge, "millrace_streams_without_credit", "Streams of millrace.v1 whose clients have to wait.", nil,
			ofAdapters(func(r *scrape) float64 { return float64(r.adapters.WithoutCredit) }), nil},
		{gauge, "millrace_videos", "Videos decoded for sessions.",
			labels{{"from", "sent, pulled"}},
			func(r *scrape, put put) { each(r.adapters.Videos, put) }, nil},
		{counter, "millrace_videos_too_slow_total",
			"Videos ended by `limits.max_decode_time`.", labels{{"from", "sent, pulled"}},
			func(r *scrape, put put) { each(r.adapters.TooSlow, put) }, nil},
		{gauge, "millrace_outbox_bytes", "Bytes of replies waiting for clients.", nil,
			ofAdapters(func(r *scrape) float64 { return float64(r.adapters.OutboxBytes) }), nil},
		{gauge, "millrace_kept_bytes", "Bytes of replies kept for resumption; at most a sixteenth of " +
			"`memory.budget`, in addition to the budget.", nil,
			ofAdapters(func(r *scrape) float64 { return float64(r.adapters.KeptBytes) }), nil},
	}},
	{"Traces", []metricFamily{
		{counter, "millrace_traces_kept_total", "Frames, submissions and attempts with kept traces, once for " +
			"each rule.",
			labels{{"rule", "sampled, slow, dropped, failed, gated"}},
			ofTraces(func(t *TraceStats, put put) { each(t.Kept, put) }), nil},
		{counter, "millrace_traces_over_limit_total", "Frames not kept because of the rule's limit.",
			labels{{"rule", "sampled, slow, dropped, failed, gated"}},
			ofTraces(func(t *TraceStats, put put) { each(t.OverLimit, put) }), nil},
		{counter, "millrace_traces_unbuilt_total", "Kept frames without spans, because too many ended at once.", nil,
			ofTraces(func(t *TraceStats, put put) { put(float64(t.Unbuilt)) }), nil},
		{counter, "millrace_spans_exported_total", "Spans accepted by the collector.", nil,
			ofTraces(func(t *TraceStats, put put) {
				put(float64(t.Exported))
			}), nil},
		{counter, "millrace_spans_lost_total", "Spans that were not exported.",
			labels{{"reason", "queue_full, refused, failed, too_large, closed"}},
			ofTraces(func(t *TraceStats, put put) { each(t.Lost, put) }), nil},
		{counter, "millrace_malformed_trace_contexts_total", "Unreadable trace contexts, ignored.", nil,
			ofAdapters(func(r *scrape) float64 { return float64(r.adapters.Contexts) }), nil},
		{gauge, "millrace_spans_waiting", "Spans waiting for the collector.", nil,
			ofTraces(func(t *TraceStats, put put) {
				put(float64(t.Waiting))
			}), nil},
	}},
	{"Server streams", []metricFamily{
		{gauge, "millrace_server_streams", "Server streams.", labels{{"state", words(sources.States)}},
			func(r *scrape, put put) {
				if r.streams.on {
					for _, state := range sources.States {
						put(float64(r.streams.states[state]), string(state))
					}
				}
			}, nil},
		{gauge, "millrace_stream_state", "1 for the current state, 0 for other states.",
			ofStream.and("state", words(sources.States)), func(r *scrape, put put) {
				for i := range r.streams.listed {
					for _, state := range sources.States {
						if s := &r.streams.listed[i]; s.Name != "" {
							put(boolValue(s.State == state), s.Name, string(state))
						}
					}
				}
			}, nil},
		{gauge, "millrace_stream_paused", "1 while the stream is paused.", ofStream, func(r *scrape, put put) {
			for i := range r.streams.listed {
				if s := &r.streams.listed[i]; s.Name != "" {
					put(boolValue(s.Paused), s.Name)
				}
			}
		}, nil},
		{gauge, "millrace_stream_watchers", "Clients that receive results or pictures.", ofStream,
			perStream(func(s *streams.StreamStats) float64 {
				return float64(s.Watchers)
			}), nil},
		{gauge, "millrace_stream_encoders", "Running encoders of watched video.", ofStream,
			perStream(func(s *streams.StreamStats) float64 {
				return float64(s.Encoders)
			}), nil},
		{counter, "millrace_stream_encoded_pictures_total", "Pictures encoded for watchers.", ofStream,
			perStream(func(s *streams.StreamStats) float64 {
				return float64(s.Encoded)
			}), nil},
		{counter, "millrace_stream_encoder_failures_total", "Failures of encoders of watched video.", ofStream,
			perStream(func(s *streams.StreamStats) float64 {
				return float64(s.EncoderFails)
			}), nil},
		{counter, "millrace_stream_read_frames_total", "Frames read from the source.", ofStream,
			perStream(func(s *streams.StreamStats) float64 {
				return float64(s.Frames)
			}), nil},
		{counter, "millrace_stream_frames_total", "Ended frames, once for each model.",
			ofStreamModel.and("outcome", "result, drop, error"),
			perStreamModel(func(m *streams.ModelStats, put put) {
				put(float64(m.Answered), stream.Answered.String())
				put(float64(total(m.Drops)), stream.Dropped.String())
				put(float64(m.Failed), stream.Failed.String())
			}), nil},
		{counter, "millrace_stream_dropped_frames_total", "Dropped frames.",
			ofStreamModel.and("reason", "[drops](protocol.md#reasons-of-a-drop)"),
			perStreamModel(func(m *streams.ModelStats, put put) {
				for _, why := range stream.Reasons {
					put(float64(m.Drops[why]), string(why))
				}
			}), nil},
		{counter, "millrace_stream_restarts_total", "Reopenings of the source.", ofStream,
			perStream(func(s *streams.StreamStats) float64 {
				return float64(s.Restarts)
			}), nil},
		{counter, "millrace_stream_skipped_pictures_total", "Pictures of a video with `decode` `reference` or `key` " +
			"that became no frame.", ofStream,
			perStream(func(s *streams.StreamStats) float64 {
				return float64(s.Skipped)
			}), nil},
		{counter, "millrace_stream_lost_total", "Frames lost for want of memory, and lost results.",
			ofStream.and("at", "memory; sinks: to no sink; watchers; video: to watchers of encoded video; a kind of "+
				"sink: to this sink"),
			func(r *scrape, put put) {
				for i := range r.streams.listed {
					s := &r.streams.listed[i]
					put(float64(s.Lost), s.Name, "memory")
					put(float64(s.ResultsLost), s.Name, "sinks")
					put(float64(s.WatchersLost), s.Name, "watchers")
					put(float64(s.VideoLost), s.Name, "video")
					for kind, st := range s.Sinks {
						put(float64(st.Lost), s.Name, kind)
					}
				}
			}, nil},
		{counter, "millrace_stream_sink_results_total", "Results, or events, accepted by the sink.",
			ofStream.and("sink", "kind of the sink"), func(r *scrape, put put) {
				for i := range r.streams.listed {
					for kind, st := range r.streams.listed[i].Sinks {
						put(float64(st.Sent), r.streams.listed[i].Name, kind)
					}
				}
			}, nil},
		{counter, "millrace_stream_sink_retries_total", "Retried deliveries to the sink.",
			ofStream.and("sink", "kind of the sink"), func(r *scrape, put put) {
				for i := range r.streams.listed {
					for kind, st := range r.streams.listed[i].Sinks {
						put(float64(st.Retries), r.streams.listed[i].Name, kind)
					}
				}
			}, nil},
		{gauge, "millrace_stream_sink_waiting", "Results or events that wait for the sink, in memory or on disk.",
			ofStream.and("sink", "kind of the sink"), func(r *scrape, put put) {
				for i := range r.streams.listed {
					for kind, st := range r.streams.listed[i].Sinks {
						put(float64(st.Waiting), r.streams.listed[i].Name, kind)
					}
				}
			}, nil},
		{counter, "millrace_stream_delivered_results_total", "Results passed to the sinks.",
			ofStreamModel,
			perStreamModel(func(m *streams.ModelStats, put put) { put(float64(m.Aged)) }), nil},
		{counter, "millrace_stream_delivered_age_seconds_total",
			"Sum of the ages of results passed to the sinks.", ofStreamModel,
			perStreamModel(func(m *streams.ModelStats, put put) { put(m.Age.Seconds()) }), nil},
		{gauge, "millrace_stream_last_result_timestamp_seconds",
			"Time of the newest result passed to the sinks.", ofStreamModel,
			perStreamModel(func(m *streams.ModelStats, put put) {
				if !m.Last.IsZero() {
					put(float64(m.Last.UnixMilli()) / float64(time.Second/time.Millisecond))
				}
			}), nil},
		{counter, "millrace_events_total", "Events of lines and zones; at most 512 kinds a stream.",
			ofStream.and("rule", "name of the line, zone or condition; absent beyond 512 kinds, and in the sum").
				and("type", rules.TypesText()).
				and("class", "label or number; other beyond 256 kinds"),
			func(r *scrape, put put) {
				for i := range r.streams.listed {
					for kind, n := range r.streams.listed[i].Events {
						put(float64(n), r.streams.listed[i].Name, kind.Rule, kind.Type, kind.Class)
					}
				}
			}, nil},
		{gauge, "millrace_zone_occupancy", "Objects in the zone now.", ofStreamModel.and("rule", "name of the zone"),
			func(r *scrape, put put) {
				for i := range r.streams.listed {
					for _, z := range r.streams.listed[i].Zones {
						put(float64(z.Now), r.streams.listed[i].Name, z.Model, z.Rule)
					}
				}
			}, nil},
		{counter, "millrace_history_events_total", "Events for the history.",
			labels{{"outcome", "written, lost"}}, func(r *scrape, put put) {
				if h := r.streams.history; h != nil {
					put(float64(h.Written), "written")
					put(float64(h.Lost), "lost")
				}
			}, nil},
		{gauge, "millrace_history_events_waiting", "Events that wait for the database of the history.", nil,
			func(r *scrape, put put) {
				if h := r.streams.history; h != nil {
					put(float64(h.Waiting))
				}
			}, nil},
		{counter, "millrace_stream_panics_total",
			"Panicked goroutines of all server streams.", nil, func(r *scrape, put put) {
				if r.streams.on {
					put(float64(r.streams.panics))
				}
			}, nil},
		{gauge, "millrace_clips", "Clips.", nil, func(r *scrape, put put) {
			put(float64(r.streams.clips.Clips))
		}, nil},
		{gauge, "millrace_clips_bytes", "Their files.", nil, func(r *scrape, put put) {
			put(float64(r.streams.clips.Bytes))
		}, nil},
		{counter, "millrace_clips_cut_total", "Clips with an early end.", labels{{"reason", words(clips.Cuts)}},
			func(r *scrape, put put) {
				for _, why := range clips.Cuts {
					put(float64(r.streams.clips.Cuts[why]), string(why))
				}
			}, nil},
		{counter, "millrace_clips_missed_total", "Events without a clip.", nil, func(r *scrape, put put) {
			put(float64(r.streams.clips.Missed))
		}, nil},
		{counter, "millrace_clips_fragmented_total",
			"Clips that stay fragmented MP4: the index cannot be written.", nil, func(r *scrape, put put) {
				put(float64(r.streams.clips.Fragmented))
			}, nil},
	}},
}

// requestFamilies are the families of one protocol's requests; names nil = the server's own.
func requestFamilies(protocol string, buckets []float64, names *RequestNames) (duration, in, out metricFamily) {
	route := labels{{"endpoint", ""}, {"version", ""}, {"status", ""}}
	if names != nil {
		route = names.labels()
	}
	return metricFamily{histogram, protocol + "_request_duration_seconds",
			"Time from a request's headers to the end of its response.", route, nil,
			&observed{buckets: buckets, nanoseconds: true}},
		metricFamily{histogram, protocol + "_request_size_bytes", "Size of request bodies.", route, nil,
			&observed{buckets: byteBuckets}},
		metricFamily{histogram, protocol + "_response_size_bytes", "Size of response bodies.", route, nil,
			&observed{buckets: byteBuckets}}
}

func (n *RequestNames) labels() labels { return labels{n.Route, n.Status} }

// inProgramFamily is the family of the time in the program.
func (n *RequestNames) inProgramFamily(buckets []float64) metricFamily {
	return metricFamily{histogram, n.InProgram, "Time of answered requests in the application.", n.labels(), nil,
		&observed{buckets: buckets, nanoseconds: true}}
}

// shared describes the labels of several families, for the page's first table.
var shared = labels{
	{"model", "the name under which the model is loaded; for a graph, the name of the graph"},
	{"version", "the model's version"},
	{"stream", "the name of the server stream; absent in the sum of the streams beyond `metrics.streams`"},
	{"principal", "the name of a key or user; \"\" = all clients without a name, and clients beyond the first 500"},
	{"listener", "http, grpc, metrics, management, management_grpc"},
	{"endpoint", "the pattern of the route, never the path"},
	{"status", "1xx, 2xx, 3xx, 4xx, 5xx"},
}

// Labels of several families, described by shared.
var (
	model      = labels{{"model", ""}, {"version", ""}}
	byListener = labels{{"listener", ""}}
	ofStream   = labels{{"stream", ""}}
	// ofStreamModel are the labels of counts for each model of a stream.
	ofStreamModel = ofStream.and("model", "")
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
