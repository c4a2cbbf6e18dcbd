//go:build !notracing

package spans

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"millrace/stream"
)

// span is a span under construction.
type span struct {
	name       string
	kind       trace.SpanKind // unspecified = internal
	id, parent stream.SpanID
	from, to   stream.Instant
	attributes []attribute.KeyValue
	link       *batchRun
}

// tree has the spans of one frame, or of one attempt of a task: the root first, and each parent before its children.
type tree struct {
	spans   []span
	context *stream.TraceContext
	result  *stream.Result
	options *stream.Options
	model   *model
	batch   *batchRun // nil: not run in a batch
	why     why
}

// add adds a span and returns its id. The span ends no earlier than its start.
func (b *tree) add(name string, parent stream.SpanID, from, to stream.Instant,
	attributes ...attribute.KeyValue) stream.SpanID {
	id := stream.NewSpanID()
	b.spans = append(b.spans, span{name: name, id: id, parent: parent, from: from, to: max(from, to),
		attributes: attributes})
	return id
}

// build builds the spans of a job, shows the spans and passes the spans to the exporter.
func (t *Tracer) build(j job) {
	defer t.settle(j)
	if j.batch != nil {
		t.export([]sdktrace.ReadOnlySpan{t.batchSpan(j.batch)})
		return
	}
	var b *tree
	switch {
	case j.frame != nil:
		b = j.frame.tree()
	case j.task != nil:
		b = j.task.tree()
	default:
		b = j.refused.tree()
	}
	if t.shown.size > 0 {
		t.shown.add(b.why.first(), b.summary(&t.cfg))
	}
	if t.o.Exporter != nil {
		t.export(t.readOnly(b))
	}
}

func (t *Tracer) export(spans []sdktrace.ReadOnlySpan) {
	if t.o.Exporter != nil {
		t.o.Exporter.Enqueue(spans)
	}
}

// tree builds the spans of a frame from the times in its request.
func (k *record) tree() *tree {
	r, at := k.r, &k.r.Timing
	options := r.Stream.Options()
	b := &tree{context: &r.TraceContext, result: r.Result(), options: &options, model: k.m, batch: k.batch, why: k.why,
		spans: make([]span, 1, 10)}
	from := cmp.Or(r.Arrived, at.Received)
	b.spans[0] = span{
		name: k.m.name(&options), kind: trace.SpanKindServer, id: r.Span, parent: r.Parent, from: from,
		to: max(from, k.ended, k.written), attributes: k.attributes(),
	}
	if r.Arrived != 0 {
		b.add("receive", r.Span, r.Arrived, at.Received, attribute.Int("millrace.frame.bytes", r.Bytes))
	}
	if at.Dequeued == 0 {
		b.add("wait", r.Span, at.Received, k.ended)
	} else {
		b.add("wait", r.Span, at.Received, at.Dequeued)
		k.batchSpans(b)
	}
	if res := r.Result(); res.Outcome != stream.Dropped {
		b.add("write", r.Span, k.ended, k.written, attribute.Int("millrace.result.bytes", k.bytes))
	}
	return b
}

// batchSpans adds the spans of a frame bound to a batch.
func (k *record) batchSpans(b *tree) {
	r, at := k.r, &k.r.Timing
	id := b.add("batch", r.Span, at.Dequeued, k.ended)
	prepare := at.Dequeued
	if k.batch != nil {
		batch := &b.spans[len(b.spans)-1]
		batch.link = k.batch
		batch.attributes = []attribute.KeyValue{attribute.Int("millrace.batch.rows", k.batch.rows),
			attribute.Int("millrace.batch.requests", k.batch.requests)}
		prepare = max(prepare, k.batch.gathered)
	}
	ready := min(cmp.Or(at.Started, k.ended), k.ended) // the frame may have ended before its batch ran
	if ready > prepare {
		p := b.add("prepare", id, prepare, ready)
		if d := &r.Decoding; d.Started != 0 {
			decoded := d.Started.Add(d.Decode)
			b.add("decode", p, d.Started, decoded, attribute.String("millrace.codec", r.Codec.String()))
			if d.Resize > 0 {
				b.add("resize", p, decoded, decoded.Add(d.Resize))
			}
		}
	}
	if r.Gated || at.Started == 0 || at.Started > k.ended { // a gated frame's Started is the time of the answer
		return
	}
	run := b.add("run", id, at.Started, cmp.Or(min(at.Ran, k.ended), k.ended))
	k.stepSpans(b, run)
	if at.Ran != 0 && at.Ran <= k.ended {
		b.add("results", id, at.Ran, k.ended)
	}
}

// stepSpans adds the spans of the steps of a graph, the parents of the spans of the frames in the steps' models.
func (k *record) stepSpans(b *tree, run stream.SpanID) {
	for i := range k.r.Steps {
		st := &k.r.Steps[i]
		if st.From == 0 {
			continue
		}
		outcome := st.Outcome.String()
		if st.Outcome == stream.Pending {
			outcome = "skipped"
		}
		s := span{name: "step " + st.Name, id: st.Span, parent: run, from: st.From, to: max(st.From, st.To),
			attributes: []attribute.KeyValue{attribute.String("millrace.outcome", outcome)}}
		switch st.Outcome {
		case stream.Dropped:
			s.attributes = append(s.attributes, attribute.String("millrace.drop.reason", string(st.Reason)))
		case stream.Failed:
			s.attributes = append(s.attributes, semconv.ErrorTypeKey.String(string(stream.CodeOf(st.Err))))
		}
		b.spans = append(b.spans, s)
	}
}

// tree builds the span of a frame not accepted by a stream: a root alone, up to the refusal.
func (x *refusal) tree() *tree {
	f, res := &x.frame, &x.result
	out := append([]attribute.KeyValue(nil), x.m.attributes...)
	out = append(out, attribute.Bool("millrace.refused", true), attribute.Int64("millrace.seq", int64(f.Seq)),
		attribute.String("millrace.outcome", res.Outcome.String()))
	out = append(out, protocolAttributes(&x.options)...)
	if user := cmp.Or(f.Account.Name(), x.options.Account.Name()); user != "" {
		out = append(out, semconv.EnduserID(clip(user)))
	}
	if res.Outcome == stream.Dropped {
		out = append(out, attribute.String("millrace.drop.reason", string(res.Reason)))
	} else {
		out = append(out, semconv.ErrorTypeKey.String(string(stream.CodeOf(res.Err))))
	}
	out = append(out, attribute.StringSlice("millrace.kept", x.why.names()))
	root := span{
		name: x.m.name(&x.options), kind: trace.SpanKindServer, id: res.Span, parent: f.Parent,
		from: cmp.Or(f.Arrived, x.at), to: x.at,
		attributes: append(out, baggageAttributes(f.Propagated)...),
	}
	return &tree{context: &f.TraceContext, result: res, options: &x.options, model: x.m, why: x.why,
		spans: []span{root}}
}

// name returns the name of a root span.
func (m *model) name(o *stream.Options) string {
	if o.Protocol != "" {
		return o.Protocol + " " + m.model.Name
	}
	return m.model.Name
}

// protocolAttributes returns the root span's attributes of the frame's protocol and connection.
func protocolAttributes(o *stream.Options) (out []attribute.KeyValue) {
	if o.Protocol != "" {
		out = append(out, attribute.String("millrace.protocol", o.Protocol))
	}
	if name := protocols[o.Protocol]; name != "" {
		out = append(out, semconv.NetworkProtocolName(name))
	}
	if o.Name != "" {
		out = append(out, attribute.String("millrace.stream", clip(o.Name)))
	}
	return out
}

// modelAttributes returns the attributes common to all frames of a group.
func modelAttributes(m *stream.Model) []attribute.KeyValue {
	out := []attribute.KeyValue{
		attribute.String("millrace.model", m.Name), attribute.String("millrace.model.version", m.Version),
		attribute.String("millrace.model.platform", m.Platform),
	}
	for i, name := range slices.Sorted(maps.Keys(m.Params)) {
		if i == maxParams {
			break
		}
		out = append(out, attribute.String("millrace.load."+name, clip(fmt.Sprint(m.Params[name]))))
	}
	return out
}

// Bounds for attributes chosen by others.
const (
	maxParams = 32
	maxText   = 256 // bytes
)

func clip(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}

// protocols has the names of protocols in the semantic conventions.
var protocols = map[string]string{"rest": "http", "ws": "websocket", "millrace.v1": "websocket", "grpc": "grpc"}

// attributes returns the attributes of the root span.
func (k *record) attributes() []attribute.KeyValue {
	r, res := k.r, k.r.Result()
	o, policy := r.Stream.Options(), r.Stream.Policy()
	out := append(make([]attribute.KeyValue, 0, len(k.m.attributes)+20), k.m.attributes...)
	add := func(a attribute.KeyValue) { out = append(out, a) }
	text := func(key, value string) {
		if value != "" {
			add(attribute.String(key, value))
		}
	}
	number := func(key string, n int64) {
		if n != 0 {
			add(attribute.Int64(key, n))
		}
	}
	out = append(out, protocolAttributes(&o)...)
	text(string(semconv.EnduserIDKey), clip(r.Account.Name()))
	add(attribute.Int64("millrace.seq", int64(r.Seq)))
	text("millrace.codec", r.Codec.String())
	number("millrace.frame.bytes", int64(r.Bytes))
	number("millrace.frame.width", int64(r.SentWidth))
	number("millrace.frame.height", int64(r.SentHeight))
	number("millrace.rows", int64(r.Rows))
	text("millrace.policy.mode", string(policy.Mode))
	number("millrace.policy.window", int64(policy.Window))
	number("millrace.policy.max_age_ms", policy.MaxAge.Milliseconds())
	number("millrace.policy.deadline_ms", policy.Deadline.Milliseconds())
	text("millrace.policy.priority", policy.Priority.String())
	if r.Must {
		add(attribute.Bool("millrace.must", true))
	}
	add(attribute.String("millrace.outcome", res.Outcome.String()))
	switch res.Outcome {
	case stream.Dropped:
		text("millrace.drop.reason", string(res.Reason))
	case stream.Failed:
		add(semconv.ErrorTypeKey.String(string(stream.CodeOf(res.Err))))
	default:
		number("millrace.batch.rows", int64(r.BatchSize))
		number("millrace.result.bytes", int64(k.bytes))
	}
	if r.Gated {
		add(attribute.Bool("millrace.gated", true))
	}
	if r.Cached {
		add(attribute.Bool("millrace.cached", true))
	}
	if r.Assembled != nil {
		add(attribute.Bool("millrace.window", true))
	}
	add(attribute.StringSlice("millrace.kept", k.why.names()))
	return append(out, baggageAttributes(r.Propagated)...)
}

// baggageAttributes returns a client's baggage as attributes. Baggage is not passed on: the server calls no further
// service.
func baggageAttributes(c *stream.PropagatedContext) (out []attribute.KeyValue) {
	if c == nil || c.Baggage == "" && !c.Truncated {
		return nil
	}
	bag, err := baggage.Parse(c.Baggage)
	if c.Truncated || err != nil {
		out = append(out, attribute.Bool("millrace.baggage.cut", true))
	}
	for _, m := range bag.Members() {
		out = append(out, attribute.String("baggage."+m.Key(), clip(m.Value())))
	}
	return out
}

// scope names the program in spans.
var scope = instrumentation.Scope{Name: "millrace"}

// readOnly converts the spans of a frame to the SDK's.
func (t *Tracer) readOnly(b *tree) []sdktrace.ReadOnlySpan {
	var state trace.TraceState
	if c := b.context.Propagated; c != nil && c.State != "" {
		state, _ = trace.ParseTraceState(c.State) // W3C: discard a malformed tracestate
	}
	context := func(id stream.SpanID, remote bool) trace.SpanContext {
		return trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID(b.context.Trace), SpanID: trace.SpanID(id), TraceFlags: trace.FlagsSampled,
			TraceState: state, Remote: remote,
		})
	}
	children := map[stream.SpanID]int{}
	for i := range b.spans {
		children[b.spans[i].parent]++
	}
	out := make([]sdktrace.ReadOnlySpan, len(b.spans))
	for i := range b.spans {
		s := &b.spans[i]
		stub := tracetest.SpanStub{
			Name: s.name, SpanContext: context(s.id, false), SpanKind: cmp.Or(s.kind, trace.SpanKindInternal),
			StartTime: s.from.Wall(), EndTime: s.to.Wall(),
			Attributes: s.attributes, ChildSpanCount: children[s.id], Resource: t.o.Resource,
			InstrumentationScope: scope,
		}
		if s.parent != (stream.SpanID{}) {
			stub.Parent = context(s.parent, i == 0)
		}
		if err := b.result.Err; err != nil && (i == 0 || s.kind == trace.SpanKindConsumer) {
			stub.Status = sdktrace.Status{Code: codes.Error, Description: clip(err.Error())}
		}
		if s.link != nil {
			stub.Links = []sdktrace.Link{{SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: trace.TraceID(s.link.trace), SpanID: trace.SpanID(s.link.span), TraceFlags: trace.FlagsSampled,
			})}}
		}
		out[i] = stub.Snapshot()
	}
	return out
}

// batchSpan returns the span of a batch.
func (t *Tracer) batchSpan(b *batchRun) sdktrace.ReadOnlySpan {
	stub := tracetest.SpanStub{
		Name: "batch " + b.m.model.Name, SpanKind: trace.SpanKindInternal, Resource: t.o.Resource,
		InstrumentationScope: scope,
		SpanContext: trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID(b.trace),
			SpanID: trace.SpanID(b.span), TraceFlags: trace.FlagsSampled}),
		StartTime: b.gathered.Wall(), EndTime: b.ended.Wall(), DroppedLinks: b.requests - len(b.members),
	}
	stub.Attributes = append(stub.Attributes, b.m.attributes...)
	stub.Attributes = append(stub.Attributes, attribute.Int("millrace.batch.rows", b.rows),
		attribute.Int("millrace.batch.requests", b.requests))
	if b.started > b.gathered {
		stub.Attributes = append(stub.Attributes, attribute.Int64("millrace.batch.prepare_us",
			b.started.Sub(b.gathered).Microseconds()))
	}
	if b.err != nil {
		stub.Status = sdktrace.Status{Code: codes.Error, Description: clip(b.err.Error())}
		stub.Attributes = append(stub.Attributes, semconv.ErrorTypeKey.String(string(stream.CodeOf(b.err))))
	}
	for _, m := range b.members {
		flags := trace.TraceFlags(0)
		if m.listed {
			flags = trace.FlagsSampled
		}
		stub.Links = append(stub.Links, sdktrace.Link{SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID(m.trace), SpanID: trace.SpanID(m.span), TraceFlags: flags,
		})})
	}
	return stub.Snapshot()
}
