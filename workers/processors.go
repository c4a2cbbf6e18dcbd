package workers

import (
	"os"
	"runtime"
	"sync"
)

// processors gives Go's scheduler one more processor for each instance that computes
// outside of Go. Such a call holds its processor until the runtime's monitor takes it
// away, up to ten milliseconds later: with as many instances as processors, sockets
// would be read and callers woken only then. The operating system divides the real
// processors among all threads without such a delay.
//
// When the variable GOMAXPROCS is set, the number is left unchanged.
var processors struct {
	sync.Mutex
	initial, added int
}

// addProcessors counts n more instances, or fewer when n is negative.
func addProcessors(n int) {
	p := &processors
	p.Lock()
	defer p.Unlock()
	if os.Getenv("GOMAXPROCS") != "" {
		return
	}
	if p.added == 0 {
		p.initial = runtime.GOMAXPROCS(0)
	}
	p.added += n
	runtime.GOMAXPROCS(p.initial + min(p.added, p.initial)) // twice as many are enough for any number
}
