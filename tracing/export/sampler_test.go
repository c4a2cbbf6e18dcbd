//go:build !notracing

package export_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"millrace/tracing/export"
)

// guarded is a buffer that a sampler's goroutine may write while a test reads.
type guarded struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (g *guarded) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.buf.Write(b)
}

func (g *guarded) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.buf.String()
}

// An invalid strategy changes nothing, and is logged.
func TestSamplerKeepsItsStrategy(t *testing.T) {
	const never = `{"probabilisticSampling": {"samplingRate": 0}}`
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		log    string
	}{
		{"an error with a strategy", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(never))
		}, "404 Not Found"},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/", http.StatusFound)
		}, "302 Found"},
		{"a page", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("<html>"))
		}, "failed to parse"},
		{"an empty object", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("{}"))
		}, "unsupported sampling strategy"},
		{"an endless answer", func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write([]byte(strings.Repeat(" ", 10_000))); err != nil {
					return
				}
			}
		}, "failed to parse"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(c.answer)
			defer server.Close()
			log := &guarded{}
			s, err := export.NewRemoteSampler(export.Config{SamplerEndpoint: server.URL, Timeout: time.Minute},
				sdktrace.AlwaysSample(), slog.New(slog.NewTextHandler(log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			s.UpdateSampler()
			if d := s.ShouldSample(sdktrace.SamplingParameters{ParentContext: t.Context(),
				TraceID: newID()}).Decision; d != sdktrace.RecordAndSample {
				t.Errorf("decision %v", d)
			}
			s.Close()
			if !strings.Contains(log.String(), c.log) {
				t.Errorf("log %q, want %q", log, c.log)
			}
		})
	}
}

// Close ends an unanswered request.
func TestClosedSamplerDoesNotWaitForItsServer(t *testing.T) {
	asked := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer server.Close()
	s, err := export.NewRemoteSampler(export.Config{SamplerEndpoint: server.URL, Timeout: 5 * time.Minute},
		sdktrace.AlwaysSample(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	s.Close() // or the test times out
}

func TestWrongSamplerEndpoint(t *testing.T) {
	if _, err := export.NewRemoteSampler(export.Config{SamplerEndpoint: "127.0.0.1:5778"}, sdktrace.AlwaysSample(),
		slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "tracing.sampler_endpoint") {
		t.Errorf("%v", err)
	}
}
