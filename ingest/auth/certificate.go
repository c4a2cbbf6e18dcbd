package auth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"
)

// Authority is a file with the certificates that may sign those of clients, read again when it changes. It is safe for
// concurrent use.
type Authority struct{ file *watched[*x509.CertPool] }

// OpenAuthority reads a file in PEM. When it cannot be read later, failed is called, and the certificates stay as they were.
func OpenAuthority(path string, failed func(error)) (*Authority, error) {
	file, err := watch(path, readPool, failed)
	return &Authority{file}, err
}

func readPool(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", path)
	}
	return pool, nil
}

// Verify is tls.Config.VerifyConnection: it refuses connections with a client certificate that the authority has not signed.
// One without a certificate is let through.
func (a *Authority) Verify(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return nil
	}
	now := time.Now()
	between := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: a.file.get(now), Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

// NameOf returns the name in a client certificate: its common name, or its first name or address.
func NameOf(c *x509.Certificate) (string, error) {
	names := append(append([]string{c.Subject.CommonName}, c.DNSNames...), c.EmailAddresses...)
	for _, name := range names {
		if name == "" {
			continue
		}
		return name, CheckName(name)
	}
	return "", errors.New("the certificate has no common name")
}
