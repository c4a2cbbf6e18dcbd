package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/client"
	"millrace/config"
	"millrace/internal/accept"
	"millrace/internal/secret"
	"millrace/server"
	"millrace/stream/coded"
)

// defaultAddr is the default address of the server for all commands.
const defaultAddr = "127.0.0.1:8000"

// remote is the server for a command, set by flags.
type remote struct {
	addr        string
	flag        string // the flag of addr
	ca          string // a PEM file
	fingerprint string // SHA-256 of the server's certificate
	cert, key   string // PEM files of a client certificate
	token       string // an API key, from the list of arguments
	tokenFile   string // a file with the key
	envToken    string // the key in the variable
}

// remoteFlags adds --addr, --ca, --fingerprint, --cert, --key, --token-file and --token. The default of --addr is the
// commands' variable, or else comes from the server's variables, so that commands find a server started with these
// variables.
func remoteFlags(c *cobra.Command) *remote {
	def := defaultAddr
	if a := os.Getenv("MILLRACE_HTTP"); a != "" && a != "off" {
		def = a
	}
	if a := os.Getenv("MILLRACE_MANAGEMENT_ADDRESS"); a != "" && a != "off" { // where everything is
		def = a
	}
	encrypted := os.Getenv("MILLRACE_TLS_CERT") != "" || os.Getenv("MILLRACE_TLS_SELF_SIGNED") == "true" ||
		os.Getenv("MILLRACE_TLS_ACME_DOMAINS") != ""
	if _, local := accept.SocketPath(def); encrypted && !local {
		def = "https://" + def
	}
	def = cmp.Or(os.Getenv(config.EnvAddr), def)
	r := &remote{flag: "--addr"}
	c.Flags().StringVar(&r.addr, "addr", def, "address of the server, or unix:/PATH for a unix socket ("+
		config.EnvAddr+")")
	r.credentialFlags(c.Flags())
	return r
}

// credentialFlags adds the flags of remoteFlags except --addr, and reads the key in the variable.
func (r *remote) credentialFlags(f *pflag.FlagSet) {
	r.envToken = os.Getenv(config.EnvToken)
	f.StringVar(&r.ca, "ca", "", "a PEM file with trusted certificates for https (the system's certificates, and the "+
		"certificate of this user's server with --tls-self-signed)")
	f.StringVar(&r.fingerprint, "fingerprint", "",
		"SHA-256 of the server's certificate, printed at the server's start: trust only this certificate")
	f.StringVar(&r.cert, "cert", "", "a PEM file with a client certificate, for a server with --tls-client-ca")
	f.StringVar(&r.key, "key", "", "a PEM file with the key of --cert")
	f.StringVar(&r.tokenFile, "token-file", "", "a file with an API key of the server, or the variable "+
		config.EnvToken+" has the key")
	f.StringVar(&r.token, "token", "", "an API key of the server; other users of this machine can read the key in "+
		"the list of processes: use --token-file or "+config.EnvToken)
}

// apiKey returns the API key sent by the command; "" = none.
func (r *remote) apiKey() (string, error) {
	switch {
	case r.token != "" && r.tokenFile != "":
		return "", usagef("--token: and --token-file exclude each other")
	case r.token != "":
		return r.token, nil
	case r.tokenFile != "":
		key, err := secret.ReadFile(r.tokenFile)
		if err != nil {
			return "", fmt.Errorf("--token-file: %w", err)
		}
		return key, nil
	}
	return strings.TrimRight(r.envToken, "\r\n"), nil
}

// dial returns a client for the server.
func (r *remote) dial() (*client.Client, error) {
	trust, err := r.tls(r.addr)
	if err != nil {
		return nil, err
	}
	key, err := r.apiKey()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWith(r.addr, client.Options{TLS: trust, Token: key})
	if err != nil {
		return nil, usagef("%w", withFlagNames(err))
	}
	return c, nil
}

// tls returns how to verify the certificate of the server at addr, and the client certificate; nil = the system's
// certificate authorities and no client certificate.
func (r *remote) tls(addr string) (*tls.Config, error) {
	c, err := r.trust(addr)
	if err != nil || r.cert == "" && r.key == "" {
		return c, err
	}
	if r.cert == "" || r.key == "" {
		return nil, usagef("--cert: and --key belong together: give both")
	}
	pair, err := tls.LoadX509KeyPair(r.cert, r.key)
	if err != nil {
		return nil, fmt.Errorf("--cert: %s with --key %s cannot be used: %w", r.cert, r.key, err)
	}
	if c == nil {
		c = &tls.Config{}
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// trust is tls without the certificate of the client.
func (r *remote) trust(addr string) (*tls.Config, error) {
	switch encrypted := strings.HasPrefix(addr, "https://") || strings.HasPrefix(addr, "wss://"); {
	case r.ca != "" && r.fingerprint != "":
		return nil, usagef("--fingerprint: trusts one certificate, --ca others: give one of them")
	case (r.ca != "" || r.fingerprint != "") && !encrypted:
		return nil, usagef("--ca and --fingerprint are for encrypted connections: give %s https://%s", r.flag,
			strings.TrimPrefix(addr, "http://"))
	case (r.cert != "" || r.key != "") && !encrypted:
		return nil, usagef("--cert and --key are for encrypted connections: give %s https://%s", r.flag,
			strings.TrimPrefix(addr, "http://"))
	case r.fingerprint != "":
		return pinned(r.fingerprint)
	case r.ca != "":
		pool := x509.NewCertPool()
		if err := addCertificates(pool, r.ca); err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
		return &tls.Config{RootCAs: pool}, nil
	case isLoopback(addr):
		return trustSelfSigned(), nil
	}
	return nil, nil
}

// pinned trusts a single certificate, with any names and issuer.
func pinned(fingerprint string) (*tls.Config, error) {
	want, err := hex.DecodeString(strings.ReplaceAll(fingerprint, ":", ""))
	if err != nil || len(want) != sha256.Size {
		return nil, usagef("--fingerprint: %q is not a SHA-256: want 32 bytes in hexadecimal, with or without colons",
			fingerprint)
	}
	return &tls.Config{
		InsecureSkipVerify: true, // VerifyConnection verifies the certificate
		VerifyConnection: func(s tls.ConnectionState) error {
			got := sha256.Sum256(s.PeerCertificates[0].Raw)
			if !bytes.Equal(got[:], want) {
				return fmt.Errorf("the server's certificate has another fingerprint: %s",
					strings.ReplaceAll(fmt.Sprintf("% X", got), " ", ":"))
			}
			return nil
		},
	}, nil
}

func addCertificates(pool *x509.CertPool, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !pool.AppendCertsFromPEM(text) {
		return fmt.Errorf("%s has no certificate in PEM", file)
	}
	return nil
}

// trustSelfSigned trusts the system's certificate authorities and the certificate stored by this user's server with
// tls.self_signed. Without such a certificate, trustSelfSigned returns nil.
func trustSelfSigned() *tls.Config {
	file, err := server.SelfSignedFile()
	if err != nil {
		return nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if addCertificates(pool, file) != nil {
		return nil
	}
	return &tls.Config{RootCAs: pool}
}

// isLoopback reports whether an address is encrypted and on this machine, where no other machine can impersonate the
// server.
func isLoopback(addr string) bool {
	u, err := url.Parse(addr)
	if err != nil || u.Scheme != "https" && u.Scheme != "wss" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// nextStep returns advice after err; "" = no advice.
func nextStep(err error) string {
	var unverified *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var lookup *net.DNSError
	switch {
	case coded.CodeOf(err) == coded.Draining:
		return "try again after its restart"
	case coded.CodeOf(err) == coded.Unauthenticated:
		return "give a key of the server with --token-file FILE or the variable " + config.EnvToken
	case errors.As(err, &lookup):
		return "check the value of --addr"
	case errors.As(err, &unverified):
		return "trust the server's certificate with --ca FILE, or with --fingerprint SHA256, which the server " +
			"prints when it starts"
	case errors.As(err, &record):
		return "the server does not speak TLS: give --addr http://HOST:PORT"
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"),
		strings.Contains(err.Error(), "TLS handshake timeout"):
		return "if the server does not speak TLS, give --addr http://HOST:PORT"
	case strings.Contains(err.Error(), "to an HTTPS server"),
		strings.Contains(err.Error(), `malformed HTTP response "\x15\x03`):
		return "the server speaks TLS: give --addr https://HOST:PORT"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return "if the server speaks TLS, give --addr https://HOST:PORT"
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT) && coded.CodeOf(err) == coded.Unavailable:
		return "start a server with millrace serve, or give its --addr"
	case errors.Is(err, syscall.EACCES) && coded.CodeOf(err) == coded.Unavailable:
		return "use the user of the server, or one of its group with --management-socket group"
	case coded.CodeOf(err) == coded.NotFound && strings.HasPrefix(err.Error(), "there is nothing at "):
		return "if the server has management.address, give that with --addr"
	}
	return ""
}

// streamFlags are the commands' flags for settings of a stream.
var streamFlags = map[string]string{
	"addr": "--addr", "token": "the API key", "model": "--model", "version": "--version", "policy": "--policy",
	"max_age_ms": "--max-age-ms",
	"overlay":    "--overlay", "picture": "--picture", "loop": "--loop", "fps": "--fps", "realtime": "--realtime",
	"duration": "--duration", "width": "--width",
	"height": "--height",
}

// withFlagNames replaces names of settings in err by names of flags.
func withFlagNames(err error) error {
	return withName(err, func(field string) string {
		field = strings.TrimPrefix(strings.TrimPrefix(field, "open."), "policy.")
		return cmp.Or(streamFlags[field], field)
	})
}

// withVersionFlag puts the flag --version into the error of a command whose argument is a model.
func withVersionFlag(err error) error {
	return withName(err, func(field string) string {
		if field == "version" {
			return "--version"
		}
		return field
	})
}

// withName returns err with the field replaced by name(field). In errors of a server, each line begins with the
// field.
func withName(err error, name func(field string) string) error {
	var e *coded.Error
	if !errors.As(err, &e) || e.Field != "" {
		return coded.RenameFunc(err, name)
	}
	lines := strings.Split(e.Msg, "\n")
	for i, line := range lines {
		if field, rest, ok := strings.Cut(line, ": "); ok && !strings.ContainsAny(field, " \"") {
			lines[i] = name(field) + ": " + rest
		}
	}
	if msg := strings.Join(lines, "\n"); msg != e.Msg {
		return &coded.Error{Code: e.Code, Msg: msg, Err: err}
	}
	return err
}

// errorText returns the message of an error, with commands in place of the server's
// routes, and with the next step.
func errorText(err error) string {
	text := withCommands(err.Error())
	if step := nextStep(err); step != "" {
		text += "; " + step
	}
	return text
}

// withCommands replaces the server's routes in a text by commands.
func withCommands(text string) string {
	return strings.NewReplacer(
		"see the repository index", "see millrace models",
		"GET /v2/streams lists them", "millrace streams lists them",
		"see the inputs in the metadata of model ", "see its inputs with millrace models show ",
	).Replace(text)
}
