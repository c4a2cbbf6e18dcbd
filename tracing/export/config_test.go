//go:build !notracing

package export

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/setting"
	"millrace/stream/coded"
)

func TestEndpoints(t *testing.T) {
	for _, c := range []struct{ exporter, endpoint, want string }{
		{OTLPGRPC, "", "http://127.0.0.1:4317"},
		{OTLPGRPC, "collector:5000", "http://collector:5000"},
		{OTLPGRPC, "collector", "http://collector:4317"},
		{OTLPGRPC, "https://collector", "https://collector:443"},
		{OTLPGRPC, "http://[::1]:4317/", "http://[::1]:4317"},
		{OTLPHTTP, "", "http://127.0.0.1:4318/v1/traces"},
		{OTLPHTTP, "http://collector", "http://collector:80/v1/traces"},
		{OTLPHTTP, "https://collector:9/otlp/v1/traces", "https://collector:9/otlp/v1/traces"},
		{JaegerAgent, "", "udp://127.0.0.1:6831"},
		{JaegerAgent, "agent", "udp://agent:6831"},
		{JaegerAgent, "udp://agent:7000", "udp://agent:7000"},
		{JaegerCollector, "", "http://127.0.0.1:14268/api/traces"},
		{JaegerCollector, "http://c:14268/api/traces?format=jaeger.thrift",
			"http://c:14268/api/traces?format=jaeger.thrift"},
	} {
		cfg := Config{Exporter: c.exporter, Endpoint: c.endpoint}
		if err := cfg.Validate(); err != nil {
			t.Errorf("%s %q: %v", c.exporter, c.endpoint, err)
			continue
		}
		u, err := cfg.endpoint()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSuffix(u.String(), "/"); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.exporter, c.endpoint, got, c.want)
		}
	}
}

func TestWrongSettingsAreNamed(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	https := "https://collector:4317"
	for _, c := range []struct {
		name string
		cfg  Config
		want string // of the message
	}{
		{"two ports", Config{Exporter: OTLPGRPC, Endpoint: "a:1:2"}, "tracing.endpoint"},
		{"a port of 0", Config{Exporter: OTLPGRPC, Endpoint: "a:0"},
			"tracing.endpoint: \"http://a:0\" has the port 0: want 1 to 65535"},
		{"a port beyond the last", Config{Exporter: OTLPHTTP, Endpoint: "http://a:65536"}, "tracing.endpoint"},
		{"no port after the colon", Config{Exporter: OTLPHTTP, Endpoint: "http://a:"}, "tracing.endpoint"},
		{"no host", Config{Exporter: OTLPHTTP, Endpoint: "http://:4318"},
			"tracing.endpoint: \"http://:4318\" names no host"},
		{"another scheme", Config{Exporter: OTLPHTTP, Endpoint: "ftp://a:1"}, "want http or https"},
		{"a user", Config{Exporter: OTLPHTTP, Endpoint: "http://me:secret@a:1"},
			"tracing.endpoint: has a user or a password"},
		{"a path of gRPC", Config{Exporter: OTLPGRPC, Endpoint: "http://a:1/v1/traces"},
			"tracing.endpoint: \"http://a:1/v1/traces\" has a path, which otlp-grpc does not use"},
		{"a query of OTLP", Config{Exporter: OTLPHTTP, Endpoint: "http://a:1/?x=1"}, "has a query"},
		{"a URL of an agent", Config{Exporter: JaegerAgent, Endpoint: "http://a:1"},
			"is not an address of a Jaeger agent"},
		{"an endpoint of stdout", Config{Exporter: Stdout, Endpoint: "a:1"},
			"tracing.endpoint: is not used by tracing.exporter stdout"},
		{"an endpoint without an exporter", Config{Endpoint: "a:1"},
			"tracing.endpoint: is not used by tracing.exporter off"},
		{"a header without a value", Config{Exporter: OTLPHTTP, Headers: []string{"a=b", "token"}},
			"tracing.headers[1]: is not NAME=VALUE"},
		{"a header twice", Config{Exporter: OTLPHTTP, Headers: []string{"A=b", "a=c"}},
			"tracing.headers: \"a\" is there twice"},
		{"a header with a line end", Config{Exporter: OTLPHTTP, Headers: []string{"a=b\nc"}},
			"tracing.headers: the value of \"a\""},
		{"a header of the protocol", Config{Exporter: OTLPHTTP, Headers: []string{"Content-Type=x"}},
			"is set by the exporter"},
		{"headers over UDP", Config{Exporter: JaegerAgent, Headers: []string{"a=b"}},
			"tracing.headers: are not used by tracing.exporter jaeger-agent"},
		{"an attribute without a name", Config{Exporter: Stdout, Attributes: []string{"=b"}},
			"tracing.resource_attributes[0]: is not NAME=VALUE"},
		{"a certificate without TLS", Config{Exporter: OTLPGRPC, TLS: TLS{CA: empty}},
			"tracing.tls: is set, but the connection is not encrypted"},
		{"an empty file of certificates", Config{Exporter: OTLPGRPC, Endpoint: https, TLS: TLS{CA: empty}},
			"has no PEM certificate"},
		{"a missing file", Config{Exporter: OTLPGRPC, Endpoint: https, TLS: TLS{CA: empty + "x"}},
			"tracing.tls.ca: open "},
		{"a certificate without its key", Config{Exporter: OTLPGRPC, Endpoint: https, TLS: TLS{Cert: empty}},
			"tracing.tls.key: is missing"},
		{"a key without its certificate", Config{Exporter: OTLPGRPC, Endpoint: https, TLS: TLS{Key: empty}},
			"tracing.tls.cert: is missing"},
		{"a broken certificate", Config{Exporter: OTLPGRPC, Endpoint: https, TLS: TLS{Cert: empty, Key: empty}},
			"tracing.tls.cert: "},
		{"verified and not", Config{Exporter: OTLPGRPC, Endpoint: https, TLS: TLS{CA: empty, Insecure: true}},
			"tracing.tls.insecure_skip_verify: and tracing.tls.ca exclude each other"},
		{"a batch larger than the queue", Config{Exporter: Stdout, QueueSize: 10, BatchSize: 11},
			"tracing.batch_size: 11 is more than tracing.queue_size, 10"},
		{"a sampler without a scheme", Config{SamplerEndpoint: "a:5778"}, "tracing.sampler_endpoint"},
	} {
		err := c.cfg.Validate()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
			continue
		}
		if coded.CodeOf(err) != coded.InvalidArgument {
			t.Errorf("%s: code %s", c.name, coded.CodeOf(err))
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the message repeats a password: %v", c.name, err)
		}
	}
}

// tracing.exporter takes a single exporter, and the error names the setting.
func TestTwoExporters(t *testing.T) {
	errs := setting.TableOf("tracing", &Config{Exporter: "otlp-grpc,jaeger-agent"}).Check()
	if err := setting.Join(errs...); err == nil || !strings.Contains(err.Error(), "tracing.exporter") {
		t.Errorf("%v", err)
	}
}

func TestResource(t *testing.T) {
	r := Config{Attributes: []string{"deployment.environment.name=test", "service.name=other"}}.Resource("1.2")
	got := map[string]string{}
	for _, kv := range r.Attributes() {
		got[string(kv.Key)] = kv.Value.AsString()
	}
	if len(got) != 3 || got["service.name"] != "millrace" || got["service.version"] != "1.2" ||
		got["deployment.environment.name"] != "test" {
		t.Errorf("%v", got)
	}
}
