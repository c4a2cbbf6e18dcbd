// Package routines starts goroutines in groups. A group counts its goroutines by name, recovers their panics, starts
// none after Stop, and waits for all goroutines. The package must not know the work of the goroutines.
package routines

import (
	"maps"
	"runtime/debug"
	"sync"
)

// Group is a set of goroutines that end before their owner ends. A Group is safe for concurrent use.
type Group struct {
	panicked func(name string, value any, stack []byte)

	mu      sync.Mutex
	stopped bool
	running map[string]int // by name
	total   int
	done    chan struct{} // closed when the group is stopped and no goroutine runs
}

// New returns a group. panicked is called for each panic, in the goroutine that panicked; calls may be concurrent.
func New(panicked func(name string, value any, stack []byte)) *Group {
	return &Group{panicked: panicked, running: map[string]int{}, done: make(chan struct{})}
}

// Go starts f as a goroutine called name. When the group is stopped, Go returns false without starting f. onPanic,
// when not nil, is called after panicked if f panics.
func (g *Group) Go(name string, f func(), onPanic func()) bool {
	g.mu.Lock()
	if g.stopped {
		g.mu.Unlock()
		return false
	}
	g.running[name]++
	g.total++
	g.mu.Unlock()
	go func() {
		defer g.ended(name)
		defer func() {
			if v := recover(); v != nil {
				g.panicked(name, v, debug.Stack())
				if onPanic != nil {
					onPanic()
				}
			}
		}()
		f()
	}()
	return true
}

// Recovered reports a panic after the caller has recovered, so that the caller's goroutine continues. The deferred
// function with the recover must call Recovered.
func (g *Group) Recovered(name string, v any) { g.panicked(name, v, debug.Stack()) }

func (g *Group) ended(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running[name]--
	g.total--
	if g.stopped && g.total == 0 {
		close(g.done)
	}
}

// Stop refuses new goroutines from now on. Call Stop when the running goroutines can end without starting others.
func (g *Group) Stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return
	}
	g.stopped = true
	if g.total == 0 {
		close(g.done)
	}
}

// Wait returns when the group is stopped and all its goroutines have ended.
func (g *Group) Wait() { <-g.done }

// Counts returns how many goroutines run, by name.
func (g *Group) Counts() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.running)
}
