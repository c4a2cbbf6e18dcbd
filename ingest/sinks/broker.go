package sinks

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
)

const caBytes = 1 << 20 // largest file of certificate authorities

// brokerAddress is the form of the addresses of one kind of broker.
type brokerAddress struct {
	plain, plainPort string // scheme and default port without TLS
	tls, tlsPort     string // with TLS
	topic            string // the setting of the topic, for the error about a path
}

// parse parses an address, and adds the default port.
func (a brokerAddress) parse(text string) (*url.URL, error) {
	ports := map[string]string{a.plain: a.plainPort, a.tls: a.tlsPort}
	u, err := url.Parse(text)
	if err != nil || ports[u.Scheme] == "" || u.Hostname() == "" {
		return nil, fmt.Errorf("is not an address such as %s://HOST:%s or %s://HOST:%s", a.plain, a.plainPort, a.tls,
			a.tlsPort)
	}
	if u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("has a path, query or fragment, and an address of a broker has none: set the topic by " +
			a.topic)
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && (err != nil || port == 0) {
		return nil, fmt.Errorf("has the port %s, and a port is 1 to 65535", u.Port())
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), ports[u.Scheme])
	}
	return u, nil
}

// secured returns the TLS settings of connections to a server. The PEM file ca, if any, has the certificate
// authorities; key names the setting of this file in errors.
func secured(server, key, ca string) (*tls.Config, error) {
	config := &tls.Config{ServerName: server, MinVersion: tls.VersionTLS12}
	if ca == "" {
		return config, nil
	}
	f, err := os.Open(ca)
	if err != nil {
		return nil, fmt.Errorf("sinks.%s: %w", key, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, caBytes))
	if err != nil {
		return nil, fmt.Errorf("sinks.%s: %w", key, err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("sinks.%s: %s has no certificate in PEM form", key, ca)
	}
	return config, nil
}
