//go:build !nometrics

package tracing

import (
	"context"
	"fmt"
	"testing"
	"time"

	"millrace/ingest/sinks"
	"millrace/ingest/sources"
	"millrace/ingest/streams"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

// manyStreams returns Metrics of a model with n open streams, and of n server streams.
func manyStreams(t testing.TB, n int) *Metrics {
	t.Helper()
	mem := buf.NewPool(0)
	var m *Metrics
	manager := workers.NewManager(workers.ManagerOptions{Memory: mem, Hooks: func(model *stream.Model) workers.Hooks {
		return m.Model(model)
	}})
	t.Cleanup(func() { _ = manager.Close(context.Background()) })
	st := streams.Stats{}
	for i := range n {
		st.Streams = append(st.Streams, streams.StreamStats{
			Name: fmt.Sprintf("camera-%05d", i), ID: uint64(i), State: sources.Running,
			Totals: streams.Totals{Frames: 1 << 31},
			Models: []streams.ModelStats{{Model: "m", Answered: 1 << 30, Aged: 1 << 30, Age: time.Hour,
				Last: time.Now(), Drops: map[stream.Reason]uint64{stream.Stale: 1 << 20}}},
			Sinks: map[string]sinks.Stats{"file": {Sent: 1 << 30}},
		})
	}
	m = New(Options{Groups: manager.Stats, Memory: mem.Stats, Streams: func() streams.Stats { return st }})
	if _, err := manager.LoadConfig(t.Context(), workers.Config{Name: "m", Kind: "identity", MaxFlows: n + 1},
		true); err != nil {
		t.Fatal(err)
	}
	g, err := manager.Group("m", "")
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		s, err := g.Open(stream.Options{}, drain{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close(stream.ByClient) })
	}
	return m
}

// The metrics of 10,000 streams of clients and 10,000 server streams are less than 5 MB. BenchmarkScrape measures the
// time.
func TestSizeOfAScrape(t *testing.T) {
	m := manyStreams(t, 10_000)
	text, _, err := m.Gather("")
	if err != nil || len(text) > 5_000_000 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	t.Logf("%d bytes", len(text))
}

func BenchmarkScrape(b *testing.B) {
	m := manyStreams(b, 10_000)
	for name, accept := range map[string]string{"text": "",
		"protobuf": "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"} {
		b.Run(name, func(b *testing.B) {
			size := 0
			for b.Loop() {
				text, _, err := m.Gather(accept)
				if err != nil {
					b.Fatal(err)
				}
				size = len(text)
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}
