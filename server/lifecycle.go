package server

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"millrace/ingest"
)

// lifecycle is the state of a server from New to the end of Run. lifecycle is safe for concurrent use.
type lifecycle struct {
	created    time.Time
	ready      chan struct{}   // closed when the server is loaded and serves
	changing   context.Context // of changes that must complete after their caller leaves; ends when the server drains
	endChanges context.CancelCauseFunc
	started    atomic.Bool
	loaded     atomic.Bool
	draining   atomic.Bool
}

func newLifecycle() *lifecycle {
	l := &lifecycle{created: time.Now(), ready: make(chan struct{})}
	l.changing, l.endChanges = context.WithCancelCause(context.Background())
	return l
}

// start marks the start of Run, and fails at the second call.
func (l *lifecycle) start() error {
	if l.started.Swap(true) {
		return errors.New("server: Run was called before")
	}
	return nil
}

// serve marks the server as loaded.
func (l *lifecycle) serve() {
	l.loaded.Store(true)
	close(l.ready)
}

// drain marks the server as draining, and cancels incomplete changes.
func (l *lifecycle) drain() {
	l.draining.Store(true)
	l.endChanges(ingest.ErrDraining)
}

// isLoaded reports whether serve was called.
func (l *lifecycle) isLoaded() bool { return l.loaded.Load() }

// isDraining reports whether drain was called.
func (l *lifecycle) isDraining() bool { return l.draining.Load() }
