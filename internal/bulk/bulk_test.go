package bulk

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
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
