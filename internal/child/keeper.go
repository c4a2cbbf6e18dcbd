package child

import (
	"runtime"
	"sync"
)

// Linux sends the parent-death signal when the *thread* that forked the child ends, not when the process does.
// Go moves goroutines between threads and may end a thread at any time (a goroutine that exits while locked to
// one takes it along), so a child started from an ordinary goroutine could be killed for no visible reason.
// All children are therefore started from one goroutine locked to one thread, and that thread is kept for as
// long as any child lives. With the last child it is given back, so that a program without children, and a
// test that looks for leaks, finds nothing of us.
var keeper threadKeeper

type threadKeeper struct {
	mu    sync.Mutex
	users int
	work  chan func()
	ended chan struct{}
}

// acquire makes sure that the thread exists, and keeps it until the matching release.
func (k *threadKeeper) acquire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.users++; k.users > 1 {
		return
	}
	k.work, k.ended = make(chan func()), make(chan struct{})
	go keepThread(k.work, k.ended)
}

// do runs f on the thread and waits for it. The caller must hold it by acquire.
func (k *threadKeeper) do(f func()) {
	k.mu.Lock()
	work := k.work
	k.mu.Unlock()
	finished := make(chan struct{})
	work <- func() {
		defer close(finished)
		f()
	}
	<-finished
}

// release undoes one acquire. Callers release only after the child has been reaped.
func (k *threadKeeper) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.users--; k.users > 0 {
		return
	}
	close(k.work)
	<-k.ended
}

func keepThread(work <-chan func(), ended chan<- struct{}) {
	runtime.LockOSThread()
	for f := range work {
		f()
	}
	// No child is left that depends on this thread.
	runtime.UnlockOSThread()
	close(ended)
}
