//go:build !notracing

package spans

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"millrace/stream"
)

var _ stream.TaskTracer = (*Tracer)(nil)

// taskRun is a kept submission or attempt of a task.
type taskRun struct {
	stream.TaskSpan
	why why
}

// SampleTask implements stream.TaskTracer.
func (t *Tracer) SampleTask(c *stream.TraceContext, model string) stream.SpanID {
	if c.Trace == (stream.TraceID{}) {
		c.Trace, c.Parent = stream.NewTraceID(), stream.SpanID{}
	}
	if t.sampler.keeps(c, "task "+model) {
		c.Decision = max(c.Decision, stream.Sampled)
	} else {
		c.Decision = stream.NotSampled
	}
	return stream.NewSpanID()
}

// KeepTask implements stream.TaskTracer.
func (t *Tracer) KeepTask(s stream.TaskSpan) {
	var w why
	if s.Decision >= stream.Sampled {
		w = sampled
	}
	if s.Err != nil {
		w |= t.tail.ended(stream.Failed)
	}
	if w == 0 {
		return
	}
	t.count(w)
	t.unbuilt.add(s.Trace)
	t.enqueue(job{task: &taskRun{s, w}})
}

// tree builds the spans by the conventions of OpenTelemetry for messages. A submission is a span of the kind producer.
// An attempt has a root from the time when the task was queued, with the spans "wait" and "attempt".
func (x *taskRun) tree() *tree {
	b := &tree{
		context: &x.TraceContext, why: x.why,
		options: &stream.Options{Protocol: "tasks", Name: x.Task},
		model:   &model{model: &stream.Model{Name: x.Model, Version: x.Version}},
		result:  &stream.Result{Seq: uint64(x.Attempt), Err: x.Err, Outcome: stream.Answered},
	}
	b.result.Trace = x.Trace
	common := []attribute.KeyValue{semconv.MessagingSystemKey.String("millrace"), semconv.MessagingMessageID(x.Task),
		semconv.MessagingDestinationName(x.Model), semconv.MessagingMessageBodySize(int(x.Bytes)),
		attribute.String("millrace.model", x.Model)}
	if x.Version != "" {
		common = append(common, attribute.String("millrace.model.version", x.Version))
	}
	root := span{parent: x.Parent, from: x.From, to: max(x.From, x.To)}
	if x.Attempt == 0 {
		root.name, root.id, root.kind = "submit "+x.Model, x.Span, trace.SpanKindProducer
		root.attributes = append(common, semconv.MessagingOperationTypeSend, semconv.MessagingOperationName("submit"),
			attribute.StringSlice("millrace.kept", x.why.names()))
		if x.User != "" {
			root.attributes = append(root.attributes, semconv.EnduserID(clip(x.User)))
		}
		b.spans = []span{root}
		return b
	}
	root.name, root.id = "task "+x.Model, stream.NewSpanID()
	state := []attribute.KeyValue{attribute.Int("millrace.task.attempt", x.Attempt),
		attribute.String("millrace.task.outcome", x.Outcome)}
	switch {
	case x.Err != nil:
		b.result.Outcome = stream.Failed
		state = append(state, semconv.ErrorTypeKey.String(string(stream.CodeOf(x.Err))))
	case x.Outcome == "released":
		b.result.Outcome, b.result.Reason = stream.Dropped, stream.Reason(x.Outcome)
	}
	root.attributes = append(append(common, state...), attribute.StringSlice("millrace.kept", x.why.names()))
	b.spans = []span{root}
	b.add("wait", root.id, x.From, x.Begun)
	b.spans = append(b.spans, span{name: "attempt", id: x.Span, parent: root.id, kind: trace.SpanKindConsumer,
		from: x.Begun, to: max(x.Begun, x.To), attributes: append(state, semconv.MessagingOperationTypeProcess,
			semconv.MessagingOperationName("run"), attribute.String("millrace.task.consumer", clip(x.Consumer)))})
	return b
}
