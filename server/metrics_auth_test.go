//go:build !nometrics

package server

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"millrace/config"
	"millrace/internal/role"
)

// TestMetricsAddressNeedsRoles: at metrics.address the metrics need a key if auth.metrics says so, and profiles
// always need a key with the role manage.
func TestMetricsAddressNeedsRoles(t *testing.T) {
	for _, who := range []string{"open", "role"} {
		k := startKeyed(t, func(c *Config) {
			c.GRPC, c.Auth.Metrics, c.Metrics = Off, who, config.Metrics{Address: "127.0.0.1:0", Pprof: true}
		})
		for _, c := range []struct {
			path, key  string
			open, role int
		}{
			{"/metrics", "", 200, 401}, {"/metrics", "wrong", 200, 401}, {"/metrics", k.keys["old"], 200, 401},
			{"/metrics", k.keys["manage"], 200, 403}, {"/metrics", k.keys["metrics"], 200, 200},
			{"/debug/pprof/", "", 401, 401}, {"/debug/pprof/profile?seconds=300", "wrong", 401, 401},
			{"/debug/pprof/trace?seconds=300", k.keys["metrics"], 403, 403},
			{"/debug/pprof/symbol", k.keys["watch"], 403, 403}, {"/debug/pprof/symbol", k.keys["manage"], 200, 200},
			{"/nothing", "", 404, 404},
		} {
			for _, header := range [][2]string{{"api_key", c.key}, {"Authorization", "Bearer " + c.key}} {
				req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+k.Addr("metrics")+c.path, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set(header[0], header[1])
				r, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				r.Body.Close()
				if want := map[string]int{"open": c.open, "role": c.role}[who]; r.StatusCode != want ||
					(want == 401) != (r.Header.Get("WWW-Authenticate") != "") {
					t.Errorf("auth.metrics: %s: %s with %.20q as %s: %s %v, want %d", who, c.path, c.key, header[0],
						r.Status, r.Header, want)
				}
			}
		}
	}
}

// TestMetricsAtEveryRoute: with the path /, the metrics are at every route of metrics.address besides the profiles, and
// need the same role there.
func TestMetricsAtEveryRoute(t *testing.T) {
	k := startKeyed(t, func(c *Config) {
		c.GRPC, c.Auth.Metrics = Off, "role"
		c.Metrics = config.Metrics{Address: "127.0.0.1:0", Path: "/", Pprof: true}
	})
	for path, want := range map[string]int{"/": 200, "/metrics": 200, "/any/path": 200, "/debug/pprof/": 403} {
		for key, want := range map[string]int{"": 401, k.keys["metrics"]: want} {
			req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+k.Addr("metrics")+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("api_key", key)
			r := must(http.DefaultClient.Do(req))
			text := must(io.ReadAll(r.Body))
			r.Body.Close()
			if r.StatusCode != want || want == 200 && !strings.Contains(string(text), "millrace_") {
				t.Errorf("%s with the key %.20q: %s, want %d", path, key, r.Status, want)
			}
		}
	}
}

// TestMetricsNeedARoleElsewhere: where clients need credentials and other machines can reach the metrics, the metrics
// need the role metrics unless auth.metrics says otherwise.
func TestMetricsNeedARoleElsewhere(t *testing.T) {
	for _, c := range []struct {
		http, metrics, key, who string
		want                    role.Role
	}{
		{"127.0.0.1:8000", "", "a key", "", role.Open},
		{"unix:/run/millrace.sock", "", "a key", "", role.Open},
		{"0.0.0.0:8000", "", "a key", "", role.Metrics},
		{":8000", "", "a key", "", role.Metrics},
		{":8000", "", "a key", "open", role.Open},
		{":8000", "", "", "", role.Open}, // insecure: nobody has credentials
		{"127.0.0.1:8000", "", "a key", "role", role.Metrics},
		{":8000", "127.0.0.1:9100", "a key", "", role.Open},
		{"127.0.0.1:8000", "192.0.2.1:9100", "a key", "", role.Metrics},
	} {
		cfg := Config{HTTP: c.http, APIKey: c.key, Metrics: config.Metrics{Address: c.metrics},
			Auth: config.Auth{Metrics: c.who}}
		if got := metricsRole(t.Context(), &cfg); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	k := startKeyed(t, func(c *Config) { c.HTTP, c.GRPC, c.Auth.Metrics, c.Hosts = "127.0.0.1:0", Off, "", nil })
	if r := must(http.Get("http://" + k.Addr("http") + "/metrics")); r.StatusCode != 200 {
		t.Errorf("on this machine: %s", r.Status)
	} else {
		r.Body.Close()
	}
}

// TestMetricsHosts: metrics.address answers only under the server's names, so that DNS rebinding reads nothing, and a
// Reload changes the names.
func TestMetricsHosts(t *testing.T) {
	var cfg Config
	k := startKeyed(t, func(c *Config) {
		c.GRPC, c.Auth.Metrics, c.Metrics, c.Hosts = Off, "open", config.Metrics{Address: "127.0.0.1:0", Pprof: true},
			[]string{"*.models.svc"}
		cfg = *c
	})
	check := func(path, host string, want int) {
		t.Helper()
		req := must(http.NewRequestWithContext(t.Context(), "GET", "http://"+k.Addr("metrics")+path, nil))
		req.Host = host
		r := must(http.DefaultClient.Do(req))
		r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("%s with Host %q: %s, want %d", path, host, r.Status, want)
		}
	}
	for _, host := range []string{"", "localhost:8002", "[::1]", "METRICS.models.svc:8002"} {
		check("/metrics", host, 200)
	}
	for _, host := range []string{"example.org", "models.svc", "10.1.2.3:8002", "127.0.0.1.example.org"} {
		check("/metrics", host, 403)
		check("/debug/pprof/", host, 403) // before the check of the key
	}
	cfg.Hosts = []string{"example.org"}
	if err := k.Reload(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	check("/metrics", "example.org", 200)
	check("/metrics", "a.models.svc", 403)
}

// TestMetricsTLS: metrics.address has the certificate of http when metrics.tls says so.
func TestMetricsTLS(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, on := range []bool{false, true} {
		k := startKeyed(t, func(c *Config) {
			c.GRPC, c.Auth.Metrics, c.TLS.SelfSigned, c.Metrics = Off, "open", true,
				config.Metrics{Address: "127.0.0.1:0", TLS: on}
		})
		own := x509.NewCertPool()
		own.AppendCertsFromPEM(must(os.ReadFile(must(SelfSignedFile()))))
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: own}}
		for scheme, want := range map[string]bool{"http": !on, "https": on} {
			r, err := (&http.Client{Transport: transport}).Get(scheme + "://" + k.Addr("metrics") + "/metrics")
			if err == nil {
				r.Body.Close()
			}
			if (err == nil && r.StatusCode == http.StatusOK) != want {
				t.Errorf("metrics.tls %v, %s: %v %v", on, scheme, r, err)
			}
		}
		transport.CloseIdleConnections()
	}
}

// TestMetricsClientCertificates: with metrics.tls, a client certificate is a credential at metrics.address, too.
func TestMetricsClientCertificates(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	ca, of := certificates(t, "scraper")
	for roles, want := range map[string]int{"metrics": http.StatusOK, "infer": http.StatusForbidden} {
		k := startKeyed(t, func(c *Config) {
			c.GRPC, c.TLS.SelfSigned, c.TLS.ClientCA, c.Metrics = Off, true, ca,
				config.Metrics{Address: "127.0.0.1:0", TLS: true}
			c.Auth.Roles = []string{roles}
		})
		own := x509.NewCertPool()
		own.AppendCertsFromPEM(must(os.ReadFile(must(SelfSignedFile()))))
		for name, want := range map[string]int{"scraper": want, "": http.StatusUnauthorized} {
			cfg := &tls.Config{RootCAs: own}
			if name != "" {
				cfg.Certificates = []tls.Certificate{of[name]}
			}
			r, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}}).Get(
				"https://" + k.Addr("metrics") + "/metrics")
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			if r.StatusCode != want {
				t.Errorf("the certificate of %q, with the role %s: %s, want %d", name, roles, r.Status, want)
			}
		}
	}
}
