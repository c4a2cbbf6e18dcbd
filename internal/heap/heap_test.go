package heap

import (
	"runtime"
	"testing"
)

// goal returns the size of the heap at which the collector runs next.
func goal() uint64 {
	runtime.GC()
	runtime.GC() // with the memory that the first one has freed
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.NextGC
}

func TestReserveMakesCollectionsRare(t *testing.T) {
	without := goal()
	Reserve()
	defer func() { reserve = nil }()
	if with := goal(); with < without+size {
		t.Errorf("the collector runs at %d bytes, and at %d without the reserve of %d", with, without, size)
	}
}
