//go:build !notracing && !nometrics

package service_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"millrace/internal/servertest"
	"millrace/server"
)

// samples returns the sums of the metrics of a server over their labels, but for reason.
func samples(t *testing.T, s *server.Server) map[string]float64 {
	t.Helper()
	_, text := servertest.Get(t, s, "/metrics")
	sums := map[string]float64{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		var v float64
		if _, err := fmt.Sscan(value, &v); !ok || err != nil || strings.HasPrefix(line, "#") {
			continue
		}
		family, labels, _ := strings.Cut(name, "{")
		if _, reason, found := strings.Cut(labels, `reason="`); found {
			sums[family+" "+strings.TrimSuffix(reason, `"}`)] += v
		}
		sums[family] += v
	}
	return sums
}

// TestCollectorsThatFail: whatever is at tracing.endpoint, every frame is answered, and the
// spans of all kept frames are exported or counted as lost, each once.
func TestCollectorsThatFail(t *testing.T) {
	if testing.Short() {
		t.Skip("a dozen servers are run without -short only")
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes connections, nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	down, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := down.Addr().String()
	_ = down.Close()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "<html>It works!</html>")
	}))
	defer page.Close()
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer busy.Close()
	good := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	defer good.Close()
	for _, c := range []struct {
		name, exporter, endpoint string
		queue                    string
		reasons                  string // for which spans are lost; "" = all are exported
	}{
		{"a collector", "otlp-http", good.URL, "65536", ""},
		{"down", "otlp-grpc", nobody, "65536", "failed"},
		{"down", "otlp-http", nobody, "65536", "failed"},
		{"down", "jaeger-collector", nobody, "65536", "failed"},
		{"down", "jaeger-agent", nobody, "65536", "failed"},
		{"slow", "otlp-grpc", silent.Addr().String(), "65536", "failed"},
		{"slow", "otlp-http", silent.Addr().String(), "65536", "failed"},
		{"slow and full", "jaeger-collector", silent.Addr().String(), "100", "failed queue_full"},
		{"a web server", "otlp-http", page.URL, "65536", "refused"},
		{"a web server", "otlp-grpc", page.URL, "65536", "failed refused"},
		{"a web server", "jaeger-collector", page.URL, "65536", "refused"},
		{"busy", "otlp-http", busy.URL, "65536", "refused"},
	} {
		t.Run(c.name+"/"+c.exporter, func(t *testing.T) {
			const frames = 200
			s, end := servertest.RunWith(t, traced(t, "exporter", c.exporter, "endpoint", c.endpoint, "queue_size",
				c.queue,
				"batch_size", "100", "batch_delay", "10ms",
				"export_timeout", "100ms", "retry_for", "1ms", "sampler", "ratio", "ratio", "1", "max_rate", "1000000",
				"slow", "0", "shown", "4096"))
			body := []byte(`{"inputs":[{"name":"x","datatype":"INT32","shape":[1],"data":[7]}]}`)
			for range frames {
				posted(t, s, "echo", "application/json", body, "") // fails the test without a result
			}
			// The number of built spans: the shown spans, and one span for each batch.
			built := func() (n float64) {
				var kept struct{ Traces []struct{ Spans []struct{} } }
				_, text := servertest.Get(t, s, "/v2/traces?limit=1000")
				if err := json.Unmarshal([]byte(text), &kept); err != nil {
					t.Fatal(err)
				}
				for _, trace := range kept.Traces {
					n += float64(len(trace.Spans))
				}
				if len(kept.Traces) < frames {
					return -1
				}
				return n + frames
			}
			var m map[string]float64
			for range 3000 {
				m = samples(t, s)
				if n := built(); n > 0 && m["millrace_spans_waiting"] == 0 && m["millrace_spans_exported_total"]+
					m["millrace_spans_lost_total"] >= n {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			want, exported, lost := built(), m["millrace_spans_exported_total"], m["millrace_spans_lost_total"]
			if exported+lost != want || m["millrace_spans_waiting"] != 0 || m["millrace_traces_unbuilt_total"] != 0 {
				t.Errorf("%v spans were exported, %v lost, %v wait; %v were built", exported, lost,
					m["millrace_spans_waiting"], want)
			}
			named := 0.0
			for _, reason := range strings.Fields(c.reasons) {
				named += m["millrace_spans_lost_total "+reason]
			}
			if c.reasons == "" && lost != 0 || c.reasons != "" && (exported != 0 || named != lost) {
				t.Errorf("%v spans were exported, %v lost, of those %v for the reasons %q: %v", exported, lost, named,
					c.reasons, m)
			}
			if n := m["millrace_frames_total"]; n != frames {
				t.Errorf("%v frames, want %d", n, frames)
			}
			if err := end(); err != nil {
				t.Error(err)
			}
		})
	}
}
