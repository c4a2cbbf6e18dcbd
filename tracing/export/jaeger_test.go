//go:build !notracing

package export_test

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"millrace/internal/jaegertest"
	"millrace/tracing/export"
)

// kinds are the exporters to Jaeger with their addresses.
var kinds = map[string]func(*jaegertest.Server) string{
	export.OTLPGRPC:        func(s *jaegertest.Server) string { return s.OTLPGRPC },
	export.OTLPHTTP:        func(s *jaegertest.Server) string { return s.OTLPHTTP },
	export.JaegerAgent:     func(s *jaegertest.Server) string { return s.Agent },
	export.JaegerCollector: func(s *jaegertest.Server) string { return s.Collector },
}

func newID() (id trace.TraceID) { _, _ = rand.Read(id[:]); return id }

func newSpan(id trace.TraceID) trace.SpanContext {
	var span trace.SpanID
	_, _ = rand.Read(span[:])
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: trace.FlagsSampled})
}

// frame returns the spans of a made-up frame: a root, two adjacent children, and a grandchild with a link to another
// trace.
func frame(cfg export.Config, links ...trace.SpanContext) (id trace.TraceID, spans []sdktrace.ReadOnlySpan) {
	id = newID()
	began := time.Now().Truncate(time.Microsecond)
	at := func(us float64) time.Time { return began.Add(time.Duration(us * 1e3)) }
	root, wait, run, part := newSpan(id), newSpan(id), newSpan(id), newSpan(id)
	stub := func(name string, self, parent trace.SpanContext, from, to float64) tracetest.SpanStub {
		return tracetest.SpanStub{
			Name: name, SpanContext: self, Parent: parent, StartTime: at(from), EndTime: at(to),
			SpanKind: trace.SpanKindInternal,
			Resource: cfg.Resource("1.2"), InstrumentationScope: instrumentation.Scope{Name: "millrace"},
		}
	}
	first := stub("root", root, trace.SpanContext{}, 0, 1000.9)
	first.SpanKind = trace.SpanKindServer
	first.Attributes = []attribute.KeyValue{attribute.String("a.text", "täxt"), attribute.Int("a.whole", 42),
		attribute.Float64("a.number", 0.25),
		attribute.Bool("a.flag", true), attribute.StringSlice("a.list", []string{"x", "y"})}
	first.Status = sdktrace.Status{Code: codes.Error, Description: "it failed"}
	first.Events = []sdktrace.Event{{Name: "exception", Time: at(500),
		Attributes: []attribute.KeyValue{attribute.String("exception.type", "timeout")}}}
	last := stub("part", part, run, 400.7, 1000.8)
	for _, l := range links {
		last.Links = append(last.Links, sdktrace.Link{SpanContext: l})
	}
	return id, tracetest.SpanStubs{first, stub("wait", wait, root, 0.4, 300.6), stub("run", run, root, 300.6, 1000.9),
		last}.Snapshots()
}

func newExporter(t *testing.T, cfg export.Config) *export.Exporter {
	t.Helper()
	e, err := export.New(cfg, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(t.Context()) })
	return e
}

// TestJaegerTakesSpansOfEachExporter: a Jaeger shows the same trace whatever the exporter.
func TestJaegerTakesSpansOfEachExporter(t *testing.T) {
	t.Parallel()
	server := jaegertest.Start(t, jaegertest.Options{})
	for kind, address := range kinds {
		t.Run(kind, func(t *testing.T) {
			cfg := export.Config{Exporter: kind, Endpoint: address(server), ServiceName: kind,
				Attributes: []string{"site=cellar"}}
			e := newExporter(t, cfg)
			other := newSpan(newID())
			id, spans := frame(cfg, other, newSpan(newID()))
			e.Enqueue(spans)
			if err := e.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if s := e.Stats(); s.Exported != 4 || s.Waiting != 0 {
				t.Errorf("%+v", s)
			}
			got := server.Wait(t, id.String(), 4)
			checkTree(t, got)
			root, _ := got.Span("root")
			for key, want := range map[string]any{"a.text": "täxt", "a.whole": 42.0, "a.number": 0.25, "a.flag": true,
				"a.list":    `["x","y"]`,
				"span.kind": "server", "otel.scope.name": "millrace", "error": true, "otel.status_code": "ERROR",
				"otel.status_description": "it failed"} {
				if root.Tags[key] != want {
					t.Errorf("tag %s: %v, want %v", key, root.Tags[key], want)
				}
			}
			if root.Service != kind || root.Resource["site"] != "cellar" || root.Resource["service.version"] != "1.2" {
				t.Errorf("service %s with %v", root.Service, root.Resource)
			}
			if len(root.Events) != 1 || root.Events[0]["event"] != "exception" ||
				root.Events[0]["exception.type"] != "timeout" {
				t.Errorf("events %v", root.Events)
			}
			part, _ := got.Span("part")
			if len(part.Links) != 2 || part.Links[0] != (jaegertest.Link{TraceID: other.TraceID().String(),
				SpanID: other.SpanID().String()}) {
				t.Errorf("links %v, want the first to %v", part.Links, other)
			}
		})
	}
}

// checkTree checks the parents in the trace of frame, and that each span lies inside its parent.
func checkTree(t *testing.T, got jaegertest.Trace) {
	t.Helper()
	names := map[string]jaegertest.Span{}
	for _, s := range got.Spans {
		names[s.ID] = s
		if len(s.Warnings) > 0 {
			t.Errorf("%s: %v", s.Name, s.Warnings)
		}
	}
	for name, want := range map[string]string{"root": "", "wait": "root", "run": "root", "part": "run"} {
		s, ok := got.Span(name)
		parent := names[s.Parent]
		if !ok || parent.Name != want {
			t.Fatalf("%s is a child of %q, want %q: %+v", name, parent.Name, want, got)
		}
		if want != "" && (s.Start < parent.Start || s.End > parent.End) {
			t.Errorf("%s, %d to %d, is not inside %s, %d to %d", name, s.Start, s.End, want, parent.Start, parent.End)
		}
	}
}

// Batches are split into packets and messages accepted by Jaeger, and each span arrives once.
func TestJaegerTakesManySpans(t *testing.T) {
	t.Parallel()
	server := jaegertest.Start(t, jaegertest.Options{})
	for kind, address := range kinds {
		t.Run(kind, func(t *testing.T) {
			cfg := export.Config{Exporter: kind, Endpoint: address(server), ServiceName: kind}
			e := newExporter(t, cfg)
			const frames = 500
			var ids []string
			for range frames {
				id, spans := frame(cfg)
				e.Enqueue(spans)
				ids = append(ids, id.String())
			}
			if err := e.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if s := e.Stats(); s.Exported != 4*frames {
				t.Errorf("%+v", s)
			}
			server.Wait(t, ids[frames-1], 4)
			for _, id := range ids {
				if n := len(server.Wait(t, id, 4).Spans); n != 4 {
					t.Errorf("trace %s has %d spans", id, n)
				}
			}
			if n := len(server.Traces(t, kind)); n != frames {
				t.Errorf("Jaeger has %d traces, want %d", n, frames)
			}
		})
	}
}

// A span too large for a packet is counted, and the frame's other spans arrive.
func TestJaegerTakesLargeSpans(t *testing.T) {
	t.Parallel()
	server := jaegertest.Start(t, jaegertest.Options{})
	for kind, address := range kinds {
		t.Run(kind, func(t *testing.T) {
			cfg := export.Config{Exporter: kind, Endpoint: address(server), ServiceName: kind}
			e := newExporter(t, cfg)
			size, lost := 60_000, uint64(0) // six spans need six packets
			if kind == export.JaegerAgent {
				size, lost = 80_000, 1
			}
			id, spans := frame(cfg)
			for i := range spans {
				stub := tracetest.SpanStubFromReadOnlySpan(spans[i])
				if stub.Name == "part" {
					stub.Attributes = append(stub.Attributes, attribute.String("large", strings.Repeat("x", size)))
				}
				spans[i] = stub.Snapshot()
			}
			e.Enqueue(spans)
			_ = e.Close(t.Context())
			if s := e.Stats(); s.Exported != 4-lost || s.Lost[export.TooLarge] != lost {
				t.Errorf("%+v", s)
			}
			got := server.Wait(t, id.String(), int(4-lost))
			if part, ok := got.Span("part"); ok != (lost == 0) || ok && len(fmt.Sprint(part.Tags["large"])) != size {
				t.Errorf("large span: %v, with %d bytes", ok, len(fmt.Sprint(part.Tags["large"])))
			}
		})
	}
}

// A collector started later gets earlier spans.
func TestSpansWaitForJaeger(t *testing.T) {
	t.Parallel()
	first := jaegertest.Start(t, jaegertest.Options{}) // builds the server, and finds free ports
	_ = first
	for _, kind := range []string{export.OTLPGRPC, export.OTLPHTTP, export.JaegerCollector} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			port := freePort(t)
			cfg := export.Config{Exporter: kind, Endpoint: fmt.Sprintf("127.0.0.1:%d", port), ServiceName: kind,
				Delay: time.Millisecond}
			e := newExporter(t, cfg)
			id, spans := frame(cfg)
			e.Enqueue(spans)
			options := jaegertest.Options{}
			options.Ports[slices.Index([]string{export.OTLPGRPC, export.OTLPHTTP, export.JaegerCollector}, kind)] = port
			server := jaegertest.Start(t, options)
			checkTree(t, server.Wait(t, id.String(), 4))
			_ = e.Close(t.Context())
			if s := e.Stats(); s.Exported != 4 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// The ratio of each service comes from Jaeger's file, exactly for evenly spread trace ids; before the first answer,
// the first sampler decides.
func TestRemoteSampler(t *testing.T) {
	t.Parallel()
	server := jaegertest.Start(t, jaegertest.Options{Strategies: `{
		"service_strategies": [{"service": "quarter", "type": "probabilistic", "param": 0.25}],
		"default_strategy": {"type": "probabilistic", "param": 1}}`})
	sampled := func(s sdktrace.Sampler) (n int) {
		for i := range 1000 {
			var id trace.TraceID
			id[0], id[8], id[9] = 1, byte(i*65536/1000>>8), byte(i*65536/1000) // the sampler compares the low half
			if s.ShouldSample(sdktrace.SamplingParameters{ParentContext: t.Context(), TraceID: id,
				Name: "frame"}).Decision == sdktrace.RecordAndSample {
				n++
			}
		}
		return n
	}
	for service, want := range map[string]int{"quarter": 250, "another": 1000} {
		cfg := export.Config{ServiceName: service, SamplerEndpoint: "http://" + server.Sampling + "/sampling"}
		s, err := export.NewRemoteSampler(cfg, sdktrace.NeverSample(), slog.New(slog.NewTextHandler(t.Output(), nil)))
		if err != nil {
			t.Fatal(err)
		}
		s.UpdateSampler() // now, not when the goroutine does
		if n := sampled(s); n != want {
			t.Errorf("%s: %d of 1000 are sampled, want %d", service, n, want)
		}
		s.Close()
	}
	cfg := export.Config{SamplerEndpoint: fmt.Sprintf("http://127.0.0.1:%d/sampling", freePort(t))}
	s, err := export.NewRemoteSampler(cfg, sdktrace.AlwaysSample(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.UpdateSampler()
	if n := sampled(s); n != 1000 {
		t.Errorf("without a server %d of 1000 are sampled", n)
	}
	s.Close()
}
