package server

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/config"
	"millrace/workers"
)

// TestExposed: Exposed names every listener reachable from other machines, unless clients must authenticate or the
// configuration allows open listeners.
func TestExposed(t *testing.T) {
	local := Config{HTTP: "127.0.0.1:0", GRPC: "[::1]:0", Metrics: config.Metrics{Address: "localhost:0"}}
	with := func(change func(*Config)) Config {
		c := local
		change(&c)
		return c
	}
	const long = "0123456789abcdef"
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "key")
		write(t, path, text+"\n")
		return path
	}
	for _, c := range []struct {
		cfg  Config
		want string // the named settings
	}{
		{Config{}, ""},
		{local, ""},
		{with(func(c *Config) { c.HTTP = "[::ffff:127.0.0.1]:1" }), ""},
		{with(func(c *Config) { c.HTTP = "127.9.9.9:1" }), ""},
		{with(func(c *Config) { c.HTTP = "0.0.0.0:1" }), "http"},
		{with(func(c *Config) { c.HTTP = ":1" }), "http"},
		{with(func(c *Config) { c.HTTP = "192.0.2.1:1" }), "http"},
		{with(func(c *Config) { c.HTTP = "[::ffff:192.0.2.1]:1" }), "http"},
		{with(func(c *Config) { c.GRPC = "[::]:1" }), "grpc"},
		{with(func(c *Config) { c.Metrics.Address = "[fe80::1%lo]:1" }), "metrics.address"},
		{with(func(c *Config) { c.HTTP, c.GRPC, c.Metrics.Address = ":0", ":0", ":0" }), "http grpc metrics.address"},
		{with(func(c *Config) { c.HTTP, c.GRPC = Off, ":0" }), "grpc"},
		{with(func(c *Config) { c.Management = config.Management{Address: "unix:/m", GRPC: "127.0.0.1:0"} }), ""},
		{with(func(c *Config) { c.HTTP, c.Management.Address = ":0", "unix:/m" }), "http"},
		{with(func(c *Config) {
			c.Management = config.Management{Address: ":0", GRPC: ":0"}
		}), "management.address management.grpc"},
		{with(func(c *Config) { c.HTTP = "name.invalid:1" }), ""}, // cannot be listened at
		{with(func(c *Config) { c.HTTP, c.Insecure = ":0", true }), ""},
		{with(func(c *Config) { c.HTTP, c.APIKey = ":0", long }), ""},
		{with(func(c *Config) { c.HTTP, c.APIKey = ":0", "file:"+file(long) }), ""},
		{with(func(c *Config) { c.HTTP, c.APIKey = ":0", "file:none" }), ""}, // New says so
		{with(func(c *Config) { c.APIKey = "x" }), ""},
		{with(func(c *Config) { c.HTTP, c.APIKey, c.Insecure = ":0", "x", true }), ""},
		{with(func(c *Config) { c.HTTP, c.GRPC, c.APIKey = ":0", ":0", long[1:] }), "api_key"},
		{with(func(c *Config) { c.GRPC, c.APIKey = ":0", "file:"+file(strings.Repeat("é", 15)) }), "api_key"},
		{with(func(c *Config) { c.HTTP, c.APIKey, c.Auth.Keys = ":0", "x", "x" }), "api_key"},
		{with(func(c *Config) { c.HTTP, c.Auth.Keys = ":0", "x" }), ""},
		{with(func(c *Config) { c.HTTP, c.TLS.SelfSigned = ":0", true }), "http"},
	} {
		var named []string
		for _, err := range Exposed(t.Context(), c.cfg) {
			setting, rest, _ := strings.Cut(err.Error(), ": ")
			named = append(named, setting)
			if !strings.Contains(rest, "millrace keys add") || !strings.Contains(rest, "--insecure") {
				t.Errorf("%v does not say what to set", err)
			}
		}
		if got := strings.Join(named, " "); got != c.want {
			t.Errorf("%+v: %q, want %q", c.cfg, got, c.want)
		}
	}
}

// TestProgramIsNotExposed: the address of a program is refused like the address of a setting.
func TestProgramIsNotExposed(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute) // a server that listens would not end
	defer stop()
	file := filepath.Join(t.TempDir(), "svc.staged")
	write(t, file, "listen\n{}")
	s, err := New(Config{HTTP: "127.0.0.1:0", GRPC: Off, Programs: config.Programs{Root: "svc"},
		Models: []workers.Config{{Name: "svc", Source: file}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(ctx); err == nil || !strings.Contains(err.Error(),
		"program svc: address: 0.0.0.0:0 can be reached from other machines") {
		t.Errorf("%v", err)
	}
	if all := s.Listeners(); len(all) != 1 {
		t.Errorf("%+v", all)
	}
	s, err = New(Config{HTTP: "127.0.0.1:0", GRPC: Off, APIKey: "short", Programs: config.Programs{Root: "svc"},
		Models: []workers.Config{{Name: "svc", Source: file}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(ctx); err == nil || !strings.Contains(err.Error(), "program svc: api_key: has fewer than 16 "+
		"characters, and its address, 0.0.0.0:0, can be reached from other machines") {
		t.Errorf("%v", err)
	}
}

// TestShortKeyIsLogged: a server not reachable from other machines logs the use of a short key, without the key.
func TestShortKeyIsLogged(t *testing.T) {
	for key, want := range map[string]int{"tiny-key": 1, "0123456789abcdef": 0, "": 0} {
		path := filepath.Join(t.TempDir(), "log")
		s, err := New(Config{HTTP: "127.0.0.1:0", GRPC: Off, APIKey: key, Log: config.Log{Level: "warn", File: path}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := contextOf(t)
		stop()
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "setting=api_key"); n != want ||
			key != "" && strings.Contains(string(text), key) {
			t.Errorf("%q: %s", key, text)
		}
	}
}
