//go:build !notracing

package export

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// newSender returns the sender for cfg, which must be valid. The sender connects later.
func newSender(cfg Config) (sender, error) {
	endpoint, err := cfg.endpoint()
	if err != nil {
		return nil, err
	}
	headers, err := cfg.headers()
	if err != nil {
		return nil, err
	}
	encryption, err := cfg.tlsConfig()
	if err != nil {
		return nil, err
	}
	switch cfg.Exporter {
	case OTLPGRPC:
		return newOTLPGRPC(cfg, endpoint, headers, encryption)
	case OTLPHTTP:
		return newOTLPHTTP(cfg, endpoint, headers, encryption)
	case JaegerAgent:
		return newAgent(address(endpoint), cfg.Packet), nil
	case JaegerCollector:
		return &collector{url: endpoint.String(), headers: headers, client: newHTTPClient(encryption)}, nil
	case Stdout:
		return stdouttrace.New(stdouttrace.WithWriter(os.Stdout))
	}
	return nil, fmt.Errorf("tracing.exporter %q is not implemented", cfg.Exporter)
}

// asFailure returns the failure in the error of a sender; nil if the batch was exported.
func asFailure(ctx context.Context, err error) *failure {
	if err == nil {
		return nil
	}
	if f := (*failure)(nil); errors.As(err, &f) {
		return f
	}
	// The collector may have taken an interrupted batch, so the batch is not sent again.
	return &failure{err: err, reason: Failed, retry: ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded)}
}

// rejected is the failure of a batch from which the collector rejected n spans.
func rejected(p *coltracepb.ExportTracePartialSuccess) error {
	n := p.GetRejectedSpans()
	if n <= 0 {
		return nil // the message is a warning
	}
	return &failure{err: fmt.Errorf("the collector did not take %d spans: %.300s", n, p.GetErrorMessage()),
		reason: Refused, lost: map[Reason]int{Refused: int(n)}}
}

// otlp is an exporter of the SDK. The SDK's errors do not tell the fate of the spans; otlp replaces each error
// according to the observed answer.
type otlp struct {
	*otlptrace.Exporter
	closeConn func() error
	outcome   func(err error) error
}

func (o *otlp) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	return o.outcome(o.Exporter.ExportSpans(ctx, spans))
}

func (o *otlp) Shutdown(ctx context.Context) error {
	return errors.Join(o.Exporter.Shutdown(ctx), o.closeConn())
}

// newOTLPGRPC returns a sender by OTLP over gRPC. The package makes the connection, so that encryption and waits
// depend on the settings alone.
func newOTLPGRPC(cfg Config, endpoint *url.URL, headers map[string]string, encryption *tls.Config) (sender, error) {
	creds := insecure.NewCredentials()
	if encryption != nil {
		creds = credentials.NewTLS(encryption)
	}
	var answer *coltracepb.ExportTraceServiceResponse // to the newest batch; batches are sent one at a time
	conn, err := grpc.NewClient(address(endpoint),
		grpc.WithTransportCredentials(creds),
		// A failed connection is tried again at least as often as a batch.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: grpcbackoff.Config{BaseDelay: 100 * time.Millisecond,
			Multiplier: 2, Jitter: 0.2, MaxDelay: 5 * time.Second}, MinConnectTimeout: cfg.Timeout}),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, req, reply, cc, opts...)
			if err == nil {
				answer, _ = reply.(*coltracepb.ExportTraceServiceResponse)
			}
			return err
		}))
	if err != nil {
		return nil, err
	}
	exporter, err := otlptracegrpc.New(context.Background(), otlptracegrpc.WithGRPCConn(conn),
		otlptracegrpc.WithHeaders(headers),
		otlptracegrpc.WithTimeout(cfg.Timeout), otlptracegrpc.WithMaxRequestSize(0),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}))
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &otlp{Exporter: exporter, closeConn: conn.Close, outcome: func(err error) error {
		got := answer
		answer = nil
		switch {
		case got != nil:
			return rejected(got.GetPartialSuccess())
		case err != nil:
			return grpcFailure(err)
		}
		return nil
	}}, nil
}

// grpcFailure translates a status by the OTLP specification, which defines the retryable codes.
func grpcFailure(err error) error {
	s := status.Convert(err)
	var bare interface{ GRPCStatus() *status.Status }
	if errors.As(err, &bare) {
		s = bare.GRPCStatus() // without wrapping texts
	}
	f := &failure{err: fmt.Errorf("%v: %.300s", s.Code(), s.Message()), reason: Refused}
	for _, d := range s.Details() {
		if r, ok := d.(*errdetails.RetryInfo); ok {
			f.retry, f.after = true, r.GetRetryDelay().AsDuration()
		}
	}
	switch s.Code() {
	case codes.Unavailable, codes.Aborted, codes.OutOfRange, codes.DataLoss:
		f.reason, f.retry = Failed, true
	case codes.Canceled, codes.DeadlineExceeded, codes.Unknown:
		f.reason = Failed
	case codes.ResourceExhausted:
		if !f.retry && strings.Contains(s.Message(), "larger than max") {
			f.reason, f.split = TooLarge, true
		}
	case codes.Internal:
		// A span that cannot be encoded, for example with invalid UTF-8, must not cost other spans.
		f.split = strings.Contains(s.Message(), "marshal")
	}
	return f
}

// newOTLPHTTP returns a sender by OTLP over HTTP.
func newOTLPHTTP(cfg Config, endpoint *url.URL, headers map[string]string, encryption *tls.Config) (sender, error) {
	client := newHTTPClient(encryption)
	seen := &observed{next: client.Transport}
	client.Transport = seen
	opts := []otlptracehttp.Option{
		otlptracehttp.WithEndpointURL(endpoint.String()), otlptracehttp.WithHTTPClient(client),
		otlptracehttp.WithHeaders(headers),
		otlptracehttp.WithTLSClientConfig(nil), // the HTTP client has the configuration
		otlptracehttp.WithTimeout(cfg.Timeout), otlptracehttp.WithMaxRequestSize(0),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}),
		otlptracehttp.WithCompression(otlptracehttp.NoCompression),
		otlptracehttp.WithEncoding(otlptracehttp.EncodingProtobuf),
	}
	exporter, err := otlptracehttp.New(context.Background(), opts...)
	if err != nil {
		return nil, err
	}
	return &otlp{Exporter: exporter, closeConn: func() error {
		client.CloseIdleConnections()
		return nil
	}, outcome: seen.outcome}, nil
}

// newHTTPClient returns a client that does not follow redirects: a redirect would send the headers, which may be
// secret, to another server.
func newHTTPClient(encryption *tls.Config) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig, t.MaxIdleConnsPerHost = encryption, 1
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// observed remembers the newest answer passing through.
type observed struct {
	next http.RoundTripper

	mu     sync.Mutex
	tried  bool
	answer *http.Response
	body   []byte
}

// maxAnswer is the most bytes read of a collector's answer.
const maxAnswer = 64 << 10

func (o *observed) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := o.next.RoundTrip(r)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
		answer.Body = struct {
			io.Reader
			io.Closer
		}{bytes.NewReader(body), answer.Body}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tried, o.answer, o.body = true, nil, nil
	if err != nil {
		if answer != nil {
			_ = answer.Body.Close()
		}
		return nil, err
	}
	o.answer, o.body = answer, body
	return answer, nil
}

// outcome returns the meaning of the newest answer for the batch.
func (o *observed) outcome(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	tried, answer, body := o.tried, o.answer, o.body
	o.tried, o.answer, o.body = false, nil, nil
	switch {
	case err == nil && !tried:
		return nil
	case !tried: // encoding failed
		return &failure{err: err, reason: Refused, split: true}
	case answer == nil:
		return err // of the connection
	}
	if err := httpFailure(answer, body); err != nil {
		return err
	}
	var reply coltracepb.ExportTraceServiceResponse
	switch kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")); kind {
	case "application/x-protobuf":
		if err := proto.Unmarshal(body, &reply); err != nil {
			return notACollector(answer)
		}
	case "application/json":
		return nil
	default:
		if len(body) > 0 {
			return notACollector(answer)
		}
	}
	return rejected(reply.GetPartialSuccess())
}

// httpFailure translates a status of HTTP; nil for 2xx.
func httpFailure(answer *http.Response, body []byte) error {
	f := &failure{err: fmt.Errorf("the collector answered %s: %.300q", answer.Status, bytes.TrimSpace(body)),
		reason: Refused}
	switch code := answer.StatusCode; code {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		f.retry = true
		if s, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && s > 0 {
			f.after = time.Duration(min(s, 3600)) * time.Second
		}
	case http.StatusRequestEntityTooLarge:
		f.reason, f.split = TooLarge, true
	default:
		if code >= 200 && code < 300 {
			return nil
		}
	}
	return f
}

// notACollector is the failure of a batch answered by another kind of server.
func notACollector(answer *http.Response) error {
	return &failure{err: fmt.Errorf("the answer, %s of type %.60q, is not that of a collector", answer.Status,
		answer.Header.Get("Content-Type")), reason: Refused}
}
