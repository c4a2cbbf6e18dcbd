// Package tracing makes what happens visible: metrics for Prometheus, and logs.
// It fills the hooks that the lower floors offer, and is the only package that
// imports a telemetry library.
//
// It owns the names of the metrics and their labels. A label's values are always
// few: a model, an endpoint of the API, an outcome; never a stream's id or a raw
// path. It must not know adapters, nor how a group works.
//
// Spans have their place in the Ended hook (see Metrics.Model): the request that
// it is given carries its Trace, Parent and Span ids, whether the client's trace
// is sampled, and in Timing the moments from which spans are built after the
// fact.
package tracing
