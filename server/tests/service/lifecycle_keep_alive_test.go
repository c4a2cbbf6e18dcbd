package service_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"millrace/internal/servertest"
	"millrace/server"
)

// TestKeepAlive: the server closes an HTTP connection after limits.keep_alive without a request.
func TestKeepAlive(t *testing.T) {
	cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: "off"}
	cfg.Limits.KeepAlive = time.Millisecond
	s, end := servertest.RunWith(t, cfg)
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	conn, err := net.Dial("tcp", s.Addr("http"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil { // less than the default
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 200 || resp.Close {
		t.Fatal(resp, err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ReadByte(); err != io.EOF {
		t.Errorf("%v, want the end of the connection", err)
	}
}
