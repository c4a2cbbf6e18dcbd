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

// Options configure Metrics. Metrics whose function is nil are left out.
type Options struct {
	Version string // of the program
	// The functions are called at each scrape. They must be quick and safe for
	// concurrent use.
	Groups   func() []workers.GroupStats
	Memory   func() buf.Stats
	Adapters func() ingest.Metrics          // the sums of all adapters
	Streams  func() streams.Stats           // of server streams
	Accepted func() map[string]accept.Stats // connections, by listener
	Uses     func() []access.Use            // of clients
	Audit    func() (lost uint64, on bool)  // lines of the audit log that could not be written, and whether there is one
	Auth     func() map[string]uint64       // requests and calls by what became of their credentials; nil values = clients need none

	Traces func() TraceStats // of the tracer

	// RequestBuckets, in seconds, in rising order (else Requests panics); nil = DefaultRequestBuckets.
	RequestBuckets []float64
	// StreamSeries is the number of server streams that have series of their own, one of several models counted as so many; nil = DefaultStreamSeries.
	StreamSeries *int
	// Triton adds metrics under the names of Triton Inference Server, for its dashboards.
	Triton bool
	// SSF gives the metrics of requests the labels of Simple Server Framework.
	SSF bool
}

// TraceStats are totals of a tracer and its exporter.
type TraceStats struct {
	Kept      map[string]uint64 // frames, by the rule that kept their trace
	OverLimit map[string]uint64 // frames, by the rule that would have kept their trace but for its limit
	Unbuilt   uint64            // kept frames whose spans were not built, because too many ended at once
	Exported  uint64            // spans
	Lost      map[string]uint64 // spans that were not exported, by reason
	Waiting   int               // spans
}

// DefaultStreamSeries is the number of server streams that have series of their own.
const DefaultStreamSeries = 500

// RequestHook counts one request: the route's pattern (never the raw path), the
// model's version or "", the status, the duration, and the bytes of the request's
// and the response's body (negative: unknown). The label of the route is endpoint.
type RequestHook func(route, version string, status int, duration time.Duration, in, out int)
