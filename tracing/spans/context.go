//go:build !notracing

package spans

import (
	"context"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"

	"millrace/stream"
)

// FromContext returns the trace context of OpenTelemetry in ctx: the span around a call of the Go API.
func FromContext(ctx context.Context) (c stream.TraceContext) {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return c
	}
	c.Trace, c.Parent, c.Decision = stream.TraceID(sc.TraceID()), stream.SpanID(sc.SpanID()), stream.NotSampled
	if sc.IsSampled() {
		c.Decision = stream.Sampled
	}
	state, bag := sc.TraceState().String(), baggage.FromContext(ctx).String()
	if state != "" || bag != "" {
		c.Propagated = &stream.PropagatedContext{State: state, Baggage: bag}
	}
	return c
}
