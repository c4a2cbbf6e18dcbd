//go:build !nometrics

package tracing

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	names "github.com/prometheus/common/model"

	"millrace/ingest"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
	_ "millrace/workers/identity"
)

// rig is a manager whose groups report to Metrics.
type rig struct {
	*Metrics
	manager *workers.Manager
	ended   chan *stream.Request
	hooks   workers.Hooks // of the model loaded last
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{ended: make(chan *stream.Request, 64)}
	mem := buf.NewPool(0)
	r.manager = workers.NewManager(workers.ManagerOptions{Memory: mem, Hooks: func(m *stream.Model) workers.Hooks {
		r.hooks = r.Model(m)
		return workers.Hooks{Batch: r.hooks.Batch, Closed: r.hooks.Closed, Ended: func(q *stream.Request) {
			r.hooks.Ended(q)
			r.ended <- q
		}}
	}})
	t.Cleanup(func() { _ = r.manager.Close(context.Background()) })
	r.Metrics = New(Options{
		Version: "v1", Groups: r.manager.Stats, Memory: mem.Stats,
		Adapters: func() ingest.Metrics {
			return ingest.Metrics{
				Goroutines: map[string]int{"ws": 3, "grpc": 0}, Sessions: map[string]int{"ws": 2},
				Videos: map[string]int{"sent": 3},
			}
		},
	})
	return r
}

func (r *rig) load(t testing.TB, name string) *workers.Group {
	t.Helper()
	if _, err := r.manager.LoadConfig(context.Background(), workers.Config{Name: name, Kind: "identity"},
		true); err != nil {
		t.Fatal(err)
	}
	g, err := r.manager.Group(name, "")
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// unload unloads a model, so that no worker reads its requests any more.
func (r *rig) unload(t testing.TB, name string) {
	t.Helper()
	if err := r.manager.Unload(context.Background(), name, ""); err != nil {
		t.Fatal(err)
	}
}

// run sends frames one by one and returns the last frame's request.
func (r *rig) run(t testing.TB, g *workers.Group, p stream.Policy, n int) *stream.Request {
	t.Helper()
	s, err := g.Open(stream.Options{Policy: p}, drain{})
	if err != nil {
		t.Fatal(err)
	}
	var last *stream.Request
	for range n {
		if err := s.Submit(stream.Frame{Codec: stream.Opaque, Payload: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		last = <-r.ended
	}
	s.Close(stream.ByClient)
	<-s.Finished()
	return last
}

// gather parses the output of a scrape.
func (r *rig) gather(t testing.TB) map[string]*dto.MetricFamily {
	t.Helper()
	text, kind, err := r.Gather("")
	if err != nil || !strings.HasPrefix(kind, "text/plain") {
		t.Fatalf("%q, %v", kind, err)
	}
	p := expfmt.NewTextParser(names.UTF8Validation)
	out, err := p.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return out
}

// value returns a counter's or gauge's value, or a histogram's count, and whether the series exists.
func value(all map[string]*dto.MetricFamily, name string, labels ...string) (float64, bool) {
next:
	for _, m := range all[name].GetMetric() {
		for i := 0; i < len(labels); i += 2 {
			found := false
			for _, l := range m.Label {
				found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
			}
			if !found {
				continue next
			}
		}
		switch {
		case m.Counter != nil:
			return m.Counter.GetValue(), true
		case m.Gauge != nil:
			return m.Gauge.GetValue(), true
		case m.Histogram != nil:
			return float64(m.Histogram.GetSampleCount()), true
		}
	}
	return 0, false
}

func want(t *testing.T, all map[string]*dto.MetricFamily, v float64, name string, labels ...string) {
	t.Helper()
	if got, ok := value(all, name, labels...); !ok || got != v {
		t.Errorf("%s%v is %v (there: %v), want %v", name, labels, got, ok, v)
	}
}

func TestFramesAreCounted(t *testing.T) {
	r := newRig(t)
	g := r.load(t, "m")
	r.run(t, g, stream.Policy{Mode: stream.Every}, 5)
	r.run(t, g, stream.Policy{Mode: stream.Every, MaxFPS: 0.001}, 3) // passes one frame
	all := r.gather(t)
	want(t, all, 6, "millrace_frames_total", "model", "m", "version", "1", "outcome", "result")
	want(t, all, 2, "millrace_frames_total", "model", "m", "version", "1", "outcome", "drop")
	want(t, all, 0, "millrace_frames_total", "model", "m", "version", "1", "outcome", "error")
	want(t, all, 2, "millrace_dropped_frames_total", "model", "m", "reason", "rate")
	want(t, all, 0, "millrace_dropped_frames_total", "model", "m", "reason", "stale")
	for _, stage := range []string{"queue", "prepare", "run"} {
		want(t, all, 6, "millrace_stage_duration_seconds", "model", "m", "stage", stage)
	}
	want(t, all, 6, "millrace_answered_age_seconds", "model", "m")
	want(t, all, 0, "millrace_queue_depth", "model", "m")
	want(t, all, 1, "millrace_model_ready", "model", "m")
	want(t, all, 0, "millrace_workers", "model", "m", "state", "quarantined")
	want(t, all, 0, "millrace_worker_restarts_total", "model", "m")
	want(t, all, buf.DefaultBudget, "millrace_memory_budget_bytes")
	want(t, all, 0, "millrace_memory_denied_total")
	want(t, all, 3, "millrace_goroutines", "group", "ws")
	want(t, all, 2, "millrace_sessions", "adapter", "ws")
	want(t, all, 3, "millrace_videos", "from", "sent")
	want(t, all, 1, "millrace_build_info", "version", "v1")
	for _, name := range []string{"go_goroutines", "process_cpu_seconds_total"} {
		if _, ok := value(all, name); !ok {
			t.Errorf("%s is missing", name)
		}
	}
}

// The counts of an unloaded model stay, and continue when the model is loaded again.
func TestCountsOfUnloadedModelsStay(t *testing.T) {
	r := newRig(t)
	r.run(t, r.load(t, "m"), stream.Policy{Mode: stream.Every}, 2)
	r.gather(t)
	if err := r.manager.Unload(t.Context(), "m", ""); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		all := r.gather(t)
		want(t, all, 2, "millrace_frames_total", "model", "m", "outcome", "result")
		want(t, all, 2, "millrace_answered_age_seconds", "model", "m")
		if _, ok := value(all, "millrace_model_ready", "model", "m"); ok {
			t.Error("an unloaded model has a series of its state")
		}
	}
	r.run(t, r.load(t, "m"), stream.Policy{Mode: stream.Every}, 1)
	all := r.gather(t)
	want(t, all, 3, "millrace_frames_total", "model", "m", "outcome", "result")
	want(t, all, 3, "millrace_answered_age_seconds", "model", "m")
	want(t, all, 1, "millrace_model_ready", "model", "m")
}

// The series of a version are removed when its groups are closed and the version is no longer listed, but not if the
// version is loaded again.
func TestSeriesAreRemovedWithTheirModel(t *testing.T) {
	model := &stream.Model{Name: "m", Version: "1"}
	list := []workers.GroupStats{{Model: model}}
	r := &rig{Metrics: New(Options{Groups: func() []workers.GroupStats { return list }})}
	first := r.Model(model)
	first.Batch(3, time.Millisecond, time.Second)
	r.gather(t)
	again := r.Model(model) // loaded again during a scrape without the model
	first.Closed()
	list = nil
	r.gather(t)
	again.Batch(1, time.Millisecond, time.Second)
	want(t, r.gather(t), 2, "millrace_batch_rows", "model", "m", "version", "1")
	list = []workers.GroupStats{{Model: model}}
	again.Closed()
	want(t, r.gather(t), 2, "millrace_batch_rows", "model", "m", "version", "1")
	list = nil
	if _, ok := value(r.gather(t), "millrace_batch_rows", "version", "1"); ok {
		t.Error("a version that is no longer listed has series")
	}
}

func TestAPIRequests(t *testing.T) {
	r := newRig(t)
	http, grpc := r.Requests("http", HTTPClass), r.Requests("grpc", GRPCClass)
	http("/v2/models/{model}/infer", "1", 200, 12*time.Millisecond, 1000, 2000)
	http("/v2/models/{model}/infer", "1", 204, 12*time.Millisecond, -1, -1)
	http("/v2/models/{model}/infer", "1", 503, time.Second, 10, 20)
	http("/v2/models/{model}/infer", "1", 999, time.Second, 10, 20)
	grpc("ModelInfer", "", 0, time.Second, 10, 20)
	grpc("ModelInfer", "", 3, time.Second, 10, 20)
	grpc("ModelInfer", "", 13, time.Second, 10, 20)
	all := r.gather(t)
	const path = "/v2/models/{model}/infer"
	want(t, all, 2, "http_request_duration_seconds", "endpoint", path, "version", "1", "status", "2xx")
	want(t, all, 1, "http_request_duration_seconds", "endpoint", path, "version", "1", "status", "5xx")
	want(t, all, 1, "http_request_duration_seconds", "endpoint", path, "status", "other")
	want(t, all, 1, "http_request_size_bytes", "endpoint", path, "status", "2xx")
	want(t, all, 1, "http_response_size_bytes", "endpoint", path, "status", "2xx")
	for _, class := range []string{"ok", "client_error", "server_error"} {
		want(t, all, 1, "grpc_request_duration_seconds", "endpoint", "ModelInfer", "status", class)
	}
	if n := len(all["http_request_duration_seconds"].Metric[0].Histogram.Bucket); n != len(DefaultRequestBuckets)+1 {
		t.Errorf("%d buckets", n)
	}
}

// Names, help and units follow the Prometheus conventions.
func TestLint(t *testing.T) {
	r := newRig(t)
	r.run(t, r.load(t, "m"), stream.Policy{Mode: stream.Every}, 1)
	r.Requests("http", HTTPClass)("/x", "", 200, time.Second, 1, 1)
	r.Requests("grpc", GRPCClass)("x", "", 0, time.Second, 1, 1)
	problems, err := testutil.GatherAndLint(r.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestHandler(t *testing.T) {
	r := newRig(t)
	s := httptest.NewServer(r.Handler())
	defer s.Close()
	res, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK || !bytes.Contains(body, []byte("millrace_memory_budget_bytes")) {
		t.Errorf("%s, %v: %s", res.Status, err, body)
	}
	text, kind, err := r.Gather("application/openmetrics-text; version=1.0.0")
	if err != nil || !strings.HasPrefix(kind, "application/openmetrics-text") ||
		!bytes.HasSuffix(text, []byte("# EOF\n")) {
		t.Errorf("%q, %v", kind, err)
	}
}

func TestHooksAllocateNothing(t *testing.T) {
	r := newRig(t)
	g := r.load(t, "m")
	for name, q := range map[string]*stream.Request{
		"answered": r.run(t, g, stream.Policy{Mode: stream.Every}, 1),
		"dropped":  r.run(t, g, stream.Policy{Mode: stream.Every, MaxFPS: 0.001}, 2),
	} {
		if n := testing.AllocsPerRun(100, func() { r.hooks.Ended(q) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	if n := testing.AllocsPerRun(100, func() { r.hooks.Batch(4, time.Millisecond, time.Millisecond) }); n != 0 {
		t.Errorf("Batch: %v allocations", n)
	}
}

func BenchmarkEnded(b *testing.B) {
	r := newRig(b)
	q := r.run(b, r.load(b, "m"), stream.Policy{Mode: stream.Every}, 1)
	b.ReportAllocs()
	for b.Loop() {
		r.hooks.Ended(q)
	}
}

// The durations of a frame with a kept trace have its id, durations of other frames none, and histograms are also
// native histograms.
func TestExemplars(t *testing.T) {
	r := newRig(t)
	g := r.load(t, "m")
	q := r.run(t, g, stream.Policy{Mode: stream.Every}, 1)
	accept := "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
	exemplars := func() (ids []string) {
		text, kind, err := r.Gather(accept)
		if err != nil {
			t.Fatal(err)
		}
		dec := expfmt.NewDecoder(bytes.NewReader(text), expfmt.Format(kind))
		for {
			var f dto.MetricFamily
			if err := dec.Decode(&f); err == io.EOF {
				return ids
			} else if err != nil {
				t.Fatal(err)
			}
			if f.GetName() != "millrace_answered_age_seconds" {
				continue
			}
			h := f.Metric[0].Histogram
			if h.GetSampleCount() == 0 || len(h.PositiveSpan) == 0 || len(h.Bucket) != len(stageBuckets) {
				t.Errorf("not a native histogram with classic buckets: %v", h)
			}
			for _, b := range h.Bucket {
				if b.Exemplar != nil {
					ids = append(ids, b.Exemplar.Label[0].GetName()+"="+b.Exemplar.Label[0].GetValue())
				}
			}
		}
	}
	if ids := exemplars(); len(ids) != 0 {
		t.Errorf("a frame whose trace is not kept is an exemplar: %v", ids)
	}
	r.unload(t, "m")
	q.Result().Kept = true
	r.hooks.Ended(q)
	if ids := exemplars(); len(ids) != 1 || ids[0] != "trace_id="+hex.EncodeToString(q.Trace[:]) {
		t.Errorf("%v, want %v", ids, q.Trace)
	}
}
