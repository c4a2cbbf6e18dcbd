//go:build !nometrics

package tracing

import (
	"testing"
	"time"
)

func BenchmarkRequests(b *testing.B) {
	count := New(Options{}).Requests("http", HTTPClass)
	b.ReportAllocs()
	for b.Loop() {
		count("/v2/models/:model/infer", "", 200, 50*time.Microsecond, 1024, 1240)
	}
}
