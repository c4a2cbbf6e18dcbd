//go:build !notracing

package spans

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
)

// queue is the queue of a stream without workers. Endings go to the tracer's hook.
type queue struct{ hooks workers.Hooks }

func (queue) Enqueue(*stream.Stream, any) {}
func (queue) Admit(bool) error            { return nil }
func (queue) AddWaiting(int)              {}
func (q queue) Ended(r *stream.Request)   { q.hooks.Ended(r) }
func (queue) Detach(*stream.Stream)       {}

// sink releases each result at once, as if written.
type sink struct{}

func (sink) Push(r *stream.Result)   { r.Release() }
func (sink) Done(stream.CloseReason) {}

type memory struct{ *tracetest.InMemoryExporter }

func (m memory) Enqueue(spans []sdktrace.ReadOnlySpan) {
	_ = m.ExportSpans(context.Background(), spans)
}

// bench is a tracer with one stream, whose frames the test ends itself.
type bench struct {
	t      testing.TB
	tracer *Tracer
	hooks  workers.Hooks
	out    memory
	stream *stream.Stream
}

func newBench(t testing.TB, c Config, policy stream.Policy) *bench {
	b := &bench{t: t, out: memory{tracetest.NewInMemoryExporter()}}
	b.tracer = New(Options{Config: c, Exporter: b.out, Resource: resource.Empty()})
	m := &stream.Model{Name: "find", Version: "2", Platform: "test", AcceptsAnyInput: true, Ragged: true, MaxBatch: 8,
		Params: stream.Params{"fixed": "5ms"}}
	b.hooks = b.tracer.Model(m)
	b.stream = stream.New(m, queue{b.hooks}, sink{}, stream.Options{Policy: policy, Protocol: "ws", Name: "door"})
	return b
}

// submit submits a frame and binds the frame.
func (b *bench) submit(f stream.Frame) *stream.Request {
	b.t.Helper()
	if err := b.stream.Submit(f); err != nil {
		b.t.Fatal(err)
	}
	r, _ := b.stream.Take(stream.Now(), 8, nil, 0)
	return r
}

// run ends the requests as one batch with end.
func (b *bench) run(end func(*stream.Request), rs ...*stream.Request) {
	batch := &batching.Batch{Requests: rs, Rows: len(rs), Gathered: stream.Now()}
	started := stream.Now()
	for _, r := range rs {
		r.Timing.Started, r.BatchSize = started, len(rs)
		end(r)
	}
	b.hooks.Run(workers.BatchRun{Batch: batch, Started: started, Ended: stream.Now()})
	for _, r := range rs {
		r.Unbind()
	}
}

func answer(r *stream.Request) {
	r.Finish([]stream.Tensor{{Name: "y", Data: []byte{1, 2, 3}}}, nil, true)
}

func (b *bench) spans() tracetest.SpanStubs {
	b.tracer.Close()
	return b.out.GetSpans()
}

func find(t testing.TB, all tracetest.SpanStubs, name string) tracetest.SpanStub {
	t.Helper()
	i := slices.IndexFunc(all, func(s tracetest.SpanStub) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no span %s among %d", name, len(all))
	}
	return all[i]
}

func value(s tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

var always = Config{Sampler: "ratio", Ratio: new(1.0)}

// The batch's span and its members' root spans are linked in both directions; each span lies within its parent.
func TestSpans(t *testing.T) {
	b := newBench(t, always, stream.Policy{Mode: stream.Every, Window: 8})
	parent := stream.TraceContext{Trace: stream.NewTraceID(), Parent: stream.NewSpanID(), Decision: stream.Sampled,
		Propagated: &stream.PropagatedContext{State: "a=1", Baggage: "k=v"}}
	first, second := b.submit(stream.Frame{Seq: 1, Codec: stream.Opaque, Payload: []byte("abcd"),
		TraceContext: parent}), b.submit(stream.Frame{Seq: 2})
	b.run(answer, first, second)
	all := b.spans()
	batch := find(t, all, "batch find")
	if len(batch.Links) != 2 || batch.Links[0].SpanContext.TraceID() != trace.TraceID(parent.Trace) ||
		batch.Parent.IsValid() || value(batch, "millrace.batch.rows") != "2" {
		t.Errorf("the batch: %+v", batch)
	}
	root := find(t, all, "ws find")
	if root.Parent.SpanID() != trace.SpanID(parent.Parent) || !root.Parent.IsRemote() ||
		root.SpanKind != trace.SpanKindServer || root.SpanContext.TraceState().String() != "a=1" {
		t.Errorf("the root: %+v", root)
	}
	for key, want := range map[string]string{
		"millrace.model": "find", "millrace.model.version": "2", "millrace.protocol": "ws",
		"network.protocol.name": "websocket", "millrace.stream": "door",
		"millrace.batch.rows": "2", "millrace.frame.bytes": "4", "millrace.result.bytes": "3",
		"millrace.policy.mode": "every", "millrace.load.fixed": "5ms", "baggage.k": "v",
		"millrace.outcome": "result",
	} {
		if got := value(root, key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	in := find(t, all, "batch")
	if len(in.Links) != 1 || in.Links[0].SpanContext.SpanID() != batch.SpanContext.SpanID() {
		t.Errorf("the span in the batch: %+v", in)
	}
	byID := map[trace.SpanID]tracetest.SpanStub{}
	for _, s := range all {
		byID[s.SpanContext.SpanID()] = s
	}
	for _, s := range all {
		if p, ok := byID[s.Parent.SpanID()]; ok && (s.StartTime.Before(p.StartTime) || s.EndTime.After(p.EndTime)) {
			t.Errorf("%s, %v to %v, is not within %s, %v to %v", s.Name, s.StartTime, s.EndTime, p.Name, p.StartTime,
				p.EndTime)
		}
	}
}

// An error is the status of the root; a drop is not an error.
func TestOutcomes(t *testing.T) {
	b := newBench(t, Config{Ratio: new(0.0)}, stream.Policy{Mode: stream.Latest})
	r := b.submit(stream.Frame{Seq: 1})
	b.run(func(r *stream.Request) { r.Fail(stream.Errorf(stream.Timeout, "", "too late")) }, r)
	for i := range 2 {
		if err := b.stream.Submit(stream.Frame{Seq: uint64(2 + i)}); err != nil {
			t.Fatal(err)
		}
	}
	all := b.spans()
	var failed, dropped tracetest.SpanStub
	for _, s := range all {
		switch {
		case s.Name == "ws find" && value(s, "millrace.seq") == "1":
			failed = s
		case s.Name == "ws find":
			dropped = s
		}
	}
	if failed.Status.Code != codes.Error || value(failed, "error.type") != "timeout" ||
		value(failed, "millrace.kept") != `["failed"]` {
		t.Errorf("failed: %+v", failed)
	}
	if dropped.Status.Code != codes.Unset || value(dropped, "millrace.drop.reason") != "superseded" ||
		value(dropped, "millrace.kept") != `["dropped"]` {
		t.Errorf("dropped: %+v", dropped)
	}
}

// A frame overtaken while its batch ran is kept when the batch has released the frame.
func TestOvertaken(t *testing.T) {
	b := newBench(t, Config{Ratio: new(0.0)}, stream.Policy{Mode: stream.Latest})
	old, young := b.submit(stream.Frame{Seq: 1}), b.submit(stream.Frame{Seq: 2})
	b.run(answer, young)
	if n := len(b.tracer.List(Query{})); n != 0 {
		t.Fatalf("%d frames were built while a batch used them", n)
	}
	b.run(answer, old)
	root := find(t, b.spans(), "ws find")
	if value(root, "millrace.drop.reason") != "overtaken" {
		t.Errorf("%+v", root)
	}
}

// A client may ask for the trace of a new answer before the spans are built: Find waits for kept frames only.
func TestFindWaitsForSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, always, stream.Policy{Mode: stream.Every, Window: 8})
		defer b.tracer.Close()
		r := b.submit(stream.Frame{Seq: 1})
		id := hex.EncodeToString(r.Trace[:])
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		// the frame has not ended: none is kept
		for _, other := range []string{id, strings.Repeat("0", 32), "x", strings.Repeat("0", 99)} {
			if k := b.tracer.Find(ctx, other); k != nil {
				t.Errorf("%s: %+v", other, k)
			}
		}
		answer(r) // the client has the answer, and the batch has not ended
		found := make(chan *KeptFrame, 1)
		go func() { found <- b.tracer.Find(ctx, id) }()
		synctest.Wait()
		if len(found) > 0 {
			t.Fatal("its spans cannot be built yet")
		}
		r.Unbind()
		if k := <-found; k == nil || k.TraceID != id || ctx.Err() != nil {
			t.Errorf("%+v, %v", k, ctx.Err())
		}
		last := b.submit(stream.Frame{Seq: 2})
		answer(last)
		if k := b.tracer.Find(ctx, hex.EncodeToString(last.Trace[:])); k != nil || ctx.Err() == nil {
			t.Errorf("a frame whose batch does not end: %+v, %v", k, ctx.Err())
		}
		last.Unbind()
		synctest.Wait()
		if n := len(b.tracer.unbuilt.frames); n > 0 {
			t.Errorf("%d traces are not built", n)
		}
	})
}

// A rule keeps no more than its limit per second, and counts further frames.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{Ratio: new(1.0), Sampler: "ratio", MaxRate: 3, TailRate: 2},
			stream.Policy{Mode: stream.Every})
		fail := func() {
			b.run(func(r *stream.Request) {
				r.Fail(stream.Errorf(stream.Internal, "", "no"))
			}, b.submit(stream.Frame{}))
		}
		for range 10 {
			fail()
		}
		st := b.tracer.Stats()
		if st.Kept["failed"] != 2 || st.Kept["sampled"] != 3 || st.Over["failed"] != 8 || st.Over["sampled"] != 7 {
			t.Errorf("%+v", st)
		}
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		fail()
		if st := b.tracer.Stats(); st.Kept["failed"] != 3 || st.Kept["sampled"] != 4 {
			t.Errorf("a second later: %+v", st)
		}
		b.tracer.Close()
	})
}

// Each sampler decides by its own rule; a client's debug decision always counts.
func TestSamplers(t *testing.T) {
	low, high := stream.TraceID{8: 0x10}, stream.TraceID{8: 0xf0}
	for name, c := range map[string]struct {
		sampler string
		context stream.TraceContext
		want    bool
	}{
		"parent, sampled":         {"parent", stream.TraceContext{Trace: high, Decision: stream.Sampled}, true},
		"parent, not sampled":     {"parent", stream.TraceContext{Trace: low, Decision: stream.NotSampled}, false},
		"parent, undecided, low":  {"parent", stream.TraceContext{Trace: low}, true},
		"parent, undecided, high": {"parent", stream.TraceContext{Trace: high}, false},
		"ratio, low":              {"ratio", stream.TraceContext{Trace: low, Decision: stream.NotSampled}, true},
		"ratio, high":             {"ratio", stream.TraceContext{Trace: high, Decision: stream.Sampled}, false},
		"ratio, debug":            {"ratio", stream.TraceContext{Trace: high, Decision: stream.Debug}, true},
		"rate":                    {"rate", stream.TraceContext{Trace: high}, true},
		"jaeger-remote":           {"jaeger-remote", stream.TraceContext{Trace: high}, true},
	} {
		cfg := Config{Sampler: c.sampler, Ratio: new(0.5)}.filled()
		s := newSampler(&cfg, sdktrace.AlwaysSample())
		s.fill()
		if got := s.keeps(&c.context, "find"); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		// The SDK's sampler by ratio decides alike.
		sdk := sdktrace.TraceIDRatioBased(0.5).ShouldSample(
			sdktrace.SamplingParameters{TraceID: trace.TraceID(c.context.Trace)}).Decision == sdktrace.RecordAndSample
		if strings.HasPrefix(c.sampler, "ratio") && c.context.Decision != stream.Debug && sdk != c.want {
			t.Errorf("%s: the SDK says %v", name, sdk)
		}
	}
}

// A frame without a kept trace allocates nothing in the hooks.
func TestNotKeptDoesNotAllocate(t *testing.T) {
	b := newBench(t, Config{Sampler: "ratio", Ratio: new(0.0), Dropped: new(false)}, stream.Policy{Mode: stream.Every})
	r := b.submit(stream.Frame{})
	b.run(answer, r)
	batch := workers.BatchRun{Batch: &batching.Batch{Requests: []*stream.Request{r}}}
	if n := testing.AllocsPerRun(100, func() { b.hooks.Ended(r); b.hooks.Run(batch) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	b.tracer.Close()
}

// Names of settings are in the errors of bad values.
func TestConfigErrors(t *testing.T) {
	for _, bad := range []string{"jaeger", "ftp://x", "http://", "://"} {
		if err := (Config{UIURL: bad}).Validate(); err == nil || !strings.Contains(err.Error(), "tracing.ui_url") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	c := Config{UIURL: "https://traces.test/x?id={trace_id}"}
	if err := c.Validate(); err != nil || c.link("7") != "https://traces.test/x?id=7" {
		t.Errorf("%v %s", err, c.link("7"))
	}
}

func TestAttributesAreBounded(t *testing.T) {
	params := stream.Params{}
	for i := range 100 {
		params[fmt.Sprint("p", i)] = strings.Repeat("x", 1000)
	}
	var sum int
	for _, a := range modelAttributes(&stream.Model{Params: params}) {
		if a.Value.Type() == attribute.STRING {
			sum += len(a.Value.AsString())
		}
	}
	if sum > maxParams*(maxText+3) {
		t.Errorf("%d bytes", sum)
	}
}

// BenchmarkKept measures one kept frame, from ending to spans.
func BenchmarkKept(b *testing.B) {
	x := newBench(b, Config{Sampler: "ratio", Ratio: new(1.0), MaxRate: 1000000}, stream.Policy{Mode: stream.Every})
	x.tracer.Close() // the benchmark builds the spans itself
	x.tracer.o.Exporter = discard{}
	x.tracer.sampler.perSecond.remaining.Store(1 << 40)
	b.ReportAllocs()
	for b.Loop() {
		r := x.submit(stream.Frame{Seq: 7, Codec: stream.JPEG})
		x.run(answer, r)
		for len(x.tracer.jobs) > 0 {
			x.tracer.build(<-x.tracer.jobs)
		}
	}
}

// BenchmarkNotKept measures the same without a trace.
func BenchmarkNotKept(b *testing.B) {
	x := newBench(b, Config{Sampler: "ratio", Ratio: new(0.0)}, stream.Policy{Mode: stream.Every})
	x.tracer.Close()
	b.ReportAllocs()
	for b.Loop() {
		x.run(answer, x.submit(stream.Frame{Seq: 7, Codec: stream.JPEG}))
	}
}

type discard struct{}

func (discard) Enqueue([]sdktrace.ReadOnlySpan) {}

// A frame answered by the gate was not run: the trace has no run span, although the answer came in a batch.
func TestGated(t *testing.T) {
	b := newBench(t, Config{Ratio: new(0.0), Gated: new(true)}, stream.Policy{Mode: stream.Every})
	b.run(func(r *stream.Request) { r.Gated = true; answer(r) }, b.submit(stream.Frame{Seq: 1}))
	all := b.spans()
	if root := find(t, all, "ws find"); value(root, "millrace.kept") != `["gated"]` {
		t.Errorf("%+v", root)
	}
	find(t, all, "batch")
	for _, s := range all {
		if s.Name == "run" || s.Name == "results" {
			t.Errorf("a span %s", s.Name)
		}
	}
}

// The rule gated ignores a frame that ends while its batch may still write to the frame.
func TestGatedAfterItsEnd(t *testing.T) {
	b := newBench(t, Config{Ratio: new(0.0), Gated: new(true)}, stream.Policy{Mode: stream.Every})
	r := b.submit(stream.Frame{Seq: 1})
	r.Gated = true
	b.stream.Abandon(stream.Errorf(stream.Canceled, "", "gone"))
	r.Unbind()
	if root := find(t, b.spans(), "ws find"); value(root, "millrace.kept") != `["failed"]` {
		t.Errorf("%+v", root)
	}
}
