//go:build !nometrics

package main

// dashboards lists Grafana's dashboards: each dashboard, its rows, its panels, and the queries of each panel.
var dashboards = []dashboard{
	{
		uid: "millrace-overview", title: "Millrace: overview",
		about: "Whether the server does its work: what it answers, how old the answers are, and what it uses.",
		rows: []row{
			{"Now", []panel{
				stat("Models ready", "", "sum(millrace_model_ready)", "Loaded models that can serve."),
				stat("Open streams", "", "sum(millrace_streams)", "Streams of clients and of cameras."),
				stat("Accepted", frames, rate("millrace_frames_accepted_total"),
					"Frames and one-shot requests whose clients are told an ending."),
				stat("Goodput", frames, rate("millrace_goodput_frames_total"), "Results that were in time."),
				stat("Age of results, p99", seconds, quantile(0.99, "millrace_answered_age_seconds", ""),
					"From the receipt of a frame to its result."),
				stat("Errors", frames, rate("millrace_frame_errors_total"), "Frames that ended with an error."),
			}},
			{"Frames", []panel{
				graph("How frames end", frames, "Accepted frames are results, drops and errors, and those in flight.",
					query{rate("millrace_frames_total", "outcome"), "{{outcome}}"},
					query{rate("millrace_frames_accepted_total"), "accepted"},
					query{rate("millrace_goodput_frames_total"), "results in time"}),
				withExemplars(graph("Age of results", seconds,
					"Points are frames whose traces were kept: a click leads to Jaeger.",
					query{quantile(0.5, "millrace_answered_age_seconds", ""), "p50"},
					query{quantile(0.9, "millrace_answered_age_seconds", ""), "p90"},
					query{quantile(0.99, "millrace_answered_age_seconds", ""), "p99"})),
				graph("Drops by reason", frames, "superseded and overtaken are what the policy latest does under "+
					"load; memory and stale need a look.",
					query{rate("millrace_dropped_frames_total", "reason") + " > 0", "{{reason}}"}),
				graph("Errors by code", frames, "As clients were told.",
					query{rate("millrace_frame_errors_total", "code") + " > 0", "{{code}}"}),
				graph("In flight", "", "Frames without an ending, and those of them that wait for a batch.",
					query{"sum(millrace_frames_in_flight)", "in flight"},
					query{"sum(millrace_queue_depth)", "waiting"}),
				graph("HTTP requests", requests, "By route and class of status.",
					query{countOf("http_request_duration_seconds", "", "endpoint", "status"),
						"{{endpoint}} {{status}}"}),
			}},
			{"Resources", []panel{
				graph("Memory budget", bytesIEC, "Frames, results and batches lease from memory.budget.",
					query{"sum(millrace_memory_leased_bytes)", "leased"}, query{"sum(millrace_memory_reserved_bytes)",
						"reserved for batches"}, query{"sum(millrace_memory_budget_bytes)", "budget"}),
				graph("Process", bytesIEC, "Resident memory of the process, and the heap of Go in it.",
					query{"sum(process_resident_memory_bytes{job=\"millrace\"})", "resident"},
					query{"sum(go_memstats_heap_inuse_bytes{job=\"millrace\"})", "heap"}),
				graph("Processor", "short", "Cores in use.",
					query{"sum(rate(process_cpu_seconds_total{job=\"millrace\"}[" + window + "]))", "cores"}),
				graph("Garbage collection", percent,
					"Share of the processor time of Go that the garbage collector uses.",
					query{"sum(rate(go_cpu_classes_gc_total_cpu_seconds_total[" + window +
						"])) / sum(rate(go_cpu_classes_total_cpu_seconds_total[" + window + "]))", "collector"}),
				graph("Goroutines", "", "By the group that started them.",
					query{"sum by (group) (millrace_goroutines)", "{{group}}"}),
				graph("Connections", "", "Open TCP connections, and those refused in a second.",
					query{"sum by (listener) (millrace_connections)", "{{listener}}"},
					query{rate("millrace_connections_refused_total"), "refused"}),
				stat("Version", "", "max by (version) (millrace_build_info)", "Of Millrace.").labelled("{{version}}"),
				stat("Prometheus", "", `max by (version) (prometheus_build_info)`, "At least "+leastPrometheus+
					": older ones do not know functions of the quantiles.").labelled("{{version}}"),
			}},
		},
	},
	{
		uid: "millrace-streams", title: "Millrace: streams", variables: []variable{streamVariable},
		about: "What clients keep open, and each server stream: the state of its source, what it reads, answers and " +
			"loses.",
		rows: []row{
			{"Clients", []panel{
				graph("Sessions", "", "ws_waiting have lost their connection and may be resumed.",
					query{"sum by (adapter) (millrace_sessions)", "{{adapter}}"}),
				graph("Streams", "", "Open streams by model.", query{"sum by (model) (millrace_streams)", "{{model}}"}),
				graph("Credits", frames0, "Frames that clients of millrace.v1 may still send without waiting.",
					query{"sum(millrace_credits)", "credits"}, query{"sum(millrace_streams_without_credit)",
						"streams without credit"}),
				graph("Sessions that ended", events, "By reason.",
					query{rate("millrace_sessions_closed_total", "reason") + " > 0", "{{reason}}"}),
				graph("Streams that ended", events, "Of WebSocket sessions, by reason.",
					query{rate("millrace_streams_closed_total", "reason") + " > 0", "{{reason}}"}),
				graph("Replies that wait", bytesIEC,
					"outbox: for their clients to read; kept: for sessions that may be resumed.",
					query{"sum(millrace_outbox_bytes)", "outbox"}, query{"sum(millrace_kept_bytes)", "kept"}),
				graph("Decoders", "", "Videos decoded for sessions, and child processes.",
					query{"sum by (from) (millrace_videos)", "{{from}}"},
					query{"sum(millrace_child_processes)", "child processes"}),
			}},
			{"Server streams", []panel{
				graph("States", "", "Server streams by the state of their source.",
					query{"sum by (state) (millrace_server_streams)", "{{state}}"}),
				graph("Frames read", frames, "From the source, and skipped pictures (setting decode).",
					query{rate("millrace_stream_read_frames_total"+ofStream, "stream"), "{{stream}}"},
					query{rate("millrace_stream_skipped_pictures_total"+ofStream, "stream"), "{{stream}}, skipped"}),
				graph("Results", frames, "Frames that were answered.",
					query{rate(`millrace_stream_frames_total{stream=~"$stream",outcome="result"}`, "stream", "model"),
						"{{stream}} {{model}}"}),
				graph("Mean age of results", seconds, "From the receipt of a frame to the sinks.",
					query{rate("millrace_stream_delivered_age_seconds_total"+ofStream, "stream", "model") + " / " +
						rate("millrace_stream_delivered_results_total"+ofStream, "stream", "model"),
						"{{stream}} {{model}}"}),
				graph("Time since the newest result", seconds, "",
					query{"time() - millrace_stream_last_result_timestamp_seconds" + ofStream, "{{stream}} {{model}}"}),
				graph("Drops", frames, "By reason.",
					query{rate("millrace_stream_dropped_frames_total"+ofStream, "stream", "model", "reason"),
						"{{stream}} {{model}} {{reason}}"}),
				graph("Losses", frames, "Frames and results that were lost, by where.",
					query{rate("millrace_stream_lost_total"+ofStream, "stream", "at"), "{{stream}} {{at}}"}),
				graph("Sources reopened", events, "", query{rate("millrace_stream_restarts_total"+ofStream, "stream"),
					"{{stream}}"}),
				graph("Sinks", frames, "Results accepted, and deliveries retried.",
					query{rate("millrace_stream_sink_results_total"+ofStream, "sink"), "{{sink}}"},
					query{rate("millrace_stream_sink_retries_total"+ofStream, "sink"), "{{sink}}, retried"}),
				graph("Watchers", "", "Clients that receive results or pictures.",
					query{"sum by (stream) (millrace_stream_watchers" + ofStream + ")", "{{stream}}"},
					query{"sum by (stream) (millrace_stream_encoders" + ofStream + ")", "{{stream}}, encoders"}),
			}},
			{"Lines and zones", []panel{
				graph("Events", events, "By line or zone, and type.",
					query{rate("millrace_events_total"+ofStream, "stream", "rule", "type"),
						"{{stream}} {{rule}} {{type}}"}),
				graph("Objects in zones", "", "Now.",
					query{"sum by (stream, rule) (millrace_zone_occupancy" + ofStream + ")", "{{stream}} {{rule}}"}),
				graph("Events of the history", events, "Written and lost.",
					query{rate("millrace_history_events_total", "outcome"), "{{outcome}}"}),
				graph("Events that wait for the history", "", "",
					query{"sum(millrace_history_events_waiting)", "waiting"}),
			}},
		},
	},
	{
		uid: "millrace-models", title: "Millrace: models and batching", variables: []variable{modelVariable},
		about: "Each model: where its frames wait, how its batches are formed and how full they are, and its workers.",
		rows: []row{
			{"Load", []panel{
				graph("Results", frames, "By model and version.",
					query{rate(`millrace_frames_total{model=~"$model",outcome="result"}`, "model", "version"),
						"{{model}} {{version}}"}),
				graph("Goodput", percent, "Share of the results that were in time.",
					query{"clamp_max(" + rate("millrace_goodput_frames_total"+ofModel, "model") + " / " +
						rate(`millrace_frames_total{model=~"$model",outcome="result"}`, "model") + ", 1)",
						"{{model}}"}),
				graph("Frames that wait", "", "", query{"sum by (model) (millrace_queue_depth" + ofModel + ")",
					"{{model}}"}),
				graph("Oldest frame that waits", seconds, "",
					query{"max by (model) (millrace_queue_oldest_age_seconds" + ofModel + ")", "{{model}}"}),
				graph("Places of the queue", "", "In use, of max_flows.",
					query{"sum by (model) (millrace_queue_flows" + ofModel + ")", "{{model}}"}),
				graph("Refused", frames, "Frames whose clients were told an ending before they reached a stream; "+
					"without a model: for none that is loaded.",
					query{rate("millrace_refused_frames_total", "model", "reason") + " > 0", "{{model}} {{reason}}"}),
			}},
			{"Time", []panel{
				withExemplars(graph("Age of results, p99", seconds, "",
					query{quantile(0.99, "millrace_answered_age_seconds", ofModel, "model"), "{{model}}"})),
				graph("Stages, p50", seconds, "Of an answered frame.",
					query{quantile(0.5, "millrace_stage_duration_seconds", ofModel, "model", "stage"),
						"{{model}} {{stage}}"}),
				graph("Stages, p99", seconds, "Of an answered frame.",
					query{quantile(0.99, "millrace_stage_duration_seconds", ofModel, "model", "stage"),
						"{{model}} {{stage}}"}),
				graph("Time of a batch, p90", seconds, "Preparation and run.",
					query{quantile(0.9, "millrace_batch_duration_seconds", ofModel, "model", "stage"),
						"{{model}} {{stage}}"}),
			}},
			{"Batches", []panel{
				graph("Rows of a batch, mean", "", "",
					query{sumOf("millrace_batch_rows", ofModel, "model") + " / " + countOf("millrace_batch_rows",
						ofModel, "model"), "{{model}}"}),
				graph("Occupancy", percent, "Rows that ran, of those that the batches had room for.",
					query{sumOf("millrace_batch_rows", ofModel, "model") + " / " +
						rate("millrace_batch_capacity_rows_total"+ofModel, "model"), "{{model}}"}),
				graph("Why batches went", events, "idle_worker: a worker was free; full: as many rows as max_size; "+
					"max_delay, deadline: the batcher waited no longer.",
					query{rate("millrace_batches_formed_total"+ofModel, "cause"), "{{cause}}"}),
				graph("Batch buffers in use", percent, "Of the pool; at 1 the batcher waits for one.",
					query{`sum by (model) (millrace_batch_buffers{model=~"$model",state="used"}) / sum by (model) ` +
						`(millrace_batch_buffers` + ofModel + ")", "{{model}}"}),
			}},
			{"Workers", []panel{
				graph("Busy", percent, "Share of the workers that run a batch.",
					query{`sum by (model) (millrace_workers{model=~"$model",state="busy"}) / sum by (model) ` +
						`(millrace_workers{model=~"$model",state=~"busy|idle"})`, "{{model}}"}),
				graph("Workers", "", "By state.", query{"sum by (model, state) (millrace_workers" + ofModel + ")",
					"{{model}} {{state}}"}),
				graph("Replaced", events, "After a run past its limit, or a crash.",
					query{rate("millrace_worker_restarts_total"+ofModel, "model"), "{{model}}"}),
				graph("Answered without a run", frames, "By the gate, with an earlier result.",
					query{rate("millrace_skipped_frames_total"+ofModel, "model"), "{{model}}"}),
				graph("Containers", "", "Running, by model.", query{"sum by (model) (millrace_model_containers" +
					ofModel + ") or 0 * sum by (model) (millrace_model_ready" + ofModel + ")", "{{model}}"}),
			}},
		},
	},
	{
		uid: "millrace-traces", title: "Millrace: traces", variables: []variable{modelVariable},
		about: "From a graph to the frames behind it: points lead to traces in Jaeger, and spans that were not " +
			"exported are counted.",
		rows: []row{
			{"Links", []panel{
				text("Traces of Millrace in Jaeger", "[All traces](${jaeger}/search?service=millrace) · [with an "+
					"error](${jaeger}/search?service=millrace&tags=%7B%22error%22%3A%22true%22%7D) · "+
					"[slower than 100 ms](${jaeger}/search?service=millrace&minDuration=100ms)\n\nThe points in the "+
					"graphs below are frames whose traces were kept: hold the pointer over one and follow its link."),
			}},
			{"Frames with traces", []panel{
				withExemplars(graph("Age of results", seconds, "",
					query{quantile(0.5, "millrace_answered_age_seconds", ofModel, "model"), "{{model}} p50"},
					query{quantile(0.99, "millrace_answered_age_seconds", ofModel, "model"), "{{model}} p99"})),
				withExemplars(graph("Queue, p99", seconds, "",
					query{quantile(0.99, "millrace_stage_duration_seconds", `{model=~"$model",stage="queue"}`,
						"model"), "{{model}}"})),
				withExemplars(graph("Run, p99", seconds, "",
					query{quantile(0.99, "millrace_stage_duration_seconds", `{model=~"$model",stage="run"}`, "model"),
						"{{model}}"})),
			}},
			{"Tail rules and export", []panel{
				graph("Frames kept", events, "By why their traces were kept.",
					query{rate("millrace_traces_kept_total", "rule"), "{{rule}}"}),
				graph("Spans", events, "Exported, and lost by reason.", query{rate("millrace_spans_exported_total"),
					"exported"}, query{rate("millrace_spans_lost_total", "reason"), "lost: {{reason}}"}),
				graph("Spans that wait", "", "For the collector.", query{"sum(millrace_spans_waiting)", "waiting"}),
			}},
		},
	},
	{
		uid: "millrace-slo", title: "Millrace: service levels", variables: []variable{modelVariable},
		about: "Two objectives, from the recording rules: 99.9 % of the frames end without an error, and 95 % of " +
			"the results are in time.",
		rows: []row{
			{"Frames without an error: 99.9 %", []panel{
				stat("Over 5 minutes", percent, "1 - max(millrace:frame_errors:ratio_rate5m"+ofModel+")",
					"Of the model that is worst."),
				stat("Over 6 hours", percent, "1 - max(millrace:frame_errors:ratio_rate6h"+ofModel+")",
					"Of the model that is worst."),
				graph("Error budget used", "short", "1 = errors come as fast as the objective allows; the alerts "+
					"fire at 14.4 (an hour and 5 minutes) and 6 (6 hours and 30 minutes).",
					query{"millrace:frame_errors:ratio_rate5m" + ofModel + " / " + errorBudget, "{{model}} 5m"},
					query{"millrace:frame_errors:ratio_rate1h" + ofModel + " / " + errorBudget, "{{model}} 1h"}),
			}},
			{"Results in time: 95 %", []panel{
				stat("Over 5 minutes", percent, "1 - max(millrace:late_results:ratio_rate5m"+ofModel+")",
					"Of the model that is worst."),
				stat("Over 6 hours", percent, "1 - max(millrace:late_results:ratio_rate6h"+ofModel+")",
					"Of the model that is worst."),
				graph("Late results", percent,
					"Share of the results that were ready after the deadline or the largest age of their frame.",
					query{"millrace:late_results:ratio_rate5m" + ofModel, "{{model}} 5m"},
					query{"millrace:late_results:ratio_rate1h" + ofModel, "{{model}} 1h"}),
			}},
			{"Alerts", []panel{
				graph("Rules", "", "Alerting rules of Millrace that are loaded, by whether they fire.",
					query{`count(ALERTS{alertname=~"Millrace.*",alertstate="firing"}) or vector(0)`, "firing"},
					query{`count(ALERTS{alertname=~"Millrace.*",alertstate="pending"}) or vector(0)`, "pending"}),
			}},
		},
	},
}

// Units of Grafana.
const (
	seconds  = "s"
	bytesIEC = "bytes"
	percent  = "percentunit"
	requests = "reqps"
	frames   = "suffix: frames/s"
	frames0  = "suffix: frames"
	events   = "suffix: /s"
)

var (
	modelVariable  = variable{"model", "label_values(millrace_model_ready, model)"}
	streamVariable = variable{"stream", "label_values(millrace_stream_state, stream)"}
)
