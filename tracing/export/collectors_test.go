//go:build !notracing

package export_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uber/jaeger-client-go/thrift"
	"github.com/uber/jaeger-client-go/thrift-gen/agent"
	"github.com/uber/jaeger-client-go/thrift-gen/jaeger"
	"github.com/uber/jaeger-client-go/thrift-gen/zipkincore"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"millrace/tracing/export"
)

// freePort returns an unused TCP port.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// lost returns the nonzero counts of lost spans of an exporter.
func lost(e *export.Exporter) map[export.Reason]uint64 {
	m := e.Stats().Lost
	maps.DeleteFunc(m, func(_ export.Reason, n uint64) bool { return n == 0 })
	return m
}

// outcome hands the 4 spans of a frame, changed by change, to an exporter and waits until
// none waits.
func outcome(t *testing.T, cfg export.Config,
	change ...func(*tracetest.SpanStub)) (exported uint64, reasons map[export.Reason]uint64, log string) {
	t.Helper()
	var text bytes.Buffer
	cfg.Delay = time.Millisecond
	e, err := export.New(cfg, slog.New(slog.NewTextHandler(&text, nil)))
	if err != nil {
		t.Fatal(err)
	}
	_, spans := frame(cfg)
	for i := range spans {
		stub := tracetest.SpanStubFromReadOnlySpan(spans[i])
		for _, f := range change {
			f(&stub)
		}
		spans[i] = stub.Snapshot()
	}
	e.Enqueue(spans)
	for e.Stats().Waiting > 0 {
		time.Sleep(time.Millisecond)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return e.Stats().Exported, lost(e), text.String()
}

func large(stub *tracetest.SpanStub) {
	if stub.Name == "part" {
		stub.Attributes = append(stub.Attributes, attribute.String("large", strings.Repeat("x", 100_000)))
	}
}

func invalid(stub *tracetest.SpanStub) {
	if stub.Name == "part" {
		stub.Name = "\xff"
	}
}

// otlpReply returns the body of an answer that rejects n spans.
func otlpReply(n int64) []byte {
	body, _ := proto.Marshal(&coltracepb.ExportTraceServiceResponse{
		PartialSuccess: &coltracepb.ExportTracePartialSuccess{RejectedSpans: n, ErrorMessage: "too old"}})
	return body
}

func TestAnswersOverHTTP(t *testing.T) {
	both := []string{export.OTLPHTTP, export.JaegerCollector}
	answers := func(code int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	for _, c := range []struct {
		name    string
		kinds   []string
		handler http.HandlerFunc
		change  func(*tracetest.SpanStub)
		want    uint64 // exported, of 4
		lost    map[export.Reason]uint64
		log     string
	}{
		{"accepted", both, answers(202, "", ""), nil, 4, nil, ""},
		{"another server", both, answers(200, "text/html", "<html>It works!</html>"), nil, 0,
			map[export.Reason]uint64{export.Refused: 4}, "is not that of a collector"},
		{"no such path", both, answers(404, "text/plain", "no such page"), nil, 0,
			map[export.Reason]uint64{export.Refused: 4}, "404 Not Found"},
		{"not authorised", both, answers(401, "text/plain", ""), nil, 0, map[export.Reason]uint64{export.Refused: 4},
			"401 Unauthorized"},
		{"protobuf that is none", both[:1], answers(200, "application/x-protobuf", "\xff\xff\xff"), nil, 0,
			map[export.Reason]uint64{export.Refused: 4}, "is not that of a collector"},
		{"some rejected", both[:1], answers(200, "application/x-protobuf", string(otlpReply(3))), nil, 1,
			map[export.Reason]uint64{export.Refused: 3}, "too old"},
		{"more rejected than sent", both[:1], answers(200, "application/x-protobuf", string(otlpReply(9))), nil, 0,
			map[export.Reason]uint64{export.Refused: 4}, "too old"},
		{"bodies up to a size", both, func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); len(body) > 50_000 {
				w.WriteHeader(http.StatusRequestEntityTooLarge)
			}
		}, large, 3, map[export.Reason]uint64{export.TooLarge: 1}, "413"},
		{"a span that cannot be encoded", both[:1], answers(200, "", ""), invalid, 3,
			map[export.Reason]uint64{export.Refused: 1}, "UTF-8"},
		{"an endless answer", both, func(w http.ResponseWriter, r *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 10_000)); err != nil {
					return
				}
			}
		}, nil, 0, map[export.Reason]uint64{export.Refused: 4}, "is not that of a collector"},
		{"no answer", both, func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}, nil, 0, map[export.Reason]uint64{export.Failed: 4}, "EOF"},
		{"busy for longer than retry_for", both, answers(503, "", "later"), nil, 0,
			map[export.Reason]uint64{export.Refused: 4}, "503 Service Unavailable"},
	} {
		for _, kind := range c.kinds {
			t.Run(c.name+"/"+kind, func(t *testing.T) {
				server := httptest.NewUnstartedServer(c.handler)
				server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
				server.Start()
				defer server.Close()
				change := func(*tracetest.SpanStub) {}
				if c.change != nil {
					change = c.change
				}
				exported, reasons, log := outcome(t, export.Config{Exporter: kind, Endpoint: server.URL,
					Retry: time.Millisecond}, change)
				if exported != c.want || !maps.Equal(reasons, c.lost) || !strings.Contains(log, c.log) {
					t.Errorf("exported %d, lost %v, want %d, %v; log %q, want %q", exported, reasons, c.want, c.lost,
						log, c.log)
				}
			})
		}
	}
}

func TestBusyCollectorGetsSpansLater(t *testing.T) {
	for _, kind := range []string{export.OTLPHTTP, export.JaegerCollector} {
		var n atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1) < 3 {
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}))
		exported, reasons, _ := outcome(t, export.Config{Exporter: kind, Endpoint: server.URL})
		if exported != 4 || len(reasons) > 0 || n.Load() != 3 {
			t.Errorf("%s: exported %d, lost %v after %d requests", kind, exported, reasons, n.Load())
		}
		server.Close()
	}
}

// A collector with a Retry-After longer than retry_for is not asked again.
func TestRetryAfterIsTheWait(t *testing.T) {
	for _, kind := range []string{export.OTLPHTTP, export.JaegerCollector} {
		var n atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n.Add(1)
			w.Header().Set("Retry-After", "31")
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		exported, reasons, _ := outcome(t, export.Config{Exporter: kind, Endpoint: server.URL})
		if exported != 0 || reasons[export.Refused] != 4 || n.Load() != 1 {
			t.Errorf("%s: exported %d, lost %v after %d requests", kind, exported, reasons, n.Load())
		}
		server.Close()
	}
}

// Headers, which may be secret, go to the endpoint alone, and not into the log.
func TestRedirectsAreNotFollowed(t *testing.T) {
	for _, kind := range []string{export.OTLPHTTP, export.JaegerCollector} {
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			t.Error("the redirect was followed")
		}))
		var token atomic.Value
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			token.Store(r.Header.Get("Authorization"))
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		}))
		exported, reasons, log := outcome(t, export.Config{Exporter: kind, Endpoint: server.URL,
			Headers: []string{"Authorization=Bearer hidden"}})
		if exported != 0 || reasons[export.Refused] != 4 || token.Load() != "Bearer hidden" ||
			strings.Contains(log, "hidden") {
			t.Errorf("%s: exported %d, lost %v, token %q, log %q", kind, exported, reasons, token.Load(), log)
		}
		server.Close()
		other.Close()
	}
}

// Without a collector, or with another server at its address, each span is counted.
func TestNoCollector(t *testing.T) {
	garbage := listen(t, func(c net.Conn) {
		_, _ = c.Write([]byte("220 mail.example ESMTP\r\n"))
		_, _ = io.Copy(io.Discard, c)
	})
	silent := listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := udp.LocalAddr().String()
	_ = udp.Close()
	for _, c := range []struct{ name, endpoint string }{
		{"nothing listens", fmt.Sprintf("127.0.0.1:%d", freePort(t))},
		{"a mail server", garbage},
		{"a server that says nothing", silent},
		{"no such host", "nowhere.invalid:4317"},
	} {
		for _, kind := range []string{export.OTLPGRPC, export.OTLPHTTP, export.JaegerCollector, export.JaegerAgent} {
			endpoint := c.endpoint
			if kind == export.JaegerAgent {
				if endpoint = nobody; c.name == "no such host" {
					endpoint = c.endpoint
				}
			}
			t.Run(c.name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				exported, reasons, log := outcome(t, export.Config{Exporter: kind, Endpoint: endpoint,
					Retry: time.Millisecond, Timeout: 100 * time.Millisecond})
				if exported != 0 || !maps.Equal(reasons, map[export.Reason]uint64{export.Failed: 4}) {
					t.Errorf("exported %d, lost %v", exported, reasons)
				}
				if !strings.Contains(log, "check that a collector runs at tracing.endpoint") {
					t.Errorf("log %q", log)
				}
			})
		}
	}
}

// listen serves connections until the test ends, and returns the address.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-accepted })
	return l.Addr().String()
}

// traceServer is an OTLP server over gRPC with answers chosen by the test.
type traceServer struct {
	coltracepb.UnimplementedTraceServiceServer
	answer func(ctx context.Context, r *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse,
		error)
}

func (s *traceServer) Export(ctx context.Context,
	r *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	return s.answer(ctx, r)
}

func serveGRPC(t *testing.T, s *traceServer, options ...grpc.ServerOption) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	if s != nil {
		coltracepb.RegisterTraceServiceServer(server, s)
	}
	ended := make(chan struct{})
	go func() { _ = server.Serve(l); close(ended) }()
	t.Cleanup(func() { server.Stop(); <-ended })
	return l.Addr().String()
}

func TestAnswersOverGRPC(t *testing.T) {
	says := func(err error) *traceServer {
		return &traceServer{answer: func(context.Context,
			*coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
			return &coltracepb.ExportTraceServiceResponse{}, err
		}}
	}
	for _, c := range []struct {
		name    string
		server  *traceServer
		options []grpc.ServerOption
		change  func(*tracetest.SpanStub)
		want    uint64 // exported, of 4
		lost    map[export.Reason]uint64
		log     string
	}{
		{name: "accepted", server: says(nil), want: 4},
		{name: "another service", lost: map[export.Reason]uint64{export.Refused: 4}, log: "Unimplemented"},
		{name: "not authorised", server: says(status.Error(codes.Unauthenticated, "no token")),
			lost: map[export.Reason]uint64{export.Refused: 4}, log: "no token"},
		{name: "full", server: says(status.Error(codes.ResourceExhausted, "quota")),
			lost: map[export.Reason]uint64{export.Refused: 4}, log: "quota"},
		{name: "busy for longer than retry_for", server: says(status.Error(codes.Unavailable, "later")),
			lost: map[export.Reason]uint64{export.Failed: 4}, log: "later"},
		{name: "some rejected", server: &traceServer{answer: func(context.Context,
			*coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
			return &coltracepb.ExportTraceServiceResponse{PartialSuccess: &coltracepb.ExportTracePartialSuccess{
				RejectedSpans: 3, ErrorMessage: "too old"}}, nil
		}}, want: 1, lost: map[export.Reason]uint64{export.Refused: 3}, log: "too old"},
		{name: "a warning", server: &traceServer{answer: func(context.Context,
			*coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
			return &coltracepb.ExportTraceServiceResponse{PartialSuccess: &coltracepb.ExportTracePartialSuccess{
				ErrorMessage: "deprecated"}}, nil
		}}, want: 4},
		{name: "messages up to a size", server: says(nil), options: []grpc.ServerOption{grpc.MaxRecvMsgSize(50_000)},
			change: large, want: 3, lost: map[export.Reason]uint64{export.TooLarge: 1}, log: "larger than max"},
		{name: "a span that cannot be encoded", server: says(nil), change: invalid, want: 3,
			lost: map[export.Reason]uint64{export.Refused: 1}, log: "UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			change := func(*tracetest.SpanStub) {}
			if c.change != nil {
				change = c.change
			}
			exported, reasons, log := outcome(t, export.Config{Exporter: export.OTLPGRPC,
				Endpoint: serveGRPC(t, c.server, c.options...), Retry: time.Millisecond}, change)
			if exported != c.want || !maps.Equal(reasons, c.lost) || !strings.Contains(log, c.log) {
				t.Errorf("exported %d, lost %v, want %d, %v; log %q, want %q", exported, reasons, c.want, c.lost, log,
					c.log)
			}
		})
	}
}

// A busy collector gets the spans again at the time of its retry delay, with the configured headers.
func TestBusyCollectorOverGRPC(t *testing.T) {
	var n atomic.Int64
	var token atomic.Value
	server := serveGRPC(t, &traceServer{answer: func(ctx context.Context,
		_ *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		token.Store(strings.Join(md.Get("authorization"), " "))
		if n.Add(1) == 1 {
			s, err := status.New(codes.ResourceExhausted,
				"full").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)})
			if err != nil {
				t.Error(err)
			}
			return nil, s.Err()
		}
		return &coltracepb.ExportTraceServiceResponse{}, nil
	}})
	exported, reasons, _ := outcome(t, export.Config{Exporter: export.OTLPGRPC, Endpoint: server,
		Headers: []string{"Authorization=Bearer hidden"}})
	if exported != 4 || len(reasons) > 0 || n.Load() != 2 || token.Load() != "Bearer hidden" {
		t.Errorf("exported %d, lost %v after %d messages with the token %q", exported, reasons, n.Load(), token.Load())
	}
}

// packets counts the packets of a Jaeger agent.
type packets struct{ spans []*jaeger.Span }

func (p *packets) EmitBatch(_ context.Context, b *jaeger.Batch) error {
	p.spans = append(p.spans, b.Spans...)
	return nil
}

func (p *packets) EmitZipkinBatch(context.Context, []*zipkincore.Span) error { return nil }

// No packet is larger than packet_size, and together the packets contain all spans, each once and in order.
func TestPacketsAreBounded(t *testing.T) {
	for _, size := range []int{1000, 1999, 65000} {
		conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadBuffer(1 << 20)
		cfg := export.Config{Exporter: export.JaegerAgent, Endpoint: conn.LocalAddr().String(), Packet: size}
		e, err := export.New(cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		stubs := make(tracetest.SpanStubs, 100)
		for i := range stubs {
			stubs[i] = tracetest.SpanStub{Name: fmt.Sprint(i), SpanContext: newSpan(newID()),
				Resource:   cfg.Resource("1"),
				Attributes: []attribute.KeyValue{attribute.String("a", strings.Repeat("x", i*7))}}
		}
		tooLarge := stubs[99]
		tooLarge.Attributes = []attribute.KeyValue{attribute.String("a", strings.Repeat("x", size))}
		e.Enqueue(append(stubs.Snapshots(), tooLarge.Snapshot()))
		_ = e.Close(t.Context())
		if s := e.Stats(); s.Exported != 100 || s.Lost[export.TooLarge] != 1 {
			t.Errorf("%d: %+v", size, s)
		}
		var got packets
		handler := agent.NewAgentProcessor(&got)
		buf := make([]byte, 1<<16)
		for n := 0; len(got.spans) < 100; n++ {
			_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
			k, err := conn.Read(buf)
			if err != nil {
				t.Fatalf("%d: after %d packets with %d spans: %v", size, n, len(got.spans), err)
			}
			if k > size {
				t.Errorf("a packet has %d bytes, want at most %d", k, size)
			}
			memory := thrift.NewTMemoryBufferLen(k)
			memory.Write(buf[:k])
			protocol := thrift.NewTCompactProtocolFactoryConf(nil).GetProtocol(memory)
			if _, err := handler.Process(t.Context(), protocol, protocol); err != nil {
				t.Fatal(err)
			}
		}
		for i, s := range got.spans {
			if s.OperationName != fmt.Sprint(i) {
				t.Fatalf("%d: span %d is %s", size, i, s.OperationName)
			}
		}
		_ = conn.Close()
	}
}

// TestStdout: each span is a line of JSON.
func TestStdout(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	old := os.Stdout
	os.Stdout = w
	cfg := export.Config{Exporter: export.Stdout}
	e, err := export.New(cfg, slog.New(slog.DiscardHandler))
	os.Stdout = old
	if err != nil {
		t.Fatal(err)
	}
	_, spans := frame(cfg)
	e.Enqueue(spans)
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
	_ = w.Close()
	var names []string
	for d := json.NewDecoder(r); ; {
		var span struct{ Name string }
		if err := d.Decode(&span); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		names = append(names, span.Name)
	}
	if got := strings.Join(names, " "); got != "root wait run part" {
		t.Errorf("spans %q", got)
	}
}

// Enqueue returns although nobody reads standard output, and Close returns with its context.
func TestBlockedStdoutSlowsNothing(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stdout
	os.Stdout = w
	cfg := export.Config{Exporter: export.Stdout, QueueSize: 100, BatchSize: 100}
	e, err := export.New(cfg, slog.New(slog.DiscardHandler))
	os.Stdout = old
	if err != nil {
		t.Fatal(err)
	}
	_, spans := frame(cfg)
	for i := range spans {
		stub := tracetest.SpanStubFromReadOnlySpan(spans[i])
		stub.Attributes = append(stub.Attributes, attribute.String("large", strings.Repeat("x", 50_000)))
		spans[i] = stub.Snapshot()
	}
	for range 50 {
		e.Enqueue(spans)
	}
	if _, err := r.Read(make([]byte, 1)); err != nil { // the sender is writing, and blocks when the pipe is full
		t.Fatal(err)
	}
	s := e.Stats()
	if s.Exported != 0 || s.Waiting != 100 || s.Lost[export.QueueFull] != 100 {
		t.Errorf("%+v", s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Close(ctx); err == nil {
		t.Error("Close says that the exporter has stopped")
	}
	_ = r.Close() // ends the write
	for e.Stats().Waiting > 0 {
		time.Sleep(time.Millisecond)
	}
	if s := e.Stats(); s.Exported+s.Lost[export.Failed]+s.Lost[export.Closed] != 100 {
		t.Errorf("%+v", s)
	}
	_ = w.Close()
}

// authority signs certificates of a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // PEM
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, _ = x509.ParseCertificate(der)
	a.file = write(t, "CERTIFICATE", der)
	return a
}

// issue returns the files of a certificate for 127.0.0.1 and its key.
func (a *authority) issue(t *testing.T) (cert, key string) {
	t.Helper()
	k, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "peer"},
		NotAfter:    time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth,
			x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &k.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, _ := x509.MarshalPKCS8PrivateKey(k)
	return write(t, "CERTIFICATE", der), write(t, "PRIVATE KEY", private)
}

func write(t *testing.T, kind string, der []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file.pem")
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// With the configured authority and certificate, spans arrive over TLS; without, spans count as failed, and the log
// contains the reason.
func TestTLS(t *testing.T) {
	trusted, other := newAuthority(t), newAuthority(t)
	cert, key := trusted.issue(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(trusted.cert)
	// With TLS 1.3 a client learns after the handshake that its certificate is missing, and a write may fail earlier.
	// With TLS 1.2 the handshake fails, and the log always contains the reason.
	conf := &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: clients,
		ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12,
		MaxVersion: tls.VersionTLS12}
	overHTTP := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	overHTTP.TLS = conf.Clone()
	overHTTP.TLS.NextProtos = nil
	overHTTP.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	overHTTP.StartTLS()
	defer overHTTP.Close()
	overGRPC := serveGRPC(t, &traceServer{answer: func(context.Context,
		*coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
		return &coltracepb.ExportTraceServiceResponse{}, nil
	}}, grpc.Creds(credentials.NewTLS(conf)))
	for kind, endpoint := range map[string]string{export.OTLPHTTP: overHTTP.URL, export.JaegerCollector: overHTTP.URL,
		export.OTLPGRPC: "https://" + overGRPC} {
		for _, c := range []struct {
			name string
			tls  export.TLS
			log  string // of the failure; "" = it works
		}{
			{"its authority and a certificate", export.TLS{CA: trusted.file, Cert: cert, Key: key}, ""},
			{"not verified", export.TLS{Insecure: true, Cert: cert, Key: key}, ""},
			{"another authority", export.TLS{CA: other.file, Cert: cert, Key: key},
				"certificate signed by unknown authority"},
			{"the authorities of the system", export.TLS{Cert: cert, Key: key},
				"certificate signed by unknown authority"},
			{"without a certificate", export.TLS{CA: trusted.file}, "remote error: tls: handshake failure"},
		} {
			exported, reasons, log := outcome(t, export.Config{Exporter: kind, Endpoint: endpoint, TLS: c.tls,
				Retry: time.Millisecond})
			switch {
			case c.log == "" && (exported != 4 || len(reasons) > 0):
				t.Errorf("%s, %s: exported %d, lost %v, log %q", kind, c.name, exported, reasons, log)
			case c.log != "" && (exported != 0 || reasons[export.Failed] != 4):
				t.Errorf("%s, %s: exported %d, lost %v", kind, c.name, exported, reasons)
			case c.log != "" && !strings.Contains(log, c.log):
				t.Errorf("%s, %s: log %q, want %q", kind, c.name, log, c.log)
			}
		}
	}
}
