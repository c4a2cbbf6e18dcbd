package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/config"
)

// TestBrokenCertificateIsLogged: an unreadable new certificate leaves the old certificate in use, and the log reports
// the error.
func TestBrokenCertificateIsLogged(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	cert, key, err := ownCertificate([]string{"localhost"})
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "log")
	s, err := New(Config{HTTP: "127.0.0.1:0", GRPC: Off, TLS: config.TLS{Cert: cert, Key: key},
		Log: config.Log{File: log}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.abandon()
	before := s.Fingerprint()
	if err := os.WriteFile(cert, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.connections.tls.files.files.Recheck()
	if _ = s.connections.tls.files.files.Get(time.Now()); s.Fingerprint() != before || before == "" {
		t.Error("the certificate did not stay in use")
	}
	text, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(text), "a file could not be read again") ||
		!strings.Contains(string(text), "tls.cert") {
		t.Errorf("%v: %s", err, text)
	}
}
