package remote

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"millrace/stream"
	"millrace/workers"
)

func init() {
	workers.Register(workers.Kind{
		Name:     "remote",
		Doc:      "a model of another server of the Open Inference Protocol, over gRPC or REST",
		New:      func() workers.Worker { return &worker{} },
		Settings: func() any { return new(settings) },
		Loads:    isAddress,
		Outbound: true,
	})
}

type settings struct {
	Upstream upstream `yaml:"upstream"`
}

// upstream names the upstream server and model, and the way to connect.
type upstream struct {
	Address    string         `yaml:"address" request:"any" example:"grpc://10.0.0.7:8001" unset:"the source" help:"the other server: grpc://, grpcs://, http://, https:// or HOST:PORT (probed for HTTP and gRPC). In a request the address must be public, unless sources.allow_private is set"`
	Model      string         `yaml:"model" request:"any" unset:"the same name" advanced:"yes" help:"name of the model at the other server"`
	Version    string         `yaml:"version" request:"any" unset:"the other server's choice" advanced:"yes" help:"version of the model at the other server"`
	Token      string         `yaml:"token" secret:"yes" unset:"none" advanced:"yes" example:"file:/run/secrets/token" help:"bearer token for the other server, or file:PATH (read again for each request)"`
	TokenEnv   string         `yaml:"token_env" unset:"none" advanced:"yes" help:"variable of this server's environment with the bearer token"`
	CA         string         `yaml:"ca" path:"file" unset:"the system's" advanced:"yes" help:"PEM file with the authorities of the other server's certificate"`
	Connect    time.Duration  `yaml:"connect" default:"10s" min:"1ms" max:"1h" advanced:"yes" help:"how long a load waits for a server that is unreachable or not ready; at most limits.start"`
	Health     *time.Duration `yaml:"health" default:"1s" min:"10ms" max:"1h" request:"1h" advanced:"yes" help:"interval of health checks of the other model"`
	MaxMessage int64          `yaml:"max_message" default:"64MiB" min:"4KiB" max:"2GiB" unit:"bytes" advanced:"yes" help:"largest request to the other server, and largest answer; both are taken from memory.budget"`
}

// Validate implements the validation of workers.Kind.
func (s *settings) Validate() error {
	u := &s.Upstream
	if u.Token != "" && u.TokenEnv != "" {
		return stream.Errorf(stream.InvalidArgument, "upstream.token_env",
			"is set beside upstream.token: leave one of them out")
	}
	if u.Address == "" {
		return nil
	}
	_, err := parseAddress("upstream.address", u.Address)
	return err
}

// address is the address and the protocol of another server.
type address struct {
	scheme string // grpc, grpcs, http or https; "" = it is asked
	host   string // HOST:PORT
	path   string // in front of /v2, of HTTP
}

func (a address) encrypted() bool { return a.scheme == "grpcs" || a.scheme == "https" }
func (a address) http() bool      { return strings.HasPrefix(a.scheme, "http") }

// String returns the address, without secrets.
func (a address) String() string {
	if a.scheme == "" {
		return a.host
	}
	return a.scheme + "://" + a.host + a.path
}

var defaultPorts = map[string]string{"grpc": "8001", "grpcs": "8001", "http": "80", "https": "443"}

// isAddress reports whether a source is the address of a server: with a scheme, or HOST:PORT.
func isAddress(source string) bool {
	if scheme, _, found := strings.Cut(source, "://"); found {
		return defaultPorts[strings.ToLower(scheme)] != ""
	}
	return workers.IsHostPort(source)
}

// parseAddress reads an address. Errors name field and omit the address, which may have a password.
func parseAddress(field, text string) (address, error) {
	bad := func(format string, args ...any) (address, error) {
		return address{}, stream.Errorf(stream.InvalidArgument, field, format, args...)
	}
	const want = "want grpc://HOST:PORT, grpcs://, http:// or https://, or HOST:PORT"
	scheme, _, found := strings.Cut(text, "://")
	if !found {
		if !workers.IsHostPort(text) {
			return bad("is not the address of a server: %s", want)
		}
		return address{host: text}, nil
	}
	scheme = strings.ToLower(scheme)
	port, known := defaultPorts[scheme]
	if !known {
		return bad("%.16q is not a scheme of another server: %s", scheme, want)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "":
		return bad("is not the address of a server: %s", want)
	case u.User != nil:
		return bad("has a user or password in it: leave it out, and set upstream.token to the bearer token")
	case u.RawQuery != "" || u.Fragment != "":
		return bad("has ? or # in it: %s", want)
	}
	a := address{scheme: scheme, host: u.Host, path: strings.TrimRight(u.EscapedPath(), "/")}
	if u.Port() == "" {
		a.host = net.JoinHostPort(u.Hostname(), port)
	}
	if a.path != "" && !a.http() {
		return bad("has a path, which gRPC has not: name the model by upstream.model")
	}
	if !workers.IsHostPort(a.host) {
		return bad("has no port from 1 to 65535: %s", want)
	}
	return a, nil
}

// checkDial is a function for net.Dialer.Control that refuses each address refused by allow.
func checkDial(allow func(netip.Addr) error, to string) error {
	a, err := netip.ParseAddrPort(to)
	if err == nil {
		err = allow(a.Addr())
	}
	if err != nil {
		return stream.Errorf(stream.PermissionDenied, "upstream.address", "%w", err)
	}
	return nil
}
