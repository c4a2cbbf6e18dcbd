// Package processors gives Go's scheduler more processors than the machine has while something computes that it cannot
// interrupt soon enough, and tells how many there are without those. It owns GOMAXPROCS of the process. It must not know what computes.
package processors

import (
	"os"
	"runtime"
	"sync"
)

var state struct {
	sync.Mutex
	real, added int // real is set while added is not 0
}

// Add counts n more computations, or fewer when n is negative. Each has one more processor, up to twice the number of Real: the
// operating system divides the real ones among all threads, and much sooner than Go, which interrupts what computes in Go, and looks for
// what has arrived from the network when all processors are busy, every ten milliseconds only.
//
// When the variable GOMAXPROCS is set, the number is left unchanged.
func Add(n int) {
	state.Lock()
	defer state.Unlock()
	if os.Getenv("GOMAXPROCS") != "" {
		return
	}
	if state.added == 0 {
		state.real = runtime.GOMAXPROCS(0)
	}
	state.added += n
	if want := state.real + min(state.added, state.real); want != runtime.GOMAXPROCS(0) { // setting it stops all goroutines
		runtime.GOMAXPROCS(want)
	}
}

// Real returns how many processors Go may use at once, without those that Add has added.
func Real() int {
	state.Lock()
	defer state.Unlock()
	if state.added != 0 {
		return state.real
	}
	return runtime.GOMAXPROCS(0)
}
