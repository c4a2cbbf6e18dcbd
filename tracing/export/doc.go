// Package export sends the spans of kept frames to a collector of traces: by OTLP over gRPC or HTTP, to a Jaeger
// agent (thrift over UDP) or collector (thrift over HTTP), or as JSON to standard output.
//
// The package owns the settings of the exporter, the bounded queue, retries after a failure, and the counts: every
// span passed to Enqueue is exported, lost with a Reason, or still queued. The package also owns Jaeger's remote
// sampler, which asks the same servers. Package export must not know frames, models, or the rules for keeping spans.
//
// The queue is the package's own because the SDK's batch processor rejects spans of traces not sampled at their
// start, as kept by the tail rules, and does not report the number of lost spans with the reasons.
package export
