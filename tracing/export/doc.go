// Package export sends the spans of kept frames to a collector of traces: by OTLP over gRPC
// or HTTP, to a Jaeger agent (thrift over UDP) or collector (thrift over HTTP), or as JSON to
// standard output.
//
// It owns the settings of the exporter, the bounded queue before it, the attempts after a
// failure, and the counts: every span that Enqueue got is exported, lost with a Reason, or
// still queued. It also owns Jaeger's remote sampler, which asks the same servers. It must
// not know frames, models, or which spans are kept.
//
// The queue is the package's own: the SDK's batch processor does not take spans of traces
// that were not sampled at their start, which the tail rules keep, and does not say how many
// spans it lost and why.
package export
