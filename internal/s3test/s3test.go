// Package s3test builds and runs an S3 server, versitygw, for tests. The package owns the program, its folder and its
// port on 127.0.0.1. The package must not know what is stored.
package s3test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/internal/child"
	"millrace/internal/testbuild"
)

// Server is an S3 server.
type Server struct {
	Endpoint             string // http://127.0.0.1:PORT, or https:// of StartTLS
	AccessKey, SecretKey string
	// OtherKey with OtherSecret is an access key without rights in the buckets.
	OtherKey, OtherSecret string
	// CA is the path of the PEM file with the certificate of StartTLS.
	CA string

	t       testing.TB
	path    string
	folder  string // has a folder for each bucket
	process *child.Process
}

// users are the access keys beside the key of the server itself.
const users = `{"accessAccounts":{"other":{"access":"other","secret":"another secret","role":"user"}}}`

// Start runs a server with empty buckets until the test ends. Under -short the test is skipped.
func Start(t testing.TB, buckets ...string) *Server {
	t.Helper()
	s := prepare(t, buckets)
	s.Run()
	return s
}

// StartTLS is Start with TLS, and a certificate that only CA holds.
func StartTLS(t testing.TB, buckets ...string) *Server {
	t.Helper()
	s := prepare(t, buckets)
	s.Endpoint = strings.Replace(s.Endpoint, "http://", "https://", 1)
	s.CA = filepath.Join(s.folder, "cert.pem")
	if err := writeCertificate(s.CA, s.keyFile()); err != nil {
		t.Fatal(err)
	}
	s.Run()
	return s
}

func (s *Server) keyFile() string { return filepath.Join(s.folder, "key.pem") }

func prepare(t testing.TB, buckets []string) *Server {
	t.Helper()
	s := &Server{AccessKey: "tasks", SecretKey: "a secret", OtherKey: "other", OtherSecret: "another secret", t: t,
		path: testbuild.Peer(t, "versitygw"), folder: t.TempDir()}
	for _, dir := range []string{"buckets", "metadata", "users"} {
		if err := os.Mkdir(filepath.Join(s.folder, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(s.folder, "users", "users.json"), []byte(users), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, b := range buckets {
		if err := os.Mkdir(s.Path(b), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Endpoint = "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// writeCertificate makes a certificate of 127.0.0.1 that is its own authority, and writes both PEM files.
func writeCertificate(cert, key string) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := time.Now()
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, private.Public(), private)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	for name, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der},
		key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Run starts the server again, at the same address with the same objects.
func (s *Server) Run() {
	s.t.Helper()
	_, addr, _ := strings.Cut(s.Endpoint, "://")
	args := []string{"--quiet", "--access", s.AccessKey, "--secret", s.SecretKey, "--port", addr, "--iam-dir",
		filepath.Join(s.folder, "users")}
	if s.CA != "" {
		args = append(args, "--cert", s.CA, "--key", s.keyFile())
	}
	args = append(args, "posix", "--sidecar", filepath.Join(s.folder, "metadata"), filepath.Join(s.folder, "buckets"))
	p, err := child.Start(context.Background(), child.Spec{Path: s.path, Args: args,
		OnStderr: func(line []byte) { s.t.Logf("versitygw: %s", line) }})
	if err != nil {
		s.t.Fatal(err)
	}
	s.process = p
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(end) {
			s.t.Fatal(fmt.Errorf("versitygw does not start: %w", err))
		}
	}
}

// Stop kills the server.
func (s *Server) Stop() {
	if s.process != nil {
		_ = s.process.Stop(0)
		s.process = nil
	}
}

// Path returns the path of an object, KEY = BUCKET or BUCKET/NAME.
func (s *Server) Path(key string) string {
	return filepath.Join(s.folder, "buckets", filepath.FromSlash(key))
}

// Objects returns the names of the objects of a bucket.
func (s *Server) Objects(bucket string) (names []string) {
	s.t.Helper()
	err := fs.WalkDir(os.DirFS(s.Path(bucket)), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return names
}
