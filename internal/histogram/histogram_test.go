package histogram

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestAgainstSort compares merged histograms with the sorted durations.
func TestAgainstSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := rapid.OneOf(rapid.Int64Range(0, 300), rapid.Int64Range(0, int64(time.Second)),
			rapid.Int64Range(0, int64(longest)))
		values := rapid.SliceOfN(ns, 1, 300).Draw(t, "values")
		parts := make([]Durations, rapid.IntRange(1, 4).Draw(t, "parts"))
		sorted := make([]time.Duration, len(values))
		var sum float64
		for i, v := range values {
			sorted[i] = time.Duration(v)
			sum += float64(v)
			parts[i%len(parts)].Add(time.Duration(v))
		}
		slices.Sort(sorted)
		var h Durations
		for i := range parts {
			h.Merge(&parts[i])
		}
		n := len(sorted)
		if h.Count() != uint64(n) || h.Min() != sorted[0] || h.Max() != sorted[n-1] {
			t.Fatalf("%d durations from %v to %v, want %d from %v to %v", h.Count(), h.Min(), h.Max(), n, sorted[0],
				sorted[n-1])
		}
		if d := math.Abs(float64(h.Mean()) - sum/float64(n)); d > 1+sum*1e-12 {
			t.Fatalf("mean %v is off by %v ns", h.Mean(), d)
		}
		for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.95, 0.99, 0.999, 1} {
			place := q*float64(n) - 1 // between two durations either is right
			low, high := sorted[max(int(math.Floor(place)), 0)], sorted[max(int(math.Ceil(place)), 0)]
			if got := float64(h.Quantile(q)); got < float64(low)*0.99 || got > float64(high)*1.01 {
				t.Fatalf("quantile %v is %v, not %v to %v", q, h.Quantile(q), low, high)
			}
		}
		h.Reset()
		if h.Count() != 0 || h.Quantile(0.5) != 0 || h.Mean() != 0 || h.Min() != 0 || h.Max() != 0 {
			t.Fatal("is not empty after Reset")
		}
	})
}

func TestEdges(t *testing.T) {
	var h Durations
	if h.Quantile(0.99) != 0 || h.Mean() != 0 || h.Count() != 0 {
		t.Error("an empty histogram has figures")
	}
	h.Merge(&Durations{})
	h.Add(-time.Second)
	if h.Quantile(1) != 0 || h.Count() != 1 {
		t.Error("a negative duration is not counted as 0")
	}
	h.Add(math.MaxInt64)
	if h.Count() != 2 || h.Max() != math.MaxInt64 || h.Quantile(1) != math.MaxInt64 {
		t.Errorf("a duration beyond the range: %d, %v", h.Count(), h.Max())
	}
}

func TestAddAllocatesOnlyOnce(t *testing.T) {
	var h Durations
	h.Add(0)
	if n := testing.AllocsPerRun(100, func() { h.Add(time.Millisecond) }); n != 0 {
		t.Errorf("Add allocates %v times", n)
	}
}
