package processors

import (
	"runtime"
	"testing"
)

func TestAdd(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	own := runtime.GOMAXPROCS(0)
	check := func(n, want int) {
		t.Helper()
		Add(n)
		if got := runtime.GOMAXPROCS(0); got != want {
			t.Errorf("%d processors, want %d", got, want)
		}
		if got := Real(); got != own {
			t.Errorf("%d real processors, want %d", got, own)
		}
	}
	check(1, own+1)
	check(2*own, 2*own)
	check(-2*own, own+1)
	check(-1, own)
	t.Setenv("GOMAXPROCS", "3")
	check(1, own)
}
