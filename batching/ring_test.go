package batching

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRingInOneGoroutine(t *testing.T) {
	for _, n := range []int{1, 2, 3, 8} {
		r := NewRing[int](n)
		if len(r.cells) < n {
			t.Fatalf("%d cells for %d", len(r.cells), n)
		}
		next, want := 0, 0
		for lap := range 5 * len(r.cells) { // with every number of values in the ring
			for range lap % (len(r.cells) + 1) {
				if !r.Push(next) {
					t.Fatal("full too early")
				}
				next++
			}
			if r.Len() == len(r.cells) && r.Push(-1) {
				t.Fatal("took more values than it has cells")
			}
			for r.Len() > 0 {
				v, ok := r.Pop()
				if !ok || v != want {
					t.Fatalf("%d, %v, want %d", v, ok, want)
				}
				want++
			}
			if _, ok := r.Pop(); ok {
				t.Fatal("popped a value of an empty ring")
			}
		}
		if next != want {
			t.Fatalf("%d in, %d out", next, want)
		}
	}
}

// Each value is popped once, in the order of its producer, also from a mostly full ring.
func TestRingConcurrent(t *testing.T) {
	const producers, consumers = 4, 4
	each := 20000
	if testing.Short() {
		each = 4000
	}
	r := NewRing[[2]int](4)
	var in, out sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(producers * each))
	for p := range producers {
		in.Go(func() {
			for i := range each {
				for !r.Push([2]int{p, i}) {
					runtime.Gosched()
				}
			}
		})
	}
	seen := make([][producers][]int, consumers)
	for c := range consumers {
		out.Go(func() {
			for left.Load() > 0 {
				v, ok := r.Pop()
				if !ok {
					runtime.Gosched()
					continue
				}
				seen[c][v[0]] = append(seen[c][v[0]], v[1])
				left.Add(-1)
			}
		})
	}
	in.Wait()
	out.Wait()
	for p := range producers {
		count := make([]int, each)
		for c := range consumers {
			last := -1
			for _, i := range seen[c][p] {
				if i <= last {
					t.Fatalf("consumer %d got %d of producer %d after %d", c, i, p, last)
				}
				last = i
				count[i]++
			}
		}
		for i, n := range count {
			if n != 1 {
				t.Fatalf("value %d of producer %d came out %d times", i, p, n)
			}
		}
	}
}

// A producer with a reserved place can always push: the ring never reports full by
// mistake.
func TestRingIsNeverFullForReservedPlaces(t *testing.T) {
	each := 30000
	if testing.Short() {
		each = 5000
	}
	r := NewRing[int](4)
	var wg sync.WaitGroup
	for range 4 { // four values for four places, each pushed again after its pop
		wg.Go(func() {
			for range each {
				if !r.Push(1) {
					t.Error("full with a place reserved")
					return
				}
				for _, ok := r.Pop(); !ok; _, ok = r.Pop() {
					runtime.Gosched()
				}
			}
		})
	}
	wg.Wait()
	if r.Len() != 0 {
		t.Fatalf("%d are left", r.Len())
	}
}
