package server

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"millrace/config"
	"millrace/internal/inferencepb"
	"millrace/internal/testneeds"
)

// askOn sends a request and returns the status of the reply, 0 if the connection has ended.
func askOn(c net.Conn, path, key string) int {
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\napi_key: %s\r\n\r\n", path, key); err != nil {
		return 0
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	r.Body.Close()
	return r.StatusCode
}

// TestStrangersGiveWay: at limits.max_connections, new connections displace connections without accepted credentials,
// also after refused requests and requests open to all, but never connections of clients with a key. Where clients
// need no credentials, one request protects a connection.
func TestStrangersGiveWay(t *testing.T) {
	const most = 6
	for _, c := range []struct {
		name, listener, path string
		status               int
		open                 bool // clients need no credentials
	}{
		{"open to all", "http", "/v2/health/live", 200, false},
		{"refused", "http", "/v2", 401, false},
		{"no such route", "http", "/nothing", 404, false},
		{"metrics", "metrics", "/metrics", 200, false},
		{"call", "grpc", "", 0, false},
		{"without credentials", "http", "/v2/health/live", 200, true},
		{"metrics without credentials", "metrics", "/metrics", 200, true},
		{"call without credentials", "grpc", "", 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := startKeyed(t, func(cfg *Config) {
				cfg.Limits.MaxConnections, cfg.Auth.Metrics, cfg.Metrics.Address = most, "open", "127.0.0.1:0"
				if c.open {
					cfg.Auth = config.Auth{}
				}
			})
			ended := make([]func() bool, most)
			for i := range ended {
				if c.listener == "grpc" {
					conn := must(grpc.NewClient(k.Addr("grpc"),
						grpc.WithTransportCredentials(insecure.NewCredentials())))
					defer conn.Close()
					if _, err := inferencepb.NewGRPCInferenceServiceClient(conn).ServerLive(t.Context(),
						&inferencepb.ServerLiveRequest{}); err != nil {
						t.Fatal(err)
					}
					ended[i] = func() bool { return conn.WaitForStateChange(t.Context(), connectivity.Ready) }
					continue
				}
				conn := dialListener(t, k.Server, c.listener)
				defer conn.Close()
				if got := askOn(conn, c.path, ""); got != c.status {
					t.Fatalf("status %d, want %d", got, c.status)
				}
				ended[i] = func() bool { _, err := conn.Read(make([]byte, 1)); return err != nil }
			}
			if c.open {
				conn := dialListener(t, k.Server, "http")
				defer conn.Close()
				if askOn(conn, "/v2", "") != 0 {
					t.Error("one more is answered")
				}
				return
			}
			var known []net.Conn
			for range most {
				// a connection can be displaced after a second of silence
				for limit := time.Now().Add(time.Minute); ; {
					conn := dialListener(t, k.Server, "http")
					defer conn.Close()
					if askOn(conn, "/v2", k.keys["all"]) == 200 {
						known = append(known, conn)
						break
					}
					conn.Close()
					if time.Now().After(limit) {
						t.Fatal("no connection gives way")
					}
					time.Sleep(20 * time.Millisecond)
				}
			}
			for _, ended := range ended {
				if !ended() {
					t.Error("one of those without a key goes on")
				}
			}
			for _, conn := range known {
				if got := askOn(conn, "/v2/health/live", ""); got != 200 {
					t.Errorf("one of those with a key is answered with %d", got)
				}
			}
		})
	}
}

// TestTicketsAreCredentials: a WebSocket with a valid ticket and no key is not displaced.
func TestTicketsAreCredentials(t *testing.T) {
	k := startKeyed(t, func(c *Config) { c.GRPC = Off })
	send := func(request string) (status int, text string) {
		t.Helper()
		c := dialListener(t, k.Server, "http")
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.StatusCode == 200 {
			text = string(must(io.ReadAll(r.Body)))
		}
		return r.StatusCode, text
	}
	_, text := send("POST /v2/tickets HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\napi_key: " +
		k.keys["infer"] + "\r\n\r\n")
	_, text, _ = strings.Cut(text, `"protocol":"`)
	ticket, _, _ := strings.Cut(text, `"`)
	status, _ := send("GET /v2/models/echo/stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: " +
		"websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
		"AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: " + ticket + "\r\n\r\n")
	if n := k.connections.limit.Silent(); status != 101 || n != 0 {
		t.Errorf("status %d, %d silent connections", status, n)
	}
}

// TestLoginsDoNotGiveWay: a connection is not displaced during the check of its login, and can be displaced after a
// refused login.
func TestLoginsDoNotGiveWay(t *testing.T) {
	dir := t.TempDir()
	file, wait := filepath.Join(dir, "users.py"), filepath.Join(dir, "wait")
	if err := syscall.Mkfifo(wait, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, "def authenticate_user(username, password):\n    open(%q).read()\n",
		wait), 0o600); err != nil {
		t.Fatal(err)
	}
	k := startKeyed(t, func(c *Config) {
		c.GRPC, c.Auth = Off, config.Auth{Module: file, Python: testneeds.Python(t)}
	})
	conn := dialListener(t, k.Server, "http")
	defer conn.Close()
	status := make(chan int, 1)
	go func() {
		status <- askOn(conn, "/session_login", "\r\nAuthorization: Basic "+
			base64.StdEncoding.EncodeToString([]byte("eva:secret")))
	}()
	module, err := os.OpenFile(wait, os.O_WRONLY, 0) // when the module reads
	if err != nil {
		t.Fatal(err)
	}
	if n := k.connections.limit.Silent(); n != 0 {
		t.Errorf("%d connections give way while a login is checked", n)
	}
	module.Close()
	if got := <-status; got != 401 {
		t.Errorf("status %d", got)
	}
	if n := k.connections.limit.Silent(); n != 1 {
		t.Errorf("%d connections give way after a login that was refused", n)
	}
}
