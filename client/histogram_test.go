package client

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"millrace/internal/histogram"
)

func TestQuantilesOfHistograms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Uint64Range(1, 1<<26), 1, 200).Draw(t, "values")
		var b histogram.Buckets
		var sum uint64
		for _, v := range values {
			b.Add(v)
			sum += v
		}
		slices.Sort(values)
		s := Histogram(b.Snapshot())
		if s.Count() != uint64(len(values)) || s.Sum != sum || len(s.Bounds) != len(s.Counts) {
			t.Fatalf("%d values, sum %d: %+v", len(values), sum, s)
		}
		for _, q := range []float64{0.01, 0.5, 0.99, 1} {
			exact := float64(values[int(math.Ceil(q*float64(len(values))))-1])
			if got := s.Quantile(q); got < exact*0.79-1 || got > exact*1.26+1 {
				t.Fatalf("quantile %v of %v is %v, want about %v", q, values, got, exact)
			}
		}
	})
	var none histogram.Buckets
	if s := Histogram(none.Snapshot()); s.Quantile(0.5) != 0 || s.Count() != 0 || s.Counts == nil {
		t.Errorf("empty: %+v", s)
	}
	none.Add(math.MaxInt64)
	if s := Histogram(none.Snapshot()); s.Quantile(0.5) != 1<<26 || len(s.Counts) != len(s.Bounds)+1 {
		t.Errorf("above the last bound: %+v", s)
	}
}

func TestDifferenceOfHistograms(t *testing.T) {
	var b histogram.Buckets
	b.Add(7)
	b.Add(100)
	first := Histogram(b.Snapshot())
	b.Add(7)
	b.Add(3000)
	d := Histogram(b.Snapshot()).Since(first)
	if d.Count() != 2 || d.Sum != 3007 {
		t.Errorf("got %+v", d)
	}
	var other histogram.Buckets // counts of a model loaded again
	other.Add(9)
	if d := Histogram(other.Snapshot()).Since(first); d.Count() != 1 || d.Sum != 9 {
		t.Errorf("of another model: %+v", d)
	}
}
