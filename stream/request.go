package stream

import (
	"sync/atomic"

	"millrace/stream/buf"
)

// Request is one unit of inference: an accepted frame on its way. It is made
// once per frame and never reused, so an ending that comes late, from a worker
// that hung, finds it ended and changes nothing.
//
// One stage at a time reads and writes the fields; Emit, Finish, Fail and Drop
// may be called from anywhere, and the first ending wins.
type Request struct {
	Frame
	Stream   *Stream
	Rows     int     // rows of a batch it takes
	Class    uint64  // frames of one class have equal shapes and can share a batch
	Deadline Instant // it is stale when it would be answered later; 0 = never
	Flushes  uint64  // how often its stream was flushed before it was bound
	Timing   Timing

	// The frame as sent, upright, and where it lies in the model's picture:
	// boxes map back by x*MapX[0]+MapX[1]. Set by whoever decodes it.
	SentWidth, SentHeight int
	MapX, MapY            [2]float64
	BatchSize             int

	Assembled *Assembled // of more than its own frame, or nil
	Span      SpanID

	state atomic.Uint32 // Outcome, set once
	bound bool          // a batch holds its memory; under the stream's lock
	// Of a stateful model, under the stream's lock:
	holdsToken bool    // it holds the stream's token and state
	detached   bool    // it holds the token, and its state is no longer the stream's: see DetachState
	own        *states // kept for a detached or ended request until its run has returned; nil = nothing

	partial []*Result // emitted before its turn; under the stream's lock
	result  Result
	single  [1]Tensor // room for the common single output
}

// Finish ends the request with its outputs. lease is the memory under them and
// is handed over; contiguous says that the outputs' data fill it in order. It
// reports whether this ending counted; if not, lease is released.
func (r *Request) Finish(outputs []Tensor, lease *buf.Buf, contiguous bool) bool {
	if !r.state.CompareAndSwap(uint32(Pending), uint32(Answered)) {
		lease.Release()
		return false
	}
	r.result.Outputs, r.result.Lease, r.result.Contiguous = outputs, lease, contiguous
	r.Stream.ended(r)
	return true
}

// FinishSingle is Finish with a single output, which needs no slice.
func (r *Request) FinishSingle(output Tensor, lease *buf.Buf, contiguous bool) bool {
	if !r.state.CompareAndSwap(uint32(Pending), uint32(Answered)) {
		lease.Release()
		return false
	}
	r.single[0] = output
	r.result.Outputs, r.result.Lease, r.result.Contiguous = r.single[:], lease, contiguous
	r.Stream.ended(r)
	return true
}

// SetResultParam sets a parameter of the result. It is for whoever is about to end
// the request; value is a string, int64, float64 or bool.
func (r *Request) SetResultParam(key string, value any) {
	if r.result.Params == nil {
		r.result.Params = Params{}
	}
	r.result.Params[key] = value
}

// Fail ends the request with an error. It reports whether this ending counted.
func (r *Request) Fail(err error) bool {
	if !r.state.CompareAndSwap(uint32(Pending), uint32(Failed)) {
		return false
	}
	r.result.Err = err
	r.Stream.ended(r)
	return true
}

// Drop ends the request as dropped. It reports whether this ending counted.
func (r *Request) Drop(why Reason) bool {
	if !r.state.CompareAndSwap(uint32(Pending), uint32(Dropped)) {
		return false
	}
	r.result.Reason = why
	r.Stream.ended(r)
	return true
}

// Emit sends a part of the result ahead of its end. lease is handed over. It
// reports false, and releases lease, when the request has ended.
func (r *Request) Emit(outputs []Tensor, lease *buf.Buf) bool {
	return r.Stream.emit(r, &Result{
		Partial: true, Outcome: Answered, Outputs: append([]Tensor(nil), outputs...), Lease: lease,
	})
}

// Outcome returns how the request ended, or Pending.
func (r *Request) Outcome() Outcome { return Outcome(r.state.Load()) }

// Wanted says whether anybody still waits for the result: false once the
// request has ended or its client has gone. Long-running workers may ask.
func (r *Request) Wanted() bool {
	return r.Outcome() == Pending && !r.Stream.clientGone.Load()
}

// Result is the ending, for Endpoint.Ended and hooks. It must only be read, and
// only during the call.
func (r *Request) Result() *Result { return &r.result }

// Unbind returns the memory of a bound request. The batch calls it when Run has
// returned, whatever ended the request before.
func (r *Request) Unbind() {
	l := r.Lease
	r.Lease, r.Payload, r.Inputs = nil, nil, nil
	l.Release()
	r.Assembled.release()
	if own := r.own; own != nil {
		r.own = nil
		own.drop()
	}
}

// TakeLease hands the request's memory to the caller, who becomes its holder:
// a worker that answers with its input passes it on without a copy.
func (r *Request) TakeLease() *buf.Buf {
	l := r.Lease
	r.Lease = nil
	return l
}
