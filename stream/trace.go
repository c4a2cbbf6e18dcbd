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

// NewTraceID returns a random id that is not zero. It takes a few nanoseconds: no lock,
// no system call, no allocation.
func NewTraceID() (id TraceID) {
	binary.BigEndian.PutUint64(id[:8], rand.Uint64())
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()|1)
	return id
}

// NewSpanID returns a random id that is not zero, as NewTraceID does.
func NewSpanID() (id SpanID) {
	binary.BigEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}

// Decision says whether the sender of a trace keeps it.
type Decision uint8

// The decisions.
const (
	Undecided  Decision = iota // left to the receiver
	NotSampled                 // the sender does not keep the trace
	Sampled                    // the sender keeps it
	Debug                      // the sender asks everyone to keep it, whatever else decides
)

// TraceContext says which trace a frame belongs to, as its client said. Where Trace is
// zero the frame begins a trace.
type TraceContext struct {
	Trace    TraceID
	Parent   SpanID // the client's span, or zero
	Decision Decision
	Carried  *Carried // nil when the client sent neither
}

// Carried is what a trace context carries besides ids, as the client sent it. It is not
// changed after it was made, and may be shared by many frames.
type Carried struct {
	State   string // W3C tracestate
	Baggage string // W3C baggage
	Cut     bool   // members beyond the limits were left out
}

// allot gives a frame without a trace that of its stream, or a new one, and returns the
// id of the frame's span.
func (c *TraceContext) allot(stream *TraceContext) (id SpanID) {
	if *c == (TraceContext{}) {
		*c = *stream
	}
	if c.Trace != (TraceID{}) {
		return NewSpanID()
	}
	c.Trace = NewTraceID()
	copy(id[:], c.Trace[8:]) // the trace's first span: no other one has this id
	return id
}

// Watcher learns what happens to a request after its ending: it is for the trace of a
// frame that is kept. The methods are called once each, by any goroutine, perhaps with
// the stream's lock held, and must not block.
type Watcher interface {
	// Unbound is called when the request's batch is done with it. It is also called for
	// a request that was in no batch.
	Unbound()
	// Released is called when the result was written, or will not be.
	Released()
}

// watch is the watcher of a request, or nil, and whether the batch is done with the
// request. Both are read by goroutines that do not hold the stream's lock: the request
// of an overtaken frame gets its watcher while its batch runs.
type watch struct {
	watcher atomic.Pointer[Watcher]
	unbound atomic.Bool
}

// Watch sets the watcher of a request. Only the code that is called by Queue.Ended may
// call it, once.
func (r *Request) Watch(w Watcher) {
	r.result.watcher = w
	r.watch.watcher.Store(&w)
	if r.watch.unbound.Load() {
		r.notify()
	}
}

// Watcher returns the watcher of a request whose batch is not done with it, or nil.
func (r *Request) Watcher() Watcher {
	if w := r.watch.watcher.Load(); w != nil {
		return *w
	}
	return nil
}

// NotifyUnbound tells the request's watcher that its batch is done with it. Unbind does
// so; the code that gives up a run that hangs does it before.
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
