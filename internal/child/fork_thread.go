package child

import (
	"runtime"
	"sync"
)

// Linux sends the parent-death signal when the *thread* that forked the child ends, not when the process does.
// Go moves goroutines between threads and may end a thread at any time (a goroutine that exits while locked to
// one ends the thread), so a child started from an ordinary goroutine could be killed unexpectedly.
// Therefore all children are started from one goroutine that is locked to a thread. Both exist until the last child
// has ended, so that a program without children has no goroutine of this package.
var forkThread osThread

// osThread is a thread that runs functions for its users. It exists while it has users.
type osThread struct {
	mu    sync.Mutex
	users int
	work  chan func()
	ended chan struct{}
}

// acquire starts the thread if it does not exist, and keeps it until the matching release.
func (t *osThread) acquire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.users++; t.users > 1 {
		return
	}
	t.work, t.ended = make(chan func()), make(chan struct{})
	go serve(t.work, t.ended)
}

// do runs f on the thread and waits for it. The caller must have called acquire.
func (t *osThread) do(f func()) {
	t.mu.Lock()
	work := t.work
	t.mu.Unlock()
	finished := make(chan struct{})
	work <- func() {
		defer close(finished)
		f()
	}
	<-finished
}

// release reverts one acquire. Call it after the child has been reaped.
func (t *osThread) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.users--; t.users > 0 {
		return
	}
	close(t.work)
	<-t.ended
}

// serve runs the functions sent to work on a thread of its own.
func serve(work <-chan func(), ended chan<- struct{}) {
	runtime.LockOSThread()
	for f := range work {
		f()
	}
	// No child depends on this thread any more.
	runtime.UnlockOSThread()
	close(ended)
}
