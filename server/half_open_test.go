package server

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"

	"millrace/config"
)

// TestHalfOpenTLS: clients with unfinished TLS handshakes have at most limits.max_connections connections, and are
// displaced by clients that send requests.
func TestHalfOpenTLS(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	const most = 20
	cfg := Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: config.Log{Level: "error"},
		TLS: config.TLS{SelfSigned: true}}
	cfg.Limits.MaxConnections = most
	s := must(New(cfg))
	done := make(chan error, 1)
	ctx, stop := contextOf(t)
	go func() { done <- s.Run(ctx) }()
	<-s.Ready()
	own := x509.NewCertPool()
	own.AppendCertsFromPEM(must(os.ReadFile(must(SelfSignedFile()))))
	trust := &tls.Config{RootCAs: own}

	// The first bytes of a handshake message; the server waits for the rest.
	var begun []net.Conn
	for i := range 3 * most {
		c, err := net.Dial("tcp", s.Addr([]string{"http", "grpc"}[i%2]))
		if err != nil {
			t.Fatal(err)
		}
		begun = append(begun, c)
		_, _ = c.Write([]byte{22, 3, 1, 2, 0, 1})
	}
	transport := &http.Transport{TLSClientConfig: trust}
	defer transport.CloseIdleConnections()
	conn := must(grpc.NewClient(s.Addr("grpc"), grpc.WithTransportCredentials(credentials.NewTLS(trust))))
	defer conn.Close()
	served := map[string]func() error{
		"http": func() error {
			r, err := (&http.Client{Transport: transport}).Get(s.URL("http") + "/v2/health/ready")
			if err == nil {
				_, err = io.Copy(io.Discard, r.Body)
				r.Body.Close()
			}
			return err
		},
		"grpc": func() error {
			_, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{},
				grpc.WaitForReady(true))
			return err
		},
	}
	for name, ask := range served {
		for { // a silent connection can be displaced after a second of silence
			err := ask()
			st := s.connections.limit.Stats()
			if n := st["http"].Open + st["grpc"].Open; n > most {
				t.Fatalf("%d connections are open", n)
			}
			if err == nil {
				break
			}
			t.Logf("%s: %v", name, err)
			time.Sleep(50 * time.Millisecond)
		}
	}
	if st := s.connections.limit.Stats(); st["http"].Shed+st["grpc"].Shed == 0 ||
		st["http"].Refused+st["grpc"].Refused == 0 {
		t.Errorf("none gave way, or none was refused: %+v", st)
	}
	for _, c := range begun {
		c.Close()
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
