// Package processors gives Go's scheduler twice as many processors as the machine has, and tells how many the process may use at once.
// It owns GOMAXPROCS of the process. It must not know what computes.
package processors

import (
	"os"
	"runtime"
	"sync"
)

var state struct {
	sync.Mutex
	real, users int // real is set while there are users
}

// Double doubles GOMAXPROCS until the returned function is called, by all who have called Double. The operating system then divides the real
// processors among all threads, and much sooner than Go would: Go interrupts what computes, takes a processor away from a call into C, and
// looks for what has arrived from the network when all processors are busy, every ten milliseconds only.
//
// When the variable GOMAXPROCS is set, the number is left unchanged, and also where it is less than that of the machine's processors, as
// Go has it in a container with a limit of processor time: twice as many threads would use up the time of a period in half of it, and the
// kernel would stop them all for the rest.
func Double() (end func()) {
	if os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	state.Lock()
	defer state.Unlock()
	if state.users == 0 && runtime.GOMAXPROCS(0) < runtime.NumCPU() {
		return func() {}
	}
	if state.users == 0 {
		state.real = runtime.GOMAXPROCS(0)
		runtime.GOMAXPROCS(2 * state.real)
	}
	state.users++
	return sync.OnceFunc(func() {
		state.Lock()
		defer state.Unlock()
		if state.users--; state.users == 0 {
			runtime.GOMAXPROCS(state.real)
		}
	})
}

// Real returns how many processors the process may use at once.
func Real() int {
	state.Lock()
	defer state.Unlock()
	if state.users != 0 {
		return state.real
	}
	return runtime.GOMAXPROCS(0)
}
