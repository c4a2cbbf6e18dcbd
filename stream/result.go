package stream

import (
	"time"

	"millrace/stream/buf"
)

// Outcome is how a frame ended.
type Outcome uint8

// The outcomes. Every accepted frame has exactly one.
const (
	Pending  Outcome = iota
	Answered         // a result
	Dropped          // by policy: see Reason
	Failed           // an error: see Err
)

// String returns the outcome as metrics label it.
func (o Outcome) String() string {
	return [...]string{"pending", "result", "drop", "error"}[o]
}

// Result is the ending of one frame, or a part of it (Partial). The sink that gets it
// by Push owns it and must call Release when it has been written.
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
	Reply     *Reply // of a frame with a Call: what its program says of the response; nil = 200
	Width     int    // the frame as sent, upright, or of the source that it was scaled from; 0 when it is no picture
	Height    int
	BatchSize int // rows of the batch it ran in
	Timing    Timing
	Trace     TraceID
	Span      SpanID
	Kept      bool // the frame's trace is kept, so that it can be looked up; set by Queue.Ended

	watcher Watcher
	counts  *FrameCounts // that counted the frame as accepted, or nil
	key     *cacheKey    // under which the result may be kept, or nil

	// Lease is the memory under Outputs, or nil. When Contiguous, the outputs'
	// data are its contents, in order and without gaps.
	Lease      *buf.Buf
	Contiguous bool
}

// Timing holds the times at which a frame reached each step. The time of a step that it
// did not reach is zero.
type Timing struct {
	Received Instant // accepted by the adapter
	Dequeued Instant // bound to a batch
	Started  Instant // its batch's Run began
	Ran      Instant // its batch's Run ended; 0 unless stages follow on Run
	Done     Instant // its result was ready
}

// took returns the time from receipt to ending.
func (t *Timing) took() time.Duration { return max(t.Done.Sub(t.Received), 0) }

// Release releases the outputs' memory. The sink calls it when it has written the result,
// or will not write it. A second call has no effect.
func (r *Result) Release() {
	if w := r.watcher; w != nil {
		r.watcher = nil
		w.Released()
	}
	l := r.Lease
	r.Lease, r.Outputs = nil, nil
	l.Release()
}
