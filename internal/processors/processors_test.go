package processors

import (
	"runtime"
	"testing"
)

// A second user of Double changes nothing, and the first user's end restores GOMAXPROCS.
func TestDouble(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	own := runtime.NumCPU()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(own))
	check := func(want int) {
		t.Helper()
		if got := runtime.GOMAXPROCS(0); got != want {
			t.Errorf("%d processors of Go, want %d", got, want)
		}
		if got := Count(); got != own {
			t.Errorf("%d real processors, want %d", got, own)
		}
	}
	check(own)
	first := Double()
	check(2 * own)
	second := Double()
	check(2 * own)
	second()
	check(2 * own)
	first()
	first()
	check(own)
	t.Setenv("GOMAXPROCS", "3")
	defer Double()()
	check(own)
}

// Where the process may use fewer processors than the machine has, nothing is changed.
func TestLimitedTime(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for n := 1; n < runtime.NumCPU(); n *= 2 {
		runtime.GOMAXPROCS(n)
		end := Double()
		if got := runtime.GOMAXPROCS(0); got != n || Count() != n {
			t.Errorf("%d processors, %d real ones, want %d", got, Count(), n)
		}
		end()
	}
}
