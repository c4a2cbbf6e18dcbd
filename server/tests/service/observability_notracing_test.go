//go:build notracing

package service_test

import (
	"strings"
	"testing"

	"millrace/config"
	"millrace/workers"

	"millrace/internal/servertest"
	"millrace/server"
)

// TestWithoutTracing runs in the build with the tag notracing.
func TestWithoutTracing(t *testing.T) {
	s, end := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off,
		Models: []workers.Config{{Name: "echo", Kind: "identity"}}})
	if code, body := servertest.Get(t, s, "/v2/traces"); code != 200 || body != `{"traces":[]}` {
		t.Errorf("%d %s", code, body)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	for _, set := range []string{"ratio: 0.5", "exporter: otlp-http"} {
		_, err := config.Parse([]byte("tracing: {"+set+"}"), "f.yaml")
		if err == nil || !strings.Contains(err.Error(), "tracing") || !strings.Contains(err.Error(), "notracing") {
			t.Errorf("%s: %v", set, err)
		}
	}
}
