//go:build !nometrics

package service_test

import (
	"strings"
	"testing"

	"millrace/config"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/workers"
)

func TestMetricsSettings(t *testing.T) {
	off, none := false, 0
	models := []workers.Config{{Name: "echo", Kind: "identity"}}
	s, end := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off, Models: models,
		Metrics: config.Metrics{Path: "/numbers", Buckets: []float64{0.5, 7}}})
	servertest.Get(t, s, "/v2/models/echo")
	servertest.Get(t, s, "/numbers")
	code, body := servertest.Get(t, s, "/numbers")
	if code != 200 || strings.Count(body, `http_request_duration_seconds_bucket{endpoint="/v2/models/:model",`) != 3 ||
		!strings.Contains(body, `le="7.0"} 1`) && !strings.Contains(body, `le="7"} 1`) {
		t.Errorf("%d, not with the buckets 0.5 and 7: %s", code, body)
	}
	if strings.Contains(body, `endpoint="/numbers"`) {
		t.Error("the requests for the metrics are counted")
	}
	if code, _ := servertest.Get(t, s, "/metrics"); code != 404 {
		t.Errorf("/metrics answers %d although the route is another one", code)
	}
	if err := end(); err != nil {
		t.Error(err)
	}

	s, end = servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off, Models: models,
		Metrics: config.Metrics{Requests: &off, Streams: &none}})
	servertest.Get(t, s, "/v2/models/echo")
	if code, body := servertest.Get(t, s, "/metrics"); code != 200 || strings.Contains(body, "http_request") ||
		!strings.Contains(body, "millrace_model_ready") {
		t.Errorf("%d, with requests turned off: %s", code, body)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// TestUpgradesAreCountedAsSwitching checks the metrics' status of an accepted and of a refused WebSocket handshake.
func TestUpgradesAreCountedAsSwitching(t *testing.T) {
	s, end := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off,
		Models: []workers.Config{{Name: "echo", Kind: "identity"}}})
	servertest.Dial(t, s, "/v2/models/echo/stream")
	servertest.Get(t, s, "/v2/models/echo/stream")
	_, body := servertest.Get(t, s, "/metrics")
	for _, class := range []string{"1xx", "4xx"} {
		if !strings.Contains(body, `http_request_duration_seconds_count{endpoint="/v2/models/:model/stream",status="`+
			class+`",version=""} 1`) {
			t.Errorf("no handshake with the status %s: %s", class, body)
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}
