package conn

import (
	"maps"
	"runtime/debug"
	"sync"
)

// group starts goroutines, names them, refuses after stop, and is waited for.
// A panic ends its goroutine only.
type group struct {
	panicked func(name string, value any, stack []byte)

	mu      sync.Mutex
	stopped bool
	running map[string]int // by name
	total   int
	idle    chan struct{} // closed when stopped and nothing runs
}

func newGroup(panicked func(name string, value any, stack []byte)) *group {
	return &group{panicked: panicked, running: map[string]int{}, idle: make(chan struct{})}
}

// run starts f as a goroutine called name, unless the group has stopped.
// failed, when not nil, is called after a panic of f was reported.
func (g *group) run(name string, f func(), failed func()) bool {
	g.mu.Lock()
	if g.stopped {
		g.mu.Unlock()
		return false
	}
	g.running[name]++
	g.total++
	g.mu.Unlock()
	go func() {
		defer g.left(name)
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

func (g *group) left(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running[name]--
	g.total--
	if g.stopped && g.total == 0 {
		close(g.idle)
	}
}

// stop refuses what comes from now on. Goroutines that run still start what
// they need before it, so it must be called when they have been told to end.
func (g *group) stop() {
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

// wait returns when the group has stopped and nothing runs.
func (g *group) wait() { <-g.idle }

// names returns how many goroutines run, by name.
func (g *group) names() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.running)
}
