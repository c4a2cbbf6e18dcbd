// Package routines starts goroutines in groups. A group names its goroutines and
// counts them by name, survives their panics, refuses new ones once it was
// stopped, and is waited for. It must not know what they do.
package routines

import (
	"maps"
	"runtime/debug"
	"sync"
)

// Group is a number of goroutines that end before their owner does. It is safe for
// concurrent use.
type Group struct {
	panicked func(name string, value any, stack []byte)

	mu      sync.Mutex
	stopped bool
	running map[string]int // by name
	total   int
	idle    chan struct{} // closed when stopped and nothing runs
}

// New makes a group. panicked is called, in the goroutine that it ends, for each
// panic; several calls may be concurrent.
func New(panicked func(name string, value any, stack []byte)) *Group {
	return &Group{panicked: panicked, running: map[string]int{}, idle: make(chan struct{})}
}

// Go starts f as a goroutine called name. It reports false, and does not, when the
// group was stopped. failed, when not nil, is called after a panic of f was
// reported.
func (g *Group) Go(name string, f func(), failed func()) bool {
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
				if failed != nil {
					failed()
				}
			}
		}()
		f()
	}()
	return true
}

func (g *Group) ended(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running[name]--
	g.total--
	if g.stopped && g.total == 0 {
		close(g.idle)
	}
}

// Stop refuses new goroutines from now on. Those that run may need others in order
// to end: stop the group when nothing but their own end is left to them.
func (g *Group) Stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return
	}
	g.stopped = true
	if g.total == 0 {
		close(g.idle)
	}
}

// Wait returns when the group was stopped and no goroutine of it runs.
func (g *Group) Wait() { <-g.idle }

// Counts returns how many goroutines run, by name.
func (g *Group) Counts() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.running)
}
