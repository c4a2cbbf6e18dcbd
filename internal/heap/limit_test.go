package heap

import (
	"math"
	"runtime/debug"
	"testing"
)

func TestLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
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
