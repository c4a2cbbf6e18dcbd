package processors

import (
	"os"
	"runtime"
	"sync"
)

// Count returns how many processors the process may use at once, also while GOMAXPROCS is doubled.
func Count() int { return min(runtime.GOMAXPROCS(0), runtime.NumCPU()) }

// Double doubles GOMAXPROCS until the returned function is called. The operating system then divides the real
// processors among all threads, much sooner than Go divides the processors of Go among goroutines.
// With few requests at once, more threads look for work, and use processor time (docs/adr/011-processors.md).
//
// Double changes nothing when the variable GOMAXPROCS is set, when GOMAXPROCS is above the number of processors, as
// after another Double, and when GOMAXPROCS is below this number, as in a container with a limit of processor time:
// twice as many threads would use up the time of a period in half of the period, and the kernel would stop all
// threads for the rest.
func Double() (end func()) {
	n := runtime.GOMAXPROCS(0)
	if os.Getenv("GOMAXPROCS") != "" || n != runtime.NumCPU() {
		return func() {}
	}
	runtime.GOMAXPROCS(2 * n)
	return sync.OnceFunc(func() { runtime.GOMAXPROCS(n) })
}
