package native

import (
	"log/slog"
	"testing"
)

// TestMetricsCountCalls checks that the metrics count the goroutine of each call of Client.Go.
func TestMetricsCountCalls(t *testing.T) {
	a := New(Options{Log: slog.New(slog.DiscardHandler)})
	end := make(chan struct{})
	for range 2 {
		a.own.calls.Go("call", func() { <-end }, nil)
	}
	if n := a.Metrics().Goroutines["native_call"]; n != 2 {
		t.Errorf("%d goroutines, want 2", n)
	}
	close(end)
	a.own.calls.Stop()
	a.own.calls.Wait()
	if n := a.Metrics().Goroutines["native_call"]; n != 0 {
		t.Errorf("%d goroutines after the calls, want 0", n)
	}
}
