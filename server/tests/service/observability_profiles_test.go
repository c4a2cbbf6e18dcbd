//go:build !nometrics

package service_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"millrace/config"
	"millrace/internal/servertest"
	"millrace/server"
)

// TestProfiles: profiles are served only at metrics.address, and only when enabled.
func TestProfiles(t *testing.T) {
	for _, on := range []bool{true, false} {
		s, end := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off,
			Metrics: config.Metrics{Address: "127.0.0.1:0", Pprof: on}})
		fetch := func(listener, path string) (int, string) {
			t.Helper()
			r, err := http.Get("http://" + s.Addr(listener) + path)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			text, err := io.ReadAll(r.Body)
			if err != nil {
				t.Fatal(err)
			}
			return r.StatusCode, string(text)
		}
		code, text := fetch("metrics", "/debug/pprof/goroutine?debug=1")
		if on != (code == 200 && strings.Contains(text, "goroutine profile")) {
			t.Errorf("on = %v: %d %.100s", on, code, text)
		}
		if on {
			if code, text := fetch("metrics", "/debug/pprof/profile?seconds=1e9"); code != 400 ||
				!strings.Contains(text, "seconds") {
				t.Errorf("a profile of 30 years: %d %.100s", code, text)
			}
		}
		if code, _ := fetch("metrics", "/debug/pprof/cmdline"); code != 404 {
			t.Errorf("the command line: %d", code)
		}
		if code, _ := fetch("http", "/debug/pprof/"); code != 404 {
			t.Errorf("at the address http: %d", code)
		}
		if code, _ := fetch("metrics", "/metrics"); code != 200 {
			t.Errorf("the metrics: %d", code)
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	}
}

func TestProfilesNeedAnAddress(t *testing.T) {
	for want, m := range map[string]config.Metrics{
		"metrics.pprof": {Pprof: true}, "metrics.path": {Pprof: true, Address: "127.0.0.1:0", Path: "/debug/pprof/x"},
	} {
		if _, err := server.New(server.Config{HTTP: server.Off, GRPC: server.Off, Metrics: m}); err == nil ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := server.New(server.Config{HTTP: server.Off, GRPC: server.Off,
		Metrics: config.Metrics{Pprof: true, Address: server.Off}}); err == nil {
		t.Error("profiles without a listener")
	}
}
