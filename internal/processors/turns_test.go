package processors

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestOneProcessorIsLeft checks how many long computations run at once, and that short ones do not wait.
func TestOneProcessorIsLeft(t *testing.T) {
	const room = 2
	turns := NewTurns(room + 1)
	for range room {
		if !turns.Begin(LongText) {
			t.Fatal("a long computation has no turn")
		}
	}
	if turns.Begin(LongText - 1) {
		t.Error("a short computation took a turn")
	}
	var running, most atomic.Int32
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if turns.Begin(1 << 20) {
				defer turns.End()
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
		turns.End()
	}
	wg.Wait()
	if n := int(most.Load()); n > room {
		t.Errorf("%d ran at once, want at most %d", n, room)
	}
}

// begins starts n computations that take no time, and returns when they have begun, after the first.
func begins(turns *Turns, n int) []time.Duration {
	var mu sync.Mutex
	var at []time.Duration
	var wg sync.WaitGroup
	began := time.Now()
	for range n {
		wg.Go(func() {
			turns.Begin(LongText)
			defer turns.End()
			time.Sleep(time.Microsecond) // until the others wait
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(began))
		})
	}
	wg.Wait()
	return at
}

// Processors that are occupied are not used for turns. Where none would be left to all else, there is a pause after
// each computation that another one waits for, and none any more when the processor is free again.
func TestOccupied(t *testing.T) {
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
		synctest.Test(t, func(t *testing.T) {
			turns := NewTurns(c.processors)
			var frees []func()
			for range c.occupied {
				frees = append(frees, turns.Occupy())
			}
			if got := begins(turns, 4); !slices.Equal(got, c.want) {
				t.Errorf("%d of %d processors are occupied: %v, want %v", c.occupied, c.processors, got, c.want)
			}
			for _, free := range frees {
				free()
			}
			time.Sleep(time.Minute)
			if turns.running != 0 || turns.occupied != 0 || len(turns.waiting) != 0 {
				t.Errorf("%d run, %d are occupied and %d wait at the end", turns.running, turns.occupied,
					len(turns.waiting))
			}
		})
	}
}

// A computation that waits begins when a processor is not occupied any more.
func TestOccupiedNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(3)
		free := turns.Occupy()
		turns.Begin(LongText)
		begun := false
		go func() { turns.Begin(LongText); begun = true }()
		synctest.Wait()
		if begun {
			t.Error("both processors are used beside the one that is occupied")
		}
		free()
		synctest.Wait()
		if !begun {
			t.Error("the processor that is free again is not used")
		}
		turns.End()
		turns.End()
	})
}

// Nil turns let each computation run.
func TestNilTurns(t *testing.T) {
	var turns *Turns
	turns.Occupy()()
	if turns.Begin(LongText) {
		t.Error("a computation waits for a turn that nobody gives")
	}
}
