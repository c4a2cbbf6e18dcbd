package histogram

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestEachValueIsInItsBucket checks that a value is in the first bucket with a bound not below the value, and that a
// bucket is at most a quarter as wide as its lower bound.
func TestEachValueIsInItsBucket(t *testing.T) {
	bounds := make([]uint64, numBuckets)
	for i := range bounds {
		bounds[i] = boundOf(i)
		if i > 0 && bounds[i] <= bounds[i-1] {
			t.Fatalf("the bound %d after %d", bounds[i], bounds[i-1])
		}
		if i > 1<<subBits && (bounds[i]-bounds[i-1])*4 > bounds[i-1] {
			t.Errorf("the bucket from %d to %d is wider than a quarter", bounds[i-1], bounds[i])
		}
	}
	if bounds[0] != 1 || bounds[numBuckets-1] != 1<<largestBit {
		t.Errorf("bounds from %d to %d", bounds[0], bounds[numBuckets-1])
	}
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.OneOf(rapid.Uint64Range(0, 300), rapid.Uint64Range(0, 1<<27), rapid.Just(uint64(math.MaxUint64)),
			rapid.SampledFrom(bounds)).Draw(t, "value")
		want, _ := slices.BinarySearch(bounds, v)
		if got := bucketOf(v); got != want {
			t.Fatalf("%d is in bucket %d, want %d", v, got, want)
		}
	})
}

func TestSnapshotOfBuckets(t *testing.T) {
	var b Buckets
	if s := b.Snapshot(); s.Counts == nil || s.Bounds == nil || len(s.Counts) != 0 || len(s.Bounds) != 0 || s.Sum != 0 {
		t.Errorf("empty: %+v", s)
	}
	for _, v := range []uint64{0, 1, 3, 9, 9} {
		b.Add(v)
	}
	want := Snapshot{Bounds: []uint64{1, 2, 3, 4, 5, 6, 7, 8, 10}, Counts: []uint64{2, 0, 1, 0, 0, 0, 0, 0, 2}, Sum: 22}
	if s := b.Snapshot(); !reflect.DeepEqual(s, want) {
		t.Errorf("got %+v, want %+v", s, want)
	}
	b.Add(math.MaxInt64)
	if s := b.Snapshot(); len(s.Counts) != len(s.Bounds)+1 || s.Counts[len(s.Bounds)] != 1 {
		t.Errorf("above the last bound: %+v", s)
	}
}

func TestAddAllocatesNothing(t *testing.T) {
	var b Buckets
	if n := testing.AllocsPerRun(100, func() { b.Add(77) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
