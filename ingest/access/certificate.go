package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	"millrace/internal/textfile"
)

// Authority is a file with the certificates that may sign those of clients, read again when it changes. It is safe for
// concurrent use.
type Authority struct {
	file *textfile.Watched[*x509.CertPool]

	mu    sync.Mutex
	by    *x509.CertPool                 // with which those of valid were verified
	valid map[*x509.Certificate]struct{} // of open connections, and of some that have ended
}

// maxValid is how many certificates are remembered as verified.
const maxValid = 4096

// OpenAuthority reads a file in PEM. When it cannot be read later, failed is called with the error, and with nil when it can be again; until then the certificates stay as they were.
func OpenAuthority(path string, failed func(error)) (*Authority, error) {
	file, err := watch(path, parsePool, failed)
	return &Authority{file: file}, err
}

func parsePool(text []byte, path string) (*x509.CertPool, error) {
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
	return a.Check(s.PeerCertificates, time.Now())
}

// Check returns why a client certificate, the first of a chain, is not valid now, or nil. Within one connection, it is verified again when
// the file has changed only.
func (a *Authority) Check(chain []*x509.Certificate, now time.Time) error {
	if len(chain) == 0 {
		return errors.New("there is no certificate")
	}
	if !now.Before(chain[0].NotAfter) {
		return errors.New("the certificate has expired")
	}
	roots := a.file.Get(now)
	a.mu.Lock()
	if a.by != roots || len(a.valid) >= maxValid {
		a.by, a.valid = roots, map[*x509.Certificate]struct{}{}
	}
	_, valid := a.valid[chain[0]]
	a.mu.Unlock()
	if valid {
		return nil
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by == roots {
		a.valid[chain[0]] = struct{}{}
	}
	return nil
}

// Recheck has the next call look at the file.
func (a *Authority) Recheck() { a.file.Recheck() }

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
