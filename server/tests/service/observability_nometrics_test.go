//go:build nometrics

package service_test

import (
	"strings"
	"testing"

	"millrace/config"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/workers"
)

// TestWithoutMetrics runs in the build with the tag nometrics.
func TestWithoutMetrics(t *testing.T) {
	s, end := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off,
		Models: []workers.Config{{Name: "echo", Kind: "identity"}}})
	if code, body := servertest.Get(t, s, "/metrics"); code != 404 || !strings.Contains(body,
		"built with the tag nometrics") {
		t.Errorf("%d %s", code, body)
	}
	if code, body := servertest.Get(t, s, "/v2/models/echo"); code != 200 {
		t.Errorf("%d %s", code, body)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	_, err := server.New(server.Config{HTTP: "127.0.0.1:0", Metrics: config.Metrics{Address: "127.0.0.1:0"}})
	if err == nil || !strings.Contains(err.Error(), "metrics.address: ") ||
		!strings.Contains(err.Error(), "nometrics") {
		t.Errorf("a setting of the metrics: %v", err)
	}
}
