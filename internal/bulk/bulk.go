// Package bulk keeps long computations for requests, such as the JSON of large tensors, from
// taking all processors. Go runs goroutines that compute in turns of 10 ms, so that a few
// dozen requests of that kind would delay each step of every stream by a hundred times of what it
// takes.
package bulk

import (
	"runtime"
	"sync"
)

// Least is the least data, in bytes, for which a computation is long. It takes about 0.1 ms.
const Least = 64 << 10

// slots has room for the computations that may run at once: one processor is left to all else, if there
// are several.
var slots = sync.OnceValue(func() chan struct{} { return make(chan struct{}, max(runtime.GOMAXPROCS(0)-1, 1)) })

// Begin waits until a computation over n bytes may run, and reports whether End must be called
// after it. A computation must not wait for anything. A long one should be done in pieces, so that others
// have their turns.
func Begin(n int) bool {
	if n < Least {
		return false
	}
	slots() <- struct{}{}
	return true
}

// End ends the computation that began with the last Begin of this goroutine.
func End() { <-slots() }

// Running returns how many computations run now.
func Running() int { return len(slots()) }
