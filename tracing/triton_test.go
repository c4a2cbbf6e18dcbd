//go:build !nometrics

package tracing

import (
	"strings"
	"testing"

	"millrace/stream"
	"millrace/stream/coded"
	"millrace/workers"
)

// Every ending except a sendable result counts under a Triton reason; the metrics with Triton's names are present
// only when enabled.
func TestTritonNames(t *testing.T) {
	f := stream.Totals{Drops: map[stream.Reason]uint64{}, Errors: map[stream.Code]uint64{},
		Unsendable: map[stream.Code]uint64{stream.Unsupported: 2}}
	f.Results, f.InFlight = 5, 1
	for _, why := range stream.Reasons {
		f.Drops[why]++
	}
	for _, code := range coded.Codes {
		f.Errors[code]++
	}
	f.Accepted = f.Results + f.InFlight + uint64(len(f.Drops)+len(f.Errors))
	got := tritonFailures(&f)
	if n := got["REJECTED"] + got["CANCELED"] + got["BACKEND"] + got["OTHER"]; len(got) != 4 || n != f.Failed() ||
		got["CANCELED"] != 2 || got["BACKEND"] != 2 {
		t.Errorf("%v of %d", got, f.Failed())
	}
	for _, on := range []bool{false, true} {
		m := New(Options{Triton: on, Groups: func() []workers.GroupStats {
			return []workers.GroupStats{{Model: &stream.Model{Name: "m", Version: "1"}, Frames: f}}
		}})
		for _, accept := range []string{"", "application/openmetrics-text;version=1.0.0"} {
			text, _, err := m.Gather(accept)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "nv_") != on ||
				on && !strings.Contains(string(text), "\nnv_inference_request_success{model=\"m\",version=\"1\"} 3") {
				t.Errorf("%q, asked for: %v\n%s", accept, on, text)
			}
			if strings.Contains(string(text), "nv_cache") {
				t.Error("a model without a cache has its metrics")
			}
		}
	}
}
