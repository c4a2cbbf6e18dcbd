package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestSelfSigned: a server with a self-signed certificate needs no flag from the same user
// on the same machine, and --ca or --fingerprint otherwise.
func TestSelfSigned(t *testing.T) {
	t.Parallel()
	cache, user := t.TempDir(), t.TempDir()
	with := func(cache string, args ...string) *exec.Cmd {
		c := command(t, args...)
		c.Env = append(c.Env, "XDG_CACHE_HOME="+cache)
		return c
	}
	p := begin(t, with(cache, "serve", "--http", "127.0.0.1:0", "--grpc", "off", "--tls-self-signed", "--model",
		"same=identity"))
	ready := p.until("millrace is ready: ")
	addr := regexp.MustCompile(`https://[0-9.:]+`).FindString(ready)
	file := filepath.Join(t.TempDir(), "ca.pem")
	text, err := os.ReadFile(filepath.Join(cache, "millrace", "tls", "cert.pem"))
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	block, _ := pem.Decode(text)
	if err != nil || addr == "" || block == nil {
		t.Fatalf("%v\n%s", err, ready)
	}
	sum := sha256.Sum256(block.Bytes)
	fingerprint := strings.ReplaceAll(fmt.Sprintf("% X", sum), " ", ":")
	other := strings.Map(func(r rune) rune {
		if r == ':' {
			return r
		}
		return '0'
	}, fingerprint)
	check := func(code int, want string, args ...string) {
		t.Helper()
		stdout, stderr, got := finish(t, with(user, append([]string{"models", "--addr", addr}, args...)...))
		if got != code || !strings.Contains(stdout+stderr, want) {
			t.Errorf("%q: status %d\n%s%s", args, got, stdout, stderr)
		}
	}
	if stdout, stderr, code := finish(t, with(cache, "models", "--addr", addr)); code != 0 ||
		!strings.Contains(stdout, "READY") {
		t.Errorf("status %d\n%s%s", code, stdout, stderr)
	}
	for _, protocol := range []string{"ws", "v1", "rest"} {
		if stdout, stderr, code := finish(t, with(cache, "bench", "--addr", addr, "--model", "same", "--frames", "3",
			"--protocol", protocol)); code != 0 || !strings.Contains(stdout, "3 answered") {
			t.Errorf("%s: status %d\n%s%s", protocol, code, stdout, stderr)
		}
	}

	// Another user's cache folder has no self-signed certificate.
	check(1, "--fingerprint SHA256")
	check(0, "READY", "--ca", file)
	check(0, "READY", "--fingerprint", fingerprint)
	check(0, "READY", "--fingerprint", strings.ToLower(strings.ReplaceAll(fingerprint, ":", "")))
	check(1, "another fingerprint: "+fingerprint, "--fingerprint", other)
	check(2, "--fingerprint: ", "--fingerprint", "12:34")
	check(2, "give one of them", "--fingerprint", fingerprint, "--ca", file)
	check(1, "--ca: ", "--ca", filepath.Join(cache, "none.pem"))
	check(1, "no certificate", "--ca", os.Args[0])
	addr = strings.TrimPrefix(addr, "https://")
	check(1, "this port speaks https: use https://")
	check(2, "give --addr https://"+addr, "--ca", file)
	if _, code := p.signal(os.Interrupt); code != 0 || !strings.Contains(p.stderr.String(), fingerprint) {
		t.Errorf("status %d; the server says\n%s", code, &p.stderr)
	}
}

// TestClientCertificate: --cert and --key are the credentials of a command, and health needs none.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	cert, keyFile := filepath.Join(cache, "eva.pem"), filepath.Join(cache, "eva.key")
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// The certificate signs itself, and so is its own authority.
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "eva"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der},
		keyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	with := func(args ...string) *exec.Cmd {
		c := command(t, args...)
		c.Env = append(c.Env, "XDG_CACHE_HOME="+cache)
		return c
	}
	p := begin(t, with("serve", "--http", "127.0.0.1:0", "--grpc", "off", "--tls-self-signed", "--tls-client-ca", cert,
		"--auth-roles", "infer,watch", "--model", "same=identity"))
	addr := regexp.MustCompile(`https://[0-9.:]+`).FindString(p.until("millrace is ready: "))
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{"models", "give a key of the server", 1},
		{"models --cert " + cert + " --key " + keyFile, "READY", 0},
		{"bench --model same --frames 3 --protocol ws --cert " + cert + " --key " + keyFile, "3 answered", 0},
		{"models --cert " + cert, "--key belong together", 2},
		{"models --cert " + keyFile + " --key " + cert, "--cert: " + keyFile, 1},
		{"health", "ready", 0},
		{"health --live", "ready", 0},
	} {
		if stdout, stderr, code := finish(t, with(append(strings.Fields(c.args), "--addr", addr)...)); code !=
			c.code || !strings.Contains(stdout+stderr, c.want) {
			t.Errorf("%s: status %d\n%s%s", c.args, code, stdout, stderr)
		}
	}
	if _, code := p.signal(os.Interrupt); code != 0 {
		t.Errorf("status %d", code)
	}
	if stdout, stderr, code := finish(t, with("health", "--addr", addr)); code != 1 ||
		!strings.Contains(stderr, "start a server") {
		t.Errorf("without a server: status %d\n%s%s", code, stdout, stderr)
	}
	if _, stderr, code := finish(t, with("models", "--cert", cert, "--key", keyFile, "--addr",
		"127.0.0.1:1")); code != 2 || !strings.Contains(stderr, "give --addr https://127.0.0.1:1") {
		t.Errorf("not encrypted: status %d\n%s", code, stderr)
	}
}

// TestLoopback: the certificate of this user's server is trusted only at an address of
// this machine.
func TestLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"https://127.0.0.1:1": true, "https://localhost": true, "https://[::1]:2/x": true, "https://0.0.0.0:3": true,
		"wss://127.9.9.9:1":  true,
		"http://127.0.0.1:1": false, "127.0.0.1:1": false, "https://192.0.2.7": false,
		"https://localhost.example.com": false, "": false,
	} {
		if got := isLoopback(addr); got != want {
			t.Errorf("%q: %v", addr, got)
		}
	}
}
