//go:build !nometrics

package tracing

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"millrace/ingest"
	"millrace/ingest/streams"
	"millrace/internal/accept"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

// sum returns the sum of a histogram's samples.
func sum(all map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	total := 0.0
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
		total += m.GetHistogram().GetSampleSum()
	}
	return total
}

func wantSum(t *testing.T, all map[string]*dto.MetricFamily, v float64, name string, labels ...string) {
	t.Helper()
	if got := sum(all, name, labels...); got < v*0.999 || got > v*1.001 {
		t.Errorf("the samples of %s%v add up to %v, want %v", name, labels, got, v)
	}
}

// Each value of a model and version is in its own series.
func TestFiguresOfGroups(t *testing.T) {
	st := workers.GroupStats{
		Model: &stream.Model{Name: "m", Version: "1"}, State: workers.StateUnloading,
		Workers: 9, Busy: 2, Quarantined: 3, Streams: 4, PlacesUsed: 5, Waiting: 6, Oldest: 1500 * time.Millisecond,
		Buffers: 17, BuffersFree: 8,
		Restarts: 10, Batches: 11, BatchesBy: map[string]uint64{"full": 7, "deadline": 4}, Capacity: 44,
		Frames: stream.Totals{
			Accepted: 60, InFlight: 5, Results: 20, Drops: map[stream.Reason]uint64{stream.Stale: 7, stream.Memory: 8},
			Errors:     map[stream.Code]uint64{stream.Timeout: 9, stream.FlowControl: 11},
			Refused:    map[string]uint64{"memory": 3, "flow_control": 11},
			Unsendable: map[stream.Code]uint64{stream.Unsupported: 2},
		},
	}
	list := []workers.GroupStats{st}
	r := &rig{Metrics: New(Options{Groups: func() []workers.GroupStats { return list }})}
	all := r.gather(t)
	for _, c := range []struct {
		value  float64
		series []string
	}{
		{2, []string{"workers", "state", "busy"}}, {7, []string{"workers", "state", "idle"}},
		{3, []string{"workers", "state", "quarantined"}},
		{4, []string{"streams"}}, {5, []string{"queue_flows"}}, {6, []string{"queue_depth"}},
		{1.5, []string{"queue_oldest_age_seconds"}},
		{9, []string{"batch_buffers", "state", "used"}}, {8, []string{"batch_buffers", "state", "free"}},
		{10, []string{"worker_restarts_total"}}, {11, []string{"batches_total"}},
		{7, []string{"batches_formed_total", "cause", "full"}},
		{4, []string{"batches_formed_total", "cause", "deadline"}}, {44, []string{"batch_capacity_rows_total"}},
		{0, []string{"model_ready"}},
		{60, []string{"frames_accepted_total"}}, {5, []string{"frames_in_flight"}},
		{20, []string{"frames_total", "outcome", "result"}}, {15, []string{"frames_total", "outcome", "drop"}},
		{20, []string{"frames_total", "outcome", "error"}},
		{7, []string{"dropped_frames_total", "reason", "stale"}},
		{8, []string{"dropped_frames_total", "reason", "memory"}},
		{9, []string{"frame_errors_total", "code", "timeout"}},
		{11, []string{"frame_errors_total", "code", "flow_control"}},
		{3, []string{"refused_frames_total", "reason", "memory"}},
		{11, []string{"refused_frames_total", "reason", "flow_control"}},
		{2, []string{"unsendable_results_total", "code", "unsupported"}},
	} {
		want(t, all, c.value, "millrace_"+c.series[0], append([]string{"model", "m", "version", "1"},
			c.series[1:]...)...)
	}
	list[0].State, list[0].Busy = workers.StateReady, 20 // more busy than workers: none is idle
	all = r.gather(t)
	want(t, all, 1, "millrace_model_ready", "model", "m")
	want(t, all, 0, "millrace_workers", "state", "idle")
}

// Each stage is the time between its two instants; a stage without its first instant is left out.
func TestStagesOfAnAnsweredFrame(t *testing.T) {
	r := newRig(t)
	answered := r.run(t, r.load(t, "other"), stream.Policy{Mode: stream.Every}, 1)
	r.unload(t, "other")
	h := r.Model(&stream.Model{Name: "m", Version: "2"})
	at := func(ms int) stream.Instant { return stream.Instant(time.Duration(1000+ms) * time.Millisecond) }
	answered.Timing = stream.Timing{Received: at(0), Dequeued: at(3), Started: at(10), Done: at(41)}
	h.Ended(answered)
	all := r.gather(t)
	for stage, seconds := range map[string]float64{"queue": 0.003, "prepare": 0.007, "run": 0.031} {
		wantSum(t, all, seconds, "millrace_stage_duration_seconds", "model", "m", "version", "2", "stage", stage)
	}
	wantSum(t, all, 0.041, "millrace_answered_age_seconds", "model", "m", "version", "2")

	answered.Timing = stream.Timing{Received: at(0), Done: at(9)} // never bound: answered by an earlier result
	h.Ended(answered)
	all = r.gather(t)
	for stage, n := range map[string]float64{"queue": 1, "prepare": 1, "run": 1} {
		want(t, all, n, "millrace_stage_duration_seconds", "model", "m", "version", "2", "stage", stage)
	}

	// within one tick of the clock
	answered.Timing = stream.Timing{Received: at(5), Dequeued: at(5), Started: at(5), Done: at(5)}
	h.Ended(answered)
	want(t, r.gather(t), 2, "millrace_stage_duration_seconds", "model", "m", "version", "2", "stage", "queue")
}

func TestBatchesAndSkippedFramesAreCounted(t *testing.T) {
	r := newRig(t)
	h := r.Model(&stream.Model{Name: "m", Version: "1"})
	h.Batch(3, 2*time.Millisecond, 40*time.Millisecond)
	h.Batch(4, 3*time.Millisecond, 50*time.Millisecond)
	h.Skipped(nil)
	h.Skipped(nil)
	all := r.gather(t)
	want(t, all, 2, "millrace_batch_rows", "model", "m")
	wantSum(t, all, 7, "millrace_batch_rows", "model", "m")
	wantSum(t, all, 0.005, "millrace_batch_duration_seconds", "model", "m", "stage", "prepare")
	wantSum(t, all, 0.09, "millrace_batch_duration_seconds", "model", "m", "stage", "run")
	want(t, all, 2, "millrace_skipped_frames_total", "model", "m", "version", "1")
}

// The series of one version, including the series of its API requests, are removed without the series of other
// versions.
func TestVersionsHaveSeriesOfTheirOwn(t *testing.T) {
	m := New(Options{Groups: func() []workers.GroupStats { return nil }})
	h := m.Model(&stream.Model{Name: "m", Version: "1"})
	m.Model(&stream.Model{Name: "m", Version: "2"})
	count := m.Requests("http", HTTPClass)
	for _, version := range []string{"", "1", "2"} {
		count("/x", version, 200, time.Second, 1, 1)
	}
	r := &rig{Metrics: m}
	h.Closed()
	r.gather(t)
	all := r.gather(t)
	for _, name := range []string{"millrace_goodput_frames_total", "millrace_skipped_frames_total",
		"millrace_batch_rows", "millrace_answered_age_seconds", "http_request_duration_seconds",
		"http_response_size_bytes"} {
		if _, ok := value(all, name, "version", "1"); ok {
			t.Errorf("%s of the version that was unloaded is left", name)
		}
		if _, ok := value(all, name, "version", "2"); !ok {
			t.Errorf("%s of the other version is gone", name)
		}
	}
	want(t, all, 1, "http_request_duration_seconds", "version", "")
}

func TestFiguresOfTraces(t *testing.T) {
	r := &rig{Metrics: New(Options{Traces: func() TraceStats {
		return TraceStats{Kept: map[string]uint64{"slow": 1}, OverLimit: map[string]uint64{"slow": 2}, Unbuilt: 3,
			Exported: 4, Lost: map[string]uint64{"queue_full": 5}, Waiting: 6}
	}})}
	all := r.gather(t)
	want(t, all, 1, "millrace_traces_kept_total", "rule", "slow")
	want(t, all, 2, "millrace_traces_over_limit_total", "rule", "slow")
	want(t, all, 3, "millrace_traces_unbuilt_total")
	want(t, all, 4, "millrace_spans_exported_total")
	want(t, all, 5, "millrace_spans_lost_total", "reason", "queue_full")
	want(t, all, 6, "millrace_spans_waiting")
}

// Loading and unloading models between two scrapes does not grow the scrape without bound, and series of unlisted
// models are removed.
func TestThousandLoads(t *testing.T) {
	var list []workers.GroupStats
	r := &rig{Metrics: New(Options{Groups: func() []workers.GroupStats { return list }})}
	for i := range 1000 {
		model := &stream.Model{Name: "m-" + strconv.Itoa(i), Version: "1"}
		if i >= 1000-maxClosed {
			list = append(list, workers.GroupStats{Model: model, State: workers.StateUnloaded})
		}
		r.Model(model).Closed()
	}
	names := func() int { return len(r.gather(t)["millrace_batch_rows"].GetMetric()) }
	if n := names(); n != maxClosed {
		t.Errorf("%d models have series, want %d", n, maxClosed)
	}
	list = list[:1]
	if n := names(); n != 1 {
		t.Errorf("%d models have series, one is listed", n)
	}
	list = nil
	if n := names(); n != 0 {
		t.Errorf("%d models have series, none is listed", n)
	}
}

func TestFiguresOfMemoryAdaptersAndListeners(t *testing.T) {
	r := &rig{Metrics: New(Options{
		Memory: func() buf.Stats {
			return buf.Stats{Budget: 100, Leased: 11, Reserved: 12, Idle: 13, Leases: 14, Denied: 15}
		},
		Adapters: func() ingest.Metrics {
			return ingest.Metrics{
				OutboxBytes: 21, KeptBytes: 22, Credits: 28, WithoutCredit: 29, Contexts: 30,
				Closed: map[string]uint64{"idle": 23}, StreamEnds: map[string]uint64{"client": 24},
				Goroutines: map[string]int{"ws": 25}, Sessions: map[string]int{"ws": 26},
				Videos: map[string]int{"pulled": 27}, TooSlow: map[string]uint64{"sent": 38},
			}
		},
		Accepted: func() map[string]accept.Stats {
			return map[string]accept.Stats{"http": {Open: 31, Refused: 32, Failed: 33, RefusedAddress: 34,
				RefusedNoFile: 35, Shed: 36}}
		},
		Auth: func() map[string]uint64 { return map[string]uint64{"wrong": 37} },
	})}
	all := r.gather(t)
	for name, v := range map[string]float64{
		"memory_budget_bytes": 100, "memory_leased_bytes": 11, "memory_reserved_bytes": 12, "memory_idle_bytes": 13,
		"memory_leases": 14, "memory_denied_total": 15,
		"outbox_bytes": 21, "kept_bytes": 22, "credits": 28, "streams_without_credit": 29,
		"malformed_trace_contexts_total": 30,
	} {
		want(t, all, v, "millrace_"+name)
	}
	want(t, all, 23, "millrace_sessions_closed_total", "reason", "idle")
	want(t, all, 24, "millrace_streams_closed_total", "reason", "client")
	want(t, all, 25, "millrace_goroutines", "group", "ws")
	want(t, all, 26, "millrace_sessions", "adapter", "ws")
	want(t, all, 27, "millrace_videos", "from", "pulled")
	want(t, all, 38, "millrace_videos_too_slow_total", "from", "sent")
	want(t, all, 31, "millrace_connections", "listener", "http")
	want(t, all, 32, "millrace_connections_refused_total", "listener", "http", "reason", "total")
	want(t, all, 34, "millrace_connections_refused_total", "listener", "http", "reason", "address")
	want(t, all, 35, "millrace_connections_refused_total", "listener", "http", "reason", "descriptors")
	want(t, all, 36, "millrace_connections_shed_total", "listener", "http")
	want(t, all, 33, "millrace_accept_failures_total", "listener", "http")
	want(t, all, 37, "millrace_auth_total", "outcome", "wrong")
}

func TestSizesOfAPIRequests(t *testing.T) {
	m := New(Options{RequestBuckets: []float64{1, 2}})
	r := &rig{Metrics: m}
	count := m.Requests("http", HTTPClass)
	count("/x", "", 200, 250*time.Millisecond, 0, 70)
	count("/x", "", 200, 500*time.Millisecond, 30, 0)
	count("/x", "", 200, 250*time.Millisecond, -1, -1)
	all := r.gather(t)
	wantSum(t, all, 1, "http_request_duration_seconds", "status", "2xx")
	want(t, all, 2, "http_request_size_bytes", "status", "2xx")
	wantSum(t, all, 30, "http_request_size_bytes", "status", "2xx")
	want(t, all, 2, "http_response_size_bytes", "status", "2xx")
	wantSum(t, all, 70, "http_response_size_bytes", "status", "2xx")
	if n := len(all["http_request_duration_seconds"].Metric[0].Histogram.Bucket); n != 3 {
		t.Errorf("%d buckets, want those of the option and the last", n)
	}
}

func TestClassesOfStatuses(t *testing.T) {
	for status, want := range map[int]string{
		99: "other", 100: "1xx", 199: "1xx", 200: "2xx", 302: "3xx", 404: "4xx", 500: "5xx", 599: "5xx", 600: "other",
		-1: "other",
	} {
		if got := HTTPClass(status); got != want {
			t.Errorf("%d is %s, want %s", status, got, want)
		}
	}
	for _, code := range []int{2, 4, 12, 13, 14, 15} {
		if got := GRPCClass(code); got != "server_error" {
			t.Errorf("code %d is %s", code, got)
		}
	}
}

// unreadable is a collector without readable metrics.
type unreadable struct{}

func (unreadable) Describe(chan<- *prometheus.Desc) {}

func (unreadable) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.NewInvalidMetric(prometheus.NewDesc("x", "x", nil, nil), errors.New("out of order"))
}

// Metrics without any readable series are an error; no metrics at all are no error.
func TestNothingThatCanBeRead(t *testing.T) {
	m := &Metrics{registry: prometheus.NewRegistry()}
	if text, _, err := m.Gather(""); err != nil || len(text) != 0 {
		t.Errorf("without metrics: %q, %v", text, err)
	}
	m.registry.MustRegister(unreadable{})
	if text, _, err := m.Gather(""); err == nil || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("without one that can be read: %q, %v", text, err)
	}
}

// The readable series are sent.
func TestOneBadSeriesLeavesTheOthers(t *testing.T) {
	m := New(Options{Version: "v1", Streams: func() streams.Stats {
		return streams.Stats{Streams: []streams.StreamStats{{Name: "twice"}, {Name: "twice"}}}
	}})
	text, _, err := m.Gather("")
	if err != nil || !bytes.Contains(text, []byte(`millrace_build_info{version="v1"} 1`)) {
		t.Errorf("%v in %.200s", err, strings.TrimSpace(string(text)))
	}
}

// A scrape has no family missing in docs/metrics.md.
func TestDocumented(t *testing.T) {
	r := newRig(t)
	r.run(t, r.load(t, "m"), stream.Policy{Mode: stream.Every}, 1)
	r.Requests("http", HTTPClass)("/x", "", 200, time.Second, 1, 1)
	page := Markdown()
	for name := range r.gather(t) {
		if standard := strings.HasPrefix(name, "go_") ||
			strings.HasPrefix(name, "process_"); !standard && !strings.Contains(page, "\n- `"+name+"`") {
			t.Errorf("%s is not documented", name)
		}
	}
}

// With names of another system and chosen buckets, plain text has no further buckets; other formats have all.
func TestOnlyChosenBucketsInPlainText(t *testing.T) {
	names := &RequestNames{Route: [2]string{"handler", ""}, Status: [2]string{"status", ""}, InProgram: "in_program"}
	for _, buckets := range [][]float64{nil, {1, 2}} {
		m := New(Options{RequestBuckets: buckets, Requests: names})
		m.Requests("http", HTTPClass)("/x", "", 200, time.Second, 1, 1)
		m.InProgram()("/x", "2xx", time.Second)
		for _, accept := range []string{"", "application/openmetrics-text"} {
			text, _, err := m.Gather(accept)
			if err != nil {
				t.Fatal(err)
			}
			further := map[string]bool{}
			for _, line := range strings.Split(string(text), "\n") {
				if family, rest, ok := strings.Cut(line, "_bucket{"); ok && !strings.Contains(rest, `le="1.0"`) &&
					!strings.Contains(rest, `le="2.0"`) && !strings.Contains(rest, `le="+Inf"`) {
					further[family] = true
				}
			}
			if only := buckets != nil && accept == ""; only != (len(further) == 0) {
				t.Errorf("buckets %v, %q: further buckets of %v", buckets, accept, further)
			}
			if n := strings.Count(string(text), `request_duration_seconds_bucket{handler="/x",`); buckets != nil && n != 3 {
				t.Errorf("%q: %d buckets of the duration", accept, n)
			}
		}
	}
}
