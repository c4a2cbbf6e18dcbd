package main

import (
	"bytes"
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

	"millrace/client"
	"millrace/server"
	"millrace/stream/coded"
)

// defaultAddr is where the commands look for a server.
const defaultAddr = "127.0.0.1:8000"

// remote is the server that a command talks to, by its flags.
type remote struct {
	addr        string
	ca          string // a PEM file
	fingerprint string // SHA-256 of the server's certificate
}

// remoteFlags adds --addr, --ca and --fingerprint. The default of --addr follows
// the variables of the server, so that the commands find one that was started with
// them.
func remoteFlags(c *cobra.Command) *remote {
	def := defaultAddr
	if a := os.Getenv("MILLRACE_HTTP"); a != "" && a != "off" {
		def = a
	}
	if os.Getenv("MILLRACE_TLS_CERT") != "" || os.Getenv("MILLRACE_TLS_SELF_SIGNED") == "true" {
		def = "https://" + def
	}
	r := &remote{}
	f := c.Flags()
	f.StringVar(&r.addr, "addr", def, "address of the server")
	f.StringVar(&r.ca, "ca", "", "a PEM file with the certificates to trust, of a server with https (the system's, and this user's own --tls-self-signed)")
	f.StringVar(&r.fingerprint, "fingerprint", "", "SHA-256 of the server's certificate, as the server prints it: trust that one only")
	return r
}

// dial makes a client for the server.
func (r *remote) dial() (*client.Client, error) {
	config, err := r.tls(r.addr)
	if err != nil {
		return nil, err
	}
	c, err := client.NewTLS(r.addr, config)
	if err != nil {
		return nil, usagef("%w", inFlags(err))
	}
	return c, nil
}

// tls says how to verify the certificate of the server at addr; nil = by the
// system's authorities.
func (r *remote) tls(addr string) (*tls.Config, error) {
	switch {
	case r.ca != "" && r.fingerprint != "":
		return nil, usagef("--fingerprint: trusts one certificate, --ca others: give one of them")
	case (r.ca != "" || r.fingerprint != "") && !strings.HasPrefix(addr, "https://") && !strings.HasPrefix(addr, "wss://"):
		return nil, usagef("--ca and --fingerprint are for encrypted connections: give --addr https://%s", strings.TrimPrefix(addr, "http://"))
	case r.fingerprint != "":
		return pinned(r.fingerprint)
	case r.ca != "":
		pool := x509.NewCertPool()
		if err := addCertificates(pool, r.ca); err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
		return &tls.Config{RootCAs: pool}, nil
	case isLoopback(addr):
		return ownServer(), nil
	}
	return nil, nil
}

// pinned trusts one certificate, whatever its names and its issuer are.
func pinned(fingerprint string) (*tls.Config, error) {
	want, err := hex.DecodeString(strings.ReplaceAll(fingerprint, ":", ""))
	if err != nil || len(want) != sha256.Size {
		return nil, usagef("--fingerprint: %q is not a SHA-256: want 32 bytes in hexadecimal, with or without colons", fingerprint)
	}
	return &tls.Config{
		InsecureSkipVerify: true, // VerifyConnection does it
		VerifyConnection: func(s tls.ConnectionState) error {
			got := sha256.Sum256(s.PeerCertificates[0].Raw)
			if !bytes.Equal(got[:], want) {
				return fmt.Errorf("the server's certificate has another fingerprint: %s", strings.ReplaceAll(fmt.Sprintf("% X", got), " ", ":"))
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

// ownServer trusts, beside the system's authorities, the certificate that a server
// of this user with tls.self_signed keeps; nil when there is none.
func ownServer() *tls.Config {
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

// isLoopback says whether an address is encrypted and this machine's own, which
// nobody on the network can pretend to have.
func isLoopback(addr string) bool {
	u, err := url.Parse(addr)
	if err != nil || u.Scheme != "https" && u.Scheme != "wss" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// nextStep is what may help after err, "" when there is nothing to say.
func nextStep(err error) string {
	var unverified *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &unverified):
		return "trust the server's certificate with --ca FILE, or with --fingerprint SHA256, which the server prints when it starts"
	case errors.As(err, &record):
		return "the server does not speak TLS: give --addr http://HOST:PORT"
	case strings.Contains(err.Error(), `malformed HTTP response "\x15\x03`):
		return "the server speaks TLS: give --addr https://HOST:PORT"
	case errors.Is(err, io.EOF):
		return "if the server speaks TLS, give --addr https://HOST:PORT"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "start a server with millrace serve, or give its --addr"
	}
	return ""
}

// inFlags calls settings as the flags of the commands call them.
func inFlags(err error) error {
	return coded.Rename(err, map[string]string{
		"addr": "--addr", "policy": "--policy", "max_age_ms": "--max-age-ms", "deadline_ms": "--deadline-ms", "max_fps": "--max-fps", "window": "--window",
	})
}

// inCommands is the text of an error with the next step, and with what routes of
// the server are called here.
func inCommands(err error) string {
	text := commandsOf(err.Error())
	if step := nextStep(err); step != "" {
		text += "; " + step
	}
	return text
}

// commandsOf names commands in place of the server's routes.
func commandsOf(text string) string {
	return strings.ReplaceAll(text, "see /v2/repository/index", "see millrace models")
}
