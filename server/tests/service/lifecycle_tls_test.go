package service_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"

	"millrace/config"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/workers"
)

func TestTLS(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Hosts: []string{"cam.test"},
		TLS:    config.TLS{SelfSigned: true},
		Models: []workers.Config{{Name: "id", Source: "identity"}}}
	s, stop := servertest.RunWith(t, cfg)
	pem, err := os.ReadFile(filepath.Join(cache, "millrace", "tls", "cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	trust := &tls.Config{RootCAs: roots}
	if !strings.HasPrefix(s.URL("http"), "https://127.0.0.1:") || len(s.Fingerprint()) != 32*3-1 {
		t.Errorf("%s, fingerprint %s", s.URL("http"), s.Fingerprint())
	}

	// REST, by a name in the certificate.
	named := trust.Clone()
	named.ServerName = "cam.test"
	web := http.Client{Transport: &http.Transport{TLSClientConfig: named}}
	r, err := web.Get(s.URL("http") + "/v2/health/ready")
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%v %v", r, err)
	}
	r.Body.Close()
	web.CloseIdleConnections()

	// A page of this server, over WebSocket.
	d := websocket.Dialer{TLSClientConfig: trust}
	ws, _, err := d.Dial(strings.Replace(s.URL("http"), "https", "wss", 1)+
		"/v2/models/id/stream?codec=opaque&outputs=none", http.Header{"Origin": {s.URL("http")}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := ws.WriteMessage(websocket.BinaryMessage, make([]byte, 100<<10)); err != nil {
			t.Fatal(err)
		}
		if _, reply, err := ws.ReadMessage(); err != nil || !strings.Contains(string(reply), `"timing"`) {
			t.Fatalf("%s %v", reply, err)
		}
	}
	ws.Close()

	// gRPC.
	c, err := grpc.NewClient(s.Addr("grpc"), grpc.WithTransportCredentials(credentials.NewTLS(trust)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := grpc_health_v1.NewHealthClient(c).Check(context.Background(),
		&grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	c.Close()

	// Too old a protocol, and none.
	old := trust.Clone()
	old.MaxVersion = tls.VersionTLS11
	if c, err := tls.Dial("tcp", s.Addr("http"), old); err == nil {
		c.Close()
		t.Error("TLS 1.1 was taken")
	}
	for _, size := range []int{0, 1 << 20} { // an unread body must not lose the reply
		r, err := http.Post("http://"+s.Addr("http")+"/v2/models/same/infer", "application/json",
			strings.NewReader(strings.Repeat(" ", size)))
		if err != nil {
			t.Errorf("without TLS: %v", err)
			continue
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != 400 || !strings.Contains(string(text), "https") {
			t.Errorf("without TLS: %s %s, %v", r.Status, text, err)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}

	// The certificate is kept until its names change.
	if _, stop := servertest.RunWith(t, cfg); stop() != nil {
		t.Error("did not end well")
	}
	if again, err := os.ReadFile(filepath.Join(cache, "millrace", "tls", "cert.pem")); err != nil ||
		string(again) != string(pem) {
		t.Error("the certificate was made anew")
	}
	cfg.Hosts = append(cfg.Hosts, "other.test")
	if _, stop := servertest.RunWith(t, cfg); stop() != nil {
		t.Error("did not end well")
	}
	if again, err := os.ReadFile(filepath.Join(cache, "millrace", "tls", "cert.pem")); err != nil ||
		string(again) == string(pem) {
		t.Error("the certificate was not made for other.test")
	}
}

// TestHSTS: all answers of a server with a certificate have the HSTS header, also refusals.
func TestHSTS(t *testing.T) {
	cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	made, stop := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off",
		TLS: config.TLS{SelfSigned: true}})
	if made.URL("http") == "" || stop() != nil {
		t.Fatal("no certificate was made")
	}
	own, err := server.SelfSignedFile()
	if err != nil {
		t.Fatal(err)
	}
	for to, from := range map[string]string{cert: own, key: filepath.Join(filepath.Dir(own), "key.pem")} {
		text, err := os.ReadFile(from)
		if err != nil || os.WriteFile(to, text, 0o600) != nil {
			t.Fatal(err)
		}
	}
	for age, want := range map[time.Duration]string{0: "", 48 * time.Hour: "max-age=172800"} {
		s, stop := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off",
			TLS: config.TLS{Cert: cert, Key: key, HSTS: age}})
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		for _, request := range []struct{ method, path, host string }{
			{"GET", "/v2", ""}, {"GET", "/none", ""}, {"GET", "/v2", "elsewhere.test"}, {"GET", "/console/", ""},
			{"BREW", "/v2", ""}, {"POST", "/v2/models/none/infer_stream", ""},
		} {
			r, err := http.NewRequest(request.method, s.URL("http")+request.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = request.host
			answer, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if got := answer.Header.Get("Strict-Transport-Security"); got != want {
				t.Errorf("%v: %s: %q, want %q", request, answer.Status, got, want)
			}
		}
		transport.CloseIdleConnections()
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestTLSRefused(t *testing.T) {
	dir := t.TempDir()
	junk := filepath.Join(dir, "junk.pem")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tls  config.TLS
		want string
	}{
		{config.TLS{Cert: junk}, "tls.key: is missing"},
		{config.TLS{Key: junk}, "tls.cert: is missing"},
		{config.TLS{Cert: junk, Key: junk, SelfSigned: true}, "tls.self_signed: and tls.cert exclude"},
		{config.TLS{Cert: junk, Key: junk}, "tls.cert: " + junk},
		{config.TLS{Cert: filepath.Join(dir, "none"), Key: junk}, "no such file"},
	} {
		_, err := server.New(server.Config{HTTP: "127.0.0.1:0", GRPC: "off", TLS: c.tls})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %s", c.tls, err, c.want)
		}
	}
	if ips := server.Addresses(); len(ips) == 0 || net.ParseIP(ips[0]) == nil {
		t.Errorf("addresses %v", ips)
	}
}
