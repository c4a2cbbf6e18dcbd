//go:build !notracing

package export

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/uber/jaeger-client-go/thrift"
	"github.com/uber/jaeger-client-go/thrift-gen/agent"
	"github.com/uber/jaeger-client-go/thrift-gen/jaeger"
	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// udpAgent sends spans to a Jaeger agent: packets of compact thrift over UDP. udpAgent uses the generated code of
// jaeger-client-go but forms the packets itself, because the transport of jaeger-client-go takes only spans of its
// own tracer.
type udpAgent struct {
	address string
	limit   int // bytes of a packet

	packet *thrift.TMemoryBuffer
	client *agent.AgentClient
	size   *thrift.TMemoryBuffer // to measure structs
	sizer  thrift.TProtocol
	conn   net.Conn // nil before the first packet and after an error
}

// packetOverhead is the largest size of a packet without process and spans: the message header, the fields of the
// batch, and the length of the list.
const packetOverhead = 70

func newAgent(address string, limit int) *udpAgent {
	a := &udpAgent{address: address, limit: limit, packet: thrift.NewTMemoryBuffer(), size: thrift.NewTMemoryBuffer()}
	compact := thrift.NewTCompactProtocolFactoryConf(nil)
	a.client, a.sizer = agent.NewAgentClientFactory(a.packet, compact), compact.GetProtocol(a.size)
	return a
}

func (a *udpAgent) Shutdown(context.Context) error {
	if a.conn == nil {
		return nil
	}
	err := a.conn.Close()
	a.conn = nil
	return err
}

// ExportSpans sends spans of one resource in as many packets as necessary. An agent does not answer: a span counts as
// exported when its packet was sent without an immediate error. The network reports such an error when no agent runs
// on this machine.
func (a *udpAgent) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	process := thriftProcess(spans[0].Resource())
	room := a.limit - packetOverhead - a.measure(process)
	lost, used := map[Reason]int{}, 0
	var pending []*jaeger.Span
	var errs error
	flush := func() {
		if len(pending) == 0 {
			return
		}
		if err := a.emit(ctx, &jaeger.Batch{Process: process, Spans: pending}); err != nil {
			lost[Failed] += len(pending)
			errs = err
		}
		pending, used = nil, 0
	}
	for _, s := range spans {
		span := thriftSpan(s)
		n := a.measure(span)
		if n > room {
			lost[TooLarge]++
			if errs == nil {
				errs = fmt.Errorf("a span of %d bytes does not fit into a packet of tracing.packet_size, %d", n,
					a.limit)
			}
			continue
		}
		if used+n > room {
			flush()
		}
		pending, used = append(pending, span), used+n
	}
	flush()
	if len(lost) == 0 {
		return nil
	}
	f := &failure{err: errs, reason: TooLarge, lost: lost}
	if lost[Failed] > lost[TooLarge] {
		f.reason = Failed
	}
	return f
}

// measure returns the bytes of a struct in a packet.
func (a *udpAgent) measure(s thrift.TStruct) int {
	a.size.Reset()
	_ = s.Write(context.Background(), a.sizer) // to memory
	return a.size.Len()
}

func (a *udpAgent) emit(ctx context.Context, batch *jaeger.Batch) error {
	a.packet.Reset()
	if err := a.client.EmitBatch(ctx, batch); err != nil {
		return err
	}
	if a.conn == nil {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "udp", a.address)
		if err != nil {
			return err
		}
		a.conn = conn
	}
	_, err := a.conn.Write(a.packet.Bytes())
	if err == nil {
		err = a.refused()
	}
	if err != nil {
		// The next packet looks up the host again.
		_ = a.conn.Close()
		a.conn = nil
	}
	return err
}

// refused returns the network error of the newest packet. When no agent runs on this machine, the error is available
// as soon as Write returns. A Read that begins after its deadline looks for no error, so a Read that ends late because
// the processors were busy is repeated.
func (a *udpAgent) refused() error {
	const wait, late, tries = time.Millisecond, 3 * time.Millisecond / 2, 10
	for range tries {
		began := time.Now()
		if err := a.conn.SetReadDeadline(began.Add(wait)); err != nil {
			return err
		}
		if _, err := a.conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if time.Since(began) < late {
			break
		}
	}
	return nil
}

// collector sends spans to a Jaeger collector: binary thrift over HTTP.
type collector struct {
	url     string
	headers map[string]string
	client  *http.Client
}

func (c *collector) Shutdown(context.Context) error {
	c.client.CloseIdleConnections()
	return nil
}

// ExportSpans sends spans of one resource in a single request.
func (c *collector) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	batch := &jaeger.Batch{Process: thriftProcess(spans[0].Resource()), Spans: make([]*jaeger.Span, len(spans))}
	for i, s := range spans {
		batch.Spans[i] = thriftSpan(s)
	}
	body := thrift.NewTMemoryBuffer()
	if err := batch.Write(ctx, thrift.NewTBinaryProtocolConf(body, nil)); err != nil {
		return &failure{err: err, reason: Refused, split: true}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, body)
	if err != nil {
		return err
	}
	for name, value := range c.headers {
		r.Header.Set(name, value)
	}
	r.Header.Set("Content-Type", "application/x-thrift")
	answer, err := c.client.Do(r)
	if err != nil {
		return withoutURL(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return err
	}
	if err := httpFailure(answer, text); err != nil {
		return err
	}
	if len(text) > 0 { // a collector answers 202 without a body
		return notACollector(answer)
	}
	return nil
}

// thriftProcess describes the service of the spans.
func thriftProcess(r *resource.Resource) *jaeger.Process {
	p := &jaeger.Process{ServiceName: "millrace"}
	for _, kv := range r.Attributes() {
		if kv.Key == "service.name" {
			p.ServiceName = kv.Value.AsString()
			continue
		}
		p.Tags = append(p.Tags, tag(kv))
	}
	return p
}

// thriftSpan translates a span as the OpenTelemetry specification says for Jaeger: links
// become references FOLLOWS_FROM, events logs, and kind, status and scope tags.
func thriftSpan(s sdktrace.ReadOnlySpan) *jaeger.Span {
	ctx := s.SpanContext()
	high, low := traceID(ctx.TraceID())
	// Start and end are rounded separately, so that a span inside another span stays inside in microseconds.
	begin, end := s.StartTime().UnixMicro(), s.EndTime().UnixMicro()
	span := &jaeger.Span{
		TraceIdHigh: high, TraceIdLow: low, SpanId: spanID(ctx.SpanID()),
		OperationName: s.Name(), Flags: int32(ctx.TraceFlags() & trace.FlagsSampled),
		StartTime: begin, Duration: max(end-begin, 0),
	}
	if parent := s.Parent().SpanID(); parent.IsValid() {
		span.ParentSpanId = spanID(parent)
		span.References = append(span.References, &jaeger.SpanRef{RefType: jaeger.SpanRefType_CHILD_OF,
			TraceIdHigh: high, TraceIdLow: low, SpanId: span.ParentSpanId})
	}
	for _, l := range s.Links() {
		h, w := traceID(l.SpanContext.TraceID())
		if span.ParentSpanId == 0 && h == high && w == low {
			continue // Jaeger would make the link the parent
		}
		span.References = append(span.References, &jaeger.SpanRef{RefType: jaeger.SpanRefType_FOLLOWS_FROM,
			TraceIdHigh: h, TraceIdLow: w, SpanId: spanID(l.SpanContext.SpanID())})
	}
	for _, kv := range s.Attributes() {
		span.Tags = append(span.Tags, tag(kv))
	}
	if k := s.SpanKind(); k != trace.SpanKindUnspecified && k != trace.SpanKindInternal {
		span.Tags = append(span.Tags, tag(attribute.String("span.kind", k.String())))
	}
	if scope := s.InstrumentationScope(); scope.Name != "" {
		span.Tags = append(span.Tags, tag(attribute.String("otel.scope.name", scope.Name)))
		if scope.Version != "" {
			span.Tags = append(span.Tags, tag(attribute.String("otel.scope.version", scope.Version)))
		}
	}
	switch status := s.Status(); status.Code {
	case otelcodes.Error:
		span.Tags = append(span.Tags, tag(attribute.String("otel.status_code", "ERROR")),
			tag(attribute.Bool("error", true)))
		if status.Description != "" {
			span.Tags = append(span.Tags, tag(attribute.String("otel.status_description", status.Description)))
		}
	case otelcodes.Ok:
		span.Tags = append(span.Tags, tag(attribute.String("otel.status_code", "OK")))
	}
	for _, event := range s.Events() {
		fields := []*jaeger.Tag{tag(attribute.String("event", event.Name))}
		for _, kv := range event.Attributes {
			fields = append(fields, tag(kv))
		}
		span.Logs = append(span.Logs, &jaeger.Log{Timestamp: event.Time.UnixMicro(), Fields: fields})
	}
	return span
}

func traceID(id trace.TraceID) (high, low int64) {
	return int64(binary.BigEndian.Uint64(id[:8])), int64(binary.BigEndian.Uint64(id[8:]))
}

func spanID(id trace.SpanID) int64 { return int64(binary.BigEndian.Uint64(id[:])) }

// tag translates an attribute. A list becomes a string of JSON.
func tag(kv attribute.KeyValue) *jaeger.Tag {
	t := &jaeger.Tag{Key: string(kv.Key)}
	switch kv.Value.Type() {
	case attribute.BOOL:
		v := kv.Value.AsBool()
		t.VType, t.VBool = jaeger.TagType_BOOL, &v
	case attribute.INT64:
		v := kv.Value.AsInt64()
		t.VType, t.VLong = jaeger.TagType_LONG, &v
	case attribute.FLOAT64:
		v := kv.Value.AsFloat64()
		t.VType, t.VDouble = jaeger.TagType_DOUBLE, &v
	case attribute.STRING:
		v := kv.Value.AsString()
		t.VType, t.VStr = jaeger.TagType_STRING, &v
	default:
		text, err := json.Marshal(kv.Value.AsInterface())
		if err != nil {
			text = []byte(kv.Value.String())
		}
		v := string(text)
		t.VType, t.VStr = jaeger.TagType_STRING, &v
	}
	return t
}
