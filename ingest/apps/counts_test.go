//go:build !nometrics

package apps_test

import (
	"slices"
	"strings"
	"testing"

	"millrace/server"
)

// TestCounts: what clients are told is what the metrics count.
func TestCounts(t *testing.T) {
	r := start(t, nil, "svc")
	for _, path := range []string{"/apps/svc/echo", "/apps/svc/refuse", "/apps/svc/fail", "/apps/svc/nothing",
		"/apps/svc/tensor", "/apps/nobody/x"} {
		r.Ask("POST", path, "")
	}
	text := r.Ask("GET", "/metrics", "").Text
	for _, want := range []string{
		`millrace_frames_total{model="svc",outcome="result",version="1"} 3`,
		`millrace_frame_errors_total{code="overloaded",model="svc",version="1"} 1`,
		`millrace_frame_errors_total{code="not_found",model="svc",version="1"} 1`,
		`millrace_unsendable_results_total{code="internal",model="svc",version="1"} 1`,
	} {
		if !slices.Contains(strings.Split(text, "\n"), want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

// TestRootMetrics: a program at the root does not hide the metrics.
func TestRootMetrics(t *testing.T) {
	r := start(t, func(c *server.Config) { c.Programs.Root = "svc" }, "svc")
	if a := r.Ask("GET", "/metrics", ""); a.StatusCode != 200 || !strings.Contains(a.Text, "millrace_") {
		t.Error(a)
	}
}
