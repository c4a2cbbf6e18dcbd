package stream

import (
	"time"

	"millrace/stream/buf"
)

// Outcome is how a frame ended.
type Outcome uint8

// The outcomes. Every accepted frame has exactly one outcome.
const (
	Pending  Outcome = iota
	Answered         // a result
	Dropped          // by policy: see Reason
	Failed           // an error: see Err
)

// String returns the outcome as a metric label.
func (o Outcome) String() string {
	return [...]string{"pending", "result", "drop", "error"}[o]
}

// Result is the ending of one frame, or a part of the result (Partial). Push passes a Result to the sink; the sink
// owns the Result and must call Release after writing.
type Result struct {
	Outcome   Outcome
	Partial   bool   // more of this frame's result follows
	Reason    Reason // of a drop
	Err       error  // of a failure
	Seq       uint64
	CaptureUS int64
	Model     *Model
	Outputs   []Tensor
	Params    Params
	Reply     *Reply // for a frame with a Call: the program's response without the body; nil = 200
	Width     int    // of the frame as sent, upright, or of the source before scaling; 0 = no picture
	Height    int
	BatchSize int // rows of the frame's batch
	Timing    Timing
	Trace     TraceID
	Span      SpanID
	Kept      bool // the frame's trace is kept for look-up; set by Queue.Ended

	watcher Watcher
	request *Request     // to be reused, or nil
	counts  *FrameCounts // counts of the frame's acceptance, or nil
	key     *cacheKey    // cache key for the result, or nil

	// Lease is the memory under Outputs, or nil. When Contiguous, the contents are the data of the outputs, in order
	// and without gaps.
	Lease      *buf.Buf
	Contiguous bool
}

// Timing holds the times at which a frame reached each step. The time of a step not reached is zero.
type Timing struct {
	Received Instant // accepted by the adapter
	Dequeued Instant // bound to a batch
	Started  Instant // begin of the batch's Run
	Ran      Instant // end of the batch's Run; 0 unless stages follow Run
	Done     Instant // the result was ready
}

// elapsed returns the time from receipt to ending.
func (t *Timing) elapsed() time.Duration { return max(t.Done.Sub(t.Received), 0) }

// Release releases the memory of the outputs. The sink calls Release after writing or discarding the result. A second
// call has no effect.
func (r *Result) Release() {
	if w := r.watcher; w != nil {
		r.watcher = nil
		w.Released()
	}
	l := r.Lease
	r.Lease, r.Outputs = nil, nil
	l.Release()
}

// Shared returns another result with the same outputs and a separate Release.
func (r *Result) Shared() *Result {
	own := &Result{Outcome: r.Outcome, Partial: r.Partial, Seq: r.Seq, Outputs: r.Outputs, Width: r.Width,
		Height: r.Height, Timing: r.Timing, Lease: r.Lease}
	if own.Lease != nil {
		own.Lease.Retain()
	}
	return own
}
