package heap

import (
	"math"
	"runtime/debug"
	"testing"
)

func TestLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	defer func() { limit.most = 0 }()
	t.Setenv("GOMEMLIMIT", "")
	for _, c := range []struct{ budget, want int64 }{
		{1 << 30, 5<<28 + 256<<20},
		{1 << 20, 5<<18 + 256<<20},
		{math.MaxInt64, math.MaxInt64},
	} {
		Limit(c.budget)
		if got := debug.SetMemoryLimit(-1); got != c.want {
			t.Errorf("with a budget of %d the limit is %d, want %d", c.budget, got, c.want)
		}
	}
	debug.SetMemoryLimit(12345678)
	t.Setenv("GOMEMLIMIT", "12345678")
	if Limit(1 << 30); debug.SetMemoryLimit(-1) != 12345678 {
		t.Error("the limit of the environment was replaced")
	}
}

// What other processes have is taken off the limit while they have it, whichever comes first.
func TestOutside(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	defer func() { limit.most = 0 }()
	t.Setenv("GOMEMLIMIT", "")
	limit.most = 0
	Outside(1 << 20)
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Errorf("the limit of a process that has set none is %d, and was %d", got, before)
	}
	Limit(1 << 30)
	whole := int64(5<<28 + 256<<20)
	for _, c := range []struct{ more, want int64 }{{0, whole - 1<<20}, {3 << 20, whole - 4<<20}, {-2 << 20, whole - 2<<20}, {-2 << 20, whole}} {
		if Outside(c.more); debug.SetMemoryLimit(-1) != c.want {
			t.Errorf("after %d bytes more the limit is %d, want %d", c.more, debug.SetMemoryLimit(-1), c.want)
		}
	}
	Limit(math.MaxInt64)
	if Outside(1 << 20); debug.SetMemoryLimit(-1) != math.MaxInt64 {
		t.Errorf("without a bound of the budget the limit is %d", debug.SetMemoryLimit(-1))
	}
	Outside(-1 << 20)
}
