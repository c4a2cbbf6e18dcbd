package tracing

import (
	"time"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/ingest/streams"
	"millrace/internal/accept"
	"millrace/stream/buf"
	"millrace/workers"
)

// Options configure Metrics. Metrics with a nil function are left out.
type Options struct {
	Version string // of the program
	// The functions are called at each scrape, and must be quick and safe for concurrent use.
	Groups   func() []workers.GroupStats
	Memory   func() buf.Stats
	Adapters func() ingest.Metrics          // the sums of all adapters
	Streams  func() streams.Stats           // of server streams
	Accepted func() map[string]accept.Stats // connections, by listener
	Uses     func() []access.Use            // of clients
	// lines missing in the audit log after write errors; on = an audit log exists
	Audit func() (lost uint64, on bool)
	// requests and calls by result of the credential check; nil values = no credentials needed
	Auth func() map[string]uint64
	// lookups of models with an address by outcome; nil values = no model has an address
	ModelSources func() map[string]uint64

	Traces func() TraceStats // of the tracer

	// RequestBuckets, in seconds, in rising order (else Requests panics); nil = DefaultRequestBuckets.
	RequestBuckets []float64
	// StreamSeries is the number of server streams with series of their own; a stream counts once per model; nil =
	// DefaultStreamSeries.
	StreamSeries *int
	// Triton adds metrics with the names of Triton Inference Server, for Triton's dashboards.
	Triton bool
	// Requests are the names of the metrics of requests; nil = the server's own.
	Requests *RequestNames
}

// RequestNames are the names that another system has for the metrics of requests. These metrics have no label for the
// version of the model, and as plain text the form of Python's prometheus_client; with RequestBuckets, plain text has
// no further buckets.
type RequestNames struct {
	Route, Status [2]string             // the labels: name and meaning
	GRPC          func(code int) string // returns the label of a gRPC status
	InProgram     string                // the histogram of the time in the program
	Title, Intro  string                // of the section in docs/metrics.md
}

// TraceStats are totals of a tracer and its exporter.
type TraceStats struct {
	Kept      map[string]uint64 // frames, by the rule that kept the trace
	OverLimit map[string]uint64 // frames with a trace not kept because of the rule's limit, by rule
	Unbuilt   uint64            // kept frames without built spans, because too many ended at once
	Exported  uint64            // spans
	Lost      map[string]uint64 // unexported spans, by reason
	Waiting   int               // spans
}

// DefaultStreamSeries is the default number of server streams with series of their own.
const DefaultStreamSeries = 500

// RequestHook counts one request: the route's pattern (never the raw path), the model's version or "", the status,
// the duration, and the bytes of the bodies of request and response (negative: unknown). The label of the route is
// endpoint.
type RequestHook func(route, version string, status int, duration time.Duration, in, out int)
