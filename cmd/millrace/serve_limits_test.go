//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// metric reads a metric of a server.
func metric(t *testing.T, addr, name string) float64 {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	for limit := time.Now().Add(30 * time.Second); ; {
		resp, err := c.Get("http://" + addr + "/metrics")
		if err != nil { // refused, at the limit of connections
			if time.Now().After(limit) {
				t.Fatal(err)
			}
			<-time.After(20 * time.Millisecond)
			continue
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindSubmatch(text)
		if found == nil {
			t.Fatalf("no %s in\n%s", name, text)
		}
		v, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func silent(t *testing.T, addr string, n int) (hangUp func()) {
	t.Helper()
	var all []net.Conn
	hangUp = func() {
		for _, c := range all {
			_ = c.Close()
		}
	}
	t.Cleanup(hangUp)
	for range n {
		c, err := net.DialTimeout("tcp", addr, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return hangUp
}

// exchange sends a request on a connection and reports whether the answer is 200.
func exchange(c net.Conn) bool {
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(c, "GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return false
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK
}

// answered dials until a request is answered, and returns the connection.
func answered(t *testing.T, addr string) net.Conn {
	t.Helper()
	for limit := time.Now().Add(30 * time.Second); ; <-time.After(20 * time.Millisecond) {
		c, err := net.DialTimeout("tcp", addr, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if exchange(c) {
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		_ = c.Close()
		if time.Now().After(limit) {
			t.Fatal("no request is answered")
		}
	}
}

// A server with few open files reports a reduced number of connections, and answers good clients while thousands of
// silent clients connect to each listener.
func TestFewOpenFiles(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "millrace.log")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	figures := free.Addr().String()
	_ = free.Close()
	c := command(t, "serve", "delay", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics-address", figures,
		"--log-file", log)
	limited := exec.CommandContext(t.Context(), "sh", append([]string{"-c", `ulimit -n 256; exec "$0" "$@"`},
		c.Args...)...)
	limited.Env, limited.Dir = c.Env, c.Dir
	p := begin(t, limited)
	line := p.until("ready")
	addr := httpAddr.FindStringSubmatch(line)[1]
	rpc := regexp.MustCompile(`grpc://(\S+)`).FindStringSubmatch(line)[1]
	if text, err := os.ReadFile(log); err != nil || !strings.Contains(string(text), "ulimit -n") {
		t.Errorf("the log says nothing of open files: %q, %v", text, err)
	}
	for _, target := range []string{addr, rpc, figures} {
		hangUp := silent(t, target, 1000)
		var good []net.Conn
		for range 20 {
			good = append(good, answered(t, addr))
		}
		for i, c := range good {
			if !exchange(c) {
				t.Errorf("good connection %d was closed", i)
			}
			_ = c.Close()
		}
		conn, err := grpc.NewClient(rpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if _, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{},
			grpc.WaitForReady(true)); err != nil {
			t.Errorf("a call: %v", err)
		}
		cancel()
		_ = conn.Close()
		hangUp()
	}
	for _, listener := range []string{"http", "grpc", "metrics"} {
		if n := metric(t, figures, `millrace_connections_shed_total{listener="`+listener+`"}`); n == 0 {
			t.Errorf("no silent connection of %s was closed", listener)
		}
	}
	if rest, code := p.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("exit status %d, then %q\n%s", code, rest, &p.stderr)
	}
}

// limits.max_connections_per_address limits the connections of an address outside of trusted_proxies.
func TestMaxConnectionsPerAddress(t *testing.T) {
	t.Parallel()
	p := begin(t, command(t, "serve", "delay", "--http", "127.0.0.1:0", "--grpc", "off",
		"--limits-max-connections-per-address", "5", "--trusted-proxies", "127.0.0.2"))
	addr := httpAddr.FindStringSubmatch(p.until("ready"))[1]
	dial := func(from string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
		c, err := d.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	for from, want := range map[string]int{"127.0.0.1": 5, "127.0.0.2": 20, "127.0.0.3": 5} {
		got := 0
		for range 20 {
			if exchange(dial(from)) {
				got++
			}
		}
		if got != want {
			t.Errorf("%d connections from %s are answered, want %d", got, from, want)
		}
	}
	if _, code := p.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("exit status %d\n%s", code, &p.stderr)
	}
}

// limits.max_connections limits the connections of all listeners together. A connection above the limit is closed at
// once, and an ended connection makes room.
func TestMaxConnections(t *testing.T) {
	t.Parallel()
	p := begin(t, command(t, "serve", "delay", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
		"--limits-max-connections", "20"))
	line := p.until("ready")
	addr := httpAddr.FindStringSubmatch(line)[1]
	rpc := regexp.MustCompile(`grpc://(\S+)`).FindStringSubmatch(line)[1]
	var kept []net.Conn
	for range 20 {
		kept = append(kept, answered(t, addr))
	}
	for _, target := range []string{addr, rpc} {
		for range 5 {
			c, err := net.DialTimeout("tcp", target, 10*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
			if _, err := c.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
				t.Errorf("one too many at %s: %v, want its end", target, err)
			}
			_ = c.Close()
		}
	}
	for i, c := range kept {
		if !exchange(c) {
			t.Errorf("connection %d was closed", i)
		}
		_ = c.Close()
	}
	hangUp := silent(t, rpc, 3)
	for _, listener := range []string{"http", "grpc"} {
		if n := metric(t, addr, `millrace_connections_refused_total{listener="`+listener+`",reason="total"}`); n < 5 {
			t.Errorf("%v of %s refused, want 5 at least", n, listener)
		}
	}
	hangUp()
	// Ended connections do not count; the request's own connection does.
	for name, want := range map[string]float64{"grpc": 0, "http": 1} {
		for limit := time.Now().Add(30 * time.Second); metric(t, addr, `millrace_connections{listener="`+name+
			`"}`) != want; {
			if time.Now().After(limit) {
				t.Fatalf("%s: connections that have ended are still counted", name)
			}
			<-time.After(10 * time.Millisecond)
		}
	}
	if _, code := p.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("exit status %d\n%s", code, &p.stderr)
	}
}

// SIGHUP reopens the log file, and the server keeps running.
func TestLogRotation(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "millrace.log")
	p := begin(t, command(t, "serve", "delay", "--http", "127.0.0.1:0", "--grpc", "off", "--log-file", log))
	addr := httpAddr.FindStringSubmatch(p.until("ready"))[1]
	for n := range 2 {
		if err := os.Rename(log, fmt.Sprintf("%s.%d", log, n)); err != nil {
			t.Fatal(err)
		}
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		for limit := time.Now().Add(30 * time.Second); ; {
			// the last step of SIGHUP
			if text, err := os.ReadFile(log); err == nil && strings.Contains(string(text), "opened again") {
				break
			}
			if time.Now().After(limit) {
				t.Fatal("the log was not opened again")
			}
			<-time.After(5 * time.Millisecond)
		}
	}
	metric(t, addr, `millrace_connections{listener="http"}`) // it still runs
	if _, code := p.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("exit status %d\n%s", code, &p.stderr)
	}
	if text, err := os.ReadFile(log); err != nil || !strings.Contains(string(text), "opened again") {
		t.Errorf("%v: the new log has %q", err, text)
	}
}

// Without a log file SIGHUP does nothing.
func TestHangUp(t *testing.T) {
	t.Parallel()
	p := begin(t, command(t, "serve", "delay", "--http", "127.0.0.1:0", "--grpc", "off"))
	addr := httpAddr.FindStringSubmatch(p.until("ready"))[1]
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	metric(t, addr, `millrace_connections{listener="http"}`)
	if _, code := p.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("exit status %d\n%s", code, &p.stderr)
	}
}
