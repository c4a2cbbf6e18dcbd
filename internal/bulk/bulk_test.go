package bulk

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/processors"
)

// TestOneProcessorIsLeft checks how many long computations run at once, and that short ones do not wait.
func TestOneProcessorIsLeft(t *testing.T) {
	room := max(runtime.GOMAXPROCS(0)-1, 1)
	for range room {
		if !Begin(Least) {
			t.Fatal("a long computation has no turn")
		}
	}
	if Begin(Least - 1) {
		t.Error("a short computation took a turn")
	}
	var running, most atomic.Int32
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if Begin(1 << 20) {
				defer End()
			}
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			runtime.Gosched()
			running.Add(-1)
		})
	}
	runtime.Gosched()
	if most.Load() != 0 {
		t.Error("more ran than there is room for")
	}
	for range room {
		End()
	}
	wg.Wait()
	if n := int(most.Load()); n > room {
		t.Errorf("%d ran at once, want at most %d", n, room)
	}
}

// begins starts n computations that take no time, and returns when they have begun, after the first.
func begins(n int) []time.Duration {
	var mu sync.Mutex
	var at []time.Duration
	var wg sync.WaitGroup
	began := time.Now()
	for range n {
		wg.Go(func() {
			Begin(Least)
			defer End()
			time.Sleep(time.Microsecond) // until the others wait
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(began))
		})
	}
	wg.Wait()
	return at
}

// Processors that are occupied are not used for turns. Where none would be left to all else, there is a pause after each
// computation that another one waits for, and none any more when the processor is free again.
func TestOccupied(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	us := time.Microsecond
	for _, c := range []struct {
		processors, occupied int
		want                 []time.Duration
	}{
		{4, 0, []time.Duration{us, us, us, 2 * us}},
		{4, 1, []time.Duration{us, us, 2 * us, 2 * us}},
		{4, 2, []time.Duration{us, 2 * us, 3 * us, 4 * us}},
		{4, 3, []time.Duration{us, 2*us + pause, 3*us + 2*pause, 4*us + 3*pause}},
		{2, 0, []time.Duration{us, 2 * us, 3 * us, 4 * us}},
		{2, 1, []time.Duration{us, 2*us + pause, 3*us + 2*pause, 4*us + 3*pause}},
		{1, 0, []time.Duration{us, 2 * us, 3 * us, 4 * us}},
		{1, 1, []time.Duration{us, 2*us + pause, 3*us + 2*pause, 4*us + 3*pause}},
	} {
		runtime.GOMAXPROCS(c.processors)
		synctest.Test(t, func(t *testing.T) {
			var frees []func()
			for range c.occupied {
				frees = append(frees, Occupy())
			}
			if got := begins(4); !slices.Equal(got, c.want) {
				t.Errorf("%d of %d processors are occupied: %v, want %v", c.occupied, c.processors, got, c.want)
			}
			for _, free := range frees {
				free()
			}
			time.Sleep(time.Minute)
			if turns.running != 0 || turns.occupied != 0 || len(turns.waiting) != 0 {
				t.Errorf("%d run, %d are occupied and %d wait at the end", turns.running, turns.occupied, len(turns.waiting))
			}
		})
	}
}

// A computation that waits begins when a processor is not occupied any more.
func TestOccupiedNoMore(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	synctest.Test(t, func(t *testing.T) {
		free := Occupy()
		Begin(Least)
		begun := false
		go func() { Begin(Least); begun = true }()
		synctest.Wait()
		if begun {
			t.Error("both processors are used beside the one that is occupied")
		}
		free()
		synctest.Wait()
		if !begun {
			t.Error("the processor that is free again is not used")
		}
		End()
		End()
	})
}

// Others wait while another goroutine keeps the only processor, as long as one is occupied.
func TestOthers(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	free := Occupy()
	for begun := time.Now(); Others.Load() == 0; {
		if time.Since(begun) > time.Minute {
			t.Fatal("nobody has waited")
		}
	}
	free()
	if Others.Load() != 0 {
		t.Error("others wait for a processor that is not occupied")
	}
}

// The processors that only Go has leave no room for a computation.
func TestDoubledProcessorsHaveNoRoom(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	defer processors.Double()()
	turns.mu.Lock()
	defer turns.mu.Unlock()
	if n := room(); n != 1 {
		t.Errorf("%d computations run at once on 2 processors, of which one is for all else", n)
	}
}
