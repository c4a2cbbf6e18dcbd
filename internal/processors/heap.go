package processors

import (
	"math"
	"os"
	"runtime/debug"
	"sync"
)

// besideBudget is memory that a server needs beside the memory budget and the free memory kept for reuse, which is at
// most a quarter of the budget: connections, models and messages.
const besideBudget = 256 << 20

// reserveSize is a few times the heap of a server without load.
const reserveSize = 16 << 20

// Heap sets when the garbage collector runs, for a process that one server has alone. The methods are safe for
// concurrent use.
type Heap struct {
	// reserve makes the heap larger. The collector runs when the heap has grown by GOGC percent, and with small
	// requests the heap of a server is a few megabytes: without the reserve the collector runs tens of times a
	// second. The reserve is never touched and has no resident memory; as many bytes of garbage can become resident
	// in exchange.
	reserve []byte

	mu            sync.Mutex
	before        int64 // the limit of the process without the Heap
	maxLimit      int64 // the limit without other processes; 0 = the limit is left unchanged
	externalBytes int64
}

// OwnHeap makes the heap larger by a reserve of 16 MiB, and limits the heap by a memory budget in bytes: above 1.25
// times the budget and 256 MiB the collector runs more often than GOGC says, and returns memory to the system.
// math.MaxInt64 as the budget, and GOMEMLIMIT in the environment, leave the limit unchanged.
func OwnHeap(budget int64) *Heap {
	h := &Heap{reserve: make([]byte, reserveSize)}
	if os.Getenv("GOMEMLIMIT") == "" && budget < math.MaxInt64/2 {
		h.maxLimit = budget + budget/4 + besideBudget
		h.before = debug.SetMemoryLimit(h.maxLimit)
	}
	return h
}

// ReserveOutside lowers the limit by n bytes of the memory budget that other processes use, such as decoders of videos;
// negative: raises the limit again.
func (h *Heap) ReserveOutside(n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.externalBytes += n; h.maxLimit != 0 {
		debug.SetMemoryLimit(h.maxLimit - h.externalBytes)
	}
}

// Close frees the reserve and restores the limit from before OwnHeap.
func (h *Heap) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reserve = nil; h.maxLimit != 0 {
		debug.SetMemoryLimit(h.before)
		h.maxLimit = 0
	}
}
