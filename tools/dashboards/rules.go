//go:build !nometrics

package main

// The objectives: 99.9 % of the frames end without an error, and 95 % of the results are
// in time.
const (
	errorBudget = "0.001"
	lateBudget  = "0.05"
)

// windows are the windows of the recording rules.
var windows = []string{"5m", "30m", "1h", "6h"}

// recordings returns the recording rules: ratios by model, over each window.
func recordings() []recording {
	var out []recording
	for _, w := range windows {
		out = append(out,
			recording{"millrace:frame_errors:ratio_rate" + w, "sum by (model) (rate(millrace_frame_errors_total[" + w +
				"])) / sum by (model) (rate(millrace_frames_accepted_total[" + w + "]) > 0)"},
			recording{"millrace:late_results:ratio_rate" + w,
				"clamp_min(1 - sum by (model) (rate(millrace_goodput_frames_total[" + w +
					"])) / sum by (model) (rate(millrace_frames_total{outcome=\"result\"}[" + w + "]) > 0), 0)"},
		)
	}
	return out
}

// unlessStopped leaves out streams that are paused or have ended.
const unlessStopped = ` unless on (instance, stream) (millrace_stream_paused == 1 or ` +
	`millrace_stream_state{state="ended"} == 1)`

// alerts lists the alerting rules with their runbooks. Each rule has a sample input that triggers the alert, in the
// notation of promtool, with a sample per minute.
var alerts = []alert{
	{
		name: "MillraceDown", severity: "critical", hold: "1m",
		expr:    `up{job="millrace"} == 0`,
		summary: "Millrace at {{ $labels.instance }} does not answer Prometheus",
		meaning: "Prometheus could not read the metrics: the process has ended, is not reachable, or is too busy.",
		steps: "Look at `GET /v2/health/live` and the log. If only the metrics fail: `metrics.address`, " +
			"`metrics.path` and the address in `prometheus.yml`.",
		input: []string{`up{job="millrace",instance="a"} 0x30`},
	},
	{
		name: "MillraceModelNotReady", severity: "critical", hold: "1m",
		expr:    "millrace_model_ready == 0",
		summary: "The model {{ $labels.model }} cannot serve",
		meaning: "A model is loading, unloading or has failed. Its frames end with the error `unavailable`.",
		steps: "`GET /v2/repository/index` and the log have the reason. Load the model again when its file or " +
			"program is mended.",
		input: []string{`millrace_model_ready{model="m",version="1"} 0x30`},
	},
	{
		name: "MillraceErrorsFast", severity: "critical", hold: "2m",
		expr: "millrace:frame_errors:ratio_rate1h > 14.4 * " + errorBudget +
			" and millrace:frame_errors:ratio_rate5m > 14.4 * " + errorBudget,
		summary: "{{ $value | humanizePercentage }} of the frames of {{ $labels.model }} fail",
		meaning: "Errors use the budget of a month (99.9 % without an error) in two days or faster.",
		steps: "See the panel \"Errors by code\": `unavailable` and `unloaded` are about the model, `timeout` about " +
			"`limits.run`, `invalid_argument` and `too_large` about what clients send, `overloaded` about " +
			"`max_flows`. The dashboard of traces has frames that failed.",
		input: []string{`millrace_frames_accepted_total{model="m",version="1"} 0+1000x120`,
			`millrace_frame_errors_total{model="m",version="1",code="internal"} 0+100x120`},
	},
	{
		name: "MillraceErrorsSlow", severity: "warning", hold: "15m",
		expr: "millrace:frame_errors:ratio_rate6h > 6 * " + errorBudget +
			" and millrace:frame_errors:ratio_rate30m > 6 * " + errorBudget,
		summary: "{{ $value | humanizePercentage }} of the frames of {{ $labels.model }} fail",
		meaning: "Errors use the budget of a month (99.9 % without an error) in five days or faster.",
		steps:   "As for [MillraceErrorsFast](#millraceerrorsfast).",
		input: []string{`millrace_frames_accepted_total{model="m",version="1"} 0+1000x120`,
			`millrace_frame_errors_total{model="m",version="1",code="internal"} 0+10x120`},
	},
	{
		name: "MillraceLateResults", severity: "warning", hold: "5m",
		expr:    "millrace:late_results:ratio_rate5m > " + lateBudget,
		summary: "{{ $value | humanizePercentage }} of the results of {{ $labels.model }} are late",
		meaning: "Results are ready after the `deadline_ms` or `max_age_ms` of their frames: runs take longer than " +
			"earlier runs.",
		steps: "See the panels \"Stages\" and \"Time of a batch\". Other programs on the machine delay all stages; " +
			"too large a batch delays only the run: lower `batching.max_size`.",
		input: []string{`millrace_frames_total{model="m",version="1",outcome="result"} 0+1000x120`,
			`millrace_goodput_frames_total{model="m",version="1"} 0+900x120`},
	},
	{
		name: "MillraceQueueOld", severity: "warning", hold: "2m",
		expr:    "max by (model) (millrace_queue_oldest_age_seconds) > 2",
		summary: "A frame has waited {{ $value | humanizeDuration }} for {{ $labels.model }}",
		meaning: "More frames are sent with the policy `every` than the model can run, or no worker runs batches.",
		steps: "If all workers are busy, raise `instances`, or ask clients for the policy `latest` or a " +
			"`max_age_ms`. If workers are idle, look at \"Why batches went\".",
		input: []string{`millrace_queue_oldest_age_seconds{model="m",version="1"} 5x30`},
	},
	{
		name: "MillraceWorkerHangs", severity: "critical", hold: "0s",
		expr:    `sum by (model) (millrace_workers{state="quarantined"}) > 0`,
		summary: "{{ $value }} workers of {{ $labels.model }} hang",
		meaning: "A run has passed `limits.run` and has not returned. Its frames have ended with `timeout`, and " +
			"another worker was started.",
		steps: "Find what the model waits for (a library, a child process, the network). If the call never returns, " +
			"its memory is free after a restart of the server.",
		input: []string{`millrace_workers{model="m",version="1",state="quarantined"} 1x30`},
	},
	{
		name: "MillraceWorkerRestarts", severity: "warning", hold: "0s",
		expr:    "sum by (model) (increase(millrace_worker_restarts_total[15m])) > 3",
		summary: "{{ $value | humanize }} workers of {{ $labels.model }} were replaced in 15 minutes",
		meaning: "Workers crash or hang again and again.",
		steps:   "The log has the reasons, and the traces of failed frames an input that kills the worker.",
		input:   []string{`millrace_worker_restarts_total{model="m",version="1"} 0+1x60`},
	},
	{
		name: "MillraceMemoryExhausted", severity: "warning", hold: "1m",
		expr:    "rate(millrace_memory_denied_total[1m]) > 0",
		summary: "Memory is refused {{ $value | humanize }} times a second",
		meaning: "`memory.budget` is in use: frames end as `dropped: memory`, and requests are refused.",
		steps: "\"Memory budget\" of the overview shows the owners: batches (reserved) or frames and results " +
			"(leased). Clients that do not read hold memory: \"Replies that wait\". Otherwise raise `memory.budget`.",
		input: []string{`millrace_memory_denied_total 0+10x30`},
	},
	{
		name: "MillraceMemoryDrops", severity: "warning", hold: "1m",
		expr:    `sum by (model) (rate(millrace_dropped_frames_total{reason="memory"}[1m])) > 0`,
		summary: "{{ $value | humanize }} frames of {{ $labels.model }} a second are dropped for want of memory",
		meaning: "As [MillraceMemoryExhausted](#millracememoryexhausted), seen by clients.",
		steps:   "As for [MillraceMemoryExhausted](#millracememoryexhausted).",
		input:   []string{`millrace_dropped_frames_total{model="m",version="1",reason="memory"} 0+10x30`},
	},
	{
		name: "MillraceConnectionsRefused", severity: "warning", hold: "0s",
		expr: "sum by (listener) (rate(millrace_connections_refused_total[1m])) + sum by (listener) " +
			"(rate(millrace_accept_failures_total[1m])) > 0",
		summary: "{{ $value | humanize }} connections to {{ $labels.listener }} a second are refused",
		meaning: "`limits.max_connections` are open, or `limits.max_connections_per_address` of one address, or the " +
			"process has no file descriptor left: see the label `reason`.",
		steps: "Raise the setting or the limit of open files (`ulimit -n`), or find the client. A proxy in front of " +
			"the server belongs into `trusted_proxies`.",
		input: []string{`millrace_connections_refused_total{listener="http",reason="total"} 0+10x30`,
			`millrace_accept_failures_total{listener="http"} 0x30`},
	},
	{
		name: "MillraceSlowClients", severity: "info", hold: "0s",
		expr:    `rate(millrace_sessions_closed_total{reason="slow_consumer"}[5m]) > 0`,
		summary: "Clients that do not read their replies are disconnected",
		meaning: "The replies that waited for a client passed `limits.outbox_bytes` or `limits.outbox_messages`.",
		steps:   "The log names the clients. Clients must read while sending.",
		input:   []string{`millrace_sessions_closed_total{reason="slow_consumer"} 0+1x30`},
	},
	{
		name: "MillraceSourceDown", severity: "warning", hold: "2m",
		expr:    `millrace_stream_state{state=~"waiting|failed"} == 1`,
		summary: "The source of the stream {{ $labels.stream }} is {{ $labels.state }}",
		meaning: "The camera or file cannot be read. A waiting stream opens the source again; a failed stream does " +
			"not.",
		steps: "`GET /v2/streams/NAME` has the error. Check the address and the camera.",
		input: []string{`millrace_stream_state{stream="door",state="waiting"} 1x30`},
	},
	{
		name: "MillraceStreamSilent", severity: "warning", hold: "0s",
		expr: "time() - millrace_stream_last_result_timestamp_seconds > 60" + unlessStopped,
		summary: "The stream {{ $labels.stream }} had no result of {{ $labels.model }} for {{ $value | " +
			"humanizeDuration }}",
		meaning: "Frames are not read, the model is not loaded, all frames are dropped or fail, or the gate of the " +
			"camera sends nothing. The alert also fires for a `max_fps` below 1/60.",
		steps: "Compare \"Frames read\", \"Results\" and \"Drops\"; `GET /v2/streams/NAME` has the model's state and " +
			"error. Silence the alert for a model that is to have few results.",
		input: []string{
			`millrace_stream_last_result_timestamp_seconds{instance="a",stream="door",model="faces"} 0x30`,
			`millrace_stream_last_result_timestamp_seconds{instance="a",stream="door",model="motion"} 0+60x30`},
	},
	{
		name: "MillraceStreamUnanswered", severity: "warning", hold: "2m",
		expr:    `millrace_stream_delivered_results_total{stream!=""} == 0` + unlessStopped,
		summary: "The stream {{ $labels.stream }} has had no result of {{ $labels.model }} yet",
		meaning: "As [MillraceStreamSilent](#millracestreamsilent), since the stream was added.",
		steps:   "Check the model's name in the stream, and that the model is loaded and takes pictures.",
		input: []string{
			`millrace_stream_state{instance="a",stream="door",state="running"} 1x30`,
			`millrace_stream_state{instance="a",stream="door",state="ended"} 0x30`,
			`millrace_stream_paused{instance="a",stream="door"} 0x30`,
			`millrace_stream_delivered_results_total{instance="a",stream="door",model="faces"} 0x30`,
			`millrace_stream_delivered_results_total{instance="a",stream="door",model="motion"} 0+600x30`,
		},
	},
	{
		name: "MillraceResultsLost", severity: "warning", hold: "0s",
		expr:    `sum by (stream, at) (rate(millrace_stream_lost_total{at!~"watchers|video"}[5m])) > 0`,
		summary: "{{ $value | humanize }} results a second of {{ $labels.stream }} are lost at {{ $labels.at }}",
		meaning: "A sink does not accept results as fast as they come, or memory is exhausted.",
		steps: "`GET /v2/streams/NAME` has the error of each sink: the receiver of a webhook may be slow, the disk " +
			"of a file full.",
		input: []string{`millrace_stream_lost_total{stream="door",at="webhook"} 0+5x30`},
	},
	{
		name: "MillraceSpansLost", severity: "info", hold: "5m",
		expr:    "sum by (reason) (rate(millrace_spans_lost_total[5m])) > 0",
		summary: "{{ $value | humanize }} spans a second are lost: {{ $labels.reason }}",
		meaning: "The collector of traces is down, slow or refuses them. Frames are not affected.",
		steps: "Check `tracing.endpoint`, the collector and the log. For a slow collector: fewer traces " +
			"(`tracing.ratio`), or a larger `tracing.queue_size`.",
		input: []string{`millrace_spans_lost_total{reason="full"} 0+50x60`},
	},
	{
		name: "MillracePrometheusTooOld", severity: "warning", hold: "0s",
		expr:    `prometheus_build_info{version=~"(0|1)\\..*|2\\.([0-9]|[123][0-9])\\..*"}`,
		summary: "Prometheus {{ $labels.version }} is older than " + leastPrometheus,
		meaning: "Panels with quantiles, means and occupancy show an error.",
		steps:   "Install Prometheus " + leastPrometheus + " or later.",
		input:   []string{`prometheus_build_info{version="2.39.1"} 1x30`},
	},
}
