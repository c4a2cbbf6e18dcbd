//go:build unix

package main

import (
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
)

// metric reads one metric of a server.
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

// A server that runs out of open files accepts connections when some are free again.
func TestFewOpenFiles(t *testing.T) {
	t.Parallel()
	for _, listener := range []string{"http", "grpc"} {
		log := filepath.Join(t.TempDir(), "millrace.log")
		c := command(t, "serve", "delay", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--log-file", log)
		limited := exec.CommandContext(t.Context(), "sh", append([]string{"-c", `ulimit -n 256; exec "$0" "$@"`}, c.Args...)...)
		limited.Env, limited.Dir = c.Env, c.Dir
		p := begin(t, limited)
		line := p.until("ready")
		addr := httpAddr.FindStringSubmatch(line)[1]
		target := regexp.MustCompile(listener + `://(\S+)`).FindStringSubmatch(line)[1]
		hangUp := silent(t, target, 300)
		for limit := time.Now().Add(30 * time.Second); ; <-time.After(10 * time.Millisecond) {
			if text, err := os.ReadFile(log); err == nil && strings.Contains(string(text), "ulimit -n") {
				break
			}
			if time.Now().After(limit) {
				t.Fatal("the log says nothing of open files")
			}
		}
		hangUp()
		if n := metric(t, addr, `millrace_accept_failures_total{listener="`+listener+`"}`); n == 0 {
			t.Errorf("no failure of %s was counted", listener)
		}
		if rest, code := p.signal(syscall.SIGTERM); code != 0 {
			t.Errorf("exit status %d, then %q\n%s", code, rest, &p.stderr)
		}
	}
}

// limits.max_connections bounds the connections of all listeners together; one above the
// limit is closed at once, and one that ends makes room for another.
func TestMaxConnections(t *testing.T) {
	t.Parallel()
	p := begin(t, command(t, "serve", "delay", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--limits-max-connections", "20"))
	line := p.until("ready")
	addr := httpAddr.FindStringSubmatch(line)[1]
	hangUp := silent(t, regexp.MustCompile(`grpc://(\S+)`).FindStringSubmatch(line)[1], 19)
	// One connection takes the last place; all later ones are refused.
	holder, refused := 0, 0
	var kept []net.Conn
	for range 10 {
		c, err := net.DialTimeout("tcp", addr, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, c)
		_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		_, err = c.Read(make([]byte, 1))
		if e, ok := err.(net.Error); ok && e.Timeout() {
			holder++
		} else {
			refused++
		}
	}
	if holder > 1 || refused < 9 {
		t.Errorf("%d got in, %d were refused", holder, refused)
	}
	for _, c := range kept {
		_ = c.Close()
	}
	hangUp()
	if n := metric(t, addr, `millrace_connections_refused_total{listener="http"}`); n < float64(refused) {
		t.Errorf("%v refused, want %d at least", n, refused)
	}
	// Ended connections are not counted; that of the request itself is.
	for name, want := range map[string]float64{"grpc": 0, "http": 1} {
		for limit := time.Now().Add(30 * time.Second); metric(t, addr, `millrace_connections{listener="`+name+`"}`) != want; {
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
			if _, err := os.Stat(log); err == nil {
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
