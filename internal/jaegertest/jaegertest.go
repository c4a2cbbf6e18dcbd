// Package jaegertest builds and runs a Jaeger for tests, and reads traces from Jaeger's query API.
//
// The package owns the program, its configuration and its ports, all on 127.0.0.1. The package must not know how
// spans are made or sent.
package jaegertest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/internal/child"
	"millrace/internal/testbuild"
)

// Server is a running Jaeger, with its addresses as HOST:PORT.
type Server struct {
	OTLPGRPC, OTLPHTTP string
	Collector          string // thrift over HTTP, at /api/traces
	Agent              string // compact thrift over UDP
	Query              string // API and page
	Sampling           string // at /sampling

	client http.Client
}

// Options change how a Jaeger runs.
type Options struct {
	// Strategies is the file of sampling strategies; "" samples everything.
	Strategies string
	// UI is the folder of the built page; "" is the module's placeholder.
	UI string
	// Ports are the ports of Server's addresses in their order; a missing or 0 port means a free port.
	Ports [6]int
}

// config is the configuration, for the ports of a Server in their order and then the path
// of the strategies and the settings of the page.
const config = `
service:
  extensions: [jaeger_storage, jaeger_query, remote_sampling]
  pipelines:
    traces: {receivers: [otlp, jaeger], exporters: [jaeger_storage_exporter]}
  telemetry:
    metrics: {level: none}
extensions:
  jaeger_storage:
    backends: {memory: {memory: {max_traces: 100000}}}
  jaeger_query:
    storage: {traces: memory}
    http: {endpoint: "%[5]s"}
    grpc: {endpoint: "127.0.0.1:0"}
    ui: {%[8]s}
  remote_sampling:
    file: {path: %[7]q, reload_interval: 1s}
    http: {endpoint: "%[6]s"}
    grpc: {endpoint: "127.0.0.1:0"}
receivers:
  otlp:
    protocols:
      grpc: {endpoint: "%[1]s"}
      http: {endpoint: "%[2]s"}
  jaeger:
    protocols:
      thrift_http: {endpoint: "%[3]s"}
      thrift_compact: {endpoint: "%[4]s"}
exporters:
  jaeger_storage_exporter: {trace_storage: memory}
`

// everything samples all traces.
const everything = `{"default_strategy": {"type": "probabilistic", "param": 1}}`

// Start runs a Jaeger until the test ends. Under -short the test is skipped: building Jaeger takes minutes.
func Start(t testing.TB, options Options) *Server {
	t.Helper()
	path := testbuild.Peer(t, "jaeger")
	// Another program may take a port between its choice and its use.
	for range 5 {
		s, process, err := run(t, path, options)
		if err == nil {
			t.Cleanup(func() {
				s.client.CloseIdleConnections()
				_ = process.Stop(0) // Jaeger stores traces only in memory
			})
			return s
		}
		t.Log(err)
		if !strings.Contains(err.Error(), "address already in use") {
			break
		}
	}
	t.Fatal("Jaeger did not start")
	return nil
}

func run(t testing.TB, path string, options Options) (*Server, *child.Process, error) {
	t.Helper()
	s := &Server{}
	for i, a := range []*string{&s.OTLPGRPC, &s.OTLPHTTP, &s.Collector, &s.Agent, &s.Query, &s.Sampling} {
		if port := options.Ports[i]; port != 0 {
			*a = fmt.Sprintf("127.0.0.1:%d", port)
		} else {
			*a = free(t, a == &s.Agent)
		}
	}
	if options.Strategies == "" {
		options.Strategies = everything
	}
	page := ""
	if options.UI != "" {
		page = fmt.Sprintf("assets_path: %q", options.UI)
	}
	dir := t.TempDir()
	strategies, file := filepath.Join(dir, "strategies.json"), filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf(config, s.OTLPGRPC, s.OTLPHTTP, s.Collector, s.Agent, s.Query, s.Sampling, strategies, page)
	for name, content := range map[string]string{strategies: options.Strategies, file: text} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ready := make(chan struct{})
	process, err := child.Start(context.Background(), child.Spec{Path: path, Args: []string{"--config", file},
		OnStderr: func(line []byte) {
			if strings.Contains(string(line), "Everything is ready") {
				close(ready)
			}
		}})
	if err != nil {
		return nil, nil, err
	}
	select {
	case <-ready:
		return s, process, nil
	case <-process.Done():
		return nil, nil, fmt.Errorf("%w\n%s", process.Wait(), process.Stderr())
	}
}

// free returns an unused address.
func free(t testing.TB, udp bool) string {
	t.Helper()
	if udp {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.LocalAddr().String()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Trace is a trace as stored by Jaeger.
type Trace struct {
	ID    string
	Spans []Span
}

// Span is a span of a trace. Times are microseconds.
type Span struct {
	TraceID, ID string
	Parent      string // id of the parent span; "" = none
	Name        string
	Start, End  int64 // since 1970
	Tags        map[string]any
	Links       []Link
	Events      []map[string]any
	Service     string
	Resource    map[string]any
	Warnings    []string
}

// Link is a reference to a span of this or another trace.
type Link struct{ TraceID, SpanID string }

// Span returns the span with the name, and whether there is exactly one.
func (t Trace) Span(name string) (found Span, ok bool) {
	n := 0
	for _, s := range t.Spans {
		if s.Name == name {
			found = s
			n++
		}
	}
	return found, n == 1
}

type keyValue struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
}

func toMap(list []keyValue) map[string]any {
	m := make(map[string]any, len(list))
	for _, kv := range list {
		m[kv.Key] = kv.Value
	}
	return m
}

type reply struct {
	Data []struct {
		TraceID string `json:"traceID"`
		Spans   []struct {
			TraceID    string `json:"traceID"`
			SpanID     string `json:"spanID"`
			Name       string `json:"operationName"`
			Start      int64  `json:"startTime"`
			Duration   int64  `json:"duration"`
			References []struct {
				Type    string `json:"refType"`
				TraceID string `json:"traceID"`
				SpanID  string `json:"spanID"`
			} `json:"references"`
			Tags []keyValue `json:"tags"`
			Logs []struct {
				Fields []keyValue `json:"fields"`
			} `json:"logs"`
			Process  string   `json:"processID"`
			Warnings []string `json:"warnings"`
		} `json:"spans"`
		Processes map[string]struct {
			Service string     `json:"serviceName"`
			Tags    []keyValue `json:"tags"`
		} `json:"processes"`
	} `json:"data"`
	Errors []struct {
		Code int    `json:"code"`
		Msg  string `json:"msg"`
	} `json:"errors"`
}

// Traces returns the traces of a service, of the last hour.
func (s *Server) Traces(t testing.TB, service string) []Trace {
	t.Helper()
	now := time.Now()
	query := url.Values{"service": {service}, "limit": {"100000"},
		"start": {fmt.Sprint(now.Add(-time.Hour).UnixMicro())}, "end": {fmt.Sprint(now.Add(time.Hour).UnixMicro())}}
	return s.get(t, "/api/traces?"+query.Encode())
}

// Trace returns a trace by its id in hexadecimal digits, and whether Jaeger has the trace.
func (s *Server) Trace(t testing.TB, id string) (Trace, bool) {
	t.Helper()
	if traces := s.get(t, "/api/traces/"+id); len(traces) == 1 {
		return traces[0], true
	}
	return Trace{}, false
}

// Wait returns a trace when Jaeger has the given number of its spans.
func (s *Server) Wait(t testing.TB, id string, spans int) Trace {
	t.Helper()
	var last Trace
	for range 600 {
		trace, ok := s.Trace(t, id)
		if ok && len(trace.Spans) >= spans {
			return trace
		}
		last = trace
		time.Sleep(50 * time.Millisecond) // another program's state is asked for
	}
	t.Fatalf("Jaeger has %d of %d spans of the trace %s: %+v", len(last.Spans), spans, id, last)
	return Trace{}
}

func (s *Server) get(t testing.TB, path string) []Trace {
	t.Helper()
	answer, err := s.client.Get("http://" + s.Query + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var r reply
	if err := json.NewDecoder(answer.Body).Decode(&r); err != nil {
		t.Fatalf("%s: %s: %v", path, answer.Status, err)
	}
	if answer.StatusCode == http.StatusNotFound {
		return nil
	}
	if answer.StatusCode != http.StatusOK || len(r.Errors) > 0 {
		t.Fatalf("%s: %s: %v", path, answer.Status, r.Errors)
	}
	var traces []Trace
	for _, d := range r.Data {
		trace := Trace{ID: d.TraceID}
		for _, span := range d.Spans {
			process := d.Processes[span.Process]
			got := Span{
				TraceID: span.TraceID, ID: span.SpanID, Name: span.Name, Start: span.Start,
				End:  span.Start + span.Duration,
				Tags: toMap(span.Tags), Service: process.Service, Resource: toMap(process.Tags),
				Warnings: span.Warnings,
			}
			for _, ref := range span.References {
				if ref.Type == "CHILD_OF" && ref.TraceID == span.TraceID && got.Parent == "" {
					got.Parent = ref.SpanID
				} else {
					got.Links = append(got.Links, Link{ref.TraceID, ref.SpanID})
				}
			}
			for _, log := range span.Logs {
				got.Events = append(got.Events, toMap(log.Fields))
			}
			trace.Spans = append(trace.Spans, got)
		}
		traces = append(traces, trace)
	}
	return traces
}
