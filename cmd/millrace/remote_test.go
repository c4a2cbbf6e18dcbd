package main

import (
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
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
	p := begin(t, with(cache, "serve", "--http", "127.0.0.1:0", "--grpc", "off", "--tls-self-signed", "--model", "same=identity"))
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
	if stdout, stderr, code := finish(t, with(cache, "models", "--addr", addr)); code != 0 || !strings.Contains(stdout, "READY") {
		t.Errorf("status %d\n%s%s", code, stdout, stderr)
	}
	for _, protocol := range []string{"ws", "v1", "rest"} {
		if stdout, stderr, code := finish(t, with(cache, "bench", "--addr", addr, "--model", "same", "--frames", "3", "--protocol", protocol)); code != 0 || !strings.Contains(stdout, "3 answered") {
			t.Errorf("%s: status %d\n%s%s", protocol, code, stdout, stderr)
		}
	}

	// As another user, whose cache folder has no such certificate.
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
	check(1, "give --addr https://HOST:PORT")
	check(2, "give --addr https://"+addr, "--ca", file)
	if _, code := p.signal(os.Interrupt); code != 0 || !strings.Contains(p.stderr.String(), fingerprint) {
		t.Errorf("status %d; the server says\n%s", code, &p.stderr)
	}
}

// TestLoopback: the certificate of this user's server is trusted only at an address of
// this machine.
func TestLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"https://127.0.0.1:1": true, "https://localhost": true, "https://[::1]:2/x": true, "https://0.0.0.0:3": true, "wss://127.9.9.9:1": true,
		"http://127.0.0.1:1": false, "127.0.0.1:1": false, "https://192.0.2.7": false, "https://localhost.example.com": false, "": false,
	} {
		if got := isLoopback(addr); got != want {
			t.Errorf("%q: %v", addr, got)
		}
	}
}
