package workers

import (
	"os"
	"runtime"
	"sync"
)

// processors gives Go's scheduler one processor more for each instance that
// computes outside of Go. Such a call holds its processor until the runtime's
// monitor takes it away, up to ten milliseconds later: with as many instances as
// processors, sockets are read and callers woken only then. The operating system
// shares the real processors out, and does so at once.
//
// When the variable GOMAXPROCS is set, the number is left as it says.
var processors struct {
	sync.Mutex
	own, lent int
}

// lendProcessors counts n more instances, or fewer.
func lendProcessors(n int) {
	p := &processors
	p.Lock()
	defer p.Unlock()
	if os.Getenv("GOMAXPROCS") != "" {
		return
	}
	if p.lent == 0 {
		p.own = runtime.GOMAXPROCS(0)
	}
	p.lent += n
	runtime.GOMAXPROCS(p.own + min(p.lent, p.own)) // twice as many are enough for any number
}
