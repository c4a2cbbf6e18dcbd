package heap

import (
	"runtime"
	"testing"
)

var sink []byte

// collections returns how often the collector runs while a program with a small heap
// allocates 256 MB.
func collections() uint32 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 256 << 10 {
		sink = make([]byte, 1<<10)
	}
	runtime.ReadMemStats(&after)
	return after.NumGC - before.NumGC
}

func TestReserveMakesCollectionsRare(t *testing.T) {
	without := collections()
	Reserve()
	with := collections()
	if with*3 > without {
		t.Errorf("%d collections, %d without the reserve: want a third at most", with, without)
	}
}
