package service_test

import (
	"net"
	"slices"
	"strings"
	"testing"

	"millrace/config"
	"millrace/internal/servertest"
	"millrace/server"
)

func TestListenersOfAConfiguration(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  server.Config
		want []server.Listener
	}{
		"defaults": {server.Config{}, []server.Listener{
			{Name: "http", Setting: "http", Addr: "127.0.0.1:8000", URL: "http://127.0.0.1:8000"},
			{Name: "grpc", Setting: "grpc", Addr: "127.0.0.1:8001", URL: "grpc://127.0.0.1:8001"},
		}},
		"encrypted": {server.Config{GRPC: server.Off, TLS: config.TLS{SelfSigned: true}}, []server.Listener{
			{Name: "http", Setting: "http", Addr: "127.0.0.1:8000", URL: "https://127.0.0.1:8000"},
		}},
		"metrics alone": {server.Config{HTTP: server.Off, GRPC: server.Off,
			Metrics: config.Metrics{Address: "127.0.0.1:8002"}}, []server.Listener{
			{Name: "metrics", Setting: "metrics.address", Addr: "127.0.0.1:8002"},
		}},
		"none": {server.Config{HTTP: server.Off, GRPC: server.Off, Metrics: config.Metrics{Address: server.Off}}, nil},
	} {
		if got := server.Listeners(c.cfg); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestListenersOfAServer(t *testing.T) {
	s, end := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off,
		Metrics: config.Metrics{Address: "127.0.0.1:0"}})
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	var names []string
	for _, l := range s.Listeners() {
		names = append(names, l.Name)
		if _, port, err := net.SplitHostPort(l.Addr); err != nil || port == "0" {
			t.Errorf("%s: %q is not the address that was taken", l.Name, l.Addr)
		}
	}
	if want := []string{"http", "metrics"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
	if got, want := s.URL("http"), "http://"+s.Addr("http"); got != want || s.Addr("http") == "" {
		t.Errorf("the URL is %q, want %q", got, want)
	}
	if s.Addr("grpc") != "" || s.URL("metrics") != "" {
		t.Errorf("grpc is at %q, clients of models go to %q", s.Addr("grpc"), s.URL("metrics"))
	}
}

func TestAddressInUseNamesItsSetting(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	taken := ln.Addr().String()
	for name, cfg := range map[string]server.Config{
		"http":            {HTTP: taken, GRPC: server.Off},
		"grpc":            {HTTP: server.Off, GRPC: taken},
		"metrics.address": {HTTP: server.Off, GRPC: server.Off, Metrics: config.Metrics{Address: taken}},
	} {
		_, err := server.New(cfg)
		if want := name + ": " + taken + " is in use"; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
