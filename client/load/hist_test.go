package load

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestHistogramAgainstSort compares quantiles with those of the sorted values,
// of one histogram and of several that were merged.
func TestHistogramAgainstSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := rapid.OneOf(rapid.Int64Range(0, 300), rapid.Int64Range(0, int64(time.Second)), rapid.Int64Range(0, math.MaxInt64))
		values := rapid.SliceOfN(ns, 1, 300).Draw(t, "values")
		parts := make([]Histogram, rapid.IntRange(1, 4).Draw(t, "parts"))
		sorted := make([]time.Duration, len(values))
		var sum float64
		for i, v := range values {
			sorted[i] = time.Duration(v)
			sum += float64(v)
			parts[i%len(parts)].Add(time.Duration(v))
		}
		slices.Sort(sorted)
		var h Histogram
		for i := range parts {
			h.Merge(&parts[i])
		}
		if h.Count() != uint64(len(values)) {
			t.Fatalf("counts %d of %d", h.Count(), len(values))
		}
		if d := math.Abs(float64(h.Mean()) - sum/float64(len(values))); d > 1+sum*1e-12 {
			t.Fatalf("mean %v is off by %v ns", h.Mean(), d)
		}
		for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.95, 0.99, 0.999, 1} {
			want := sorted[rankOf(q, uint64(len(sorted)))-1]
			got := h.Quantile(q)
			if off := math.Abs(float64(got) - float64(want)); off > float64(want)/128 {
				t.Fatalf("quantile %v is %v, not %v", q, got, want)
			}
		}
		h.Reset()
		if h.Count() != 0 || h.Quantile(0.5) != 0 || h.Mean() != 0 {
			t.Fatal("is not empty after Reset")
		}
	})
}

func TestHistogramEdges(t *testing.T) {
	var h Histogram
	if h.Quantile(0.99) != 0 || h.Mean() != 0 || h.Summary() != (Quantiles{}) {
		t.Error("an empty histogram has quantiles")
	}
	h.Add(-time.Second)
	if h.Quantile(1) != 0 {
		t.Error("a negative duration is not counted as none")
	}
	for i := range bucket(math.MaxInt64) {
		if bucket(uint64(middle(i))) != i {
			t.Fatalf("the middle of bucket %d is in %d", i, bucket(uint64(middle(i))))
		}
	}
}

func TestFairness(t *testing.T) {
	for _, c := range []struct {
		got  []uint64
		want float64
	}{
		{[]uint64{5, 5, 5, 5}, 1}, {[]uint64{8, 0, 0, 0}, 0.25}, {[]uint64{1, 3}, 0.8}, {[]uint64{0, 0}, 1}, {nil, 1},
	} {
		if f := Fairness(c.got); math.Abs(f-c.want) > 1e-12 {
			t.Errorf("%v: %v, want %v", c.got, f, c.want)
		}
	}
}

func TestPending(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p pending
		model := map[uint64]time.Duration{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch n := rapid.Uint64Range(0, p.next+2).Draw(t, "n"); rapid.IntRange(0, 3).Draw(t, "do") {
			case 0, 1:
				model[p.next] = time.Duration(p.next)
				p.put(time.Duration(p.next), 0)
			case 2:
				m, ok := p.get(n, true)
				due, want := model[n]
				if ok != want || ok && m.due != due {
					t.Fatalf("frame %d: %v %v, want %v %v", n, m.due, ok, due, want)
				}
				delete(model, n)
			case 3:
				if p.next == 0 {
					continue
				}
				_, want := model[p.next-1]
				if p.undo() != want {
					t.Fatal("undo and the model differ")
				}
				delete(model, p.next-1)
			}
			if p.open != len(model) {
				t.Fatalf("%d open, want %d", p.open, len(model))
			}
		}
	})
}
