package backoff_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace/internal/backoff"
)

func TestBackoffDoubles(t *testing.T) {
	b := backoff.Backoff{Min: 100 * time.Millisecond, Max: time.Second}
	want := []time.Duration{200, 400, 800, 1000, 1000}
	for i, w := range want {
		if got := b.Next(1); got != w*time.Millisecond {
			t.Errorf("wait %d at most %v; want %v", i, got, w*time.Millisecond)
		}
	}
	b.Reset()
	if got := b.Next(0); got != 100*time.Millisecond {
		t.Errorf("after Reset %v; want the minimum", got)
	}
}

func TestBackoffStaysInBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := backoff.Backoff{
			Min: time.Duration(rapid.Int64().Draw(t, "min")),
			Max: time.Duration(rapid.Int64().Draw(t, "max")),
		}
		lo, hi := b.Min, b.Max
		if lo <= 0 {
			lo = 100 * time.Millisecond
		}
		if hi <= 0 {
			hi = 10 * time.Second
		}
		hi = max(lo, hi)
		for range 80 {
			if d := b.Next(rapid.Float64().Draw(t, "u")); d < lo || d > hi {
				t.Fatalf("wait %v outside %v to %v", d, lo, hi)
			}
		}
	})
}

// TestZeroBackoff: without bounds the waits go from 100 ms to 10 s.
func TestZeroBackoff(t *testing.T) {
	var b backoff.Backoff
	for i, want := range []time.Duration{200, 400, 800, 1600, 3200, 6400, 10_000, 10_000} {
		if got := b.Next(1); got != want*time.Millisecond {
			t.Errorf("wait %d at most %v, want %v", i, got, want*time.Millisecond)
		}
	}
	if got := b.Next(0); got != 5*time.Second {
		t.Errorf("at least %v", got)
	}
}
