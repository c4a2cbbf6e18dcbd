//go:build !nometrics

package main

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// wantLines finds each of the lines in a text.
func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
}

// TestSSFMetrics checks the names and labels of Simple Server Framework, at the configured route, with the configured
// buckets. Calls for health and metrics are not counted.
func TestSSFMetrics(t *testing.T) {
	config := ssfApplication(t, "ipus: 0", oneEndpoint, `        return {"x": params["x"], "n": 0}`)
	s := serveSSF(t, "--config", config, "-p", "0", "--prometheus-endpoint", "numbers", "--prometheus-buckets", "0.75",
		"100", "run")
	s.want("/v1/E", `{"x": 1}`, 200, "")
	s.want("/v1/E", `{"x": 2}`, 200, "")
	s.want("/v1/E", `{}`, 422, "")
	s.ask("GET", "/health/ready", "", "")
	if code, _, _ := s.ask("GET", "/metrics", "", ""); code != 404 {
		t.Errorf("/metrics: %d", code)
	}
	_, _, text := s.ask("GET", "/numbers", "", "")
	wantLines(t, text, `ssf_dispatch_latency_count{handler="/v1/E",status="2xx"} 2.0`,
		`ssf_dispatch_latency_bucket{handler="/v1/E",le="100.0",status="2xx"} 2.0`,
		`http_request_duration_seconds_count{handler="/v1/E",status="2xx"} 2.0`,
		`http_request_duration_seconds_count{handler="/v1/E",status="4xx"} 1.0`,
		`http_request_duration_seconds_bucket{handler="/v1/E",le="+Inf",status="2xx"} 2.0`,
		`http_request_size_bytes_count{handler="/v1/E",status="2xx"} 2.0`,
		`http_response_size_bytes_count{handler="/v1/E",status="2xx"} 2.0`)
	if n := strings.Count(text, "ssf_dispatch_latency_bucket"); n != 3 {
		t.Errorf("%d buckets", n)
	}
	for _, le := range regexp.MustCompile(`[{,]le="([^"]*)"`).FindAllStringSubmatch(text, -1) {
		if !slices.Contains([]string{"0.75", "100.0", "+Inf"}, le[1]) {
			t.Errorf("there is a bucket of %s", le[1])
		}
	}
	if strings.Contains(text, `handler="/health`) || strings.Contains(text, `handler="/numbers`) {
		t.Error("health or the metrics are counted")
	}
}

func TestSSFMetricsDisabled(t *testing.T) {
	config := ssfApplication(t, "ipus: 0", oneEndpoint, `        return {"x": params["x"], "n": 0}`)
	s := serveSSF(t, "--config", config, "-p", "0", "--prometheus-disabled", "run")
	if code, _, _ := s.ask("GET", "/metrics", "", ""); code != 404 {
		t.Errorf("/metrics: %d", code)
	}
	if _, header, _ := s.ask("POST", "/v1/E", "application/json",
		`{"x": 1}`); header.Get("metrics-request-latency") == "" {
		t.Errorf("%v", header)
	}
}

// At --prometheus-port, the metrics of HTTP requests are at every path.
func TestSSFMetricsPort(t *testing.T) {
	config := ssfApplication(t, "ipus: 0", oneEndpoint, `        return {"x": params["x"], "n": 0}`)
	port := twoPorts(t)
	s := serveSSF(t, "--config", config, "-p", "0", "--prometheus-port", strconv.Itoa(port), "run")
	s.want("/v1/E", `{"x": 1}`, 200, "")
	for _, path := range []string{"metrics", "any/path", ""} {
		wantLines(t, get(t, fmt.Sprintf("http://127.0.0.1:%d/%s", port, path)),
			`ssf_dispatch_latency_count{handler="/v1/E",status="2xx"} 1.0`,
			`http_request_duration_seconds_count{handler="/v1/E",status="2xx"} 1.0`)
	}
	if code, _, _ := s.ask("GET", "/metrics", "", ""); code != 404 {
		t.Errorf("/metrics: %d", code)
	}
}

// get returns the body of a reply with status 200.
func get(t *testing.T, address string) string {
	t.Helper()
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: %s, %v", address, resp.Status, err)
	}
	return string(text)
}

// The metrics are at the port after the gRPC port, at every path.
func TestSSFMetricsOfGRPC(t *testing.T) {
	port := twoPorts(t)
	_, client, ctx := ssfGRPC(t, port)
	if _, err := client.ModelInfer(ctx, ssfRequest("2")); err != nil {
		t.Fatal(err)
	}
	wrong := ssfRequest("2")
	wrong.Parameters["version"] = ssfText("77")
	if _, err := client.ModelInfer(ctx, wrong); err == nil {
		t.Fatal("a version that is not there was taken")
	}
	for _, path := range []string{"metrics", "any/path", ""} {
		text := get(t, fmt.Sprintf("http://127.0.0.1:%d/%s", port+1, path))
		wantLines(t, text, `ssf_dispatch_latency_count{handler="ModelInfer/app/v2/E",status="OK"} 1.0`,
			`grpc_request_duration_seconds_count{handler="ModelInfer/app/v2/E",status="OK"} 1.0`,
			`grpc_request_size_bytes_count{handler="ModelInfer/app/v2/E",status="OK"} 1.0`,
			`grpc_request_duration_seconds_count{handler="ModelInfer",status="INVALID_ARGUMENT"} 1.0`)
		if strings.Contains(text, "v77") {
			t.Error("clients make labels")
		}
	}
}
