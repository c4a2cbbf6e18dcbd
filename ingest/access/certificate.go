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

// Authority is a file with the certificates of the issuers of client certificates. Authority reads the file again
// after a change. Authority is safe for concurrent use.
type Authority struct {
	file *textfile.Watched[*x509.CertPool]

	mu    sync.Mutex
	pool  *x509.CertPool                 // authority used to verify the certificates in valid
	valid map[*x509.Certificate]struct{} // of open connections, and of some ended connections
}

// maxValid is the most certificates remembered as verified.
const maxValid = 4096

// OpenAuthority reads a file in PEM. When the file cannot be read again, the certificates stay and failed is called
// with the error; when the file can be read again, failed is called with nil.
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

// Verify is tls.Config.VerifyConnection. Verify refuses a client certificate that the authority has not signed, and
// allows a connection without a certificate.
func (a *Authority) Verify(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return nil
	}
	return a.Check(s.PeerCertificates, time.Now())
}

// Check returns an error if a client certificate, the first of a chain, is not valid now. Within one connection,
// Check verifies the certificate again only after a change of the file.
func (a *Authority) Check(chain []*x509.Certificate, now time.Time) error {
	if len(chain) == 0 {
		return errors.New("there is no certificate")
	}
	if !now.Before(chain[0].NotAfter) {
		return errors.New("the certificate has expired")
	}
	roots := a.file.Get(now)
	a.mu.Lock()
	if a.pool != roots || len(a.valid) >= maxValid {
		a.pool, a.valid = roots, map[*x509.Certificate]struct{}{}
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
		Roots: roots, Intermediates: between, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pool == roots {
		a.valid[chain[0]] = struct{}{}
	}
	return nil
}

// Recheck makes the next call look at the file.
func (a *Authority) Recheck() { a.file.Recheck() }

// NameOf returns the name in a client certificate: the common name, or the first DNS name or mail address.
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
