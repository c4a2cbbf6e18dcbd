package remote

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"millrace/internal/video"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAddresses(t *testing.T) {
	for _, c := range []struct{ text, want, wrong string }{
		{"grpc://10.0.0.7", "grpc://10.0.0.7:8001", ""},
		{"GRPCS://h:1", "grpcs://h:1", ""},
		{"http://h/ai/", "http://h:80/ai", ""},
		{"https://[::1]", "https://[::1]:443", ""},
		{"h:8000", "h:8000", ""},
		{"[::1]:8000", "[::1]:8000", ""},
		{"h:0", "", "not the address"},
		{"h:70000", "", "not the address"},
		{"h", "", "not the address"},
		{"grpc://", "", "not the address"},
		{"ftp://h:1", "", "not a scheme"},
		{"http://me:geheim@h:1", "", "upstream.token"},
		{"http://h:1?key=geheim", "", "has ? or #"},
		{"grpc://h:1/model", "", "upstream.model"},
		{"http://h:99999", "", "port"},
	} {
		got, err := parseAddress("source", c.text)
		if c.wrong == "" && (err != nil || got.String() != c.want) {
			t.Errorf("%s: %v, %v", c.text, got, err)
		}
		if c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong) ||
			strings.Contains(err.Error(), "geheim")) {
			t.Errorf("%s: %v", c.text, err)
		}
	}
}

// TestKindOfAddress: an address is no Python module, and a module no address.
func TestKindOfAddress(t *testing.T) {
	for source, want := range map[string]bool{"h:8001": true, "127.0.0.1:8001": true, "[::1]:8001": true,
		"grpc://h": true, "package.module:Service": false, "a/b:1": false} {
		if kind, _, err := workers.KindOf(source); (err == nil && kind == "remote") != want {
			t.Errorf("%s: %s, %v", source, kind, err)
		}
	}
}

// TestRequestedAddress: a load request may name only public servers, unless the server allows others, and no server
// for a model with a token.
func TestRequestedAddress(t *testing.T) {
	mem := buf.NewPool(0)
	load := func(public func(netip.Addr) error, cfg workers.Config, how stream.Params) error {
		m := workers.NewManager(workers.ManagerOptions{Memory: mem, Public: public})
		defer func() { _ = m.Close(context.Background()) }()
		if err := m.Define(cfg); err != nil {
			t.Fatal(err)
		}
		_, err := m.Load(t.Context(), cfg.Name, workers.Load{Params: how})
		return err
	}
	closed := "127.0.0.1:1"
	far := workers.Config{Name: "far", Kind: "remote", Params: stream.Params{"upstream.connect": "1h"}}
	requested := stream.Params{"upstream.address": closed}
	if err := load(video.CheckPublic, far, requested); stream.CodeOf(err) != stream.PermissionDenied {
		t.Errorf("a private address in a request: %v", err)
	}
	far.Params = stream.Params{"upstream.connect": "1ms"} // no server answers
	if err := load(nil, far, requested); stream.CodeOf(err) != stream.Unavailable {
		t.Errorf("allowed: %v", err)
	}
	own := far
	own.Params = stream.Params{"upstream.connect": "1ms", "upstream.address": closed}
	if err := load(video.CheckPublic, own, nil); stream.CodeOf(err) != stream.Unavailable {
		t.Errorf("of the configuration: %v", err)
	}
	own.Params = stream.Params{"upstream.connect": "1ms", "upstream.address": closed, "upstream.token": "geheim"}
	if err := load(nil, own, requested); stream.CodeOf(err) != stream.PermissionDenied ||
		strings.Contains(err.Error(), "geheim") {
		t.Errorf("with the token of another server: %v", err)
	}
}
