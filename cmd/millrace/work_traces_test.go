//go:build !notracing

package main

import (
	"context"
	"encoding/hex"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// collector is an OTLP collector.
type collector struct {
	coltracepb.UnimplementedTraceServiceServer

	mu    sync.Mutex
	spans []*tracepb.Span
}

func (c *collector) Export(_ context.Context,
	r *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	return &coltracepb.ExportTraceServiceResponse{}, nil
}

// child waits for a span of a trace with a parent, and returns its id.
func (c *collector) child(t *testing.T, trace, name, parent string) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		c.mu.Lock()
		for _, s := range c.spans {
			if s.Name == name && hex.EncodeToString(s.TraceId) == trace &&
				hex.EncodeToString(s.ParentSpanId) == parent {
				c.mu.Unlock()
				return hex.EncodeToString(s.SpanId)
			}
		}
		c.mu.Unlock()
	}
	t.Fatalf("the collector has no span %s with the parent %q in the trace %s", name, parent, trace)
	return ""
}

// TestWorkTraces: a collector gets the spans of a task from two processes, the server with the submission and the
// consumer with the attempt and the frame, as one trace.
func TestWorkTraces(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	to, peer := &collector{}, grpc.NewServer()
	coltracepb.RegisterTraceServiceServer(peer, to)
	ended := make(chan struct{})
	go func() { _ = peer.Serve(l); close(ended) }()
	t.Cleanup(func() { peer.Stop(); <-ended })
	flags := []string{"--tracing-exporter", "otlp-grpc", "--tracing-endpoint", "http://" + l.Addr().String(),
		"--tracing-ratio", "1"}
	check := func(f *farm) {
		t.Helper()
		task := f.finished(f.submit("echo").ID)
		trace := strings.Split(task.Traceparent+"--", "-")[1]
		root := to.child(t, trace, "task echo", to.child(t, trace, "submit echo", ""))
		to.child(t, trace, "wait", root)
		to.child(t, trace, "rest echo", to.child(t, trace, "attempt", root))
	}

	f := newFarm(t, flags...)
	f.work("a", "1s", flags...)
	check(f)

	shared := append([]string{"--nats", natsAddress(t), "--nats-user", "tasks", "--nats-password", "a password"},
		flags...)
	f = newFarm(t, shared...)
	begin(t, command(t, append([]string{"work", "--data", f.data, "--consumer", "b", "--model", "echo=identity"},
		shared...)...)).until("millrace works")
	check(f)
}
