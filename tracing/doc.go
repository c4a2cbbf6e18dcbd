// Package tracing provides metrics for Prometheus, and logs. The package fills the hooks of the packages below, and
// is the only package that imports a telemetry library.
//
// Package tracing owns the names of the metrics and their labels. A label has few values: a model, a route of the
// API, an outcome; never a stream's id or a raw path. The package must not know how an adapter or a group works.
//
// The lower package spans builds the spans of frames, and package export sends spans.
package tracing
