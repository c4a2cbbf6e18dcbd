// Package bulk keeps long computations for requests, such as the JSON of large tensors, from
// taking all processors. Go runs goroutines that compute in turns of 10 ms, so that a few
// dozen requests of that kind would delay each step of every stream by a hundred times of what it
// takes.
package bulk

import (
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/processors"
)

// Least is the least data, in bytes, for which a computation is long. It takes about 0.1 ms.
const Least = 64 << 10

// pause is the time between two computations when decoding leaves them no processor of their own. A
// goroutine that waits for the network is only found when a processor has nothing to do.
const pause = time.Millisecond

// turns are those of all computations of the process.
var turns struct {
	mu       sync.Mutex
	occupied int         // processors, by Occupy
	timer    *time.Timer // of look
	slept    time.Time   // since when
	running  int         // computations, or the pauses after them
	waiting  []chan struct{}
}

// room is how many computations may run at once: one processor is left to all else, if there are
// several, beside those that are occupied. The caller holds mu.
func room() int { return max(processors.Real()-1-turns.occupied, 1) }

// full reports whether no processor is left to all else while one computation runs. The caller holds mu.
func full() bool { return turns.occupied > 0 && processors.Real()-1-turns.occupied < 1 }

// Begin waits until a computation over n bytes may run, and reports whether End must be called
// after it. A computation must not wait for anything. A long one should be done in pieces, so that others
// have their turns.
func Begin(n int) bool {
	if n < Least {
		return false
	}
	turns.mu.Lock()
	if turns.running < room() {
		turns.running++
		turns.mu.Unlock()
		return true
	}
	turn := make(chan struct{})
	turns.waiting = append(turns.waiting, turn)
	turns.mu.Unlock()
	<-turn
	return true
}

// End ends the computation that began with the last Begin of this goroutine.
func End() {
	turns.mu.Lock()
	defer turns.mu.Unlock()
	if full() && len(turns.waiting) > 0 {
		time.AfterFunc(pause, next)
		return
	}
	turns.running--
	admit()
}

// next ends the pause after a computation.
func next() {
	turns.mu.Lock()
	defer turns.mu.Unlock()
	turns.running--
	admit()
}

// admit begins the computations that wait and have room. The caller holds mu.
func admit() {
	for len(turns.waiting) > 0 && turns.running < room() {
		turns.running++
		close(turns.waiting[0])
		turns.waiting[0] = nil
		turns.waiting = turns.waiting[1:]
	}
}

// Occupy says that a processor computes something that takes no turns, such as a large picture, until the returned
// function is called. Others take turns on one processor less, and where none is left but the one for all else,
// there are pauses between them.
func Occupy() (free func()) {
	turns.mu.Lock()
	defer turns.mu.Unlock()
	turns.occupied++
	if turns.occupied == 1 {
		turns.slept = time.Now()
		turns.timer = time.AfterFunc(sleep, look)
	}
	return func() {
		turns.mu.Lock()
		defer turns.mu.Unlock()
		if turns.occupied--; turns.occupied == 0 {
			turns.timer.Stop()
			Others.Store(0)
		}
		admit()
	}
}

// Others is not 0 while others wait for processors that are occupied: goroutines of this process, or threads of it and of others. What
// occupies one should pause then, now and then, for longer than it computes.
var Others atomic.Uint32

// A goroutine that a timer starts after sleep begins no later than late after that when nobody waits.
const (
	sleep = 2 * time.Millisecond
	late  = time.Millisecond / 2
)

// look sets Others, again and again while processors are occupied.
func look() {
	now := time.Now()
	turns.mu.Lock()
	defer turns.mu.Unlock()
	if turns.occupied == 0 {
		return
	}
	wait := uint32(0)
	if now.Sub(turns.slept) > sleep+late {
		wait = 1
	}
	Others.Store(wait)
	turns.slept = time.Now()
	turns.timer.Reset(sleep)
}

// Running returns how many computations run now, or have their pause.
func Running() int {
	turns.mu.Lock()
	defer turns.mu.Unlock()
	return turns.running
}

// Occupied returns how many processors are occupied.
func Occupied() int {
	turns.mu.Lock()
	defer turns.mu.Unlock()
	return turns.occupied
}
