// Package tracing provides metrics for Prometheus, and logs. It fills the hooks
// of the packages below it, and is the only package that imports a telemetry
// library.
//
// It owns the names of the metrics and their labels. A label has few values: a model, a
// route of the API, an outcome; never a stream's id or a raw path. It must not know how
// an adapter or a group works.
//
// Package spans, below it, builds the spans of frames, and package export sends them.
package tracing
