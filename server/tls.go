package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/acme"

	"millrace/config"
	"millrace/internal/textfile"
	"millrace/stream"
)

// encryption is the TLS configuration of the listeners, with the source of the certificate.
type encryption struct {
	config    *tls.Config // nil = connections are not encrypted
	files     *keyPair    // the certificate in files; nil = no files
	authority *authority  // the authority that issues the certificate; nil = no authority
}

// newEncryption reads or requests the configured certificate.
func newEncryption(c *Config, log *slog.Logger) (e encryption, err error) {
	if c.TLS.ACME.On() {
		if e.authority, err = newAuthority(c); err == nil {
			e.authority.log = log
			e.config = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: e.authority.get,
				NextProtos: []string{acme.ALPNProto}}
		}
		return e, err
	}
	e.files, err = readCertificate(c.TLS, ownNames(c.Hosts), textfile.LogFailed(log, "tls.cert"))
	if e.files != nil {
		e.config = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: e.files.get}
	}
	return e, err
}

// on reports whether connections are encrypted.
func (e *encryption) on() bool { return e.config != nil }

// reread reads the files of the certificate now, not at the next check.
func (e *encryption) reread() error {
	if e.files == nil {
		return nil
	}
	return e.files.reread()
}

// run requests and renews certificates of an authority until ctx ends.
func (e *encryption) run(ctx context.Context) {
	if e.authority != nil {
		e.authority.run(ctx)
	}
}

// readCertificate returns the certificate in files, or nil without files. names are the names in a self-signed
// certificate.
func readCertificate(c config.TLS, names []string, failed func(error)) (*keyPair, error) {
	if !c.On() {
		return nil, nil
	}
	if c.SelfSigned {
		var err error
		if c.Cert, c.Key, err = ownCertificate(names); err != nil {
			return nil, fmt.Errorf("tls.self_signed: %w", err)
		}
	}
	files := &keyPair{cert: c.Cert, key: c.Key, failed: failed}
	if _, err := files.get(nil); err != nil {
		return nil, err
	}
	return files, nil
}

// keyPair is a certificate in files that may be replaced while the server runs.
type keyPair struct {
	cert, key string
	failed    func(error) // see textfile.Options

	mu    sync.Mutex
	files *textfile.Watched[*tls.Certificate] // nil until the files were read for the first time
}

const (
	// checkInterval is the time between two checks of the files.
	checkInterval = 10 * time.Second
	maxPEM        = 1 << 20 // bytes of a file
)

// get is tls.Config.GetCertificate. When the files cannot be read, for example during a replacement, get returns the
// previous certificate.
func (k *keyPair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	files, err := k.open()
	if err != nil {
		return nil, err
	}
	return files.Get(time.Now()), nil
}

func (k *keyPair) open() (*textfile.Watched[*tls.Certificate], error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.files != nil {
		return k.files, nil
	}
	files, err := textfile.Open(textfile.Options[*tls.Certificate]{
		Paths: []string{k.cert, k.key}, MaxSize: maxPEM, Every: checkInterval, Failed: k.failed,
		Parse: func(texts [][]byte) (*tls.Certificate, error) {
			pair, err := tls.X509KeyPair(texts[0], texts[1])
			if err != nil {
				return nil, fmt.Errorf("%s with %s: %w", k.cert, k.key, err)
			}
			return &pair, nil
		},
	})
	if err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "tls.cert", "%s with %s cannot be used: %w", k.cert, k.key,
			err)
	}
	k.files = files
	return files, nil
}

// reread reads the files now.
func (k *keyPair) reread() error {
	files, err := k.open()
	if err != nil {
		return err
	}
	if err := files.Reread(); err != nil {
		return stream.Errorf(stream.InvalidArgument, "tls.cert",
			"%s with %s cannot be used, and the certificate stays as it was: %w", k.cert, k.key, err)
	}
	return nil
}

const (
	ownValidity      = 365 * 24 * time.Hour
	ownLeastValidity = 7 * 24 * time.Hour // renew at less than this validity
)

// ownCertificate returns the files of a self-signed certificate for the names. A valid certificate is kept, so that
// users need to accept the certificate only once.
func ownCertificate(names []string) (cert, key string, err error) {
	if cert, err = SelfSignedFile(); err != nil {
		return "", "", err
	}
	dir := filepath.Dir(cert)
	key = filepath.Join(dir, "key.pem")
	if old, err := tls.LoadX509KeyPair(cert, key); err == nil && covers(old.Leaf, names) {
		return cert, key, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", err
	}
	certPEM, keyPEM, err := makeCertificate(names, time.Now())
	if err != nil {
		return "", "", err
	}
	return cert, key, errors.Join(os.WriteFile(key, keyPEM, 0o600), os.WriteFile(cert, certPEM, 0o644))
}

// SelfSignedFile returns the certificate file of this user's servers with tls.self_signed; clients of the same user
// can trust the certificate in the file.
func SelfSignedFile() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "millrace", "tls", "cert.pem"), nil
}

// covers reports whether the certificate is valid for all the names, and for long
// enough.
func covers(c *x509.Certificate, names []string) bool {
	return c != nil && time.Until(c.NotAfter) > ownLeastValidity && !slices.ContainsFunc(names, func(n string) bool {
		return c.VerifyHostname(n) != nil
	})
}

func makeCertificate(names []string, now time.Time) (certPEM, keyPEM []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "Millrace", Organization: []string{"self-signed"}},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(ownValidity),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		// Trusting the certificate means trusting this server only: its key signs no other certificate.
		BasicConstraintsValid: true,
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &private.PublicKey, private)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}

// ownNames returns the names and addresses of this machine for its clients.
func ownNames(hosts []string) []string {
	names := []string{"localhost"}
	if h, _ := os.Hostname(); h != "" {
		names = append(names, h)
	}
	for _, h := range hosts {
		if h != "*" {
			names = append(names, h)
		}
	}
	names = append(names, Addresses()...)
	slices.Sort(names)
	return slices.Compact(names)
}

// Addresses returns the IP addresses of this machine, without link-local addresses.
func Addresses() (out []string) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return []string{"127.0.0.1"}
	}
	return addressesOf(all)
}

func addressesOf(all []net.Addr) (out []string) {
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			out = append(out, n.IP.String())
		}
	}
	return out
}

// Fingerprint returns the SHA-256 of the server's certificate, in the form of browsers; "" when TLS is off.
func (s *Server) Fingerprint() string {
	if !s.connections.tls.on() {
		return ""
	}
	c, err := s.connections.tls.config.GetCertificate(nil)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(c.Certificate[0])
	return strings.ReplaceAll(fmt.Sprintf("% X", sum), " ", ":")
}
