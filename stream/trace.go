package stream

import (
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
)

// TraceID and SpanID are W3C trace-context identifiers; zero means none.
type (
	TraceID [16]byte
	SpanID  [8]byte
)

// NewTraceID returns a random nonzero id within a few nanoseconds: no lock, no system call, no allocation.
func NewTraceID() (id TraceID) {
	binary.BigEndian.PutUint64(id[:8], rand.Uint64())
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()|1)
	return id
}

// NewSpanID returns a random nonzero id, like NewTraceID.
func NewSpanID() (id SpanID) {
	binary.BigEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}

// Decision is the sampling decision of a trace's sender.
type Decision uint8

// The decisions.
const (
	Undecided  Decision = iota // left to the receiver
	NotSampled                 // the sender does not keep the trace
	Sampled                    // kept by the sender
	Debug                      // the sender asks every service to keep the trace, regardless of other rules
)

// TraceContext is a frame's trace context from the client. A zero Trace starts a new trace.
type TraceContext struct {
	Trace      TraceID
	Parent     SpanID // the client's span, or zero
	Decision   Decision
	Propagated *PropagatedContext // nil when the client sent neither
}

// PropagatedContext is the content of a trace context besides the ids, as sent by the client. A PropagatedContext does
// not change and may be shared by many frames.
type PropagatedContext struct {
	State     string // W3C tracestate
	Baggage   string // W3C baggage
	Truncated bool   // members beyond the limits were left out
}

// allot gives a frame without a trace the trace of the stream, or a new trace, and returns the id of the frame's
// span.
func (c *TraceContext) allot(stream *TraceContext) (id SpanID) {
	if *c == (TraceContext{}) {
		*c = *stream
	}
	if c.Trace != (TraceID{}) {
		return NewSpanID()
	}
	c.Trace = NewTraceID()
	copy(id[:], c.Trace[8:]) // the trace's first span: no other span has this id
	return id
}

// Watcher follows a request after its ending, for the trace of a kept frame. Each method is called once, by any
// goroutine, perhaps with the stream's lock held, and must not block.
type Watcher interface {
	// Unbound is called when the request's batch no longer uses the request, and also for a request that was in no
	// batch.
	Unbound()
	// Released is called when the result was written, or will not be.
	Released()
}

// watch is the watcher of a request, or nil, and whether the batch has released the request. Goroutines read both
// without the stream's lock: the request of an overtaken frame gets its watcher while the batch runs.
type watch struct {
	watcher atomic.Pointer[Watcher]
	unbound atomic.Bool
}

// Watch sets the watcher of a request. Only code called by Queue.Ended may call Watch, and only once.
func (r *Request) Watch(w Watcher) {
	r.keep()
	r.result.watcher = w
	r.watch.watcher.Store(&w)
	if r.watch.unbound.Load() {
		r.notify()
	}
}

// Watcher returns the watcher of a request still used by its batch, or nil.
func (r *Request) Watcher() Watcher {
	if w := r.watch.watcher.Load(); w != nil {
		return *w
	}
	return nil
}

// NotifyUnbound tells the request's watcher that the batch has released the request. Unbind calls NotifyUnbound; code
// that gives up a hung run calls NotifyUnbound earlier.
func (r *Request) NotifyUnbound() {
	r.watch.unbound.Store(true)
	if r.watch.watcher.Load() != nil {
		r.notify()
	}
}

func (r *Request) notify() {
	if w := r.watch.watcher.Swap(nil); w != nil {
		(*w).Unbound()
	}
}
