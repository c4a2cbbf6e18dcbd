//go:build !nometrics

package tracing

import (
	"time"

	"millrace/stream"
	"millrace/workers"
)

// tritonFamilies are metrics with the names and units in dashboards of Triton Inference Server: see Options.Triton.
// The values are computed at a scrape from the data of the protocol's statistics. The counters have no type: in the
// format OpenMetrics, requested by Prometheus, the names of counters end with _total, unlike Triton's names.
var tritonFamilies = section{"Triton's names", []metricFamily{
	{untyped, "nv_inference_request_success", "Frames and requests with a sent result: `success`.", model,
		ofGroup(func(g *workers.GroupStats) float64 { return float64(g.Frames.Succeeded()) }), nil},
	{untyped, "nv_inference_request_failure", "Other endings; the sum is `fail`.",
		model.and("reason", "REJECTED: dropped by a policy or the queue, or refused by a bound; CANCELED: the "+
			"client has left; BACKEND: the model failed or hung; OTHER: such as malformed requests"),
		func(r *scrape, put put) {
			for i := range r.groups {
				g := &r.groups[i]
				for reason, n := range tritonFailures(&g.Frames) {
					put(float64(n), g.Model.Name, g.Model.Version, reason)
				}
			}
		}, nil},
	{untyped, "nv_inference_count", "Rows of these frames that were run: `inference_count`.", model,
		ofGroup(func(g *workers.GroupStats) float64 { return float64(g.RunTotals.Rows) }), nil},
	{untyped, "nv_inference_exec_count", "Batches whose run did not fail: `execution_count`.",
		model,
		ofGroup(func(g *workers.GroupStats) float64 { return float64(g.RunTotals.Runs) }), nil},
	{untyped, "nv_inference_request_duration_us",
		"Time of the answered frames and requests, from receipt to ending.", model,
		microseconds(func(g *workers.GroupStats) time.Duration { return g.Frames.Answering }), nil},
	{untyped, "nv_inference_queue_duration_us", "Time in the queue.", model,
		microseconds(func(g *workers.GroupStats) time.Duration { return g.RunTotals.Queue }), nil},
	{untyped, "nv_inference_compute_input_duration_us",
		"Time of preparing the frames' batches.", model,
		microseconds(func(g *workers.GroupStats) time.Duration { return g.RunTotals.Input }), nil},
	{untyped, "nv_inference_compute_infer_duration_us", "Time of running the frames' batches.",
		model,
		microseconds(func(g *workers.GroupStats) time.Duration { return g.RunTotals.Infer }), nil},
	{untyped, "nv_inference_compute_output_duration_us", "Time of making the results.", model,
		microseconds(func(g *workers.GroupStats) time.Duration { return g.RunTotals.Output }), nil},
	{gauge, "nv_inference_pending_request_count", "Frames that wait for a batch.", model,
		ofLoaded(func(g *workers.GroupStats) float64 { return float64(g.Waiting) }), nil},
	{untyped, "nv_cache_num_hits_per_model", "Requests with their result in the cache (`cache.size`).", model,
		ofCached(func(t *stream.Totals) float64 { return float64(t.CacheHits) }), nil},
	{untyped, "nv_cache_num_misses_per_model", "Requests without their result in the cache.", model,
		ofCached(func(t *stream.Totals) float64 { return float64(t.CacheMisses) }), nil},
	{untyped, "nv_cache_hit_duration_per_model", "Time of lookups that found a result.", model,
		ofCached(func(t *stream.Totals) float64 { return float64(t.CacheHitTime.Microseconds()) }), nil},
	{untyped, "nv_cache_miss_duration_per_model", "Time of lookups that found no result.", model,
		ofCached(func(t *stream.Totals) float64 { return float64(t.CacheMissTime.Microseconds()) }), nil},
}}

func microseconds(value func(*workers.GroupStats) time.Duration) func(*scrape, put) {
	return ofGroup(func(g *workers.GroupStats) float64 { return float64(max(value(g), 0).Microseconds()) })
}

// ofCached reads one value of each model with a cache.
func ofCached(value func(*stream.Totals) float64) func(*scrape, put) {
	return func(r *scrape, put put) {
		for i := range r.groups {
			if g := &r.groups[i]; g.Model.Cache != nil {
				put(value(&g.Frames), g.Model.Name, g.Model.Version)
			}
		}
	}
}

// tritonFailures returns the endings except for sendable results, by Triton's reasons.
func tritonFailures(t *stream.Totals) map[string]uint64 {
	out := map[string]uint64{"REJECTED": 0, "CANCELED": 0, "BACKEND": 0, "OTHER": 0}
	for why, n := range t.Drops {
		if why == stream.Closed {
			out["CANCELED"] += n
		} else {
			out["REJECTED"] += n
		}
	}
	for code, n := range t.Errors {
		switch code {
		case stream.Overloaded, stream.FlowControl, stream.Unavailable, stream.Draining, stream.Unloaded:
			out["REJECTED"] += n
		case stream.Canceled:
			out["CANCELED"] += n
		case stream.Internal, stream.Timeout:
			out["BACKEND"] += n
		default:
			out["OTHER"] += n
		}
	}
	for _, n := range t.Unsendable {
		out["OTHER"] += n
	}
	return out
}
