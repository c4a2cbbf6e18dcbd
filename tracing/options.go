package tracing

import (
	"time"

	"millrace/ingest"
	"millrace/ingest/streams"
	"millrace/internal/accept"
	"millrace/stream"
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

	// Trace returns the trace id of an answered frame whose trace is kept, or "". The
	// frame's times become exemplars with it. It is called for each answered frame; nil =
	// no exemplars.
	Trace func(*stream.Request) string

	// RequestBuckets, in seconds, in rising order (else Requests panics); nil = DefaultRequestBuckets.
	RequestBuckets []float64
	// StreamSeries is the number of server streams that have series of their own; 0 = DefaultStreamSeries.
	StreamSeries int
}

// DefaultStreamSeries is the number of server streams that have series of their own.
const DefaultStreamSeries = 500

// RequestHook counts one request: the route's pattern (never the raw path), the
// model's version or "", the status, the duration, and the bytes of the request's
// and the response's body (negative: unknown). The label of the route is endpoint.
type RequestHook func(route, version string, status int, duration time.Duration, in, out int)
