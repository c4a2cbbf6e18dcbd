package export

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"millrace/internal/setting"
	"millrace/internal/textfile"
	"millrace/stream/coded"
)

// section is the section of the settings, for messages.
const section = "tracing"

// Config has the settings of the exporter, a part of the section tracing. setting.Fill replaces zero fields by
// defaults.
type Config struct {
	Exporter string `yaml:"exporter" default:"off" words:"off otlp-grpc otlp-http jaeger-agent jaeger-collector stdout" help:"where spans of traced frames are sent"`
	Endpoint string `yaml:"endpoint" example:"http://127.0.0.1:4317" unset:"otlp-grpc: http://127.0.0.1:4317, otlp-http: http://127.0.0.1:4318/v1/traces, jaeger-agent: 127.0.0.1:6831, jaeger-collector: http://127.0.0.1:14268/api/traces" help:"the collector: URL or HOST:PORT (http); https turns on TLS"`

	Headers []string `yaml:"headers" secret:"yes" example:"[authorization=Bearer token]" advanced:"yes" help:"headers sent with spans, as NAME=VALUE; not with jaeger-agent and stdout"`
	TLS     TLS      `yaml:"tls"`

	ServiceName string   `yaml:"service_name" default:"millrace" advanced:"yes" help:"name of the service in traces"`
	Attributes  []string `yaml:"resource_attributes" example:"[deployment.environment.name=test]" advanced:"yes" help:"further attributes of the service in traces, as NAME=VALUE"`

	QueueSize int           `yaml:"queue_size" default:"8192" min:"1" max:"1048576" advanced:"yes" help:"most spans that wait for the exporter; further spans are lost and counted"`
	BatchSize int           `yaml:"batch_size" default:"512" min:"1" max:"65536" advanced:"yes" help:"most spans in one message to the collector"`
	Delay     time.Duration `yaml:"batch_delay" default:"1s" min:"1ms" max:"1m" advanced:"yes" help:"how long spans wait for a full message"`
	Timeout   time.Duration `yaml:"export_timeout" default:"10s" min:"10ms" max:"5m" advanced:"yes" help:"longest time of one message to the collector"`
	Retry     time.Duration `yaml:"retry_for" default:"30s" min:"1ms" max:"1h" advanced:"yes" help:"how long a message is sent again while the collector is unreachable or busy"`
	Packet    int           `yaml:"packet_size" default:"65000" min:"512" max:"65000" unit:"bytes" advanced:"yes" help:"exporter jaeger-agent: largest UDP packet"`

	SamplerEndpoint string        `yaml:"sampler_endpoint" default:"http://127.0.0.1:5778/sampling" advanced:"yes" help:"sampler jaeger-remote: URL of the server with the sampling rules"`
	SamplerRefresh  time.Duration `yaml:"sampler_refresh" default:"1m" min:"100ms" max:"24h" advanced:"yes" help:"sampler jaeger-remote: interval of questions to the server"`
}

// TLS is the settings of an encrypted connection to the collector.
type TLS struct {
	CA       string `yaml:"ca" path:"file" unset:"those of the system" advanced:"yes" help:"PEM file with the authorities of the collector's certificate"`
	Cert     string `yaml:"cert" path:"file" advanced:"yes" help:"PEM file with the client certificate for the collector"`
	Key      string `yaml:"key" path:"file" advanced:"yes" help:"PEM file with the key of the client certificate"`
	Insecure bool   `yaml:"insecure_skip_verify" advanced:"yes" help:"do not verify the collector's certificate"`
}

// set reports whether any setting of TLS is set.
func (t TLS) set() bool { return t != TLS{} }

// Kinds of exporters.
const (
	Off             = "off"
	OTLPGRPC        = "otlp-grpc"
	OTLPHTTP        = "otlp-http"
	JaegerAgent     = "jaeger-agent"
	JaegerCollector = "jaeger-collector"
	Stdout          = "stdout"
)

// defaults are the optional parts of an endpoint.
var defaults = map[string]struct{ address, port, path string }{
	OTLPGRPC:        {"127.0.0.1:4317", "4317", ""},
	OTLPHTTP:        {"127.0.0.1:4318", "4318", "/v1/traces"},
	JaegerAgent:     {"127.0.0.1:6831", "6831", ""},
	JaegerCollector: {"127.0.0.1:14268", "14268", "/api/traces"},
}

// Validate returns all errors of the settings, joined; each error names its setting, for example tracing.endpoint. c
// must have its defaults.
func (c Config) Validate() error {
	setting.Fill(&c)
	var errs []error
	if _, err := c.endpoint(); err != nil {
		errs = append(errs, err)
	}
	if _, err := c.headers(); err != nil {
		errs = append(errs, err)
	}
	if _, err := c.tlsConfig(); err != nil {
		errs = append(errs, err)
	}
	if _, err := pairs("resource_attributes", c.Attributes); err != nil {
		errs = append(errs, err)
	}
	if c.BatchSize > c.QueueSize {
		errs = append(errs, settingError("batch_size", "%d is more than tracing.queue_size, %d", c.BatchSize,
			c.QueueSize))
	}
	if _, err := httpURL("sampler_endpoint", c.SamplerEndpoint); err != nil {
		errs = append(errs, err)
	}
	return setting.Join(errs...)
}

// On reports whether spans are exported.
func (c Config) On() bool { return c.Exporter != "" && c.Exporter != Off }

func settingError(name, format string, args ...any) error {
	return coded.Errorf(coded.InvalidArgument, section+"."+name, format, args...)
}

// endpoint returns the address of the collector; nil = none.
func (c Config) endpoint() (*url.URL, error) {
	d, ok := defaults[c.Exporter]
	if !ok {
		if c.Endpoint != "" {
			return nil, settingError("endpoint", "is not used by tracing.exporter %s: leave it out", c.Exporter)
		}
		return nil, nil
	}
	text := c.Endpoint
	if text == "" {
		text = d.address
	}
	if c.Exporter == JaegerAgent {
		text = strings.TrimPrefix(text, "udp://")
		if strings.Contains(text, "://") {
			return nil, settingError("endpoint", "%.140q is not an address of a Jaeger agent: want HOST:PORT, such as "+
				"127.0.0.1:6831; URLs are for jaeger-collector and otlp", text)
		}
		text = "udp://" + text
	} else if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := parseURL("endpoint", text)
	if err != nil {
		return nil, err
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "udp":
		return nil, settingError("endpoint", "%.140q has the scheme %q: want http or https", c.Endpoint, u.Scheme)
	case u.Path != "" && u.Path != "/" && d.path == "":
		return nil, settingError("endpoint", "%.140q has a path, which %s does not use", c.Endpoint, c.Exporter)
	case u.RawQuery != "" && c.Exporter != JaegerCollector:
		return nil, settingError("endpoint", "%.140q has a query, which %s does not use", c.Endpoint, c.Exporter)
	}
	if u.Port() == "" {
		// A URL with a scheme implies the port of the scheme; an address implies the port of the protocol.
		switch {
		case u.Scheme == "https":
			u.Host += ":443"
		case strings.HasPrefix(c.Endpoint, "http://"):
			u.Host += ":80"
		default:
			u.Host += ":" + d.port
		}
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = d.path
	}
	return u, nil
}

// httpURL reads a URL with the scheme http or https.
func httpURL(name, text string) (*url.URL, error) {
	u, err := parseURL(name, text)
	if err == nil && u.Scheme != "http" && u.Scheme != "https" {
		return nil, settingError(name, "%.140q has the scheme %q: want http or https", text, u.Scheme)
	}
	return u, err
}

// withoutQuery returns a URL for the log: a query may have a key.
func withoutQuery(u *url.URL) string {
	plain := *u
	plain.RawQuery = ""
	return plain.Redacted()
}

// withoutURL returns an error of an HTTP client without the URL, since the query may contain a key.
func withoutURL(err error) error {
	if e := (*url.Error)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// parseURL parses a URL with a host and an optional port from 1 to 65535.
func parseURL(name, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, settingError(name, "%.140q is not a URL: %v", text, withoutURL(err))
	}
	switch {
	case u.User != nil:
		return nil, settingError(name, "has a user or a password: set a header, such as authorization=Basic ..., in "+
			"tracing.headers")
	case u.Hostname() == "":
		return nil, settingError(name, "%.140q names no host: want HOST:PORT or http://HOST:PORT", text)
	case u.Fragment != "":
		return nil, settingError(name, "%.140q has a fragment", text)
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 {
			return nil, settingError(name, "%.140q has the port %.20s: want 1 to 65535", text, p)
		}
	} else if strings.HasSuffix(u.Host, ":") {
		return nil, settingError(name, "%.140q has no port after the colon", text)
	}
	return u, nil
}

// pairs parses a list of NAME=VALUE without duplicate names.
func pairs(name string, list []string) (map[string]string, error) {
	m := make(map[string]string, len(list))
	for i, text := range list {
		at := fmt.Sprintf("%s[%d]", name, i)
		key, value, ok := strings.Cut(text, "=")
		key = strings.TrimSpace(key)
		if !ok || key == "" {
			// The text may be a secret, so the error omits the text.
			return nil, settingError(at, "is not NAME=VALUE")
		}
		if _, twice := m[key]; twice {
			return nil, settingError(at, "%.60q is there twice", key)
		}
		m[key] = strings.TrimSpace(value)
	}
	return m, nil
}

// reserved are the headers owned by the protocols.
var reserved = []string{"connection", "content-encoding", "content-length", "content-type", "host", "te", "trailer",
	"transfer-encoding", "upgrade"}

// headers returns the headers by their names in lower case.
func (c Config) headers() (map[string]string, error) {
	if len(c.Headers) > 0 {
		switch c.Exporter {
		case OTLPGRPC, OTLPHTTP, JaegerCollector:
		default:
			return nil, settingError("headers", "are not used by tracing.exporter %s: leave them out", c.Exporter)
		}
	}
	given, err := pairs("headers", c.Headers)
	if err != nil {
		return nil, err
	}
	headers := make(map[string]string, len(given))
	for name, value := range given {
		lower := strings.ToLower(name)
		_, twice := headers[lower]
		switch {
		case twice:
			return nil, settingError("headers", "%.60q is there twice", lower)
		case !httpguts.ValidHeaderFieldName(name) || strings.HasPrefix(lower, "grpc-"):
			return nil, settingError("headers", "%.60q is not a name of a header", name)
		case !httpguts.ValidHeaderFieldValue(value):
			return nil, settingError("headers", "the value of %.60q has characters that a header cannot have", name)
		case slices.Contains(reserved, lower):
			return nil, settingError("headers", "%.60q is set by the exporter", name)
		}
		headers[lower] = value
	}
	return headers, nil
}

// tlsConfig reads the files and returns the TLS configuration; nil for an unencrypted connection.
func (c Config) tlsConfig() (*tls.Config, error) {
	endpoint, err := c.endpoint()
	if err != nil {
		return nil, nil // endpoint is reported by itself
	}
	if endpoint == nil || endpoint.Scheme != "https" {
		if c.TLS.set() {
			return nil, settingError("tls",
				"is set, but the connection is not encrypted: set tracing.endpoint to an https URL")
		}
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.TLS.Insecure}
	if c.TLS.CA != "" {
		if c.TLS.Insecure {
			return nil, settingError("tls.insecure_skip_verify", "and tracing.tls.ca exclude each other")
		}
		pem, err := textfile.Read(c.TLS.CA, 16<<20)
		if err != nil {
			return nil, settingError("tls.ca", "%v", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, settingError("tls.ca", "%s has no PEM certificate", c.TLS.CA)
		}
	}
	switch {
	case c.TLS.Cert != "" && c.TLS.Key == "":
		return nil, settingError("tls.key", "is missing: tracing.tls.cert needs its key")
	case c.TLS.Key != "" && c.TLS.Cert == "":
		return nil, settingError("tls.cert", "is missing: tracing.tls.key needs its certificate")
	case c.TLS.Cert != "":
		pair, err := tls.LoadX509KeyPair(c.TLS.Cert, c.TLS.Key)
		if err != nil {
			return nil, settingError("tls.cert", "%v", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	conf.ServerName = endpoint.Hostname()
	return conf, nil
}

// address is HOST:PORT of the endpoint.
func address(u *url.URL) string { return net.JoinHostPort(u.Hostname(), u.Port()) }
