package processors

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
)

func TestOwnHeap(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Setenv("GOMEMLIMIT", "")
	for _, c := range []struct{ budget, want int64 }{
		{1 << 30, 5<<28 + 256<<20},
		{1 << 20, 5<<18 + 256<<20},
		{math.MaxInt64, before},
	} {
		h := OwnHeap(c.budget)
		if got := debug.SetMemoryLimit(-1); got != c.want {
			t.Errorf("with a budget of %d the limit is %d, want %d", c.budget, got, c.want)
		}
		h.Close()
		if got := debug.SetMemoryLimit(-1); got != before {
			t.Errorf("the limit is %d at the end, and was %d", got, before)
		}
	}
	t.Setenv("GOMEMLIMIT", "12345678")
	h := OwnHeap(1 << 30)
	h.ReserveOutside(1 << 20)
	h.Close()
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Errorf("the limit of the environment was replaced by %d", got)
	}
}

// The memory of other processes is taken off the limit while the processes run.
func TestOutside(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	h := OwnHeap(1 << 30)
	defer h.Close()
	whole := int64(5<<28 + 256<<20)
	for _, c := range []struct{ more, want int64 }{{1 << 20, whole - 1<<20}, {3 << 20, whole - 4<<20},
		{-2 << 20, whole - 2<<20}, {-2 << 20, whole}} {
		if h.ReserveOutside(c.more); debug.SetMemoryLimit(-1) != c.want {
			t.Errorf("after %d bytes more the limit is %d, want %d", c.more, debug.SetMemoryLimit(-1), c.want)
		}
	}
	all := OwnHeap(math.MaxInt64)
	defer all.Close()
	if all.ReserveOutside(1 << 20); debug.SetMemoryLimit(-1) != whole {
		t.Errorf("a budget without a bound has set the limit to %d", debug.SetMemoryLimit(-1))
	}
}

func TestReserveMakesCollectionsRare(t *testing.T) {
	goal := func() uint64 { // the size of the heap at which the collector runs next
		runtime.GC()
		runtime.GC() // with the memory that the first collection has freed
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NextGC
	}
	without := goal()
	h := OwnHeap(math.MaxInt64)
	with := goal()
	h.Close()
	if with < without+reserveSize {
		t.Errorf("the collector runs at %d bytes, and at %d without the reserve of %d", with, without, reserveSize)
	}
}
