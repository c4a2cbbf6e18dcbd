//go:build nometrics

package tracing

import (
	"net/http"
	"time"

	"millrace/stream"
	"millrace/workers"
)

// WithMetrics reports whether metrics are part of this build: see the build tag
// nometrics.
const WithMetrics = false

// Metrics are the metrics of one server; this build has none.
type Metrics struct{}

// New returns Metrics.
func New(Options) *Metrics { return &Metrics{} }

// Model returns no hooks.
func (*Metrics) Model(*stream.Model) workers.Hooks { return workers.Hooks{} }

// Requests returns no hook.
func (*Metrics) Requests(string, func(int) string) RequestHook { return nil }

// InProgram returns no hook.
func (*Metrics) InProgram() func(string, string, time.Duration) { return nil }

// Gather returns the error for a build without metrics.
func (*Metrics) Gather(string) ([]byte, string, error) { return nil, "", errNoMetrics }

// Handler answers with the error for a build without metrics.
func (*Metrics) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, errNoMetrics.Error(), http.StatusNotFound)
	})
}

var errNoMetrics = stream.Errorf(stream.NotFound, "",
	"this program has no metrics: it was built with the tag nometrics; build it without the tag")
