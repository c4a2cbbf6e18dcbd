package ingest

import (
	"sync/atomic"
	"time"
)

// Requests counts an adapter's requests in progress, so that the adapter ends after the last. S is the part of a
// running server needed by a request. The zero value has no requests, and accepts none before Open. All methods but
// Drain may be called concurrently.
type Requests[S any] struct {
	service  atomic.Pointer[S]
	inFlight atomic.Int64
	closing  atomic.Bool
	idle     chan struct{} // signals the end of a request after closing; made before closing is set
}

// Open lets requests begin.
func (r *Requests[S]) Open(s *S) { r.service.Store(s) }

// Service returns the argument of Open, or nil.
func (r *Requests[S]) Service() *S { return r.service.Load() }

// Closing reports whether Drain was called.
func (r *Requests[S]) Closing() bool { return r.closing.Load() }

// Begin counts a request that needs the server, or returns the error of the refusal. Each Begin without an error
// needs an End.
func (r *Requests[S]) Begin() (*S, error) {
	r.inFlight.Add(1)
	s := r.service.Load()
	switch {
	case r.closing.Load():
		r.End()
		return nil, ErrDraining
	case s == nil:
		r.End()
		return nil, ErrStarting
	}
	return s, nil
}

// End counts the end of a request counted by Begin.
func (r *Requests[S]) End() {
	if r.inFlight.Add(-1) == 0 && r.closing.Load() {
		select {
		case r.idle <- struct{}{}:
		default:
		}
	}
}

// Drain refuses new requests with draining, and returns when all requests in flight have ended. After limit, Drain
// calls late, which must end the remaining requests. Drain is called once.
func (r *Requests[S]) Drain(limit time.Duration, late func()) {
	r.idle = make(chan struct{}, 1)
	r.closing.Store(true)
	over := time.NewTimer(limit)
	defer over.Stop()
	for r.inFlight.Load() > 0 {
		select {
		case <-r.idle:
		case <-over.C:
			late()
		}
	}
}
